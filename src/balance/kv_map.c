/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains of nodes behind an array of heads. A larger array gets its chains through the nodes' other link, so
 * that who reads the old one is not disturbed; the old one is retired.
 *
 * A node that was removed rests before it is used again: a reader that stands on it goes on along its old
 * chain. Only when so many nodes were removed during one look that this one may have been used again does
 * the reader look once more.
 */
#include "balance/kv_map.h"

#include <stdlib.h>

#include "balance/epoch.h"
#include "balance/kv_ids.h"
#include "base/check.h"
#include "base/mem.h"

enum {
    SEGMENT_NODES = 4096,
    SEGMENTS = 65536,
    RESTING = 4096,     /* removed nodes that are not used again yet */
    HEADS_FIRST = 2048, /* heads of a new map */
    LOOKS_MAX = 4,
    CHAIN_MAX = 4096, /* steps of a look: it ends whatever the links say */
    AHEAD = 16        /* blocks whose memory is asked for at once */
};

struct node {
    _Atomic uint64_t id;
    _Atomic uint64_t held;
    _Atomic uint32_t next[2];
};
_Static_assert(sizeof(struct node) == 24, "a node is 24 bytes");

struct heads {
    uint32_t n;
    unsigned link; /* which of a node's links its chains go by */
    _Atomic uint32_t first[];
};

struct kv_map {
    _Atomic(struct heads *) heads;
    _Atomic uint64_t removed; /* nodes, ever */
    _Atomic(struct node *) segment[SEGMENTS];
    /* The writer's. */
    uint32_t n_segments, used; /* nodes that were ever used */
    uint32_t free;             /* chain of nodes by next[0] */
    size_t blocks;
    uint32_t resting[RESTING];
    uint64_t n_rested;
};

static struct node *at(const struct kv_map *m, uint32_t i)
{
    return &atomic_load_explicit(&m->segment[i / SEGMENT_NODES], memory_order_acquire)[i % SEGMENT_NODES];
}

static uint32_t head_of(const struct heads *h, uint64_t id)
{
    return (uint32_t)((unsigned __int128)id * h->n >> 64);
}

static struct heads *heads_new(uint32_t n, unsigned link)
{
    struct heads *h = mem_zalloc(sizeof *h + n * sizeof h->first[0]);
    h->n = n;
    h->link = link;
    return h;
}

static size_t heads_bytes(const struct heads *h)
{
    return sizeof *h + h->n * sizeof h->first[0];
}

struct kv_map *kv_map_new(void)
{
    struct kv_map *m = MEM_NEW(struct kv_map);
    atomic_init(&m->heads, heads_new(HEADS_FIRST, 0));
    m->used = 1; /* 0 is no node */
    return m;
}

void kv_map_free(struct kv_map *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n_segments; i++)
        free(atomic_load(&m->segment[i]));
    free(atomic_load(&m->heads));
    free(m);
}

/* Writer */

static void grow(struct kv_map *m, struct heads *old)
{
    CHECK(old->n < UINT32_MAX / 2);
    struct heads *h = heads_new(old->n + old->n / 2, !old->link);
    for (uint32_t i = 0; i < old->n; i++)
        for (uint32_t node = atomic_load_explicit(&old->first[i], memory_order_relaxed); node;) {
            struct node *x = at(m, node);
            uint32_t to = head_of(h, atomic_load_explicit(&x->id, memory_order_relaxed));
            uint32_t next = atomic_load_explicit(&x->next[old->link], memory_order_relaxed);
            atomic_store_explicit(&x->next[h->link],
                                  atomic_load_explicit(&h->first[to], memory_order_relaxed),
                                  memory_order_relaxed);
            atomic_store_explicit(&h->first[to], node, memory_order_relaxed);
            node = next;
        }
    atomic_store_explicit(&m->heads, h, memory_order_release);
    epoch_enter();
    epoch_retire(old, heads_bytes(old));
    epoch_leave();
}

static uint32_t take_node(struct kv_map *m)
{
    if (m->free) {
        uint32_t i = m->free;
        m->free = atomic_load_explicit(&at(m, i)->next[0], memory_order_relaxed);
        return i;
    }
    if (m->used / SEGMENT_NODES == m->n_segments) {
        CHECK_MSG(m->n_segments < SEGMENTS, "too many blocks for one map");
        atomic_store_explicit(&m->segment[m->n_segments++], mem_array(SEGMENT_NODES, sizeof(struct node)),
                              memory_order_release);
    }
    return m->used++;
}

uint32_t kv_map_node(struct kv_map *m, uint64_t id)
{
    struct heads *h = atomic_load_explicit(&m->heads, memory_order_relaxed);
    _Atomic uint32_t *first = &h->first[head_of(h, id)];
    for (uint32_t i = atomic_load_explicit(first, memory_order_relaxed); i;
         i = atomic_load_explicit(&at(m, i)->next[h->link], memory_order_relaxed))
        if (atomic_load_explicit(&at(m, i)->id, memory_order_relaxed) == id)
            return i;
    if (m->blocks > h->n + h->n / 2) {
        grow(m, h);
        h = atomic_load_explicit(&m->heads, memory_order_relaxed);
        first = &h->first[head_of(h, id)];
    }
    uint32_t i = take_node(m);
    struct node *x = at(m, i);
    atomic_store_explicit(&x->held, 0, memory_order_release);
    atomic_store_explicit(&x->id, id, memory_order_release);
    atomic_store_explicit(&x->next[h->link], atomic_load_explicit(first, memory_order_relaxed),
                          memory_order_release);
    atomic_store_explicit(first, i, memory_order_release);
    m->blocks++;
    return i;
}

/* Its links stay as they are for who stands on it. */
static void remove_node(struct kv_map *m, uint32_t node)
{
    struct heads *h = atomic_load_explicit(&m->heads, memory_order_relaxed);
    struct node *x = at(m, node);
    _Atomic uint32_t *link = &h->first[head_of(h, atomic_load_explicit(&x->id, memory_order_relaxed))];
    for (uint32_t i; (i = atomic_load_explicit(link, memory_order_relaxed)) != node;) {
        CHECK(i != 0);
        link = &at(m, i)->next[h->link];
    }
    atomic_store_explicit(link, atomic_load_explicit(&x->next[h->link], memory_order_relaxed),
                          memory_order_release);
    m->blocks--;
    uint32_t *rest = &m->resting[m->n_rested++ % RESTING];
    if (*rest) {
        atomic_store_explicit(&at(m, *rest)->next[0], m->free, memory_order_release);
        m->free = *rest;
    }
    *rest = node;
    atomic_store_explicit(&m->removed, m->n_rested, memory_order_release);
}

uint64_t kv_map_id(const struct kv_map *m, uint32_t node)
{
    return atomic_load_explicit(&at(m, node)->id, memory_order_relaxed);
}

unsigned kv_map_get(const struct kv_map *m, uint32_t node, unsigned slot)
{
    return atomic_load_explicit(&at(m, node)->held, memory_order_relaxed) >> (2 * slot) & 3;
}

void kv_map_set(struct kv_map *m, uint32_t node, unsigned slot, unsigned held)
{
    struct node *x = at(m, node);
    uint64_t now = atomic_load_explicit(&x->held, memory_order_relaxed);
    now = (now & ~((uint64_t)3 << (2 * slot))) | (uint64_t)held << (2 * slot);
    atomic_store_explicit(&x->held, now, memory_order_release);
    if (now == 0)
        remove_node(m, node);
}

size_t kv_map_blocks(const struct kv_map *m)
{
    return m->blocks;
}

size_t kv_map_bytes(const struct kv_map *m)
{
    return sizeof *m - sizeof m->segment + (size_t)m->n_segments * SEGMENT_NODES * sizeof(struct node) +
           heads_bytes(atomic_load(&m->heads));
}

/* Readers */

/* One look: who holds <id>. The id is read again behind the bits: a node that was used again meanwhile has
 * another one. */
static uint64_t look(const struct kv_map *m, const struct heads *h, uint64_t id)
{
    uint32_t i = atomic_load_explicit(&h->first[head_of(h, id)], memory_order_acquire);
    for (unsigned steps = 0; i && steps < CHAIN_MAX; steps++) {
        const struct node *x = at(m, i);
        if (atomic_load_explicit(&x->id, memory_order_acquire) == id) {
            uint64_t held = atomic_load_explicit(&x->held, memory_order_acquire);
            if (atomic_load_explicit(&x->id, memory_order_relaxed) == id)
                return held;
        }
        i = atomic_load_explicit(&x->next[h->link], memory_order_acquire);
    }
    return 0;
}

/* A miss counts when no node that the look met can have been used for another block meanwhile, and when <h>
 * was still the array that new blocks are hung into. */
static uint64_t find(const struct kv_map *m, const struct heads **h, uint64_t id)
{
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        uint64_t before = atomic_load_explicit(&m->removed, memory_order_acquire);
        uint64_t held = look(m, *h, id);
        if (held)
            return held;
        const struct heads *now = atomic_load_explicit(&m->heads, memory_order_acquire);
        if (now == *h && atomic_load_explicit(&m->removed, memory_order_acquire) - before < RESTING - 1)
            return 0;
        *h = now;
    }
    return 0;
}

/* The bits of slots that have any. */
static uint64_t any_of(uint64_t held)
{
    uint64_t one = (held | held >> 1) & KV_ALL_GPU;
    return one | one << 1;
}

static void leave(uint64_t slots, uint32_t blocks, struct kv_run *ret)
{
    for (uint64_t left = slots & KV_ALL_GPU; left; left &= left - 1)
        ret[__builtin_ctzll(left) / 2].blocks = blocks;
}

void kv_map_walk(const struct kv_map *m, uint64_t root, uint64_t (*digest)(void *arg, size_t block),
                 void *arg, size_t n_blocks, uint64_t slots, struct kv_run ret[KV_SLOTS])
{
    for (uint64_t left = slots & KV_ALL_GPU; left; left &= left - 1)
        ret[__builtin_ctzll(left) / 2] = (struct kv_run){0};
    const struct heads *h = atomic_load_explicit(&m->heads, memory_order_acquire);
    uint64_t id = root, ids[AHEAD];
    size_t block = 0;
    while (block < n_blocks && slots) {
        /* Chains differ for every prompt, so nearly every step is a miss of the processor's cache: they are
         * asked for together. */
        size_t n = n_blocks - block < AHEAD ? n_blocks - block : AHEAD;
        for (size_t i = 0; i < n; i++) {
            ids[i] = id = kv_behind(id, digest(arg, block + i));
            __builtin_prefetch((const void *)&h->first[head_of(h, id)]);
        }
        for (size_t i = 0; i < n; i++) {
            uint32_t first = atomic_load_explicit(&h->first[head_of(h, ids[i])], memory_order_relaxed);
            if (first)
                __builtin_prefetch(at(m, first));
        }
        for (size_t i = 0; i < n && slots; i++, block++) {
            uint64_t held = find(m, &h, ids[i]) & slots, there = any_of(held);
            if (slots != there) {
                leave(slots & ~there, (uint32_t)block, ret);
                slots = there;
            }
            for (uint64_t low = slots & KV_ALL_GPU & ~held; low; low &= low - 1)
                ret[__builtin_ctzll(low) / 2].lower++;
        }
    }
    leave(slots, (uint32_t)block, ret);
}
