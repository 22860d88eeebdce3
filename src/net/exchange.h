/* SPDX-License-Identifier: Apache-2.0
 *
 * One HTTP/1.1 request to an upstream and its reply, over a connection from a pool of kept ones. Everything
 * that calls out uses it: the gateway's requests (streaming), and through call.h probes, metric scrapes, log
 * sinks.
 *
 * A kept connection that turns out closed before a single byte of the reply came is replaced by a new one,
 * once, without telling. Reading can be paused; cancelling closes the connection. One pool per loop. Thread:
 * the loop's. Time-outs: connect (resolve + connect + TLS), head (from the request sent to the complete
 * head), idle (between two reads of the body).
 */
#ifndef ROLTER_NET_EXCHANGE_H
#define ROLTER_NET_EXCHANGE_H

#include <sys/uio.h>

#include "http/head.h"
#include "net/loop.h"
#include "net/origin.h"

struct pool;
struct exchange;

enum exchange_fail {
    EXCHANGE_RESOLVE, /* the name has no address */
    EXCHANGE_EGRESS,  /* the address is not allowed */
    EXCHANGE_CONNECT, /* refused, unreachable */
    EXCHANGE_TLS,     /* handshake or certificate */
    EXCHANGE_CONNECT_TIMEOUT,
    EXCHANGE_HEAD_TIMEOUT,
    EXCHANGE_IDLE_TIMEOUT,
    EXCHANGE_RESET,     /* the connection broke or ended before the reply was complete */
    EXCHANGE_BAD_REPLY, /* not HTTP, both lengths, broken chunks, head too large */
    EXCHANGE_FAIL_COUNT
};
/* Stable word for rows and metrics: "resolve", "egress_blocked", "connect", "tls", "connect_timeout"... */
const char *exchange_fail_name(enum exchange_fail f);

struct exchange_events {
    /* The reply's head; lives during the call only. 1xx heads are skipped. */
    void (*on_head)(struct exchange *x, void *arg, const struct http_head *h);
    /* Decoded body bytes (no chunk framing); live during the call only... */
    void (*on_body)(struct exchange *x, void *arg, const char *p, size_t n);
    /* ...and until this one, which comes once after each read that brought a head or a body: whoever collects
     * slices of one read for one vectored write writes them here. A read that completes the reply has on_end
     * instead. May be NULL. */
    void (*on_flush)(struct exchange *x, void *arg);
    /* The reply is complete and its framing intact (<close_delimited>: it ended with the connection); the
     * slices of this read still live. The exchange is gone when this returns. */
    void (*on_end)(struct exchange *x, void *arg, bool close_delimited);
    /* It failed. The exchange is gone when this returns. <detail>: text for a log, may be NULL; lives during
     * the call. */
    void (*on_fail)(struct exchange *x, void *arg, enum exchange_fail why, const char *detail);
};

struct exchange_options {
    unsigned connect_ms, head_ms, idle_ms; /* 0 = no limit */
    bool head_request;
    size_t max_head_bytes; /* of the reply; 0 = 256 KiB */
};

/* Keeps at most <max_idle_per_origin> idle connections, each for <idle_ms>. */
struct pool *pool_new(struct net_loop *l, unsigned max_idle_per_origin, unsigned idle_ms);
/* Closes idle connections; exchanges must be over. */
void pool_free(struct pool *p);
size_t pool_idle(const struct pool *p);
struct net_loop *pool_loop(const struct pool *p);

/* Starts. The bytes of <head> and <body> (a complete HTTP/1.1 request head, and 0 or more body parts) stay in
 * place until the exchange is over; the vectors themselves are copied. On a kept connection the request is
 * written before this returns. No callback comes from inside this call. <origin> and <ev> live as long as the
 * exchange. */
struct exchange *exchange_start(struct pool *p, const struct net_origin *origin, struct span head,
                                const struct iovec *body, unsigned n_body, const struct exchange_options *o,
                                const struct exchange_events *ev, void *arg);
/* Stops and resumes reading from the upstream (back-pressure). What one read had brought before still comes
 * (at most NET_READ_BYTES), also the end. The time-outs rest while paused. */
void exchange_pause(struct exchange *x);
void exchange_resume(struct exchange *x);
/* Ends it at once; no callback follows. The connection is closed (reset), so the upstream notices. May be
 * called from inside any callback; in on_end and on_fail it changes nothing. */
void exchange_cancel(struct exchange *x);
/* Whether the request is sent or copied and will not be sent again: from on_head on, when this is true,
 * nobody looks at the bytes of its head and body any more. */
bool exchange_is_sent(const struct exchange *x);
/* Whether a connection was reused (for tests and metrics). */
bool exchange_reused(const struct exchange *x);
/* Counters of the pool: connections opened, failures to connect. */
struct pool_counts {
    uint64_t connects, connect_errors, reused, replaced;
};
struct pool_counts pool_counts(const struct pool *p);

#endif
