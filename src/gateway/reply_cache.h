/* SPDX-License-Identifier: Apache-2.0
 *
 * The response cache of a process: the store, purges, flights under way, counters. One for the gateway's
 * life; it survives reloads. Made when the first configuration asks for it. Threads: all of it from any
 * thread.
 */
#ifndef ROLTER_GATEWAY_REPLY_CACHE_H
#define ROLTER_GATEWAY_REPLY_CACHE_H

#include "cache/flight.h"
#include "cache/memory.h"
#include "gateway/settings.h"

enum cache_kind { CACHE_NO_KIND, CACHE_EXACT, CACHE_SEMANTIC, CACHE_COALESCED };
enum cache_result { CACHE_MISS, CACHE_HIT, CACHE_BYPASS };

struct reply_cache {
    struct cache_purge *purge;
    struct cache_memory *memory;
    struct flight_table *flights;
};

struct reply_cache *reply_cache_new(const struct cache_settings *s, unsigned n_workers);
/* NULL is allowed. */
void reply_cache_free(struct reply_cache *c);
/* Gives memory of entries that are over back; now and then, from one thread. */
void reply_cache_sweep(struct reply_cache *c, uint64_t wall_ms);
/* A reply that was not stored; <reason> is a word of this program. */
void reply_cache_count_not_stored(const char *reason);

#endif
