/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks: all changes of a block happen under its home's lock. Claiming an empty place elsewhere takes that
 * bucket's lock as well, but never waits for it. A place is given back without the lock of the bucket that it
 * lies in: its key becomes 0 last.
 */
#include "balance/block_table.h"

#include <stdlib.h>

#include "base/mem.h"

void block_table_init(struct block_table *t, uint64_t blocks)
{
    uint64_t homes = blocks * 5 / 24 + 8; /* 0.8 of six places are used: 4.8 a bucket */
    CHECK_MSG(homes < (uint64_t)1 << 28, "a table of too many blocks");
    t->n = (uint32_t)homes;
    t->memory_bytes = (homes + 1) * BUCKET_BYTES;
    t->memory = mem_zalloc(t->memory_bytes); /* pages that are not used yet cost nothing */
    uintptr_t at = ((uintptr_t)t->memory + BUCKET_BYTES - 1) & ~(uintptr_t)(BUCKET_BYTES - 1);
    t->buckets = (struct block_bucket *)at;
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

static uint32_t claim_elsewhere(struct block_table *t, struct block_bucket *h, uint64_t key, uint64_t holder,
                                uint32_t parent)
{
    for (uint16_t d = 1; d <= BLOCK_REACH; d++) {
        uint32_t at = block_bucket_at(t, key, d);
        struct block_bucket *b = &t->buckets[at];
        if (b == h || !prefix_lock_try(&b->lock))
            continue;
        /* Before the block can be seen there, finders look so far. */
        uint16_t reach = atomic_load_explicit(&h->reach, memory_order_relaxed);
        if (reach < d)
            atomic_store_explicit(&h->reach, d, memory_order_release);
        unsigned place;
        bool done = claim(b, key, holder, parent, &place);
        prefix_lock_release(&b->lock);
        if (!done)
            continue;
        uint16_t strays = atomic_load_explicit(&h->strays, memory_order_relaxed);
        atomic_store_explicit(&h->strays, (uint16_t)(strays + 1), memory_order_relaxed);
        return block_slot(at, place);
    }
    return BLOCK_NONE;
}

uint32_t block_table_add(struct block_table *t, uint64_t key, uint64_t holder, uint32_t parent)
{
    uint32_t home = block_bucket_at(t, key, 0);
    struct block_bucket *h = &t->buckets[home];
    uint64_t holders;
    unsigned place;
    prefix_lock_acquire(&h->lock);
    uint32_t slot = block_table_find(t, key, &holders);
    if (slot != BLOCK_NONE)
        atomic_fetch_or_explicit(&t->buckets[slot >> 3].holders[slot & 7], holder, memory_order_release);
    else if (claim(h, key, holder, parent, &place))
        slot = block_slot(home, place);
    else
        slot = claim_elsewhere(t, h, key, holder, parent);
    prefix_lock_release(&h->lock);
    return slot;
}

void block_table_drop(struct block_table *t, uint32_t slot, uint64_t holder)
{
    struct block_bucket *at = &t->buckets[slot >> 3];
    unsigned place = slot & 7;
    struct block_bucket *h = &t->buckets[block_bucket_at(t, block_table_key(t, slot), 0)];
    prefix_lock_acquire(&h->lock);
    uint64_t before = atomic_fetch_and_explicit(&at->holders[place], ~holder, memory_order_release);
    CHECK(before & holder);
    if (before == holder) {
        atomic_store_explicit(&at->key[place], 0, memory_order_release);
        if (at != h) {
            uint16_t strays = (uint16_t)(atomic_load_explicit(&h->strays, memory_order_relaxed) - 1);
            atomic_store_explicit(&h->strays, strays, memory_order_relaxed);
            if (strays == 0)
                atomic_store_explicit(&h->reach, 0, memory_order_release);
        }
    }
    prefix_lock_release(&h->lock);
}
