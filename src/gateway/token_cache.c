/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/token_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/list.h"
#include "base/mem.h"
#include "base/rng.h"

enum { SHARDS = 16, BUCKETS = 1024 };

struct entry {
    struct list recent; /* in the shard, newest first */
    struct entry *chain;
    uint64_t key;
    size_t n;
    uint32_t id[];
};

struct shard {
    pthread_mutex_t lock;
    struct list recent;
    size_t bytes;
    struct entry *bucket[BUCKETS];
};

struct token_cache {
    uint64_t seed;
    size_t shard_max;
    struct shard shard[SHARDS];
};

struct token_cache *token_cache_new(size_t max_bytes)
{
    struct token_cache *c = MEM_NEW(struct token_cache);
    c->shard_max = max_bytes / SHARDS;
    rng_secure_bytes(&c->seed, sizeof c->seed);
    for (int i = 0; i < SHARDS; i++) {
        CHECK(pthread_mutex_init(&c->shard[i].lock, NULL) == 0);
        list_init(&c->shard[i].recent);
    }
    return c;
}

uint64_t token_cache_seed(const struct token_cache *c)
{
    return c->seed;
}

static size_t bytes_of(size_t n)
{
    return sizeof(struct entry) + n * sizeof(uint32_t);
}

static struct shard *shard_of(struct token_cache *c, uint64_t key)
{
    return &c->shard[key % SHARDS];
}

static struct entry **place_of(struct shard *s, uint64_t key)
{
    struct entry **at = &s->bucket[key / SHARDS % BUCKETS];
    while (*at && (*at)->key != key)
        at = &(*at)->chain;
    return at;
}

static void drop(struct shard *s, struct entry **at)
{
    struct entry *e = *at;
    *at = e->chain;
    list_remove(&e->recent);
    s->bytes -= bytes_of(e->n);
    free(e);
}

void token_cache_free(struct token_cache *c)
{
    if (!c)
        return;
    for (int i = 0; i < SHARDS; i++) {
        struct shard *s = &c->shard[i];
        while (!list_empty(&s->recent))
            drop(s, place_of(s, LIST_ITEM(s->recent.next, struct entry, recent)->key));
        pthread_mutex_destroy(&s->lock);
    }
    free(c);
}

bool token_cache_get(struct token_cache *c, uint64_t key, struct arena *a, struct token_ids *ret)
{
    struct shard *s = shard_of(c, key);
    pthread_mutex_lock(&s->lock);
    struct entry *e = *place_of(s, key);
    if (e) {
        list_remove(&e->recent);
        list_push_front(&s->recent, &e->recent);
        uint32_t *id = arena_alloc(a, e->n * sizeof *id);
        memcpy(id, e->id, e->n * sizeof *id);
        *ret = (struct token_ids){.id = id, .n = e->n};
    }
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

void token_cache_put(struct token_cache *c, uint64_t key, const struct token_ids *ids)
{
    size_t bytes = bytes_of(ids->n);
    if (ids->n == 0 || bytes > c->shard_max)
        return;
    struct entry *e = mem_alloc(bytes);
    *e = (struct entry){.key = key, .n = ids->n};
    memcpy(e->id, ids->id, ids->n * sizeof *e->id);
    struct shard *s = shard_of(c, key);
    pthread_mutex_lock(&s->lock);
    struct entry **at = place_of(s, key);
    if (*at)
        drop(s, at);
    while (s->bytes + bytes > c->shard_max)
        drop(s, place_of(s, LIST_ITEM(s->recent.prev, struct entry, recent)->key));
    at = place_of(s, key);
    e->chain = *at;
    *at = e;
    list_push_front(&s->recent, &e->recent);
    s->bytes += bytes;
    pthread_mutex_unlock(&s->lock);
}

size_t token_cache_bytes(struct token_cache *c)
{
    size_t n = 0;
    for (int i = 0; i < SHARDS; i++) {
        pthread_mutex_lock(&c->shard[i].lock);
        n += c->shard[i].bytes;
        pthread_mutex_unlock(&c->shard[i].lock);
    }
    return n;
}
