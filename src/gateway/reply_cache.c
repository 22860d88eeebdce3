/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/reply_cache.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "observe/metrics.h"

/* Vectors may take a quarter of what entries may take, beside them; searches need them in memory, also where
 * entries are in Redis alone. */
enum { VECTORS_SHARE = 4, VECTORS_MIN_BYTES = 16 << 20, KNOWN_TEXTS_BYTES = 16 << 20 };

static size_t vectors_bytes(uint64_t memory_bytes)
{
    uint64_t share = memory_bytes / VECTORS_SHARE;
    return share > VECTORS_MIN_BYTES ? (size_t)share : VECTORS_MIN_BYTES;
}

static double vector_bytes_now(void *arg)
{
    struct vectors_stats s;
    vectors_stats(arg, &s);
    return (double)s.bytes;
}

static double vectors_now(void *arg)
{
    struct vectors_stats s;
    vectors_stats(arg, &s);
    return (double)s.entries;
}

/* One line for each change of Redis' state (C10). */
static void tell(void *arg, bool bad, const char *text)
{
    if (bad)
        log_warn("redis: %s", text);
    else
        log_info("redis: %s", text);
}

struct reply_cache *reply_cache_new(const struct settings *s, unsigned n_workers, char *ret_error)
{
    struct store_options o = {
        .memory_bytes = s->cache.memory_bytes,
        .max_entry_bytes = s->cache.max_entry_bytes,
        .name_space = s->cache.name_space,
        .redis_url = s->redis.url,
        .redis_cluster = s->redis.cluster,
        .budget_ms = s->redis.budget_ms,
        .ca_bundles = s->ca_bundles.item,
        .n_ca_bundles = s->ca_bundles.n,
        .tell = tell,
    };
    struct cache_store *store = store_new(&o, ret_error);
    if (!store)
        return NULL;
    struct reply_cache *c = MEM_NEW(struct reply_cache);
    c->store = store;
    c->purge = store_purges(store);
    c->flights = flight_table_new(n_workers);
    c->explain = explain_new();
    c->semantic = semantic_index_new(vectors_bytes(s->cache.memory_bytes));
    struct vectors *v = semantic_index_vectors(c->semantic);
    metric_set_function(metric_plain(M_SEMANTIC_BYTES), vector_bytes_now, v);
    metric_set_function(metric_plain(M_SEMANTIC_VECTORS), vectors_now, v);
    c->embedder = embedder_new(KNOWN_TEXTS_BYTES);
    return c;
}

void reply_cache_free(struct reply_cache *c)
{
    if (!c)
        return;
    flight_table_free(c->flights);
    metric_set_function(metric_plain(M_SEMANTIC_BYTES), NULL, NULL);
    metric_set_function(metric_plain(M_SEMANTIC_VECTORS), NULL, NULL);
    semantic_index_free(c->semantic);
    embedder_free(c->embedder);
    explain_free(c->explain);
    store_free(c->store);
    free(c);
}

struct cache_entry *reply_cache_peek(struct store_port *p, const struct cache_digest *key, uint64_t wall_ms)
{
    struct store_budget none = {0};
    struct store_wait w = {0};
    struct cache_entry *e = NULL;
    enum store_answer a = store_get(p, key, wall_ms, &none, &w, NULL, &e);
    CHECK_MSG(a != STORE_WAIT, "nothing is waited for without a budget");
    return a == STORE_HIT ? e : NULL;
}

void reply_cache_count_not_stored(const char *reason)
{
    metric_add(metric_series(M_CACHE_NOT_STORED, reason, NULL, NULL), 1);
}
