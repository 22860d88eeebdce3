/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/memory.h"

#include <malloc.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "cache/memory_impl.h"

enum {
    SHARDS_MAX = 1024,
    ENTRIES_LEAST = 16,   /* of the largest size, in a shard */
    EVICT_AT_A_TIME = 32, /* under one hold of the lock */
    ENTRY_EXPECTED = 1 << 20,
    SHARD_LEAST = 4 << 20, /* bytes */
};

struct cache_memory {
    struct cache_purge *purge;
    size_t largest; /* of an entry with its node */
    unsigned n_shards;
    _Atomic unsigned sweep_shard;
    struct shard *shards;
};

/* As many as leave each with room for some entries of the largest size, which push out others. So a shard of
 * a large store stays small, and its index grows in steps that take no time worth speaking of. */
static unsigned shards_for(const struct memory_options *o)
{
    uint64_t entry = o->max_entry_bytes ? o->max_entry_bytes : ENTRY_EXPECTED;
    unsigned n = 1;
    while (n < SHARDS_MAX && o->memory_bytes / (2 * n) >= SHARD_LEAST &&
           o->memory_bytes / (2 * n) / ENTRIES_LEAST >= entry)
        n *= 2;
    return n;
}

struct cache_memory *memory_new(const struct memory_options *o)
{
    struct cache_memory *m = MEM_NEW(struct cache_memory);
    m->purge = o->purge;
    m->n_shards = shards_for(o);
    void *shards;
    CHECK(posix_memalign(&shards, 64, m->n_shards * sizeof *m->shards) == 0);
    m->shards = shards;
    size_t own = sizeof *m + m->n_shards * sizeof *m->shards;
    size_t budget = o->memory_bytes > own ? (o->memory_bytes - own) / m->n_shards : 0;
    for (unsigned i = 0; i < m->n_shards; i++)
        shard_init(&m->shards[i], budget);
    m->largest = budget / 2;
    return m;
}

void memory_free(struct cache_memory *m)
{
    if (!m)
        return;
    for (unsigned i = 0; i < m->n_shards; i++)
        shard_fini(&m->shards[i]);
    free(m->shards);
    free(m);
}

/* Other bits than the index uses. */
static struct shard *shard_of(struct cache_memory *m, const struct cache_digest *key)
{
    return &m->shards[(key->b[31] << 8 | key->b[30]) & (m->n_shards - 1)];
}

static bool is_purged(const struct cache_memory *m, const struct cache_entry *e)
{
    return purge_stamp(m->purge, &e->facts.owner) != e->facts.stamp;
}

/* Whether <n> may not be served any more; counts why. */
static bool is_dead(const struct cache_memory *m, struct shard *s, const struct node *n, uint64_t now_ms)
{
    if (now_ms >= n->entry->facts.stale_until_ms)
        s->stats.expired++;
    else if (is_purged(m, n->entry))
        s->stats.purged++;
    else
        return false;
    return true;
}

static void free_victims(struct list *victims)
{
    LIST_EACH(link, victims)
    {
        struct node *n = LIST_ITEM(link, struct node, link);
        entry_unref(n->entry);
        free(n);
    }
}

struct cache_entry *memory_get(struct cache_memory *m, const struct cache_digest *key, uint64_t now_ms)
{
    struct shard *s = shard_of(m, key);
    struct cache_entry *e = NULL;
    struct list victims;
    list_init(&victims);
    pthread_mutex_lock(&s->lock);
    struct node *n = shard_find(s, key);
    if (n && UNLIKELY(is_dead(m, s, n, now_ms))) {
        shard_take(s, n, &victims);
        n = NULL;
    }
    if (n) {
        shard_touch(n);
        e = entry_ref(n->entry);
        if (entry_is_fresh(e, now_ms))
            s->stats.hits++;
        else
            s->stats.stale_hits++;
    } else {
        s->stats.misses++;
    }
    pthread_mutex_unlock(&s->lock);
    free_victims(&victims);
    return e;
}

struct cache_entry *memory_peek(struct cache_memory *m, const struct cache_digest *key, uint64_t now_ms)
{
    struct shard *s = shard_of(m, key);
    pthread_mutex_lock(&s->lock);
    struct node *n = shard_find(s, key);
    struct cache_entry *e =
        n && now_ms < n->entry->facts.stale_until_ms && !is_purged(m, n->entry) ? entry_ref(n->entry) : NULL;
    pthread_mutex_unlock(&s->lock);
    return e;
}

/* One hold of the lock; false: there is no room yet, try again. */
static bool try_put(struct cache_memory *m, struct shard *s, struct node *n, uint64_t now_ms,
                    enum memory_put_result *ret)
{
    struct list victims, replaced;
    list_init(&victims);
    list_init(&replaced);
    pthread_mutex_lock(&s->lock);
    struct node *old = shard_find(s, &n->entry->facts.key);
    bool done = true;
    if (old && !is_dead(m, s, old, now_ms) && old->entry->facts.created_ms > n->entry->facts.created_ms) {
        *ret = MEMORY_OUTDATED;
    } else if ((done = shard_make_room(s, n->bytes, EVICT_AT_A_TIME, &victims))) {
        old = shard_find(s, &n->entry->facts.key); /* it may have made room */
        if (old)
            shard_take(s, old, &replaced);
        shard_insert(s, n, old);
        shard_make_room(s, 0, EVICT_AT_A_TIME, &victims); /* the index may have grown */
        s->stats.stored++;
        *ret = MEMORY_STORED;
    }
    pthread_mutex_unlock(&s->lock);
    free_victims(&victims);
    free_victims(&replaced);
    return done;
}

enum memory_put_result memory_put(struct cache_memory *m, struct cache_entry *e, uint64_t now_ms)
{
    if (now_ms >= e->facts.stale_until_ms || is_purged(m, e))
        return MEMORY_OUTDATED;
    if (e->memory_bytes + sizeof(struct node) > m->largest)
        return MEMORY_TOO_LARGE;
    struct node *n = MEM_NEW(struct node);
    n->entry = entry_ref(e);
    n->bytes = e->memory_bytes + malloc_usable_size(n);
    enum memory_put_result result = MEMORY_STORED;
    struct shard *s = shard_of(m, &e->facts.key);
    while (!try_put(m, s, n, now_ms, &result)) {
    }
    if (result != MEMORY_STORED) {
        entry_unref(n->entry);
        free(n);
    }
    return result;
}

bool memory_remove(struct cache_memory *m, const struct cache_digest *key)
{
    struct shard *s = shard_of(m, key);
    struct list victims;
    list_init(&victims);
    pthread_mutex_lock(&s->lock);
    struct node *n = shard_find(s, key);
    if (n)
        shard_take(s, n, &victims);
    pthread_mutex_unlock(&s->lock);
    free_victims(&victims);
    return n != NULL;
}

static unsigned sweep_shard(struct cache_memory *m, struct shard *s, uint64_t now_ms, unsigned steps)
{
    struct list victims;
    unsigned freed = 0;
    list_init(&victims);
    pthread_mutex_lock(&s->lock);
    for (; steps > 0; steps--) {
        if (s->sweep_at >= s->nodes.cap) {
            s->sweep_at = 0;
            break;
        }
        struct node *n = s->nodes.slot[s->sweep_at].p;
        if (n && is_dead(m, s, n, now_ms)) {
            shard_take(s, n, &victims); /* something else may stand in this slot now */
            freed++;
        } else {
            s->sweep_at++;
        }
    }
    pthread_mutex_unlock(&s->lock);
    free_victims(&victims);
    return freed;
}

unsigned memory_sweep(struct cache_memory *m, uint64_t now_ms, unsigned steps)
{
    enum { AT_A_TIME = 256 };
    unsigned freed = 0;
    for (unsigned done = 0; done < steps; done += AT_A_TIME) {
        unsigned i = atomic_fetch_add_explicit(&m->sweep_shard, 1, memory_order_relaxed);
        unsigned some = steps - done < AT_A_TIME ? steps - done : AT_A_TIME;
        freed += sweep_shard(m, &m->shards[i & (m->n_shards - 1)], now_ms, some);
    }
    return freed;
}

void memory_stats(struct cache_memory *m, struct memory_stats *ret)
{
    struct memory_stats sum = {.bytes = sizeof *m + m->n_shards * sizeof *m->shards};
    for (unsigned i = 0; i < m->n_shards; i++) {
        struct shard *s = &m->shards[i];
        pthread_mutex_lock(&s->lock);
        sum.bytes += s->bytes;
        sum.entries += s->nodes.n;
        if (s->scopes.n > sum.scopes)
            sum.scopes = s->scopes.n;
        sum.hits += s->stats.hits;
        sum.misses += s->stats.misses;
        sum.stale_hits += s->stats.stale_hits;
        sum.stored += s->stats.stored;
        sum.evicted += s->stats.evicted;
        sum.expired += s->stats.expired;
        sum.purged += s->stats.purged;
        pthread_mutex_unlock(&s->lock);
    }
    *ret = sum;
}
