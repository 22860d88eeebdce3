/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's subscription: its sockets, its stream (kv_stream.h), its part of the index. For kv_feed.c.
 */
#ifndef ROLTER_SIGNALS_KV_LINK_H
#define ROLTER_SIGNALS_KV_LINK_H

#include "observe/metrics.h"
#include "signals/kv_apply.h"
#include "signals/kv_feed.h"
#include "signals/kv_stream.h"
#include "signals/zmq_peer.h"

struct kv_link {
    struct kv_feeds *feeds;
    struct kv_feed *feed;
    unsigned rank;
    struct kv_stream stream;
    struct kv_applying applying;
    struct zmq_peer *sub;    /* NULL while it cannot be opened */
    struct zmq_peer *replay; /* NULL when none is under way */
    uint64_t replay_from;
    bool is_replaying;       /* it is its turn */
    struct list replay_node; /* in feeds->replays, while it waits for its turn */
    struct list busy_node;   /* in feeds->busy, while there may be something to take */
    uint64_t open_at_ms;     /* when to try again */
    uint64_t said_at_ms;     /* last line in the log */
    bool trusted;
    unsigned failures;   /* to open, since it was open last */
    bool unsure;         /* the connection was lost, and nothing came since */
    unsigned generation; /* of the provider, when the publisher was known to be what it had been */
};

struct kv_feed {
    struct list node; /* in feeds->all */
    struct kv_source *source;
    struct provider *provider;
    /* Copies. */
    char *endpoint, *topic, *replay_endpoint;
    struct kv_events_settings settings;
    bool wanted; /* by the present configuration */
    struct kv_link *link;
    unsigned n;
};

struct kv_feeds {
    struct net_loop *loop;
    void *context;
    struct list all;
    struct list busy;
    struct list replays; /* links that wait for their turn */
    unsigned replaying;
    struct kv_decoder decoder;
    uv_timer_t tick;
    uv_idle_t work;
    uv_idle_cb on_work;
    unsigned open_handles;
    metric_series_t m_replay[3];
};

void kv_link_init(struct kv_link *k, struct kv_feeds *f, struct kv_feed *feed, unsigned rank);
void kv_link_fini(struct kv_link *k);
/* Takes what there is until <until_ns>; false when there is more. */
bool kv_link_work(struct kv_link *k, uint64_t until_ns);
/* Some times a second. */
void kv_link_tick(struct kv_link *k, uint64_t now_ms);
/* It is this link's turn to replay. */
void kv_link_replay(struct kv_link *k);

/* kv_feed.c */
void kv_feeds_busy(struct kv_link *k);
void kv_feeds_want_replay(struct kv_link *k);
void kv_feeds_replay_over(struct kv_link *k);

/* kv_endpoint.c: <endpoint> with <add> more on its port. */
char *kv_endpoint_of_rank(const char *endpoint, unsigned add);

#endif
