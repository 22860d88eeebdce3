/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the client: server.c (what all loops share), client.c (calls), link.c (one connection), cluster.c
 * (slots, redirects). Nobody else includes this.
 */
#ifndef ROLTER_REDIS_INTERNAL_H
#define ROLTER_REDIS_INTERNAL_H

#include <stdatomic.h>

#include "base/buf.h"
#include "net/dial.h"
#include "observe/metrics.h"
#include "redis/redis.h"
#include "redis/url.h"

enum { REDIS_SLOTS = 16384, REDIS_NODES_MAX = 1000, REDIS_REDIRECTS_MAX = 5 };
enum { REDIS_BACKOFF_MS = 100, REDIS_BACKOFF_MAX_MS = 5000, REDIS_IDLE_MS = 1000 };

enum server_said { SAID_NOTHING, SAID_UP, SAID_AWAY };

struct redis_server {
    _Atomic unsigned refs;
    struct redis_url url;
    struct redis_options o; /* defaults filled in; strings are the server's own */
    struct buf greeting;    /* AUTH, SELECT, PING: what a new connection says first */
    unsigned greeting_replies;

    uv_mutex_t lock; /* a leaf: guards the next three */
    unsigned n_links, n_down;
    enum server_said said;
    _Atomic bool full;         /* it refuses to store */
    _Atomic bool told_cluster; /* it redirects, and nobody said that it is a cluster */
    metric_series_t m_connected, m_reconnects, m_connect_failures, m_commands[REDIS_OUTCOME_COUNT];
};

struct redis_call {
    struct list node; /* in its link's waiting or pending */
    struct redis_client *client;
    redis_fn *fn;
    void *arg;
    struct buf bytes; /* until sent; in a cluster until answered */
    size_t n_bytes;   /* that the client's queued_bytes counts for it */
    uint64_t made_ms, due_ms;
    struct redis_link *redirect; /* where a reply has sent it */
    unsigned skip;               /* replies before the one that counts */
    unsigned skip_all;           /* what <skip> begins with */
    uint8_t n_redirects;
    bool asking;    /* goes out behind ASKING */
    bool cancelled; /* nobody waits for it */
    bool internal;  /* the client's own: neither counted nor limited */
};

enum link_state {
    LINK_RESTING,  /* until retry_ms */
    LINK_DIALING,  /* resolving, connecting, TLS */
    LINK_GREETING, /* connected; not answered yet */
    LINK_UP,
    LINK_CLOSED, /* memory goes with the timer */
};

struct redis_link {
    struct list node; /* in client->links */
    struct redis_client *client;
    struct net_origin origin; /* host, port and tls; nothing else is set. Unused for a Unix socket */
    enum link_state state;
    struct dial *dial;
    struct stream *stream;
    struct redis_reader *reader;
    struct list waiting; /* calls not yet written */
    struct list pending; /* written, in order of their replies */
    uv_timer_t timer;
    uint64_t armed_ms;  /* when the timer fires; 0 = not armed */
    uint64_t retry_ms;  /* RESTING */
    uint64_t greet_due; /* GREETING */
    uint64_t up_ms, read_ms;
    unsigned backoff_ms, greet_left;
    unsigned held;     /* calls whose redirect it is */
    unsigned life;     /* changes with every connection */
    const char *doom;  /* what the last reply says about the connection */
    bool second_look;  /* something is overdue; its answer may lie in the socket */
    bool was_up;       /* once */
    bool failed;       /* since it was up last */
    bool counted;      /* in server->n_links */
    bool counted_down; /* in server->n_down */
    bool mapped;       /* the map of slots names it */
};

struct redis_client {
    struct redis_server *server;
    struct net_loop *loop;
    struct resolver *resolver;
    struct tls_context *tls;
    struct list links;
    unsigned n_links;
    struct redis_link *seed;
    uv_prepare_t prepare; /* runs before the loop waits: writes what the turn has brought */
    bool flushing;
    bool closed;
    unsigned handles; /* open in libuv: memory goes with the last */
    unsigned n_calls;
    size_t queued_bytes;
    /* cluster */
    struct redis_link **slots; /* NULL: no map yet */
    struct redis_call *map_call;
    uint64_t map_ms;
    bool map_stale;
};

/* server.c */
/* <counted>: the state of the link matters for the server's. */
void server_count_link(struct redis_link *l, bool counted);
void server_link_up(struct redis_link *l);
void server_link_down(struct redis_link *l, const char *why);
void server_note_error(struct redis_server *s, const struct redis_reply *error);
void server_note_stored(struct redis_server *s);
void server_tell(struct redis_server *s, bool bad, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* client.c */
struct redis_call *call_new(struct redis_client *c, uint64_t now_ms, unsigned timeout_ms);
/* Takes it out of its list, calls back, frees it. */
void call_finish(struct redis_call *call, enum redis_outcome outcome, const struct redis_reply *reply);
/* Puts the call behind what the link has to write, and sees to it that this happens in this turn. */
void call_send(struct redis_call *call, struct redis_link *l);
void client_flush_soon(struct redis_client *c);
void client_unhold(struct redis_client *c);
/* One command out of words. */
void redis_format(struct buf *b, const struct span *argv, unsigned argc);

/* link.c */
/* A new connection to <host>, which is copied; it begins to connect at once. Host NULL: the Unix socket. */
struct redis_link *link_new(struct redis_client *c, const char *host, uint16_t port);
/* Ends it for good; its calls end with REDIS_LOST. */
void link_close(struct redis_link *l);
void link_flush(struct redis_link *l);
/* Makes the link look at its deadlines at <when> at the latest. */
void link_due(struct redis_link *l, uint64_t when_ms);

/* cluster.c */
/* The link for a key, or for no key in particular; NULL when there is none. */
struct redis_link *cluster_pick(struct redis_client *c, const struct span *key);
/* The map may be out of date. */
void cluster_refresh(struct redis_client *c);
/* Whether an error reply sends the call elsewhere; then call->redirect is set. */
bool cluster_read_redirect(struct redis_call *call, struct redis_link *from, const struct redis_reply *error);
/* Sends a call where its reply has pointed to. */
void cluster_follow(struct redis_call *call);
unsigned cluster_slot(struct span key);

/* Pure readers of what nodes say. An empty host is the host that said it. */
struct cluster_range {
    unsigned first, last;
    struct span host;
    uint16_t port;
};
bool cluster_parse_range(const struct redis_reply *range, struct cluster_range *ret);
struct cluster_redirect {
    unsigned slot;
    struct span host;
    uint16_t port;
    bool ask;
};
bool cluster_parse_redirect(const struct redis_reply *error, struct cluster_redirect *ret);

#endif
