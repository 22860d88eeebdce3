/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks: all changes of a block happen under its home's lock. Claiming an empty place elsewhere takes that
 * bucket's lock as well, but never waits for it. A place is given back without the lock of the bucket that it
 * lies in: its key becomes 0 last.
 */
#include "balance/block_table.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/mem.h"

#define HUGE_PAGE ((size_t)2 << 20)

static bool try_lock(struct block_bucket *b)
{
    return atomic_exchange_explicit(&b->is_locked, 1, memory_order_acquire) == 0;
}

/* Whoever holds it may have been put off the CPU. */
static void lock(struct block_bucket *b)
{
    enum { SPINS = 100 };
    for (unsigned n = 1; !try_lock(b); n++)
        if (n % SPINS == 0)
            sched_yield();
}

static void unlock(struct block_bucket *b)
{
    atomic_store_explicit(&b->is_locked, 0, memory_order_release);
}

void block_table_init(struct block_table *t, uint64_t blocks)
{
    uint64_t homes = blocks * 5 / 24 + 8; /* 0.8 of six places are used: 4.8 a bucket */
    CHECK_MSG(homes < (uint64_t)1 << 28, "a table of too many blocks");
    t->n = (uint32_t)homes;
    t->memory_bytes = (homes + 1) * BUCKET_BYTES;
    t->memory = mem_zalloc(t->memory_bytes); /* pages that are not used yet cost nothing */
    uintptr_t at = ((uintptr_t)t->memory + BUCKET_BYTES - 1) & ~(uintptr_t)(BUCKET_BYTES - 1);
    uintptr_t huge = (at + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    /* Every look is at another page. A wish: nothing is lost when it is not fulfilled. */
    if (t->memory_bytes >= 2 * HUGE_PAGE)
        madvise((void *)huge, (t->memory_bytes - (huge - (uintptr_t)t->memory)) & ~(size_t)(HUGE_PAGE - 1),
                MADV_HUGEPAGE);
    t->buckets = (struct block_bucket *)at;
}

/* Under the lock of the block's home, as all changes of a block. */
static void set_holders(struct block_bucket *b, unsigned place, uint64_t holders)
{
    atomic_store_explicit(&b->holders[place], holders, memory_order_release);
}

static bool claim(struct block_bucket *b, uint64_t key, uint64_t holder, uint32_t parent, unsigned *ret_place)
{
    for (unsigned i = 0; i < BUCKET_PLACES; i++) {
        if (atomic_load_explicit(&b->key[i], memory_order_acquire) != 0)
            continue;
        atomic_store_explicit(&b->parent[i], parent, memory_order_relaxed);
        atomic_store_explicit(&b->holders[i], holder, memory_order_relaxed);
        atomic_store_explicit(&b->key[i], key, memory_order_release);
        *ret_place = i;
        return true;
    }
    return false;
}

static void forget_strays(struct block_bucket *h)
{
    if (atomic_load_explicit(&h->strays, memory_order_relaxed) > 0)
        return;
    atomic_store_explicit(&h->marks, 0, memory_order_release);
    atomic_store_explicit(&h->reach, 0, memory_order_release);
}

static uint32_t claim_elsewhere(struct block_table *t, struct block_bucket *h, uint64_t key, uint64_t holder,
                                uint32_t parent)
{
    for (uint8_t d = 1; d <= BLOCK_REACH; d++) {
        uint32_t at = block_bucket_at(t, key, d);
        struct block_bucket *b = &t->buckets[at];
        if (b == h || !try_lock(b))
            continue;
        /* Before the block can be seen there, finders look so far. */
        if (atomic_load_explicit(&h->reach, memory_order_relaxed) < d)
            atomic_store_explicit(&h->reach, d, memory_order_relaxed);
        uint32_t marks = atomic_load_explicit(&h->marks, memory_order_relaxed);
        atomic_store_explicit(&h->marks, marks | block_mark(key), memory_order_release);
        unsigned place;
        bool done = claim(b, key, holder, parent, &place);
        unlock(b);
        if (!done)
            continue;
        uint16_t strays = atomic_load_explicit(&h->strays, memory_order_relaxed);
        atomic_store_explicit(&h->strays, (uint16_t)(strays + 1), memory_order_relaxed);
        return block_slot(at, place);
    }
    forget_strays(h); /* which were expected */
    return BLOCK_NONE;
}

static bool is_full(const struct block_bucket *b)
{
    bool has = false;
    for (unsigned i = 0; i < BUCKET_PLACES; i++)
        has |= atomic_load_explicit(&b->key[i], memory_order_relaxed) == 0;
    return !has;
}

void block_table_prepare(const struct block_table *t, uint64_t key)
{
    const struct block_bucket *home = &t->buckets[block_bucket_at(t, key, 0)];
    if (!is_full(home) && !block_may_stray(home, key))
        return;
    block_bucket_prefetch(&t->buckets[block_bucket_at(t, key, 1)]);
}

uint32_t block_table_add(struct block_table *t, uint64_t key, uint64_t holder, uint32_t parent)
{
    uint32_t home = block_bucket_at(t, key, 0);
    struct block_bucket *h = &t->buckets[home];
    uint64_t holders;
    unsigned place;
    lock(h);
    uint32_t slot = block_table_find(t, key, &holders);
    if (slot != BLOCK_NONE) {
        if (block_table_parent(t, slot) != parent || (holders & holder))
            slot = BLOCK_NONE;
        else
            set_holders(&t->buckets[slot >> 3], slot & 7, holders | holder);
    } else if (claim(h, key, holder, parent, &place)) {
        slot = block_slot(home, place);
    } else {
        slot = claim_elsewhere(t, h, key, holder, parent);
    }
    unlock(h);
    return slot;
}

void block_table_drop(struct block_table *t, uint32_t slot, uint64_t holder)
{
    struct block_bucket *at = &t->buckets[slot >> 3];
    unsigned place = slot & 7;
    struct block_bucket *h = &t->buckets[block_bucket_at(t, block_table_key(t, slot), 0)];
    lock(h);
    uint64_t before = atomic_load_explicit(&at->holders[place], memory_order_relaxed);
    CHECK(before & holder);
    set_holders(at, place, before & ~holder);
    if (before == holder) {
        atomic_store_explicit(&at->key[place], 0, memory_order_release);
        if (at != h) {
            uint16_t strays = (uint16_t)(atomic_load_explicit(&h->strays, memory_order_relaxed) - 1);
            atomic_store_explicit(&h->strays, strays, memory_order_relaxed);
            forget_strays(h);
        }
    }
    unlock(h);
}
