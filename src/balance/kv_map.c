/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes, which never move, and a table of buckets that lead to them. A bucket is a line of the processor's
 * cache: eight slots, each with a node and a part of its id. A block stands in the first bucket from its own
 * on that had room; buckets that it passed count it, so a search ends at a bucket that nobody passed. Nothing
 * moves within a table: what is there during a search is found. A larger table is another one; the old one
 * is retired.
 *
 * Blocks that were stored one after the other mostly stand in neighbouring nodes, also when these were used
 * before, as they come back in the order in which they went. A walk that has found two neighbours asks the
 * next one first: then it reads a line for four blocks instead of two lines for each, and one that the
 * processor has fetched already.
 *
 * A node that was removed rests before it is used again, so that it is not given to two other blocks while a
 * reader looks at it.
 */
#include "balance/kv_map.h"

#include <stdlib.h>
#include <string.h>

#include "balance/epoch.h"
#include "balance/kv_ids.h"
#include "base/check.h"
#include "base/mem.h"

enum {
    SEGMENT_NODES = 4096,
    SEGMENTS = 65536,
    RESTING = 4096, /* removed nodes that are not used again yet */
    SLOTS = 8,      /* of a bucket */
    BUCKETS_FIRST = 256,
    AHEAD = 16 /* blocks whose memory is asked for at once */
};

/* A free one holds nothing, and its id is the next free node. */
struct node {
    _Atomic uint64_t id;
    _Atomic uint64_t held;
};
_Static_assert(sizeof(struct node) == 16, "a node is 16 bytes");

/* A slot: node, 0 = free; tag, which is also what the block's bucket follows from; and in the first slot how
 * many blocks passed the bucket. */
enum { NODE_BITS = 28, TAG_BITS = 30, PASSED_SHIFT = NODE_BITS + TAG_BITS, PASSED_MAX = 63 };
#define NODE_MASK ((UINT64_C(1) << NODE_BITS) - 1)
#define TAG_MASK  ((UINT64_C(1) << TAG_BITS) - 1)
_Static_assert((uint64_t)SEGMENTS *SEGMENT_NODES <= UINT64_C(1) << NODE_BITS, "a node fits its bits");

struct bucket {
    _Alignas(64) _Atomic uint64_t slot[SLOTS];
};

struct table {
    _Alignas(64) uint32_t n;
    struct bucket bucket[];
};

struct kv_map {
    /* Read by all, seldom written. */
    _Alignas(64) _Atomic(struct table *) table;
    _Atomic(struct node *) segment[SEGMENTS];
    /* The writer's, on lines of their own. */
    _Alignas(64) uint32_t n_segments;
    uint32_t used; /* nodes that were ever used */
    uint32_t free_first, free_last, n_free;
    size_t blocks;
};

static struct node *at(const struct kv_map *m, uint32_t i)
{
    return &atomic_load_explicit(&m->segment[i / SEGMENT_NODES], memory_order_acquire)[i % SEGMENT_NODES];
}

static uint64_t tag_of(uint64_t id)
{
    return id & TAG_MASK;
}

static uint32_t bucket_of(const struct table *t, uint64_t tag)
{
    return (uint32_t)(tag * t->n >> TAG_BITS);
}

static uint32_t next_bucket(const struct table *t, uint32_t i)
{
    return i + 1 < t->n ? i + 1 : 0;
}

static unsigned passed(const struct bucket *b)
{
    return (unsigned)(atomic_load_explicit(&b->slot[0], memory_order_acquire) >> PASSED_SHIFT);
}

/* One bit for each slot with this tag. Without branches: which slot it is nobody can guess. */
static unsigned tagged(const struct bucket *b, uint64_t tag)
{
    unsigned found = 0;
    for (unsigned i = 0; i < SLOTS; i++) {
        uint64_t slot = atomic_load_explicit(&b->slot[i], memory_order_acquire);
        found |= (unsigned)((slot >> NODE_BITS & TAG_MASK) == tag) << i;
    }
    return found;
}

static uint32_t node_in(const struct bucket *b, unsigned slot)
{
    return (uint32_t)(atomic_load_explicit(&b->slot[slot], memory_order_acquire) & NODE_MASK);
}

static void *lines_zalloc(size_t size)
{
    void *p = aligned_alloc(64, size);
    CHECK_MSG(p != NULL, "out of memory");
    return memset(p, 0, size);
}

static size_t table_bytes(uint32_t n)
{
    return sizeof(struct table) + n * sizeof(struct bucket);
}

static struct table *table_new(uint32_t n)
{
    struct table *t = lines_zalloc(table_bytes(n));
    t->n = n;
    return t;
}

struct kv_map *kv_map_new(void)
{
    struct kv_map *m = lines_zalloc(sizeof *m);
    atomic_init(&m->table, table_new(BUCKETS_FIRST));
    m->used = 1; /* 0 is no node */
    return m;
}

void kv_map_free(struct kv_map *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n_segments; i++)
        free(atomic_load(&m->segment[i]));
    free(atomic_load(&m->table));
    free(m);
}

/* Writer */

static void set_slot(struct bucket *b, unsigned i, uint64_t node, uint64_t tag)
{
    uint64_t count = atomic_load_explicit(&b->slot[i], memory_order_relaxed) >> PASSED_SHIFT;
    atomic_store_explicit(&b->slot[i], count << PASSED_SHIFT | tag << NODE_BITS | node, memory_order_release);
}

/* One more, or less, that passed the bucket. As many as can be counted stay for good. */
static void pass(struct bucket *b, int change)
{
    unsigned n = passed(b);
    if (n == PASSED_MAX)
        return;
    uint64_t one = UINT64_C(1) << PASSED_SHIFT,
             slot = atomic_load_explicit(&b->slot[0], memory_order_relaxed);
    atomic_store_explicit(&b->slot[0], change > 0 ? slot + one : slot - one, memory_order_release);
}

/* The first free slot of a bucket, SLOTS = none. */
static unsigned free_slot(const struct bucket *b)
{
    unsigned i = 0;
    while (i < SLOTS && node_in(b, i) != 0)
        i++;
    return i;
}

static void hang(struct table *t, uint32_t node, uint64_t tag)
{
    uint32_t i = bucket_of(t, tag);
    unsigned slot;
    while ((slot = free_slot(&t->bucket[i])) == SLOTS) {
        pass(&t->bucket[i], 1);
        i = next_bucket(t, i);
    }
    set_slot(&t->bucket[i], slot, node, tag);
}

static bool is_full(const struct kv_map *m, const struct table *t)
{
    return m->blocks >= (size_t)t->n * (SLOTS - 1);
}

/* In the order of the tags, nearly: memory is written from its beginning to its end. */
static struct table *grow(struct kv_map *m, struct table *old)
{
    CHECK(old->n < UINT32_MAX / 2);
    struct table *t = table_new(old->n + old->n / 4);
    for (uint32_t i = 0; i < old->n; i++)
        for (unsigned k = 0; k < SLOTS; k++) {
            uint64_t slot = atomic_load_explicit(&old->bucket[i].slot[k], memory_order_relaxed);
            if (slot & NODE_MASK)
                hang(t, (uint32_t)(slot & NODE_MASK), slot >> NODE_BITS & TAG_MASK);
        }
    atomic_store_explicit(&m->table, t, memory_order_release);
    epoch_enter();
    epoch_retire(old, table_bytes(old->n));
    epoch_leave();
    return t;
}

static uint32_t take_node(struct kv_map *m)
{
    if (m->n_free > RESTING) {
        uint32_t i = m->free_first;
        m->free_first = (uint32_t)atomic_load_explicit(&at(m, i)->id, memory_order_relaxed);
        m->n_free--;
        return i;
    }
    if (m->used / SEGMENT_NODES == m->n_segments) {
        CHECK_MSG(m->n_segments < SEGMENTS, "too many blocks for one map");
        atomic_store_explicit(&m->segment[m->n_segments++], lines_zalloc(SEGMENT_NODES * sizeof(struct node)),
                              memory_order_release);
    }
    return m->used++;
}

static void give_node(struct kv_map *m, uint32_t i)
{
    atomic_store_explicit(&at(m, i)->id, 0, memory_order_release);
    if (m->n_free++ == 0)
        m->free_first = i;
    else
        atomic_store_explicit(&at(m, m->free_last)->id, i, memory_order_release);
    m->free_last = i;
}

/* The node of <id>, 0 = none. */
static uint32_t node_of(const struct kv_map *m, const struct table *t, uint64_t id)
{
    uint64_t tag = tag_of(id);
    for (uint32_t i = bucket_of(t, tag);; i = next_bucket(t, i)) {
        const struct bucket *b = &t->bucket[i];
        for (unsigned found = tagged(b, tag); found; found &= found - 1) {
            uint32_t node = node_in(b, (unsigned)__builtin_ctz(found));
            if (node && atomic_load_explicit(&at(m, node)->id, memory_order_relaxed) == id)
                return node;
        }
        if (passed(b) == 0)
            return 0;
    }
}

uint32_t kv_map_node(struct kv_map *m, uint64_t id)
{
    struct table *t = atomic_load_explicit(&m->table, memory_order_relaxed);
    uint32_t i = node_of(m, t, id);
    if (i)
        return i;
    if (is_full(m, t))
        t = grow(m, t);
    i = take_node(m);
    atomic_store_explicit(&at(m, i)->id, id, memory_order_release);
    hang(t, i, tag_of(id));
    m->blocks++;
    return i;
}

static void remove_node(struct kv_map *m, uint32_t node)
{
    struct table *t = atomic_load_explicit(&m->table, memory_order_relaxed);
    uint32_t first = bucket_of(t, tag_of(kv_map_id(m, node))), last = first;
    unsigned slot = 0;
    for (;; last = next_bucket(t, last)) {
        for (slot = 0; slot < SLOTS && node_in(&t->bucket[last], slot) != node;)
            slot++;
        if (slot < SLOTS)
            break;
        CHECK(passed(&t->bucket[last]) > 0);
    }
    set_slot(&t->bucket[last], slot, 0, 0);
    for (uint32_t i = first; i != last; i = next_bucket(t, i))
        pass(&t->bucket[i], -1);
    m->blocks--;
    give_node(m, node);
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
           table_bytes(atomic_load(&m->table)->n);
}

/* Readers */

struct walk {
    const struct kv_map *m;
    const struct table *t;
    uint64_t (*digest)(void *arg, size_t block);
    void *arg;
    size_t n_blocks, prepared; /* blocks; those whose ids are known */
    uint64_t id;               /* of the last of these */
    uint32_t node;             /* where the last block was */
    int step;                  /* to the node of the next block, it seems: 1 or -1; 0 = no idea */
};

/* The next blocks of a walk. */
struct ahead {
    size_t n;
    uint64_t id[AHEAD];
    uint32_t node[AHEAD]; /* where they may be; 0 = to be searched */
};

/* Who holds <id>, if it is there. The id is read again behind the bits: a node that was used again meanwhile
 * has another one. */
static uint64_t held_at(const struct node *x, uint64_t id)
{
    if (atomic_load_explicit(&x->id, memory_order_acquire) != id)
        return 0;
    uint64_t held = atomic_load_explicit(&x->held, memory_order_acquire);
    return atomic_load_explicit(&x->id, memory_order_relaxed) == id ? held : 0;
}

static uint64_t look(const struct kv_map *m, const struct table *t, uint64_t id, uint32_t *ret_node)
{
    uint64_t tag = tag_of(id);
    uint32_t i = bucket_of(t, tag);
    for (uint32_t looked = 0; looked < t->n; looked++, i = next_bucket(t, i)) {
        const struct bucket *b = &t->bucket[i];
        for (unsigned found = tagged(b, tag); found; found &= found - 1) {
            uint32_t node = node_in(b, (unsigned)__builtin_ctz(found));
            uint64_t held = node ? held_at(at(m, node), id) : 0;
            if (held) {
                *ret_node = node;
                return held;
            }
        }
        if (passed(b) == 0)
            return 0;
    }
    return 0;
}

/* A miss counts when the table was still the one that new blocks are hung into. */
static uint64_t find(struct walk *w, uint64_t id, uint32_t *ret_node)
{
    for (;;) {
        uint64_t held = look(w->m, w->t, id, ret_node);
        const struct table *now = atomic_load_explicit(&w->m->table, memory_order_acquire);
        if (held || now == w->t)
            return held;
        w->t = now;
    }
}

/* Ids of the next blocks; their buckets are on the way, when they will be needed. */
static void prepare(struct walk *w, struct ahead *a)
{
    size_t left = w->n_blocks - w->prepared;
    a->n = left < AHEAD ? left : AHEAD;
    for (size_t i = 0; i < a->n; i++) {
        a->id[i] = w->id = kv_behind(w->id, w->digest(w->arg, w->prepared + i));
        if (w->step == 0)
            __builtin_prefetch(&w->t->bucket[bucket_of(w->t, tag_of(w->id))]);
    }
    w->prepared += a->n;
}

/* Where the table says that the blocks from <from> on are; their nodes are on the way. */
static void aim(const struct walk *w, struct ahead *a, size_t from)
{
    for (size_t i = from; i < a->n; i++) {
        uint64_t tag = tag_of(a->id[i]);
        const struct bucket *b = &w->t->bucket[bucket_of(w->t, tag)];
        unsigned found = tagged(b, tag);
        a->node[i] = found ? node_in(b, (unsigned)__builtin_ctz(found)) : 0;
        if (a->node[i])
            __builtin_prefetch(at(w->m, a->node[i]));
    }
}

/* The nodes behind the last one. */
static void guess(const struct walk *w, struct ahead *a)
{
    for (size_t i = 0; i < a->n; i++) {
        int64_t node = w->node + (int64_t)w->step * ((int64_t)i + 1);
        bool is_one = node > 0 && node < (int64_t)SEGMENTS * SEGMENT_NODES &&
                      atomic_load_explicit(&w->m->segment[node / SEGMENT_NODES], memory_order_acquire);
        a->node[i] = is_one ? (uint32_t)node : 0;
        if (is_one)
            __builtin_prefetch(at(w->m, a->node[i]));
    }
}

/* Who holds block <i> of <a>. */
static uint64_t held_by(struct walk *w, struct ahead *a, size_t i)
{
    uint64_t held = a->node[i] ? held_at(at(w->m, a->node[i]), a->id[i]) : 0;
    if (!held && w->step) { /* the neighbours end here: those of the rest are others */
        w->step = 0;
        for (size_t k = i; k < a->n; k++)
            __builtin_prefetch(&w->t->bucket[bucket_of(w->t, tag_of(a->id[k]))]);
        aim(w, a, i);
        held = a->node[i] ? held_at(at(w->m, a->node[i]), a->id[i]) : 0;
    }
    if (!held)
        held = find(w, a->id[i], &a->node[i]);
    return held;
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

/* The blocks of <a>, the first of which is <block>. The slots that hold them all. */
static uint64_t go(struct walk *w, struct ahead *a, size_t block, uint64_t slots, struct kv_run *ret)
{
    uint32_t before = w->node;
    for (size_t i = 0; i < a->n && slots; i++) {
        uint64_t held = held_by(w, a, i) & slots, there = any_of(held);
        if (slots != there) {
            leave(slots & ~there, (uint32_t)(block + i), ret);
            slots = there;
        }
        for (uint64_t low = slots & KV_ALL_GPU & ~held; low; low &= low - 1)
            ret[__builtin_ctzll(low) / 2].lower++;
        before = w->node;
        w->node = a->node[i];
    }
    w->step = w->node == before + 1 ? 1 : w->node + 1 == before ? -1 : 0;
    return slots;
}

void kv_map_walk(const struct kv_map *m, uint64_t root, uint64_t (*digest)(void *arg, size_t block),
                 void *arg, size_t n_blocks, uint64_t slots, struct kv_run ret[KV_SLOTS])
{
    for (uint64_t left = slots & KV_ALL_GPU; left; left &= left - 1)
        ret[__builtin_ctzll(left) / 2] = (struct kv_run){0};
    struct walk w = {.m = m,
                     .t = atomic_load_explicit(&m->table, memory_order_acquire),
                     .digest = digest,
                     .arg = arg,
                     .n_blocks = n_blocks,
                     .id = root};
    /* Prompts differ, so nearly every step is a miss of the processor's cache. What a portion needs is asked
     * for while the one before it is looked at, and hashed. */
    struct ahead ahead[2];
    prepare(&w, &ahead[0]);
    for (size_t block = 0, turn = 0; block < n_blocks && slots; turn ^= 1) {
        struct ahead *now = &ahead[turn];
        if (w.step)
            guess(&w, now);
        else
            aim(&w, now, 0);
        prepare(&w, &ahead[!turn]);
        slots = go(&w, now, block, slots, ret);
        block += now->n;
    }
    leave(slots, (uint32_t)n_blocks, ret);
}
