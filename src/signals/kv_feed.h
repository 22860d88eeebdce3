/* SPDX-License-Identifier: Apache-2.0
 *
 * Listens to engines' KV-cache events over ZeroMQ and tells the KV block index (P1, P2, P8 to P10): one
 * subscriber per provider and data-parallel rank, on the signals thread. libzmq has a thread of its own for
 * the transport; messages are taken on the loop in portions of some milliseconds, so that probes, the admin
 * listener and reloads keep their turns, whatever publishers send.
 *
 * What is bounded: frames (KV_FRAME_MAX), bytes that libzmq has read ahead (KV_BACKLOG_MAX and what comes in
 * a tick; then the connection is given up), batches held during a replay, replays at a time.
 */
#ifndef ROLTER_SIGNALS_KV_FEED_H
#define ROLTER_SIGNALS_KV_FEED_H

#include "balance/kv_source.h"
#include "fleet/provider.h"
#include "net/loop.h"

enum { KV_FRAME_MAX = 16 << 20, KV_BACKLOG_MAX = 64 << 20, KV_REPLAYS_MAX = 8 };

/* [providers.kv_events] */
struct kv_events_settings {
    bool present; /* the table is there */
    const char *endpoint, *topic, *replay_endpoint;
    uint64_t max_blocks;
    unsigned stale_secs, dp_ranks;
    bool bind;
    bool resume; /* on_gap = "resume" */
};

/* NULL, or why no socket can use <endpoint> (static text): tcp://HOST:PORT with room for one port per rank,
 * or ipc:// with one rank. */
const char *kv_endpoint_fault(const char *endpoint, unsigned ranks, bool bind);
/* Whether one of the addresses of <a> is one of <b>, each with one port per rank. A host that stands for all
 * (`*`) is every host. Both without a fault. */
bool kv_endpoints_meet(const char *a, unsigned a_ranks, const char *b, unsigned b_ranks);
/* The host of a tcp:// endpoint without brackets, cut to <size>; empty for others. */
void kv_endpoint_host(const char *endpoint, char *ret, size_t size);

struct kv_feed_settings {
    struct kv_source *source;
    struct provider *provider; /* whose warmth ends with an AllBlocksCleared (A18) */
    const struct kv_events_settings *settings;
};

struct kv_feeds;

struct kv_feeds *kv_feeds_new(struct net_loop *l);
/* Listens to these from now on: what was listened to in the same way goes on, the others end. <s> and what it
 * points to live until the next call. */
void kv_feeds_update(struct kv_feeds *f, const struct kv_feed_settings *s, unsigned n);
void kv_feeds_free(struct kv_feeds *f);

#endif
