/* SPDX-License-Identifier: Apache-2.0 */
#include "net/exchange.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "http/chunk.h"
#include "net/pool_impl.h"

enum {
    VECS_INLINE = 4,
    VECS_PER_WRITE = 64,
    SEND_PIECE_BYTES =
        256 << 10, /* given to the stream at once, so that a slow upstream queues no more than this */
    KEEP_EXCHANGES = 1024,
    TEXT_BYTES = 256,
};

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
    uv_timer_stop(&x->timer);
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
static void enter(struct exchange *x)
{
    x->busy++;
}

static void leave(struct exchange *x)
{
    if (--x->busy == 0 && x->gone)
        recycle(x);
}

static struct pool_conn *detach(struct exchange *x)
{
    struct pool_conn *c = x->conn;
    if (c)
        c->x = NULL;
    x->conn = NULL;
    return c;
}

static void release(struct exchange *x)
{
    struct pool_conn *c = detach(x);
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

static void flush(struct exchange *x)
{
    if (!x->unflushed)
        return;
    x->unflushed = false;
    if (x->ev->on_flush)
        x->ev->on_flush(x, x->arg);
}

static void fail(struct exchange *x, enum exchange_fail why, const char *detail)
{
    struct pool_conn *c = detach(x);
    if (c)
        pool_conn_close(c, true);
    flush(x);
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
static void finish(struct exchange *x, size_t rest, bool close_delimited)
{
    bool sent = is_sent(x);
    bool keep = x->keep_alive && sent && rest == 0 && !close_delimited && x->pool->max_idle > 0;
    struct pool_conn *c = detach(x);
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

static void give_body(struct exchange *x, const char *p, size_t n)
{
    x->unflushed = true;
    x->ev->on_body(x, x->arg, p, n);
}

/* ---- time ---- */

static void on_deadline(uv_timer_t *timer);

/* Costs a store when the timer is armed for earlier, as it is for all but the first read of a body. */
static void set_deadline(struct exchange *x, unsigned ms)
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
    enter(x);
    if (x->state == STATE_HEAD)
        fail(x, EXCHANGE_HEAD_TIMEOUT, x->at < x->n_vec ? "the upstream did not take the request" : NULL);
    else
        fail(x, EXCHANGE_IDLE_TIMEOUT, NULL);
    leave(x);
}

/* ---- sending ---- */

/* Gives the stream the next piece when it has sent the one before. A failure is told through on_error. */
static void send_more(struct exchange *x)
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

static const struct stream_events CONN_EVENTS;

static void begin(struct exchange *x)
{
    x->state = STATE_HEAD;
    x->conn->x = x;
    send_more(x);
    if (!x->paused)
        set_deadline(x, x->o.head_ms);
}

static void on_dialled(void *arg, struct stream *s, enum exchange_fail why, const char *detail)
{
    struct exchange *x = arg;
    x->dial = NULL;
    if (!s) {
        x->pool->counts.connect_errors++;
        enter(x);
        fail(x, why, detail);
        leave(x);
        return;
    }
    x->pool->counts.connects++;
    x->conn = pool_conn_new(x->group, s);
    stream_set_owner(s, &CONN_EVENTS, x->conn);
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
    enter(x);
    fail(x, EXCHANGE_TLS, text[0] ? text : NULL);
    leave(x);
}

static void dial(struct exchange *x)
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

/* ---- the reply ---- */

static void take_body(struct exchange *x, const char *p, size_t n)
{
    switch ((enum http_body_kind)x->body) {
    case HTTP_BODY_NONE:
        finish(x, n, false);
        return;
    case HTTP_BODY_CLOSE:
        if (n)
            give_body(x, p, n);
        return;
    case HTTP_BODY_LENGTH: {
        size_t take = n < x->left ? n : (size_t)x->left;
        x->left -= take;
        if (take)
            give_body(x, p, take);
        if (!x->gone && x->left == 0)
            finish(x, n - take, false);
        return;
    }
    case HTTP_BODY_CHUNKED:
        break;
    }
    while (n) {
        size_t used;
        struct span data;
        enum http_chunk_event e = http_chunk_feed(&x->chunk, p, n, &used, &data);
        p += used;
        n -= used;
        if (e == HTTP_CHUNK_DATA) {
            give_body(x, data.p, data.n);
            if (x->gone)
                return;
        } else if (e == HTTP_CHUNK_END) {
            finish(x, n, false);
            return;
        } else if (e == HTTP_CHUNK_BAD) {
            fail(x, EXCHANGE_BAD_REPLY, "the chunked coding is broken");
            return;
        }
    }
}

/* Parses <p>, which stands in the read buffer or in x->hold; true when the head is complete and stands in
 * pool->head, with *ret_used bytes up to its end. Interim replies are skipped. */
static bool parse_head(struct exchange *x, const char *p, size_t n, size_t *ret_used)
{
    struct http_head *h = &x->pool->head;
    size_t max = x->o.max_head_bytes ? x->o.max_head_bytes : HTTP_HEAD_BYTES_DEFAULT, skip = 0;
    for (;;) {
        enum http_reject why;
        switch (http_parse_reply(h, p + skip, n - skip, &x->scanned, max, x->o.head_request, &why)) {
        case HTTP_BAD:
            fail(x, EXCHANGE_BAD_REPLY, http_reject_text(why));
            return false;
        case HTTP_MORE:
            if (x->hold.n)
                buf_consume(&x->hold, skip);
            else
                buf_add(&x->hold, p + skip, n - skip);
            return false;
        case HTTP_DONE:
            break;
        }
        skip += h->bytes;
        if (h->status >= 200) {
            *ret_used = skip;
            return true;
        }
        if (h->status == 101) {
            fail(x, EXCHANGE_BAD_REPLY, "the upstream switched protocols unasked");
            return false;
        }
        x->scanned = 0;
        if (skip == n) {
            buf_clear(&x->hold);
            return false;
        }
    }
}

static void take_head(struct exchange *x, const char *p, size_t n)
{
    size_t used;
    if (x->hold.n) {
        buf_add(&x->hold, p, n);
        p = x->hold.p;
        n = x->hold.n;
    }
    if (!parse_head(x, p, n, &used))
        return;
    const struct http_head *h = &x->pool->head;
    struct buf held = x->hold; /* the head and what follows it, until this read is dealt with */
    buf_init(&x->hold, SIZE_MAX / 2);
    x->state = STATE_BODY;
    x->body = (uint8_t)h->body;
    x->left = h->content_length;
    x->keep_alive = h->keep_alive;
    http_chunk_init(&x->chunk);
    x->unflushed = true;
    x->ev->on_head(x, x->arg, h);
    if (!x->gone)
        take_body(x, p + used, n - used);
    if (held.n && !x->gone)
        flush(x); /* slices of <held> must not outlive it */
    buf_fini(&held);
}

static void on_read(struct stream *s, void *arg, const char *p, size_t n)
{
    (void)s;
    struct pool_conn *c = arg;
    struct exchange *x = c->x;
    if (!x) { /* nobody asked: what came now would be taken for the next reply */
        pool_conn_close(c, false);
        return;
    }
    enter(x);
    x->got_bytes = true;
    if (x->state == STATE_HEAD)
        take_head(x, p, n);
    else
        take_body(x, p, n);
    if (!x->gone && x->state == STATE_BODY && !x->paused)
        set_deadline(x, x->o.idle_ms);
    leave(x);
}

static void on_read_done(struct stream *s, void *arg)
{
    (void)s;
    struct exchange *x = ((struct pool_conn *)arg)->x;
    if (!x || !x->unflushed)
        return;
    enter(x);
    flush(x);
    leave(x);
}

/* The connection ended before the reply did. */
static void broke(struct exchange *x, const char *detail)
{
    if (x->state != STATE_HEAD || x->got_bytes || !x->reused || x->replaced) {
        fail(x, EXCHANGE_RESET, detail);
        return;
    }
    /* The upstream closed an idle connection at the moment when we took it: it has not seen the request. */
    pool_conn_close(detach(x), true);
    x->replaced = true;
    x->reused = false;
    x->pool->counts.replaced++;
    x->at = 0;
    x->at_off = 0;
    dial(x);
}

static void on_eof(struct stream *s, void *arg)
{
    (void)s;
    struct pool_conn *c = arg;
    struct exchange *x = c->x;
    if (!x) {
        pool_conn_close(c, false);
        return;
    }
    enter(x);
    if (x->state == STATE_BODY && x->body == HTTP_BODY_CLOSE)
        finish(x, 0, true);
    else
        broke(x, "the upstream closed the connection");
    leave(x);
}

static void on_error(struct stream *s, void *arg, int err)
{
    struct pool_conn *c = arg;
    struct exchange *x = c->x;
    if (!x) {
        pool_conn_close(c, true);
        return;
    }
    const char *tls = stream_tls_error(s);
    enter(x);
    broke(x, tls ? tls : uv_strerror(err));
    leave(x);
}

static void on_drain(struct stream *s, void *arg)
{
    (void)s;
    struct exchange *x = ((struct pool_conn *)arg)->x;
    if (!x)
        return;
    send_more(x);
    if (x->state == STATE_HEAD && !x->paused)
        set_deadline(x, x->o.head_ms); /* the upstream takes the request: it is alive */
}

static const struct stream_events CONN_EVENTS = {on_read, on_read_done, on_eof, on_error, on_drain};

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
        dial(x);
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
    set_deadline(x, x->state == STATE_HEAD ? x->o.head_ms : x->o.idle_ms);
}

void exchange_cancel(struct exchange *x)
{
    if (x->state == STATE_OVER)
        return; /* from inside its last callback */
    release(x);
}

bool exchange_reused(const struct exchange *x)
{
    return x->reused;
}
