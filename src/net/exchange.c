/* SPDX-License-Identifier: Apache-2.0 */
#include "net/exchange.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "net/exchange_impl.h"

enum {
    VECS_PER_WRITE = 64,
    /* Given to the stream at once, so that a slow upstream queues no more than this. */
    SEND_PIECE_BYTES = 256 << 10,
    KEEP_EXCHANGES = 1024,
    TEXT_BYTES = 256,
};

const char *exchange_fail_name(enum exchange_fail f)
{
    static const char *const NAMES[] = {
        [EXCHANGE_RESOLVE] = "resolve",
        [EXCHANGE_EGRESS] = "egress_blocked",
        [EXCHANGE_CONNECT] = "connect",
        [EXCHANGE_TLS] = "tls",
        [EXCHANGE_CONNECT_TIMEOUT] = "connect_timeout",
        [EXCHANGE_HEAD_TIMEOUT] = "head_timeout",
        [EXCHANGE_IDLE_TIMEOUT] = "idle_timeout",
        [EXCHANGE_RESET] = "reset",
        [EXCHANGE_BAD_REPLY] = "bad_reply",
    };
    _Static_assert(ARRAY_LEN(NAMES) == EXCHANGE_FAIL_COUNT, "every failure has a name");
    CHECK((unsigned)f < EXCHANGE_FAIL_COUNT);
    return NAMES[f];
}

/* ---- life: objects are reused with their timer, which costs no closing per exchange ---- */

static void on_timer_closed(uv_handle_t *h)
{
    free(CONTAINER_OF((uv_timer_t *)h, struct exchange, timer));
}

void exchange_free_kept(struct pool *p)
{
    LIST_EACH(node, &p->free_exchanges)
    {
        struct exchange *x = LIST_ITEM(node, struct exchange, node);
        uv_close((uv_handle_t *)&x->timer, on_timer_closed);
    }
}

static void recycle(struct exchange *x)
{
    struct pool *p = x->pool;
    x->deadline = 0; /* the timer stays armed; the next exchange has use for it, or it finds nothing to do */
    if (x->hold.p)
        buf_fini(&x->hold);
    if (x->vec != x->few)
        free(x->vec);
    x->vec = NULL;
    if (p->n_free_exchanges >= KEEP_EXCHANGES) {
        uv_close((uv_handle_t *)&x->timer, on_timer_closed);
        return;
    }
    list_push_front(&p->free_exchanges, &x->node);
    p->n_free_exchanges++;
}

/* Callbacks may end the exchange; whoever calls them keeps the object until its own return. */
HOT void exchange_enter(struct exchange *x)
{
    x->busy++;
}

HOT void exchange_leave(struct exchange *x)
{
    if (--x->busy == 0 && x->gone)
        recycle(x);
}

struct pool_conn *exchange_detach(struct exchange *x)
{
    struct pool_conn *c = x->conn;
    if (c)
        c->x = NULL;
    x->conn = NULL;
    return c;
}

static void release(struct exchange *x)
{
    struct pool_conn *c = exchange_detach(x);
    if (c)
        pool_conn_close(c, true);
    if (x->dial)
        dial_cancel(x->dial);
    x->dial = NULL;
    net_loop_undefer(&x->later);
    x->state = STATE_OVER;
    x->gone = true;
    x->pool->n_active--;
    if (x->busy == 0)
        recycle(x);
}

static struct exchange *exchange_new(struct pool *p)
{
    struct list *node = list_pop(&p->free_exchanges);
    struct exchange *x;
    if (node) {
        p->n_free_exchanges--;
        x = LIST_ITEM(node, struct exchange, node);
    } else {
        x = MEM_NEW(struct exchange);
        uv_timer_init(&p->loop->uv, &x->timer);
        uv_unref((uv_handle_t *)&x->timer); /* the connection keeps the loop going, not a timer left armed */
        list_init(&x->node);
        list_init(&x->later.node);
    }
    p->n_active++;
    x->pool = p;
    x->conn = NULL;
    x->dial = NULL;
    x->at = 0;
    x->at_off = 0;
    x->deadline = 0;
    x->scanned = 0;
    x->state = STATE_CONNECT;
    x->gone = x->paused = x->unflushed = x->got_bytes = x->reused = x->replaced = false;
    buf_init(&x->hold, SIZE_MAX / 2);
    return x;
}

/* ---- telling the owner ---- */

HOT void exchange_flush(struct exchange *x)
{
    if (!x->unflushed)
        return;
    x->unflushed = false;
    if (x->ev->on_flush)
        x->ev->on_flush(x, x->arg);
}

void exchange_give_up(struct exchange *x, enum exchange_fail why, const char *detail)
{
    struct pool_conn *c = exchange_detach(x);
    if (c)
        pool_conn_close(c, true);
    exchange_flush(x);
    if (x->gone)
        return;
    x->state = STATE_OVER;
    x->ev->on_fail(x, x->arg, why, detail);
    release(x);
}

static bool is_sent(const struct exchange *x)
{
    return x->at == x->n_vec && stream_queued(x->conn->stream) == 0;
}

/* The reply is complete; <rest> bytes came behind it. */
void exchange_finish(struct exchange *x, size_t rest, bool close_delimited)
{
    bool sent = is_sent(x);
    bool keep = x->keep_alive && sent && rest == 0 && !close_delimited && x->pool->max_idle > 0;
    struct pool_conn *c = exchange_detach(x);
    if (!keep) {
        pool_conn_close(c, !sent);
    } else {
        if (x->paused)
            stream_read_start(c->stream);
        pool_conn_put(c); /* before the owner hears of it: its next request may take it at once */
    }
    x->unflushed = false; /* on_end stands for it */
    x->state = STATE_OVER;
    x->ev->on_end(x, x->arg, close_delimited);
    release(x);
}

/* ---- time ---- */

static void on_deadline(uv_timer_t *timer);

/* Costs a store when the timer is armed for earlier, as it is for all but the first read of a body. */
HOT void exchange_set_deadline(struct exchange *x, unsigned ms)
{
    if (ms == 0) {
        x->deadline = 0;
        return;
    }
    x->deadline = net_now_ms(x->pool->loop) + ms;
    if (uv_is_active((uv_handle_t *)&x->timer) && x->armed <= x->deadline)
        return;
    x->armed = x->deadline;
    uv_timer_start(&x->timer, on_deadline, ms, 0);
}

static void on_deadline(uv_timer_t *timer)
{
    struct exchange *x = CONTAINER_OF(timer, struct exchange, timer);
    uint64_t now = net_now_ms(x->pool->loop);
    if (x->deadline == 0 || x->gone)
        return;
    if (now < x->deadline) {
        x->armed = x->deadline;
        uv_timer_start(&x->timer, on_deadline, x->deadline - now, 0);
        return;
    }
    exchange_enter(x);
    if (x->state == STATE_HEAD)
        exchange_give_up(x, EXCHANGE_HEAD_TIMEOUT,
                         x->at < x->n_vec ? "the upstream did not take the request" : NULL);
    else
        exchange_give_up(x, EXCHANGE_IDLE_TIMEOUT, NULL);
    exchange_leave(x);
}

/* ---- sending ---- */

/* Gives the stream the next piece when it has sent the one before. A failure is told through on_error. */
void exchange_send_more(struct exchange *x)
{
    while (x->at < x->n_vec && stream_queued(x->conn->stream) == 0) {
        struct iovec iov[VECS_PER_WRITE];
        unsigned n = 0;
        size_t bytes = 0;
        while (x->at < x->n_vec && n < VECS_PER_WRITE && bytes < SEND_PIECE_BYTES) {
            const struct iovec *v = &x->vec[x->at];
            size_t take = v->iov_len - x->at_off;
            if (take > SEND_PIECE_BYTES - bytes)
                take = SEND_PIECE_BYTES - bytes;
            if (take)
                iov[n++] = (struct iovec){(char *)v->iov_base + x->at_off, take};
            bytes += take;
            x->at_off += take;
            if (x->at_off == v->iov_len) {
                x->at++;
                x->at_off = 0;
            }
        }
        if (stream_writev(x->conn->stream, iov, n) < 0)
            return;
    }
}

static void begin(struct exchange *x)
{
    x->state = STATE_HEAD;
    x->conn->x = x;
    exchange_send_more(x);
    if (!x->paused)
        exchange_set_deadline(x, x->o.head_ms);
}

static void on_dialled(void *arg, struct stream *s, enum exchange_fail why, const char *detail)
{
    struct exchange *x = arg;
    x->dial = NULL;
    if (!s) {
        x->pool->counts.connect_errors++;
        exchange_enter(x);
        exchange_give_up(x, why, detail);
        exchange_leave(x);
        return;
    }
    x->pool->counts.connects++;
    x->conn = pool_conn_new(x->group, s);
    stream_set_owner(s, &EXCHANGE_CONN_EVENTS, x->conn);
    if (!x->paused)
        stream_read_start(s);
    begin(x);
}

static void on_tls_unusable(struct net_post *p, struct net_loop *l)
{
    (void)l;
    struct exchange *x = CONTAINER_OF(p, struct exchange, later);
    char text[TEXT_BYTES] = "";
    /* Tried again for its text; the file may have come meanwhile, but that is for the next request. */
    pool_tls(x->group, x->origin, text);
    exchange_enter(x);
    exchange_give_up(x, EXCHANGE_TLS, text[0] ? text : NULL);
    exchange_leave(x);
}

void exchange_dial(struct exchange *x)
{
    struct tls_context *tls = NULL;
    char text[TEXT_BYTES];
    x->state = STATE_CONNECT;
    x->deadline = 0; /* connecting has its own clock */
    if (x->origin->tls && !(tls = pool_tls(x->group, x->origin, text))) {
        x->later.fn = on_tls_unusable;
        net_loop_defer(x->pool->loop, &x->later);
        return;
    }
    x->dial = dial_start(x->pool->loop, x->pool->resolver, x->origin, tls, x->o.connect_ms, on_dialled, x);
}

/* ---- the owner's calls ---- */

struct exchange *exchange_start(struct pool *p, const struct net_origin *origin, struct span head,
                                const struct iovec *body, unsigned n_body, const struct exchange_options *o,
                                const struct exchange_events *ev, void *arg)
{
    struct exchange *x = exchange_new(p);
    x->origin = origin;
    x->ev = ev;
    x->arg = arg;
    x->o = *o;
    x->n_vec = n_body + 1;
    x->vec = x->n_vec <= VECS_INLINE ? x->few : mem_array(x->n_vec, sizeof *x->vec);
    x->vec[0] = (struct iovec){(void *)head.p, head.n};
    if (n_body)
        memcpy(x->vec + 1, body, n_body * sizeof *body);
    x->group = pool_group_for(p, origin);
    x->conn = pool_conn_take(x->group);
    if (!x->conn) {
        exchange_dial(x);
        return x;
    }
    p->counts.reused++;
    x->reused = true;
    begin(x);
    return x;
}

void exchange_pause(struct exchange *x)
{
    if (x->paused || x->state == STATE_OVER)
        return;
    x->paused = true;
    x->deadline = 0;
    if (x->conn)
        stream_read_stop(x->conn->stream);
}

void exchange_resume(struct exchange *x)
{
    if (!x->paused || x->state == STATE_OVER)
        return;
    x->paused = false;
    if (!x->conn)
        return;
    stream_read_start(x->conn->stream);
    exchange_set_deadline(x, x->state == STATE_HEAD ? x->o.head_ms : x->o.idle_ms);
}

void exchange_cancel(struct exchange *x)
{
    if (x->state == STATE_OVER)
        return; /* from inside its last callback */
    release(x);
}

bool exchange_is_sent(const struct exchange *x)
{
    return x->state == STATE_BODY && x->at == x->n_vec;
}

bool exchange_reused(const struct exchange *x)
{
    return x->reused;
}
