/* SPDX-License-Identifier: Apache-2.0
 *
 * Which target served a session last. Targets are known by identity, so the map survives reloads: the
 * balancers that come after each other in one place share it.
 *
 * Bounded: SESSIONS_MAX sessions in SESSION_SHARDS shards by the hash of the session; a shard that is full
 * forgets the session that was recorded longest ago. A session counts for SESSION_TTL_MS after its last
 * record; asking refreshes nothing. The memory (4.4 MiB) is reserved at the beginning and touched as sessions
 * come.
 *
 * Threads: any. session_map_find takes no lock; recording holds a shard's for a few instructions. O(1). Time
 * is an argument.
 */
#ifndef ROLTER_BALANCE_SESSION_MAP_H
#define ROLTER_BALANCE_SESSION_MAP_H

#include "balance/balance.h"

enum { SESSIONS_MAX = 100000, SESSION_SHARDS = 16, SESSION_TTL_MS = 300000 };

struct session_map;

/* Reference counted, made with one reference. */
struct session_map *session_map_new(void);
struct session_map *session_map_ref(struct session_map *m);
void session_map_unref(struct session_map *m);

/* Identity of the target that served the session within the time, 0 when there is none, or when writers are
 * at the shard all the time: it looks a few times and does not wait. <key>: hash of the session's id. */
uint64_t session_map_find(struct session_map *m, uint64_t key, uint64_t now_ms);
/* <target> serves the session now. */
struct session_receipt session_map_record(struct session_map *m, uint64_t key, uint64_t target,
                                          uint64_t now_ms);
/* Puts back what was there before, unless somebody has recorded the session since. A receipt that is all zero
 * does nothing. */
void session_map_withdraw(struct session_map *m, const struct session_receipt *r);
/* Sessions in it, also those whose time is over. */
unsigned session_map_count(struct session_map *m);

#endif
