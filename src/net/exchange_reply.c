/* SPDX-License-Identifier: Apache-2.0
 *
 * The reply's way in: what happens on an upstream connection, with and without an exchange on it.
 */
#include "net/exchange_impl.h"

static void give_body(struct exchange *x, const char *p, size_t n)
{
    x->unflushed = true;
    x->ev->on_body(x, x->arg, p, n);
}

HOT static void take_body(struct exchange *x, const char *p, size_t n)
{
    switch ((enum http_body_kind)x->body) {
    case HTTP_BODY_NONE:
        exchange_finish(x, n, false);
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
            exchange_finish(x, n - take, false);
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
            exchange_finish(x, n, false);
            return;
        } else if (e == HTTP_CHUNK_BAD) {
            exchange_give_up(x, EXCHANGE_BAD_REPLY, "the chunked coding is broken");
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
            exchange_give_up(x, EXCHANGE_BAD_REPLY, http_reject_text(why));
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
            exchange_give_up(x, EXCHANGE_BAD_REPLY, "the upstream switched protocols unasked");
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
        exchange_flush(x); /* slices of <held> must not outlive it */
    buf_fini(&held);
}

HOT static void on_read(struct stream *s, void *arg, const char *p, size_t n)
{
    (void)s;
    struct pool_conn *c = arg;
    struct exchange *x = c->x;
    if (!x) { /* nobody asked: what came now would be taken for the next reply */
        pool_conn_close(c, false);
        return;
    }
    exchange_enter(x);
    x->got_bytes = true;
    if (x->state == STATE_HEAD)
        take_head(x, p, n);
    else
        take_body(x, p, n);
    if (!x->gone && x->state == STATE_BODY && !x->paused)
        exchange_set_deadline(x, x->o.idle_ms);
    exchange_leave(x);
}

HOT static void on_read_done(struct stream *s, void *arg)
{
    (void)s;
    struct exchange *x = ((struct pool_conn *)arg)->x;
    if (!x || !x->unflushed)
        return;
    exchange_enter(x);
    exchange_flush(x);
    exchange_leave(x);
}

/* The connection ended before the reply did. */
static void broke(struct exchange *x, const char *detail)
{
    if (x->state != STATE_HEAD || x->got_bytes || !x->reused || x->replaced) {
        exchange_give_up(x, EXCHANGE_RESET, detail);
        return;
    }
    /* The upstream closed an idle connection at the moment when we took it: it has not seen the request. */
    pool_conn_close(exchange_detach(x), true);
    x->replaced = true;
    x->reused = false;
    x->pool->counts.replaced++;
    x->at = 0;
    x->at_off = 0;
    exchange_dial(x);
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
    exchange_enter(x);
    if (x->state == STATE_BODY && x->body == HTTP_BODY_CLOSE)
        exchange_finish(x, 0, true);
    else
        broke(x, "the upstream closed the connection");
    exchange_leave(x);
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
    exchange_enter(x);
    broke(x, tls ? tls : uv_strerror(err));
    exchange_leave(x);
}

static void on_drain(struct stream *s, void *arg)
{
    (void)s;
    struct exchange *x = ((struct pool_conn *)arg)->x;
    if (!x)
        return;
    exchange_send_more(x);
    if (x->state == STATE_HEAD && !x->paused)
        exchange_set_deadline(x, x->o.head_ms); /* the upstream takes the request: it is alive */
}

const struct stream_events EXCHANGE_CONN_EVENTS = {on_read, on_read_done, on_eof, on_error, on_drain};
