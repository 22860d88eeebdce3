/* SPDX-License-Identifier: Apache-2.0 */
#include "net/dial.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum { TEXT_BYTES = 200 };

struct dial {
    struct net_loop *loop;
    const struct net_origin *origin;
    struct tls_context *tls;
    dial_fn *done;
    void *arg;
    struct resolve_wait wait;
    struct net_post start;
    struct stream *stream; /* of the current try */
    uv_timer_t timer;
    uint64_t deadline; /* ms; 0 = none */
    struct resolve_addrs addrs;
    unsigned next; /* address to try */
    enum exchange_fail why;
    bool tried; /* some address was allowed, so <why> is about connecting */
    char text[TEXT_BYTES];
};

static void on_timer_closed(uv_handle_t *h)
{
    struct dial *d = CONTAINER_OF((uv_timer_t *)h, struct dial, timer);
    free(d);
}

/* Memory goes with the timer, so <d> may be read until the next turn. */
static void dial_drop(struct dial *d)
{
    resolver_forget(&d->wait);
    net_loop_undefer(&d->start);
    if (d->stream)
        stream_close(d->stream, true);
    d->stream = NULL;
    uv_close((uv_handle_t *)&d->timer, on_timer_closed);
}

static void dial_fail(struct dial *d)
{
    dial_drop(d);
    d->done(d->arg, NULL, d->why, d->text[0] ? d->text : NULL);
}

static void try_next(struct dial *d);

static void note(struct dial *d, enum exchange_fail why, const char *text)
{
    d->why = why;
    snprintf(d->text, sizeof d->text, "%s", text);
}

/* No callback of a stream without an owner comes: nothing reads before somebody takes it over. */
static const struct stream_events NO_EVENTS = {0};

static void on_connect(struct stream *s, void *arg, int err)
{
    struct dial *d = arg;
    if (err == 0) {
        d->stream = NULL;
        dial_drop(d);
        d->done(d->arg, s, 0, NULL);
        return;
    }
    const char *tls = stream_tls_error(s);
    bool is_tls = err == STREAM_ERR_TLS || tls;
    note(d, is_tls ? EXCHANGE_TLS : EXCHANGE_CONNECT, is_tls ? (tls ? tls : "TLS failed") : uv_strerror(err));
    d->stream = NULL; /* closes by itself */
    try_next(d);
}

static void on_timeout(uv_timer_t *timer)
{
    struct dial *d = CONTAINER_OF(timer, struct dial, timer);
    note(d, EXCHANGE_CONNECT_TIMEOUT,
         d->stream ? "no connection in time" : "the name was not resolved in time");
    if (d->stream)
        stream_close(d->stream, true);
    d->stream = NULL;
    uv_update_time(&d->loop->uv);
    if (net_now_ms(d->loop) >= d->deadline)
        dial_fail(d);
    else
        try_next(d);
}

static void arm_share(struct dial *d)
{
    if (!d->deadline)
        return;
    uint64_t now = net_now_ms(d->loop), left = d->deadline > now ? d->deadline - now : 0;
    uv_timer_start(&d->timer, on_timeout, left / (d->addrs.n - d->next + 1), 0);
}

static void try_next(struct dial *d)
{
    while (d->next < d->addrs.n) {
        union net_addr *a = &d->addrs.a[d->next++];
        const char *what = egress_refuses(d->origin->egress, d->origin->host, &a->sa);
        if (what) {
            if (d->tried)
                continue;
            d->why = EXCHANGE_EGRESS;
            snprintf(d->text, sizeof d->text, "%s has a %s address", d->origin->host, what);
            continue;
        }
        d->tried = true;
        *(a->sa.sa_family == AF_INET6 ? &a->v6.sin6_port : &a->v4.sin_port) = htons(d->origin->port);
        arm_share(d);
        d->stream = stream_connect(d->loop, &a->sa, d->tls, d->origin->host, on_connect, &NO_EVENTS, d);
        return;
    }
    dial_fail(d);
}

static void on_addrs(struct resolve_wait *w, const struct resolve_addrs *addrs, int err)
{
    struct dial *d = CONTAINER_OF(w, struct dial, wait);
    if (err) {
        note(d, EXCHANGE_RESOLVE, uv_strerror(err));
        dial_fail(d);
        return;
    }
    d->addrs = *addrs;
    try_next(d);
}

static void on_start(struct net_post *p, struct net_loop *l)
{
    (void)l;
    try_next(CONTAINER_OF(p, struct dial, start));
}

struct dial *dial_start(struct net_loop *l, struct resolver *r, const struct net_origin *o,
                        struct tls_context *tls, unsigned timeout_ms, dial_fn *done, void *arg)
{
    struct dial *d = MEM_NEW(struct dial);
    d->loop = l;
    d->origin = o;
    d->tls = tls;
    d->done = done;
    d->arg = arg;
    d->wait.fn = on_addrs;
    d->start.fn = on_start;
    list_init(&d->wait.node);
    list_init(&d->start.node);
    uv_timer_init(&l->uv, &d->timer);
    if (timeout_ms) {
        d->deadline = net_now_ms(l) + timeout_ms;
        uv_timer_start(&d->timer, on_timeout, timeout_ms, 0);
    }
    if (resolver_lookup(r, o->host, &d->wait, &d->addrs)) {
        /* Connecting calls back later; a refusal must not come from inside this call either. */
        if (egress_refuses(o->egress, o->host, &d->addrs.a[0].sa))
            net_loop_defer(l, &d->start);
        else
            try_next(d);
    }
    return d;
}

void dial_cancel(struct dial *d)
{
    dial_drop(d);
}
