/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares what is used of budgets and rate limits between gateways, through Redis: adds what was used here to
 * a counter for each of them, and reads what all have used. Four times a second, in the background; requests
 * never wait for it, and while Redis is away each gateway goes on with what it last heard and counts on its
 * own.
 *
 * Keys: "<prefix>:limits:<kind>:<scope>:<hash of the name>:<period>", plain counters that expire.
 *
 * Threads: one loop's; the limits themselves are used by all.
 */
#ifndef ROLTER_POLICY_LIMITS_SHARE_H
#define ROLTER_POLICY_LIMITS_SHARE_H

#include "policy/limits.h"
#include "redis/redis.h"

struct limits_share;

/* Takes a reference on <l> and on <server>; <prefix> is copied. */
struct limits_share *limits_share_start(struct limits *l, struct redis_server *server, const char *prefix,
                                        struct net_loop *loop);
/* What is not told to the others yet is lost to them. The loop still runs for a moment: handles close. */
void limits_share_stop(struct limits_share *s);

#endif
