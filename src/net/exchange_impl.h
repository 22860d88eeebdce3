/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of an exchange, shared by exchange.c (life, time, sending) and exchange_reply.c (the reply).
 */
#ifndef ROLTER_NET_EXCHANGE_IMPL_H
#define ROLTER_NET_EXCHANGE_IMPL_H

#include "http/chunk.h"
#include "net/pool_impl.h"

enum { VECS_INLINE = 4 };

enum state {
    STATE_CONNECT, /* nothing sent; dialling, or about to */
    STATE_HEAD,    /* sending, and waiting for the reply's head */
    STATE_BODY,
    STATE_OVER, /* the last callback runs or has run */
};

struct exchange {
    struct list node; /* of the pool's free ones */
    struct pool *pool;
    struct pool_group *group;
    struct pool_conn *conn; /* from the connection until the reply is complete */
    struct dial *dial;      /* while connecting */
    const struct net_origin *origin;
    const struct exchange_events *ev;
    void *arg;
    struct exchange_options o;

    struct iovec few[VECS_INLINE];
    struct iovec *vec;  /* head and body: <few>, or on the heap */
    unsigned n_vec, at; /* how many, and which is sent next */
    size_t at_off;      /* bytes of it that were sent */

    uv_timer_t timer;
    uint64_t deadline; /* ms; 0 = none. The timer may be armed for earlier and then looks again. */
    uint64_t armed;    /* ms, when the timer fires; meaningful while it is active */
    struct net_post later;

    struct buf hold; /* a head that came in pieces */
    size_t scanned;
    uint64_t left; /* bytes of a body with a length */
    struct http_chunk chunk;
    uint8_t state;
    uint8_t body; /* enum http_body_kind */
    uint8_t busy; /* calls on the stack that use this object */
    bool gone;    /* over, memory kept while busy */
    bool paused;
    bool unflushed;  /* on_head or on_body since the last on_flush */
    bool keep_alive; /* what the reply says */
    bool got_bytes;
    bool reused, replaced;
};

_Static_assert(sizeof(struct exchange) < 1024, "many streams are open at once");

/* Callbacks may end the exchange, which then is `gone`; whoever calls them keeps its memory between these
 * two. */
void exchange_enter(struct exchange *x);
void exchange_leave(struct exchange *x);
/* Calls on_flush if bytes were given since the last one. */
void exchange_flush(struct exchange *x);
/* The last callback, and the end. */
void exchange_give_up(struct exchange *x, enum exchange_fail why, const char *detail);
/* The reply is complete; <rest> bytes came behind it. */
void exchange_finish(struct exchange *x, size_t rest, bool close_delimited);
/* Takes the connection away from the exchange; NULL when it had none. */
struct pool_conn *exchange_detach(struct exchange *x);
void exchange_set_deadline(struct exchange *x, unsigned ms);
/* Gives the stream the next piece of the request when it has sent the one before. */
void exchange_send_more(struct exchange *x);
/* Opens a new connection and sends the request on it. */
void exchange_dial(struct exchange *x);

/* What a stream tells a pool_conn. */
extern const struct stream_events EXCHANGE_CONN_EVENTS;

#endif
