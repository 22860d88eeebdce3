/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares where `least_prefill` sends prompts between gateways, through one stream of Redis or Valkey: what
 * was placed here goes there in batches every 50 ms, what others placed is read as it comes. In the
 * background; no request waits for it. While Redis is away each gateway knows what it has placed itself;
 * placements older than a few seconds are let go, and when Redis is back reading goes on behind the last
 * batch that was read, a minute back at most.
 *
 * Thread: one loop's; the queue is filled by all.
 */
#ifndef ROLTER_SIGNALS_AFFINITY_SYNC_H
#define ROLTER_SIGNALS_AFFINITY_SYNC_H

#include "redis/redis.h"
#include "signals/placement_queue.h"

/* [affinity_sync] */
struct affinity_sync_settings {
    bool enabled;
    const char *stream; /* key */
    unsigned max_len;   /* batches that Redis keeps, about */
};

struct affinity_sync_options {
    const struct affinity_sync_settings *settings; /* copied */
    struct redis_server *server;                   /* a reference is taken */
    struct placement_queue *queue;                 /* of this gateway's picks; outlives it */
    /* What another gateway placed. */
    enum place_result (*apply)(void *arg, const struct placement *p);
    void *arg;
};

struct affinity_sync;

struct affinity_sync *affinity_sync_start(const struct affinity_sync_options *o, struct net_loop *loop);
/* The loop still runs for a moment: handles close. NULL is nothing. */
void affinity_sync_stop(struct affinity_sync *s);

/* Reads the id of an entry of a stream, "1700000000000-0". */
bool affinity_sync_parse_id(struct span id, uint64_t *ret_ms, uint64_t *ret_seq);

#endif
