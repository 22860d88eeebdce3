/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the store: store.c (memory, then Redis), redis_store.c (entries in Redis), purge_share.c
 * (generations in Redis). Nobody else includes this.
 */
#ifndef ROLTER_CACHE_STORE_IMPL_H
#define ROLTER_CACHE_STORE_IMPL_H

#include <pthread.h>

#include "cache/store.h"
#include "observe/metrics.h"

struct purge_share;

enum redis_result { FOUND, NOTHING, BROKEN, OUTDATED, SKIPPED, FAILED, STORED, NOT_STORED, REDIS_RESULTS };

struct cache_store {
    struct store_options o; /* strings are the store's own; those of Redis are NULL */
    struct cache_purge *purges;
    struct cache_memory *memory;
    struct redis_server *server; /* NULL: memory alone */
    struct purge_share *share;   /* the same */
    _Atomic uint64_t counts[REDIS_RESULTS], n_purges;
    _Atomic bool has_keeper; /* a port that shares purges and sweeps memory */
    metric_series_t m_results[REDIS_RESULTS];
};

struct store_port {
    struct cache_store *store;
    struct net_loop *loop;
    struct resolver *resolver;
    struct redis_client *redis;
    struct list waits;
    uv_timer_t *keeper; /* of the one port that has it */
};

void store_count(struct cache_store *s, enum redis_result r);

/* redis_store.c. True: the answer comes to redis_store_answer. */
bool redis_store_get(struct store_port *p, struct store_wait *w);
void redis_store_put(struct store_port *p, const struct cache_entry *e, uint64_t now_ms);
void redis_store_remove(struct store_port *p, const struct cache_digest *key);
/* store.c: <e> is handed over; it is whole, of <w>'s key, and not over. */
void store_answered(struct store_wait *w, struct cache_entry *e);

/* purge_share.c */
struct purge_share *share_new(struct cache_store *s);
void share_free(struct purge_share *s);
/* Whether the purges that stand in Redis are known here. Any thread. */
bool share_is_known(const struct purge_share *s);
/* A purge of this process, to be told. Any thread. */
void share_purge(struct purge_share *s, enum purge_kind kind, uint64_t id, uint64_t generation);
/* Tells and asks; call it every SHARE_EVERY_MS on one loop. */
void share_tick(struct purge_share *s, struct redis_client *c);
/* The client that share_tick was called with is gone. */
void share_stop(struct purge_share *s);

enum { SHARE_EVERY_MS = 200, SHARE_FIRST_MS = 10 };

#endif
