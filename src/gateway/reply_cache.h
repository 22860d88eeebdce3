/* SPDX-License-Identifier: Apache-2.0
 *
 * The response cache of a process: the store, purges, flights under way, counters. One for the gateway's
 * life; it survives reloads. Made when the first configuration asks for it. Threads: all of it from any
 * thread.
 */
#ifndef ROLTER_GATEWAY_REPLY_CACHE_H
#define ROLTER_GATEWAY_REPLY_CACHE_H

#include "cache/embedder.h"
#include "cache/explain.h"
#include "cache/flight.h"
#include "cache/semantic_index.h"
#include "cache/store.h"
#include "gateway/settings.h"

enum cache_kind { CACHE_NO_KIND, CACHE_EXACT, CACHE_SEMANTIC, CACHE_COALESCED };
enum cache_result { CACHE_MISS, CACHE_HIT, CACHE_BYPASS };
enum { CACHE_KINDS = CACHE_COALESCED + 1, CACHE_RESULTS = CACHE_BYPASS + 1 };

/* The words of header, metrics, row and pages; of CACHE_NO_KIND it is NULL. */
static inline const char *cache_kind_name(enum cache_kind k)
{
    static const char *const names[CACHE_KINDS] = {NULL, "exact", "semantic", "coalesced"};
    return names[k];
}

static inline const char *cache_result_name(enum cache_result r)
{
    static const char *const names[CACHE_RESULTS] = {"miss", "hit", "bypass"};
    return names[r];
}

struct reply_cache {
    struct cache_store *store; /* each worker has a port of its own */
    struct cache_purge *purge; /* the store's */
    struct flight_table *flights;
    struct explain *explain;
    struct semantic_index *semantic; /* vectors of stored replies */
    struct embedder *embedder;
};

/* NULL with a text in ret_error (256 bytes): Redis' URL or the namespace cannot be used. */
struct reply_cache *reply_cache_new(const struct settings *s, unsigned n_workers, char *ret_error);
/* The ports are closed. NULL is allowed. */
void reply_cache_free(struct reply_cache *c);
/* What memory has under <key>, without waiting for anybody: a reference, or NULL. */
struct cache_entry *reply_cache_peek(struct store_port *p, const struct cache_digest *key, uint64_t wall_ms);
/* A reply that was not stored; <reason> is a word of this program. */
void reply_cache_count_not_stored(const char *reason);

#endif
