/* SPDX-License-Identifier: Apache-2.0 */
#include "blocks.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"

/* Blocks are named by index, from 1; the ring of free blocks goes through HEAD, which is no block. */
struct block {
    uint64_t hash;       /* 0: holds nothing that can be found */
    uint32_t refs;       /* leases that hold it */
    uint32_t prev, next; /* ring of free blocks, while refs is 0: next to be used first */
    uint32_t chain;      /* next block of the same bucket, NONE ends */
};

enum { NONE = UINT32_MAX, HEAD = 0 };

struct blocks {
    struct block *v;
    uint32_t n;      /* blocks that exist */
    uint32_t target; /* how many there shall be: the rest is withheld as soon as nobody holds it */
    uint32_t withheld, withheld_n; /* taken out of use, by `next`; NONE ends */
    uint32_t free_n, resident_n;
    uint32_t *buckets;
    uint32_t mask;
    struct blocks_observer seen_by;
};

static void ring_remove(struct blocks *b, uint32_t i)
{
    b->v[b->v[i].prev].next = b->v[i].next;
    b->v[b->v[i].next].prev = b->v[i].prev;
    b->free_n--;
}

/* Before <at>. */
static void ring_insert(struct blocks *b, uint32_t i, uint32_t at)
{
    uint32_t prev = b->v[at].prev;
    b->v[i].prev = prev;
    b->v[i].next = at;
    b->v[prev].next = b->v[at].prev = i;
    b->free_n++;
}

static uint32_t *bucket_of(const struct blocks *b, uint64_t hash)
{
    return &b->buckets[(uint32_t)(hash ^ hash >> 32) & b->mask];
}

static void link_bucket(struct blocks *b, uint32_t i)
{
    uint32_t *bucket = bucket_of(b, b->v[i].hash);
    b->v[i].chain = *bucket;
    *bucket = i;
}

/* Blocks <n> and those before it exist from now on. */
static void make_blocks(struct blocks *b, uint32_t n)
{
    b->v = mem_realloc(b->v, ((size_t)n + 1) * sizeof *b->v);
    for (uint32_t i = b->n + 1; i <= n; i++) {
        b->v[i] = (struct block){0};
        ring_insert(b, i, b->v[HEAD].next);
    }
    b->n = n;
    uint32_t cap = 16;
    while (cap < n)
        cap *= 2;
    b->mask = cap - 1;
    free(b->buckets);
    b->buckets = mem_array(cap, sizeof *b->buckets);
    memset(b->buckets, 0xff, cap * sizeof *b->buckets);
    for (uint32_t i = 1; i <= n; i++)
        if (b->v[i].hash)
            link_bucket(b, i);
}

struct blocks *blocks_new(uint32_t n, const struct blocks_observer *o)
{
    CHECK(n >= 1 && n <= 1u << 30);
    struct blocks *b = MEM_NEW(struct blocks);
    b->v = MEM_NEW(struct block);
    b->withheld = NONE;
    b->target = n;
    make_blocks(b, n);
    if (o)
        b->seen_by = *o;
    return b;
}

void blocks_free(struct blocks *b)
{
    if (!b)
        return;
    free(b->v);
    free(b->buckets);
    free(b);
}

static uint32_t find(const struct blocks *b, uint64_t hash)
{
    uint32_t i = *bucket_of(b, hash);
    while (i != NONE && b->v[i].hash != hash)
        i = b->v[i].chain;
    return i;
}

static void forget(struct blocks *b, uint32_t i)
{
    uint32_t *at = bucket_of(b, b->v[i].hash);
    while (*at != i)
        at = &b->v[*at].chain;
    *at = b->v[i].chain;
    b->v[i].hash = 0;
    b->resident_n--;
}

/* The block to be used next, out of the ring and empty. */
static uint32_t take_oldest(struct blocks *b)
{
    uint32_t i = b->v[HEAD].next;
    CHECK(i != HEAD);
    ring_remove(b, i);
    if (b->v[i].hash) {
        uint64_t hash = b->v[i].hash;
        forget(b, i);
        if (b->seen_by.removed)
            b->seen_by.removed(b->seen_by.arg, hash);
    }
    return i;
}

/* Withholds or gives back blocks until there are as many as there shall be; blocks in use stay. */
static void settle(struct blocks *b)
{
    while (b->n - b->withheld_n > b->target && b->free_n) {
        uint32_t i = take_oldest(b);
        b->v[i].next = b->withheld;
        b->withheld = i;
        b->withheld_n++;
    }
    while (b->n - b->withheld_n < b->target) {
        uint32_t i = b->withheld;
        b->withheld = b->v[i].next;
        b->withheld_n--;
        ring_insert(b, i, b->v[HEAD].next);
    }
}

uint32_t blocks_match(const struct blocks *b, const uint64_t *hashes, uint32_t n)
{
    uint32_t k = 0;
    while (k < n && find(b, hashes[k]) != NONE)
        k++;
    return k;
}

bool blocks_take(struct blocks *b, struct block_lease *l, const uint64_t *hashes, uint32_t n_hashes,
                 uint32_t total)
{
    uint32_t shared = 0, shared_free = 0;
    for (; shared < n_hashes && shared < total; shared++) {
        uint32_t i = find(b, hashes[shared]);
        if (i == NONE)
            break;
        l->ids[shared] = i;
        shared_free += b->v[i].refs == 0;
    }
    /* Resident blocks that nobody holds lie in the ring as well; pinning them leaves fewer for the rest. */
    if (total - shared > b->free_n - shared_free)
        return false;
    for (uint32_t k = 0; k < shared; k++)
        if (b->v[l->ids[k]].refs++ == 0)
            ring_remove(b, l->ids[k]);
    for (uint32_t k = shared; k < total; k++) {
        uint32_t i = take_oldest(b);
        b->v[i].refs = 1;
        l->ids[k] = i;
    }
    l->n = total;
    l->shared = shared;
    return true;
}

void blocks_fill(struct blocks *b, const struct block_lease *l, uint32_t i,
                 const struct block_content *content)
{
    CHECK(i < l->n && content->hash != 0);
    struct block *block = &b->v[l->ids[i]];
    CHECK(block->refs);
    if (block->hash || find(b, content->hash) != NONE)
        return;
    block->hash = content->hash;
    link_bucket(b, l->ids[i]);
    b->resident_n++;
    if (b->seen_by.stored)
        b->seen_by.stored(b->seen_by.arg, content);
}

void blocks_release(struct blocks *b, struct block_lease *l)
{
    /* Tail first to the end of the ring: of this request's blocks the tail is evicted first. */
    for (uint32_t k = l->n; k-- > 0;) {
        uint32_t i = l->ids[k];
        CHECK(b->v[i].refs);
        if (--b->v[i].refs == 0)
            ring_insert(b, i, b->v[i].hash ? HEAD : b->v[HEAD].next);
    }
    l->n = l->shared = 0;
    settle(b);
}

void blocks_resize(struct blocks *b, uint32_t n)
{
    CHECK(n >= 1 && n <= 1u << 30);
    b->target = n;
    if (n > b->n)
        make_blocks(b, n);
    settle(b);
}

void blocks_clear(struct blocks *b)
{
    for (uint32_t i = 1; i <= b->n; i++)
        b->v[i].hash = 0;
    memset(b->buckets, 0xff, ((size_t)b->mask + 1) * sizeof *b->buckets);
    b->resident_n = 0;
    if (b->seen_by.cleared)
        b->seen_by.cleared(b->seen_by.arg);
}

uint32_t blocks_total(const struct blocks *b)
{
    return b->target;
}

uint32_t blocks_pinned(const struct blocks *b)
{
    return b->n - b->withheld_n - b->free_n;
}

uint32_t blocks_resident(const struct blocks *b)
{
    return b->resident_n;
}

void blocks_verify(const struct blocks *b)
{
    uint32_t in_ring = 0, found = 0, pinned = 0, withheld = 0;
    for (uint32_t i = b->v[HEAD].next; i != HEAD; i = b->v[i].next, in_ring++) {
        CHECK(in_ring < b->n && b->v[i].refs == 0);
        CHECK(b->v[b->v[i].next].prev == i);
    }
    for (uint32_t i = b->withheld; i != NONE; i = b->v[i].next, withheld++)
        CHECK(withheld < b->n && b->v[i].refs == 0 && b->v[i].hash == 0);
    for (uint32_t i = 1; i <= b->n; i++) {
        pinned += b->v[i].refs != 0;
        if (b->v[i].hash) {
            found++;
            CHECK(find(b, b->v[i].hash) == i);
        }
    }
    CHECK(in_ring == b->free_n && withheld == b->withheld_n && in_ring + withheld + pinned == b->n &&
          found == b->resident_n);
    /* Fewer than wanted never; more only while they are in use. */
    CHECK(in_ring + pinned >= b->target && (in_ring + pinned == b->target || in_ring == 0));
}
