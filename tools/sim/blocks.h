/* SPDX-License-Identifier: Apache-2.0
 *
 * The block cache of a simulated engine, as vLLM's prefix cache keeps it: a fixed number of blocks; a block
 * that holds a full run of tokens is resident under its chained hash; blocks of running requests are pinned;
 * the others are evicted least recently used first, and of one request's blocks the tail first, so that
 * shared beginnings live longest. Blocks without contents are used before anything is evicted.
 *
 * A request holds a lease: one block for each place in its token list, the leading ones shared with other
 * requests where they were resident. Complexity: O(1) per block. Thread: one owner. Memory: fixed at
 * creation and grown by blocks_resize. It knows no time, no requests and no text. An observer sees each
 * change of residence (for event publishers).
 */
#ifndef ROLTER_SIM_BLOCKS_H
#define ROLTER_SIM_BLOCKS_H

#include "base/span.h"

struct blocks;

/* What a full block holds. */
struct block_content {
    uint64_t hash;
    uint64_t parent;        /* hash of the block before, or 0 */
    const uint32_t *tokens; /* block size many; NULL where nobody keeps them */
    const void *owner;      /* who computed it, for the observer; blocks do not look at it */
};

struct blocks_observer {
    void (*stored)(void *arg, const struct block_content *content);
    void (*removed)(void *arg, uint64_t hash);
    void (*cleared)(void *arg);
    void *arg;
};

struct block_lease {
    uint32_t *ids; /* the caller's memory, one for each block of the request */
    uint32_t n;
    uint32_t shared; /* how many leading blocks were resident when the lease was taken */
};

/* <n> blocks, 1 .. 2^30. <o> may be NULL; it is copied. */
struct blocks *blocks_new(uint32_t n, const struct blocks_observer *o);
void blocks_free(struct blocks *b);

/* How many of the leading hashes are resident. */
uint32_t blocks_match(const struct blocks *b, const uint64_t *hashes, uint32_t n);
/* Takes <total> blocks into <l> (whose ids has room for them): the leading resident ones of <hashes>, the
 * rest empty. False, and nothing changed, when not enough blocks are free. */
bool blocks_take(struct blocks *b, struct block_lease *l, const uint64_t *hashes, uint32_t n_hashes,
                 uint32_t total);
/* Block <i> of the lease is full now. It becomes resident, unless another block already is under that hash.
 */
void blocks_fill(struct blocks *b, const struct block_lease *l, uint32_t i,
                 const struct block_content *content);
/* Gives the lease's blocks back; what they hold stays resident until it is evicted. */
void blocks_release(struct blocks *b, struct block_lease *l);
/* Forgets all contents; leases stay valid. */
void blocks_clear(struct blocks *b);

/* From now on there are <n> blocks: more at once; fewer by eviction, and where requests hold them, when they
 * are released. */
void blocks_resize(struct blocks *b, uint32_t n);

uint32_t blocks_total(const struct blocks *b);
uint32_t blocks_pinned(const struct blocks *b);
uint32_t blocks_resident(const struct blocks *b);
/* Aborts if the structure contradicts itself. O(blocks), for tests. */
void blocks_verify(const struct blocks *b);

#endif
