/* SPDX-License-Identifier: Apache-2.0
 *
 * The store of replies: memory first, then Redis when there is one. What Redis gives is put into memory with
 * the life that it has left; nothing here makes a life longer. Redis holds an entry under "NAMESPACE:KEY" (64
 * hexadecimal digits) in the binary form of cache/entry.h, for its life and its stale windows.
 *
 * `struct cache_store` is one for the process; `struct store_port` is a loop's way to it, with the loop's
 * connection to Redis. What is memory's alone is answered at once.
 *
 * Redis is optional at every moment: away, slow, full, restarted, or with foreign bytes under a key, it means
 * a miss and a count, never an error. All waiting of one request draws on one budget (`store_budget`, C10).
 * Redis is asked only by a process that knows the purges that stand there: one that just started or was cut
 * off learns them first.
 *
 * Threads: a store from all; a port, its waits and callbacks on its loop's thread. Times: wall clock, ms.
 */
#ifndef ROLTER_CACHE_STORE_H
#define ROLTER_CACHE_STORE_H

#include "cache/memory.h"
#include "net/loop.h"
#include "redis/redis.h"

struct cache_store;
struct store_port;

enum { STORE_NAMESPACE_MAX = 200 };

struct store_options {
    uint64_t memory_bytes;
    uint64_t
        max_entry_bytes;    /* largest body; larger ones are not believed when Redis has them. 0: no limit */
    const char *name_space; /* NULL = "rolter:cache" */
    /* Redis; NULL: memory alone. <budget_ms> is what a request waits at most, and how late an answer means
     * that the server is away; 0 = 50. The rest as in redis/redis.h. */
    const char *redis_url;
    bool redis_cluster;
    unsigned budget_ms;
    const char *const *ca_bundles;
    size_t n_ca_bundles;
    void (*tell)(void *arg, bool bad, const char *text);
    void *tell_arg;
};

/* NULL when it can be one, else why not. */
const char *store_namespace_fault(const char *name_space);

/* NULL with a text in ret_error (256 bytes): the URL, the namespace or a CA bundle cannot be used. */
struct cache_store *store_new(const struct store_options *o, char *ret_error);
/* The ports are closed. NULL is allowed. */
void store_free(struct cache_store *s);
/* A loop's port. Connects to Redis in the background. */
struct store_port *store_open(struct cache_store *s, struct net_loop *l);
/* No callback comes any more; waits are over. NULL is allowed. */
void store_close(struct store_port *p);
struct cache_store *store_of(const struct store_port *p);
/* The port's own client, for what else lies in Redis beside the entries; NULL: memory alone. */
struct redis_client *store_redis(const struct store_port *p);
const char *store_namespace(const struct cache_store *s);

/* What one request may still wait; begin with store_budget_begin, and give it to every call of the request.
 */
struct store_budget {
    unsigned left_us;
};
void store_budget_begin(const struct cache_store *s, struct store_budget *ret);

enum store_answer { STORE_MISS, STORE_HIT, STORE_WAIT };

struct store_wait;
/* <e>: the caller's reference, fresh or in its stale window (entry_is_fresh), or NULL. */
typedef void store_fn(struct store_wait *w, struct cache_entry *e);

/* Lives in the request while it waits. */
struct store_wait {
    store_fn *fn;
    /* the store's */
    struct list node;
    struct store_port *port;
    struct store_budget *budget;
    struct redis_call *call;
    struct cache_entry *stale; /* what memory has, past its life */
    struct cache_digest key;
    uint64_t began_us;
};

/* Looks <key> up. STORE_HIT: *ret_entry is the caller's reference. STORE_WAIT: <fn> comes within the budget,
 * never from inside this call; <w> and <budget> stay in place until then or until store_cancel. A stale entry
 * of memory is given only when Redis has no fresh one. <fn> NULL: memory alone is asked. */
enum store_answer store_get(struct store_port *p, const struct cache_digest *key, uint64_t now_ms,
                            struct store_budget *budget, struct store_wait *w, store_fn *fn,
                            struct cache_entry **ret_entry);
/* <fn> does not come; what was waited counts against the budget. Not waiting: nothing happens, if <w> was
 * zeroed once. */
void store_cancel(struct store_wait *w);

/* What memory has, for whoever only looks (memory_peek). Any thread. */
struct cache_entry *store_peek(struct cache_store *s, const struct cache_digest *key, uint64_t now_ms);

/* Stores an entry in memory and, without waiting, in Redis. The caller keeps its reference. The result is
 * memory's. */
enum memory_put_result store_put(struct store_port *p, struct cache_entry *e, uint64_t now_ms);
/* Forgets one key, here and in Redis. */
void store_remove(struct store_port *p, const struct cache_digest *key);

/* The generations that memory and Redis go by; for purge_stamp when an upstream call starts. */
struct cache_purge *store_purges(struct cache_store *s);
/* Purges here at once, and in all gateways with the same Redis and namespace within a second (R62). While
 * Redis is away the others learn it when it is back. Any thread. */
void store_purge(struct cache_store *s, enum purge_kind kind, uint64_t id);

struct store_stats {
    struct memory_stats memory;
    bool has_redis, redis_up;
    /* Lookups in Redis: entries found, nothing found, values that are no entry of this layout, entries over
     * or purged, not asked (away, no budget left, purges unknown), no answer. */
    uint64_t redis_hits, redis_misses, redis_broken, redis_outdated, redis_skipped, redis_failed;
    uint64_t redis_stored, redis_not_stored;
    uint64_t purges; /* asked of this process */
};
void store_stats(struct cache_store *s, struct store_stats *ret);

#endif
