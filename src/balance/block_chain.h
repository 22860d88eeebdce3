/* SPDX-License-Identifier: Apache-2.0
 *
 * A prompt as a chain of block hashes: one 64-bit key for each full block of 64 bytes, made from the block's
 * bytes and the key before it, so that a key stands for the whole prompt up to its block's end. Two prompts
 * with the same key at one place have the same beginning, but for collisions of 64 bits.
 *
 * The prompt comes in pieces that are cut anywhere; nothing of it is kept but the part of the block that is
 * not full yet. The last bytes that fill no block have no key. Keys are the same in every process and on
 * every machine. Not for secrets, and nobody is protected against keys that an attacker makes equal: all that
 * he gains is a target of his choice.
 *
 * Cost: about 4 ns a block. Thread: one owner.
 */
#ifndef ROLTER_BALANCE_BLOCK_CHAIN_H
#define ROLTER_BALANCE_BLOCK_CHAIN_H

#include <stddef.h>
#include <stdint.h>

enum { BLOCK_BYTES = 64 };

struct block_chain {
    uint64_t *keys; /* the caller's; keys past <cap> are not written */
    uint32_t n, cap;
    uint32_t part_bytes;
    uint64_t last;
    uint64_t bytes; /* fed so far */
    unsigned char part[BLOCK_BYTES];
};

/* <salt>: of what makes equal text a different cache (adapter, cache salt); 0 = nothing. */
void block_chain_begin(struct block_chain *c, uint64_t salt, uint64_t *keys, uint32_t cap);
void block_chain_feed(struct block_chain *c, const void *p, size_t n);

/* Keys that are needed for a prompt of at most so many bytes. */
static inline uint32_t block_chain_room(uint64_t bytes)
{
    uint64_t n = bytes / BLOCK_BYTES;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* What a conversation keeps from turn to turn: the key of the last full block within everything before the
 * first user turn (<head> bytes) and the first 4 KiB of that turn (<turn> bytes long). 0: there is none. */
enum { BLOCK_HOME_BYTES = 4096 };
static inline uint64_t block_chain_home(const struct block_chain *c, uint64_t head, uint64_t turn)
{
    uint64_t blocks = (head + (turn < BLOCK_HOME_BYTES ? turn : BLOCK_HOME_BYTES)) / BLOCK_BYTES;
    if (blocks > c->n)
        blocks = c->n;
    return blocks > 0 ? c->keys[blocks - 1] : 0;
}

#endif
