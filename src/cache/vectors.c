/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/vectors.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/mem.h"
#include "cache/vector_block.h"

/* Blocks grow with the index, so that a partition of one entry costs little. */
enum { BLOCK_MIN = 2, BLOCK_MAX = 64, BUCKETS_MIN = 64 };

/* The blocks of an index, oldest first; never changed once it is there. */
struct block_list {
    atomic_uint refs;
    unsigned n;
    struct vector_block *block[];
};

struct index {
    atomic_uint refs;
    struct list node;   /* in vectors->used, the longest unused first */
    struct index *next; /* in the bucket */
    uint64_t hash;
    unsigned char key[VECTORS_KEY_BYTES];
    unsigned dims;

    pthread_mutex_t lock;
    struct block_list *blocks; /* under the lock */
    size_t bytes;              /* under the lock */
    uint64_t last_expiry_ms;   /* under the lock */
    bool gone;                 /* under the lock: out of the table, takes nothing more */
};

struct vectors {
    pthread_mutex_t lock; /* before an index's lock */
    struct index **buckets;
    size_t n_buckets, n_indexes;
    struct list used;
    atomic_size_t bytes;
    size_t max_bytes;
    atomic_size_t entries;
    atomic_uint_fast64_t evicted;
    const struct vector_dot *dot;
};

static struct block_list *list_new(unsigned n)
{
    struct block_list *l = mem_alloc(sizeof(*l) + n * sizeof(l->block[0]));
    atomic_init(&l->refs, 1);
    l->n = n;
    return l;
}

static void list_unref(struct block_list *l)
{
    if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < l->n; i++)
        vector_block_unref(l->block[i]);
    free(l);
}

static unsigned entries_in(const struct block_list *l)
{
    unsigned n = 0;
    for (unsigned i = 0; i < l->n; i++)
        n += l->block[i]->n;
    return n;
}

static void index_unref(struct index *ix)
{
    if (atomic_fetch_sub_explicit(&ix->refs, 1, memory_order_acq_rel) != 1)
        return;
    list_unref(ix->blocks);
    pthread_mutex_destroy(&ix->lock);
    free(ix);
}

struct vectors *vectors_new(size_t max_bytes)
{
    struct vectors *v = MEM_NEW(struct vectors);
    CHECK(pthread_mutex_init(&v->lock, NULL) == 0);
    v->n_buckets = BUCKETS_MIN;
    v->buckets = mem_array(v->n_buckets, sizeof(*v->buckets));
    list_init(&v->used);
    v->max_bytes = max_bytes;
    v->dot = vector_dot_best();
    return v;
}

/* Takes the index out of the table. Under v->lock. */
static void forget(struct vectors *v, struct index *ix)
{
    struct index **at = &v->buckets[ix->hash & (v->n_buckets - 1)];
    while (*at != ix)
        at = &(*at)->next;
    *at = ix->next;
    list_remove(&ix->node);
    v->n_indexes--;
    pthread_mutex_lock(&ix->lock);
    ix->gone = true;
    atomic_fetch_sub(&v->bytes, ix->bytes);
    atomic_fetch_sub(&v->entries, entries_in(ix->blocks));
    pthread_mutex_unlock(&ix->lock);
    index_unref(ix);
}

void vectors_clear(struct vectors *v)
{
    pthread_mutex_lock(&v->lock);
    while (!list_empty(&v->used))
        forget(v, LIST_ITEM(v->used.next, struct index, node));
    pthread_mutex_unlock(&v->lock);
}

void vectors_free(struct vectors *v)
{
    if (!v)
        return;
    vectors_clear(v);
    pthread_mutex_destroy(&v->lock);
    free(v->buckets);
    free(v);
}

static uint64_t hash_of(const unsigned char *key, unsigned dims)
{
    return hash_bytes_seed(key, VECTORS_KEY_BYTES, dims);
}

/* Under v->lock. */
static struct index *look_up(struct vectors *v, const unsigned char *key, unsigned dims, uint64_t hash)
{
    struct index *ix = v->buckets[hash & (v->n_buckets - 1)];
    while (ix && (ix->hash != hash || ix->dims != dims || memcmp(ix->key, key, VECTORS_KEY_BYTES) != 0))
        ix = ix->next;
    return ix;
}

/* Under v->lock. */
static void grow_table(struct vectors *v)
{
    size_t n = v->n_buckets * 2;
    struct index **buckets = mem_array(n, sizeof(*buckets));
    for (size_t i = 0; i < v->n_buckets; i++) {
        for (struct index *ix = v->buckets[i], *next; ix; ix = next) {
            next = ix->next;
            ix->next = buckets[ix->hash & (n - 1)];
            buckets[ix->hash & (n - 1)] = ix;
        }
    }
    free(v->buckets);
    v->buckets = buckets;
    v->n_buckets = n;
}

/* Under v->lock. */
static struct index *add_index(struct vectors *v, const unsigned char *key, unsigned dims, uint64_t hash)
{
    if (v->n_indexes >= v->n_buckets)
        grow_table(v);
    struct index *ix = MEM_NEW(struct index);
    atomic_init(&ix->refs, 1);
    list_init(&ix->node);
    ix->hash = hash;
    memcpy(ix->key, key, VECTORS_KEY_BYTES);
    ix->dims = dims;
    CHECK(pthread_mutex_init(&ix->lock, NULL) == 0);
    ix->blocks = list_new(0);
    ix->bytes = sizeof(*ix);
    atomic_fetch_add(&v->bytes, ix->bytes);
    ix->next = v->buckets[hash & (v->n_buckets - 1)];
    v->buckets[hash & (v->n_buckets - 1)] = ix;
    v->n_indexes++;
    return ix;
}

/* A reference to the index, which is now the last used one; NULL when there is none and <make> is false. */
static struct index *get_index(struct vectors *v, const unsigned char *key, unsigned dims, bool make)
{
    uint64_t hash = hash_of(key, dims);
    pthread_mutex_lock(&v->lock);
    struct index *ix = look_up(v, key, dims, hash);
    if (!ix && make)
        ix = add_index(v, key, dims, hash);
    if (ix) {
        list_remove(&ix->node);
        list_push(&v->used, &ix->node);
        atomic_fetch_add_explicit(&ix->refs, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&v->lock);
    return ix;
}

static unsigned live_in(const struct vector_block *b, uint64_t now_ms)
{
    unsigned n = 0;
    for (unsigned i = 0; i < b->n; i++)
        n += vector_block_is_live(b, i, now_ms);
    return n;
}

static struct vector_block *merged(const struct vector_block *a, const struct vector_block *b,
                                   unsigned n_live, uint64_t now_ms)
{
    struct vector_block *m = vector_block_new(n_live, a->width);
    for (int second = 0; second < 2; second++) {
        const struct vector_block *from = second ? b : a;
        for (unsigned i = 0; i < from->n; i++)
            if (vector_block_is_live(from, i, now_ms))
                vector_block_copy(m, from, i);
    }
    CHECK(m->n == n_live); /* blocks before the last one are full */
    return m;
}

/* A new list of blocks with a block of room at the end, without blocks that nobody needs: those whose entries
 * are all gone, those behind the window, and two neighbours that fit into one. At most one pair is merged at
 * a time, so that the lock is held for the copy of one block at most. Under the index's lock. */
static void make_room(struct vectors *v, struct index *ix, unsigned window, uint64_t now_ms)
{
    struct block_list *old = ix->blocks;
    struct block_list *l = list_new(old->n + 1);
    unsigned width = vector_width(ix->dims), total = entries_in(old), kept_live = 0, n = 0;
    bool may_merge = true;
    unsigned last_live = 0;
    /* newest first into the back of the list, then moved to the front */
    unsigned at = old->n;
    for (unsigned i = old->n; i-- > 0 && kept_live < window;) {
        unsigned live = live_in(old->block[i], now_ms);
        if (!live)
            continue;
        kept_live += live;
        if (may_merge && n > 0 && live + last_live <= BLOCK_MAX / 2) {
            struct vector_block *m = merged(old->block[i], l->block[at], live + last_live, now_ms);
            vector_block_unref(l->block[at]);
            l->block[at] = m;
            may_merge = false;
            continue;
        }
        vector_block_ref(old->block[i]);
        l->block[--at] = old->block[i];
        last_live = live;
        n++;
    }
    memmove(l->block, l->block + at, n * sizeof(l->block[0]));
    unsigned cap = kept_live < BLOCK_MIN ? BLOCK_MIN : kept_live > BLOCK_MAX ? BLOCK_MAX : kept_live;
    l->block[n++] = vector_block_new(cap, width);
    l->n = n;

    size_t bytes = sizeof(*ix) + sizeof(*l) + (old->n + 1) * sizeof(l->block[0]);
    for (unsigned i = 0; i < n; i++)
        bytes += l->block[i]->bytes;
    atomic_fetch_add(&v->bytes, bytes - ix->bytes);
    atomic_fetch_sub(&v->entries, total - entries_in(l));
    ix->bytes = bytes;
    ix->blocks = l;
    list_unref(old);
}

/* Under the index's lock. */
static struct slot_head *slot_of(struct index *ix, const unsigned char *id)
{
    for (unsigned i = ix->blocks->n; i-- > 0;) {
        struct vector_block *b = ix->blocks->block[i];
        for (unsigned k = b->n; k-- > 0;)
            if (memcmp(b->tails[k].id, id, VECTORS_KEY_BYTES) == 0)
                return &b->heads[k];
    }
    return NULL;
}

static void add_entry(struct vectors *v, struct index *ix, unsigned window, const struct packed_vector *p,
                      const struct vectors_entry *e, uint64_t now_ms)
{
    pthread_mutex_lock(&ix->lock);
    if (!ix->gone) {
        struct slot_head *before = slot_of(ix, e->id);
        if (before)
            atomic_store_explicit(&before->dead, true, memory_order_relaxed);
        struct vector_block *b = ix->blocks->n ? ix->blocks->block[ix->blocks->n - 1] : NULL;
        if (!b || b->n == b->cap) {
            make_room(v, ix, window, now_ms);
            b = ix->blocks->block[ix->blocks->n - 1];
        }
        vector_block_add(b, p, e);
        ix->bytes += e->note.n;
        atomic_fetch_add(&v->bytes, e->note.n);
        atomic_fetch_add(&v->entries, 1);
        if (e->expires_ms > ix->last_expiry_ms)
            ix->last_expiry_ms = e->expires_ms;
    }
    pthread_mutex_unlock(&ix->lock);
}

/* Keeps the newer half of the blocks, or nothing when there is only one. */
static void halve(struct vectors *v, struct index *ix)
{
    pthread_mutex_lock(&ix->lock);
    struct block_list *old = ix->blocks;
    unsigned n = old->n / 2, total = entries_in(old);
    struct block_list *l = list_new(n);
    size_t dropped = 0;
    for (unsigned i = 0; i < old->n - n; i++)
        dropped += old->block[i]->bytes;
    for (unsigned i = 0; i < n; i++) {
        l->block[i] = old->block[old->n - n + i];
        vector_block_ref(l->block[i]);
    }
    ix->blocks = l;
    ix->bytes -= dropped;
    atomic_fetch_sub(&v->bytes, dropped);
    atomic_fetch_add(&v->evicted, total - entries_in(l));
    atomic_fetch_sub(&v->entries, total - entries_in(l));
    list_unref(old);
    pthread_mutex_unlock(&ix->lock);
}

/* Drops what is used least: indexes whose entries have all expired, and what is too much; of the last index
 * its older half. */
static void keep_limit(struct vectors *v, uint64_t now_ms)
{
    pthread_mutex_lock(&v->lock);
    while (!list_empty(&v->used)) {
        struct index *oldest = LIST_ITEM(v->used.next, struct index, node);
        pthread_mutex_lock(&oldest->lock);
        bool expired = oldest->last_expiry_ms <= now_ms && oldest->blocks->n;
        unsigned n = entries_in(oldest->blocks);
        pthread_mutex_unlock(&oldest->lock);
        bool too_much = atomic_load(&v->bytes) > v->max_bytes;
        if (!expired && !too_much)
            break;
        if (!expired && v->n_indexes == 1 && n) {
            halve(v, oldest);
            continue;
        }
        if (!expired)
            atomic_fetch_add(&v->evicted, n);
        forget(v, oldest);
    }
    pthread_mutex_unlock(&v->lock);
}

bool vectors_put(struct vectors *v, const unsigned char index[VECTORS_KEY_BYTES], unsigned window,
                 const float *x, unsigned dims, const struct vectors_entry *e, uint64_t now_ms)
{
    struct packed_vector p;
    if (e->expires_ms <= now_ms || !packed_vector_init(&p, x, dims))
        return false;
    struct index *ix = get_index(v, index, dims, true);
    add_entry(v, ix, window, &p, e, now_ms);
    index_unref(ix);
    packed_vector_fini(&p);
    keep_limit(v, now_ms);
    return true;
}

/* The blocks as they are now, and how much of the last one is written. */
static struct block_list *take_list(struct index *ix, unsigned *ret_last)
{
    pthread_mutex_lock(&ix->lock);
    struct block_list *l = ix->blocks;
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    *ret_last = l->n ? l->block[l->n - 1]->n : 0;
    pthread_mutex_unlock(&ix->lock);
    return l;
}

unsigned vectors_find(struct vectors *v, const unsigned char index[VECTORS_KEY_BYTES], unsigned window,
                      const float *x, unsigned dims, double threshold, uint64_t now_ms, struct arena *a,
                      struct vectors_match *ret, unsigned max)
{
    struct packed_vector query;
    struct index *ix = get_index(v, index, dims, false);
    if (!ix)
        return 0;
    if (max == 0 || !packed_vector_init(&query, x, dims)) {
        index_unref(ix);
        return 0;
    }
    unsigned n_last;
    struct block_list *l = take_list(ix, &n_last);
    struct vector_search s = {.query = &query,
                              .dot = v->dot,
                              .threshold = (float)threshold,
                              .now_ms = now_ms,
                              .left = window,
                              .want = max < VECTOR_BEST_MAX ? max : VECTOR_BEST_MAX};
    for (unsigned i = l->n; i-- > 0 && s.left;)
        vector_search_block(&s, l->block[i], i + 1 == l->n ? n_last : l->block[i]->cap);
    for (unsigned i = 0; i < s.n; i++) {
        const struct slot_tail *t = &s.best[i].block->tails[s.best[i].slot];
        ret[i].similarity = s.best[i].similarity;
        memcpy(ret[i].entry.id, t->id, VECTORS_KEY_BYTES);
        ret[i].entry.created_ms = t->created_ms;
        ret[i].entry.expires_ms = s.best[i].block->heads[s.best[i].slot].expires_ms;
        ret[i].entry.note = arena_dup(a, span_of(t->note, t->note_bytes));
    }
    list_unref(l);
    index_unref(ix);
    packed_vector_fini(&query);
    return s.n;
}

void vectors_remove(struct vectors *v, const unsigned char index[VECTORS_KEY_BYTES], unsigned dims,
                    const unsigned char id[VECTORS_KEY_BYTES])
{
    struct index *ix = get_index(v, index, dims, false);
    if (!ix)
        return;
    pthread_mutex_lock(&ix->lock);
    struct slot_head *h = slot_of(ix, id);
    if (h)
        atomic_store_explicit(&h->dead, true, memory_order_relaxed);
    pthread_mutex_unlock(&ix->lock);
    index_unref(ix);
}

uint64_t vectors_expiry(struct vectors *v, const unsigned char index[VECTORS_KEY_BYTES], unsigned dims,
                        const unsigned char id[VECTORS_KEY_BYTES], uint64_t now_ms)
{
    struct index *ix = get_index(v, index, dims, false);
    if (!ix)
        return 0;
    pthread_mutex_lock(&ix->lock);
    struct slot_head *h = slot_of(ix, id);
    bool has = h && h->expires_ms > now_ms && !atomic_load_explicit(&h->dead, memory_order_relaxed);
    uint64_t expires_ms = has ? h->expires_ms : 0;
    pthread_mutex_unlock(&ix->lock);
    index_unref(ix);
    return expires_ms;
}

unsigned vectors_count(struct vectors *v, const unsigned char index[VECTORS_KEY_BYTES], unsigned dims)
{
    struct index *ix = get_index(v, index, dims, false);
    if (!ix)
        return 0;
    pthread_mutex_lock(&ix->lock);
    unsigned n = entries_in(ix->blocks);
    pthread_mutex_unlock(&ix->lock);
    index_unref(ix);
    return n;
}

void vectors_stats(struct vectors *v, struct vectors_stats *ret)
{
    pthread_mutex_lock(&v->lock);
    ret->indexes = v->n_indexes;
    pthread_mutex_unlock(&v->lock);
    ret->entries = atomic_load(&v->entries);
    ret->bytes = atomic_load(&v->bytes);
    ret->evicted = atomic_load(&v->evicted);
}
