/* SPDX-License-Identifier: Apache-2.0
 *
 * The semantic index of a process: vectors in memory, where every search runs, and a shared copy in Redis
 * from which other gateways' entries come. In Redis each partition is a stream under
 * "NAMESPACE:semantic:v4:{PARTITION}" of records (cache/semantic_record.h), trimmed to the newest
 * max_candidates. A lookup fetches what came since its process looked last, so that it costs some hundred
 * bytes when nothing did, and never a body.
 *
 * Redis may be away at any moment: then a search finds what memory has.
 *
 * Threads: an index from all; a sync on the loop of its Redis client. Locks: one for the table of streams, a
 * leaf; those of cache/vectors.h. Times: wall clock, ms.
 */
#ifndef ROLTER_CACHE_SEMANTIC_INDEX_H
#define ROLTER_CACHE_SEMANTIC_INDEX_H

#include "cache/digest.h"
#include "cache/embedding.h"
#include "cache/vectors.h"
#include "redis/redis.h"

struct semantic_index;

struct semantic_index *semantic_index_new(size_t max_bytes);
/* NULL is allowed. */
void semantic_index_free(struct semantic_index *s);
/* For searches. */
struct vectors *semantic_index_vectors(struct semantic_index *s);

/* A loop's way to the shared copy. <redis> NULL: there is none. */
struct semantic_port {
    struct semantic_index *index;
    struct redis_client *redis;
    const char *name_space;
};

/* Part of a request while it waits. Zeroed once before. */
struct semantic_sync {
    void (*done)(struct semantic_sync *y);
    struct semantic_port *port;
    struct cache_digest partition;
    unsigned window, kind;
    struct redis_call *call;
};

/* Fetches what is new of a partition. True: <done> comes within <timeout_ms>, not from inside this call,
 * whether or not anything came. False: there is nothing to wait for. */
bool semantic_sync_start(struct semantic_sync *y, struct semantic_port *p,
                         const struct cache_digest *partition, unsigned window, unsigned timeout_ms);
/* <done> does not come. Idempotent. */
void semantic_sync_cancel(struct semantic_sync *y);

/* Adds an entry, here and without waiting in Redis, where the partition's stream lives at least until the
 * entry expires. False when the vector is refused. */
bool semantic_index_put(struct semantic_port *p, const struct cache_digest *partition, unsigned window,
                        const struct embedding *vector, const struct vectors_entry *e, uint64_t now_ms);

struct semantic_index_stats {
    uint64_t syncs, fetched, broken, failed, bytes; /* records; bytes of them */
};
void semantic_index_stats(struct semantic_index *s, struct semantic_index_stats *ret);

#endif
