/* SPDX-License-Identifier: Apache-2.0
 *
 * Purge by generations: of everything, of a route, of a scope, of a virtual key, each in O(1). Every entry
 * carries the stamp that its owner had when its upstream call STARTED; it is served while its owner still has
 * that stamp. So a purge also reaches the replies that are under way. What a purged entry occupies is given
 * back when it is looked up, evicted or swept.
 *
 * Generations only grow. With Redis they are shared: a purge also increments Redis' counter, and what is read
 * there is merged (purge_merge), so two gateways that purge at a time end with the same number. A process
 * that was restarted without Redis has an empty store, so it may begin with zeros.
 *
 * Threads: all functions from any thread; purge_stamp takes no lock. Memory: a fixed table; when more than
 * PURGE_MAX names were ever purged, a further one purges everything.
 */
#ifndef ROLTER_CACHE_PURGE_H
#define ROLTER_CACHE_PURGE_H

#include "base/span.h"

/* Whose an entry is: short digests of names (purge_name), and of the scope (C4). A scope that is a virtual
 * key's and the key itself are purged under different kinds, so they may have equal numbers. */
struct cache_owner {
    uint64_t route, scope, key; /* key 0: an anonymous caller */
};

enum purge_kind { PURGE_ALL, PURGE_ROUTE, PURGE_SCOPE, PURGE_KEY, PURGE_KINDS };

enum { PURGE_MAX = 4096 };

struct cache_purge;

struct cache_purge *purge_new(void);
void purge_free(struct cache_purge *p);

/* The number of a route's or key's name: the same in every process; never 0. */
uint64_t purge_name(struct span name);

/* Equal to another stamp of the same owner if and only if nothing that touches it was purged in between. */
uint64_t purge_stamp(const struct cache_purge *p, const struct cache_owner *owner);

/* Everything of <kind> with number <id> (0 for PURGE_ALL) stored or begun so far is gone. Returns the new
 * generation, for other processes. */
uint64_t purge_now(struct cache_purge *p, enum purge_kind kind, uint64_t id);
/* A generation that another process reached: takes the larger one. */
void purge_merge(struct cache_purge *p, enum purge_kind kind, uint64_t id, uint64_t generation);

#endif
