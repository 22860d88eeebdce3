/* SPDX-License-Identifier: Apache-2.0
 *
 * What each replica's prefix cache holds, as far as a gateway can tell: the memory behind `least_prefill`
 * (A20). A prompt is a chain of block keys (block_chain.h). Each target has a lane with room for as many
 * blocks as its replica's cache has; a prompt that is recorded for it puts out what was used least recently,
 * ends of prompts before their beginnings, exactly as an engine frees its blocks. So a lane always has whole
 * beginnings, and what it has of a prompt is found by bisection.
 *
 * One table for all lanes says who holds a block (block_table.h), so that one search answers for all targets.
 * A lane keeps order only where prompts end or part; blocks in between follow their child. Recording a known
 * prompt costs the same whatever its length; a new one costs its new blocks and those it puts out.
 *
 * Memory: 26.7 bytes for a block of a lane's room, shared by all lanes that hold it, 4.5 more for the lane's
 * trail and index, and 28 for each place where a prompt ends or parts.
 *
 * Threads: any, at any time. Matching takes no lock and never waits. Recording, withdrawing and resetting
 * lock the lane; readers do not see that lock. A lane that grows past its room moves to a larger table; what
 * is recorded for it in these milliseconds is not kept, and nobody waits.
 */
#ifndef ROLTER_BALANCE_MIRROR_H
#define ROLTER_BALANCE_MIRROR_H

#include <stdbool.h>
#include <stdint.h>

enum { MIRROR_LANES_MAX = 512, MIRROR_GROUP_LANES = 64, MIRROR_BLOCKS_MAX = 1 << 27 };
#define MIRROR_NO_LANE UINT32_MAX

struct mirror;

/* Reference counted, made with one reference. */
struct mirror *mirror_new(void);
struct mirror *mirror_ref(struct mirror *m);
void mirror_unref(struct mirror *m);

/* Lanes for <n> identities with room for so many blocks each (1 .. MIRROR_BLOCKS_MAX), in <ret>. One lane per
 * identity, shared by all who ask for it, with what it knows; it grows if it has to. A lane that everybody
 * has put back keeps what it knows until others need the place, or more such lanes than used ones have been
 * put back since. MIRROR_NO_LANE: all are in use. At
 * configuration time. */
void mirror_lanes_get(struct mirror *m, const uint64_t *identity, const uint32_t *blocks, unsigned n,
                      uint32_t *ret);
void mirror_lane_put(struct mirror *m, uint32_t lane);

/* From now on the lane holds so many blocks at most; it comes down to them with the recordings that follow.
 * False when it has no room for that: mirror_lane_grow makes it. */
bool mirror_lane_resize(struct mirror *m, uint32_t lane, uint32_t blocks);
/* Makes room, with half of it to spare. Milliseconds for a large lane: not on a worker. */
void mirror_lane_grow(struct mirror *m, uint32_t lane, uint32_t blocks);

/* A match and what follows from it stand in one section. */
void mirror_enter(void);
void mirror_leave(void);

/* Lanes that are asked for together; <lanes>, which may have MIRROR_NO_LANE, stays the caller's. */
struct mirror_lane_set {
    const uint32_t *lane;
    unsigned n;
    uint32_t only_group; /* of all of them; MIRROR_NO_LANE: of several */
    uint64_t wanted[MIRROR_LANES_MAX / MIRROR_GROUP_LANES];
};
void mirror_lane_set_init(struct mirror_lane_set *s, const uint32_t *lanes, unsigned n);

/* How many leading blocks of a prompt each lane of the set holds, and in <ret_room> how many more blocks it
 * can hold without putting any out. MIRROR_NO_LANE: 0. In a section. O(log blocks) for each different answer.
 */
void mirror_match(const struct mirror *m, const uint64_t *keys, uint32_t n, const struct mirror_lane_set *set,
                  uint32_t *ret, uint32_t *ret_room);
/* Such a match follows soon, for lanes among which is <lane>: brings what it reads first into the caches. In
 * a section. */
void mirror_prefetch(const struct mirror *m, uint32_t lane, const uint64_t *keys, uint32_t n);

/* What mirror_withdraw needs; all zero: nothing was recorded. */
struct mirror_receipt {
    uint32_t lane, generation; /* of the lane; 0 = nothing recorded */
    uint32_t before, depth;    /* leading blocks that it had, and has */
    uint32_t serial;
    uint32_t evicted; /* blocks put out */
    uint64_t end;     /* key of the last block */
};

/* The lane's replica gets this prompt now. Of one larger than its cache the beginning counts. In a section or
 * not. */
struct mirror_receipt mirror_record(struct mirror *m, uint32_t lane, const uint64_t *keys, uint32_t n);
/* Records a prompt of which only the last <n> blocks are given: <before> blocks that end with <after> stand
 * before them. False: the lane does not hold these, or they stand elsewhere. O(before + n); allocates. */
bool mirror_extend(struct mirror *m, uint32_t lane, uint64_t after, uint32_t before, const uint64_t *keys,
                   uint32_t n);
/* Takes back what one recording added, as far as no other prompt has used it since; what stays of the prompt
 * counts as used now. The warmth falls. At most once per receipt. */
void mirror_withdraw(struct mirror *m, const struct mirror_receipt *r);

/* The replica has lost its cache: nothing matches from now on, the warmth is 0. O(1); the memory is given
 * back by the recordings that follow (none of which is kept before that is done), or by mirror_tidy. */
void mirror_reset(struct mirror *m, uint32_t lane);
/* Of what the lane holds this share stays: what was used last. O(blocks that go); the warmth stays. */
void mirror_shrink(struct mirror *m, uint32_t lane, double keep);
/* Empties what was reset, and lanes above their size. True when nothing is left to do. */
bool mirror_tidy(struct mirror *m, uint32_t blocks);

/* Recordings not withdrawn since the last reset (R1), and how often it was reset. Lock-free. */
uint64_t mirror_warmth(const struct mirror *m, uint32_t lane);
uint32_t mirror_generation(const struct mirror *m, uint32_t lane);
/* Warmth for the size: a small cache is full sooner. Lock-free. */
uint64_t mirror_heat(const struct mirror *m, uint32_t lane);

struct mirror_stats {
    uint32_t blocks, size, room; /* held; may hold; has memory for */
    uint32_t ends;               /* places where prompts end or part */
    uint64_t evictions;          /* blocks put out for others, ever */
    uint64_t warmth;
};
void mirror_stats(struct mirror *m, uint32_t lane, struct mirror_stats *ret);
/* Bytes asked of the allocator; pages that were never touched included. */
uint64_t mirror_memory(struct mirror *m);
/* Bytes in use by what is held now: table at its load, indexes, ends. For tests and figures. */
uint64_t mirror_bytes_used(struct mirror *m);

#endif
