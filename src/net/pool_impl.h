/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a pool, shared by pool.c (kept connections, TLS contexts) and exchange.c (what happens on them).
 */
#ifndef ROLTER_NET_POOL_IMPL_H
#define ROLTER_NET_POOL_IMPL_H

#include "base/map.h"
#include "net/dial.h"
#include "net/exchange.h"

/* Origins with one key share connections. Groups stay until the pool goes; there is one for each upstream
 * that a configuration ever named. */
struct pool_group {
    struct list node;
    struct pool *pool;
    char *key;
    struct list idle; /* newest first */
    unsigned n_idle;
    struct tls_context *tls; /* made with the first connection; NULL for plain ones */
};

struct pool_conn {
    struct list node; /* of group->idle */
    struct stream *stream;
    struct pool_group *group;
    struct exchange *x;  /* NULL while idle */
    uint64_t idle_until; /* ms */
};

/* A TLS context serves all origins with the same roots: the system's take long to load. */
struct pool_roots {
    struct list node;
    char *key;
    struct tls_context *tls;
};

struct pool {
    struct net_loop *loop;
    unsigned max_idle, idle_ms;
    struct resolver *resolver;
    struct map groups;
    struct list group_list;
    struct list roots;
    uv_timer_t sweep;
    size_t n_idle;
    size_t n_active; /* exchanges */
    struct list free_exchanges;
    size_t n_free_exchanges;
    struct pool_counts counts;
    struct http_head head; /* the one reply head that is being read; 4 KiB, so not in each exchange */
};

struct pool_group *pool_group_for(struct pool *p, const struct net_origin *o);
/* The context for <o>, borrowed from the group; NULL with a text of 256 bytes when its roots cannot be
 * loaded. */
struct tls_context *pool_tls(struct pool_group *g, const struct net_origin *o, char *ret_error);
/* The kept connection that was used last, or NULL. */
struct pool_conn *pool_conn_take(struct pool_group *g);
struct pool_conn *pool_conn_new(struct pool_group *g, struct stream *s);
/* Keeps it for the next exchange. */
void pool_conn_put(struct pool_conn *c);
void pool_conn_close(struct pool_conn *c, bool reset);

/* exchange.c */
void exchange_free_kept(struct pool *p);

#endif
