/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory store: entries by exact key, bounded by all that they occupy: bodies, entries, nodes, tables,
 * with what the allocator rounds up. An entry that was evicted while somebody still sends it lives until then
 * and does not count any more.
 *
 * What stays is chosen as in S3-FIFO: new entries stand in a small queue of a tenth of the room, those that
 * are asked for there move to the main queue, those that are not leave; what left a short while ago and comes
 * back goes to the main queue at once. Of both queues every scope has its own: when room is needed, the scope
 * that holds most of the queue in question gives way, unless it holds less than half of an equal share of the
 * store; then the one that holds most of all does. So each of n scopes has a 2n-th of the store for itself,
 * the rest is shared by use, and one alone may have everything.
 *
 * An entry never outlives stale_until_ms, and none is returned whose owner was purged since its upstream call
 * started (cache/purge.h).
 *
 * Threads: all functions from any thread. Locks: one for each shard, leaves, held for O(1) steps; nothing is
 * freed under one. Times: wall clock, milliseconds, given by the caller.
 */
#ifndef ROLTER_CACHE_MEMORY_H
#define ROLTER_CACHE_MEMORY_H

#include "cache/entry.h"

struct cache_memory;

struct memory_options {
    uint64_t memory_bytes;     /* of the whole store; 0 stores nothing */
    uint64_t max_entry_bytes;  /* the largest body expected, for the number of shards; 0 = not known */
    struct cache_purge *purge; /* outlives the store */
};

enum memory_put_result {
    MEMORY_STORED,
    MEMORY_TOO_LARGE, /* more than half of a shard */
    MEMORY_OUTDATED,  /* over, purged, or a younger entry is there already */
};

struct memory_stats {
    uint64_t bytes; /* all of it, as it counts against memory_bytes */
    uint64_t entries;
    uint64_t scopes;                   /* that share a shard, at most */
    uint64_t hits, misses, stale_hits; /* lookups that found a fresh entry, none, one in its stale window */
    uint64_t stored, evicted, expired, purged;
};

struct cache_memory *memory_new(const struct memory_options *o);
/* Entries that others hold stay theirs. NULL is allowed. */
void memory_free(struct cache_memory *m);

/* The entry with a reference for the caller, fresh or in its stale window (entry_is_fresh); NULL: none. */
struct cache_entry *memory_get(struct cache_memory *m, const struct cache_digest *key, uint64_t now_ms);
/* The same for whoever only looks: nothing is counted, moved or freed. */
struct cache_entry *memory_peek(struct cache_memory *m, const struct cache_digest *key, uint64_t now_ms);
/* Takes a reference of its own; replaces an entry of the same key that is not younger. */
enum memory_put_result memory_put(struct cache_memory *m, struct cache_entry *e, uint64_t now_ms);
/* Whether there was one. */
bool memory_remove(struct cache_memory *m, const struct cache_digest *key);

/* Frees entries that are over or were purged; looks at up to <steps> entries, going on where the last call
 * stopped, and returns how many it freed. Lookups do not depend on it: it gives memory back. */
unsigned memory_sweep(struct cache_memory *m, uint64_t now_ms, unsigned steps);

void memory_stats(struct cache_memory *m, struct memory_stats *ret);

#endif
