/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of up to 64 holders have a block: a flat hash table from a block's key to a word with a bit for each
 * holder. A block that several hold stands once. Inside of balance/ (mirror.h is for everybody else).
 *
 * A bucket is two cache lines with six places; what finds no place in its own stands in another of a sequence
 * that the key gives, and the bucket knows how far on. Nothing ever moves, so a place is a block's name (a
 * "slot") as long as somebody holds the block, and each block knows its parent's: the block before it in the
 * chain. A parent stays as long as a child of the same holder does; that is the caller's to keep.
 *
 * Threads: finding takes no lock and never waits, at any time; what it says was true a moment ago. Adding and
 * dropping lock the block's bucket for tens of nanoseconds; one thread at a time for each holder. Memory:
 * 128 / (6 * 0.8) = 26.7 bytes for each block of the room asked for.
 */
#ifndef ROLTER_BALANCE_BLOCK_TABLE_H
#define ROLTER_BALANCE_BLOCK_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

enum { BUCKET_PLACES = 6, BUCKET_BYTES = 128, BLOCK_REACH = 40 };
#define BLOCK_NONE UINT32_MAX

struct block_bucket {
    atomic_uchar is_locked;  /* a spin lock, held for some ten instructions */
    _Atomic uint8_t reach;   /* how many buckets on blocks of this one stand at most, */
    _Atomic uint16_t strays; /* how many do, */
    _Atomic uint32_t marks;  /* and what a bit of each one's key says; kept until there are none */
    _Atomic uint64_t key[BUCKET_PLACES];
    _Atomic uint64_t holders[BUCKET_PLACES];
    _Atomic uint32_t parent[BUCKET_PLACES];
};
_Static_assert(sizeof(struct block_bucket) == BUCKET_BYTES, "two cache lines");

struct block_table {
    struct block_bucket *buckets;
    uint32_t n;
    void *memory;
    uint64_t memory_bytes;
};

/* For so many blocks. */
void block_table_init(struct block_table *t, uint64_t blocks);

/* The <d>th bucket where the block may stand; the 0th is its home. */
static inline uint32_t block_bucket_at(const struct block_table *t, uint64_t key, unsigned d)
{
    unsigned turn = (32 + 11 * d) & 63;
    uint32_t hash = (uint32_t)(key << turn | key >> (-turn & 63));
    return (uint32_t)((uint64_t)hash * t->n >> 32);
}

static inline uint32_t block_slot(uint32_t bucket, unsigned place)
{
    return bucket << 3 | place;
}

static inline uint32_t block_mark(uint64_t key)
{
    return (uint32_t)1 << (key >> 9 & 31);
}

/* Whether a block of this bucket may stand elsewhere. Mostly not, and another cache line is not read. */
static inline bool block_may_stray(const struct block_bucket *home, uint64_t key)
{
    return atomic_load_explicit(&home->marks, memory_order_acquire) & block_mark(key);
}

/* Slot of a block and who holds it; BLOCK_NONE (and no holders) when nobody does. */
static inline uint32_t block_table_find(const struct block_table *t, uint64_t key, uint64_t *ret_holders)
{
    uint32_t at = block_bucket_at(t, key, 0);
    const struct block_bucket *home = &t->buckets[at];
    unsigned reach =
        block_may_stray(home, key) ? atomic_load_explicit(&home->reach, memory_order_acquire) : 0;
    for (unsigned d = 0; d <= reach; at = block_bucket_at(t, key, ++d)) {
        struct block_bucket *b = &t->buckets[at];
        for (unsigned i = 0; i < BUCKET_PLACES; i++) {
            if (atomic_load_explicit(&b->key[i], memory_order_acquire) != key)
                continue;
            uint64_t holders = atomic_load_explicit(&b->holders[i], memory_order_acquire);
            /* The place may have been given to another block meanwhile. */
            if (UNLIKELY(atomic_load_explicit(&b->key[i], memory_order_relaxed) != key))
                continue;
            *ret_holders = holders;
            return block_slot(at, i);
        }
    }
    *ret_holders = 0;
    return BLOCK_NONE;
}

/* A function that does nothing but this counts as one without effects, and compilers drop calls of it: hence
 * the empty statement, which they cannot see through. */
static inline void block_prefetch(const void *p)
{
    __builtin_prefetch(p);
    __asm__ volatile("");
}
static inline void block_bucket_prefetch(const struct block_bucket *b)
{
    block_prefetch(b);
    block_prefetch((const char *)b + 64);
}
static inline void block_table_prefetch(const struct block_table *t, uint64_t key)
{
    block_bucket_prefetch(&t->buckets[block_bucket_at(t, key, 0)]);
}

/* Of a block that will be added, when its home has come into the cache: where it goes if there is no place.
 */
void block_table_prepare(const struct block_table *t, uint64_t key);

/* Of a block that somebody who cannot drop it meanwhile holds. */
static inline uint64_t block_table_key(const struct block_table *t, uint32_t slot)
{
    return atomic_load_explicit(&t->buckets[slot >> 3].key[slot & 7], memory_order_relaxed);
}
static inline uint32_t block_table_parent(const struct block_table *t, uint32_t slot)
{
    return atomic_load_explicit(&t->buckets[slot >> 3].parent[slot & 7], memory_order_relaxed);
}

/* <holder> (a bit) has the block from now on. BLOCK_NONE: it has not. There is no free place where the block
 * may stand, which a table that is not overfull hardly ever says; or the key is there behind another parent
 * or for this holder already: two blocks with one key, which an attacker can make. */
uint32_t block_table_add(struct block_table *t, uint64_t key, uint64_t holder, uint32_t parent);
/* It has not any more. */
void block_table_drop(struct block_table *t, uint32_t slot, uint64_t holder);

#endif
