/* SPDX-License-Identifier: Apache-2.0 */
#include "net/call.h"

#include <stdlib.h>

#include "base/mem.h"

struct call {
    uv_timer_t timer; /* memory goes with it */
    struct exchange *x;
    call_fn *done;
    void *arg;
    struct buf request; /* head, then body */
    struct buf reply;
    char *content_type;
    int status;
    bool secret;
};

enum { SECRET_BYTES_MIN = 4096, HEAD_ROOM = 128 };

static void wipe(struct buf *b)
{
    if (b->p)
        explicit_bzero(b->p, b->cap);
}

/* Growing in place would leave copies behind. */
static bool add_secret(struct buf *b, const char *p, size_t n)
{
    if (n <= b->cap - b->n || n > b->max || b->n > b->max - n)
        return buf_add(b, p, n);
    struct buf bigger;
    size_t cap = 2 * (b->n + n);
    buf_init(&bigger, b->max);
    buf_reserve(&bigger, cap < SECRET_BYTES_MIN ? SECRET_BYTES_MIN : cap > b->max ? b->max : cap);
    buf_add(&bigger, b->p, b->n);
    wipe(b);
    buf_fini(b);
    *b = bigger;
    return buf_add(b, p, n);
}

static void on_timer_closed(uv_handle_t *h)
{
    struct call *c = CONTAINER_OF((uv_timer_t *)h, struct call, timer);
    if (c->secret) {
        wipe(&c->request);
        wipe(&c->reply);
    }
    buf_fini(&c->request);
    buf_fini(&c->reply);
    free(c->content_type);
    free(c);
}

static void tell(struct call *c, struct call_reply *r)
{
    c->x = NULL;
    uv_timer_stop(&c->timer);
    r->status = c->status;
    r->content_type = span_str(c->content_type);
    c->done(c, c->arg, r);
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

static void on_head(struct exchange *x, void *arg, const struct http_head *h)
{
    (void)x;
    struct call *c = arg;
    struct span type = http_field_get(h, HTTP_F_CONTENT_TYPE);
    c->status = h->status;
    if (type.p)
        c->content_type = mem_spandup(type);
}

static void on_body(struct exchange *x, void *arg, const char *p, size_t n)
{
    struct call *c = arg;
    bool fits = c->secret ? add_secret(&c->reply, p, n) : buf_add(&c->reply, p, n);
    if (c->secret) /* the loop's read buffer, which nobody looks at after this */
        explicit_bzero((char *)(uintptr_t)p, n);
    if (fits)
        return;
    exchange_cancel(x);
    struct call_reply r = {
        .failed = true, .too_large = true, .why = EXCHANGE_BAD_REPLY, .detail = "the reply is too large"};
    tell(c, &r);
}

static void on_end(struct exchange *x, void *arg, bool close_delimited)
{
    (void)x, (void)close_delimited;
    struct call *c = arg;
    struct call_reply r = {.body = buf_view(&c->reply)};
    tell(c, &r);
}

static void on_fail(struct exchange *x, void *arg, enum exchange_fail why, const char *detail)
{
    (void)x;
    struct call_reply r = {.failed = true, .why = why, .detail = detail};
    tell(arg, &r);
}

static void on_timeout(uv_timer_t *timer)
{
    struct call *c = CONTAINER_OF(timer, struct call, timer);
    exchange_cancel(c->x);
    struct call_reply r = {.failed = true,
                           .timed_out = true,
                           .why = c->status ? EXCHANGE_IDLE_TIMEOUT : EXCHANGE_HEAD_TIMEOUT,
                           .detail = "no complete reply in time"};
    tell(c, &r);
}

static const struct exchange_events EVENTS = {on_head, on_body, NULL, on_end, on_fail};

static bool has_body(const struct call_request *r)
{
    /* A POST without content says so; a GET need not. */
    return r->body.n || !strcmp(r->method, "POST") || !strcmp(r->method, "PUT") ||
           !strcmp(r->method, "PATCH");
}

struct call *call_start(struct pool *p, const struct call_request *r, call_fn *done, void *arg)
{
    struct call *c = MEM_NEW(struct call);
    struct buf *b = &c->request;
    c->done = done;
    c->arg = arg;
    buf_init(b, SIZE_MAX / 2);
    buf_init(&c->reply, r->max_reply_bytes);
    c->secret = r->secret;
    buf_reserve(b, strlen(r->method) + r->path.n + strlen(r->origin->host_header) + r->headers.n + r->body.n +
                       HEAD_ROOM);
    buf_add_str(b, r->method);
    buf_add_char(b, ' ');
    buf_add_span(b, r->path.n ? r->path : SPAN("/"));
    BUF_LIT(b, " HTTP/1.1\r\nHost: ");
    buf_add_str(b, r->origin->host_header);
    BUF_LIT(b, "\r\n");
    buf_add_span(b, r->headers);
    if (has_body(r)) {
        BUF_LIT(b, "Content-Length: ");
        buf_add_u64(b, r->body.n);
        BUF_LIT(b, "\r\n");
    }
    BUF_LIT(b, "\r\n");
    buf_add_span(b, r->body);

    struct net_loop *l = pool_loop(p);
    uv_timer_init(&l->uv, &c->timer);
    if (r->timeout_ms)
        uv_timer_start(&c->timer, on_timeout, r->timeout_ms, 0);
    const struct exchange_options o = {.head_request = !strcmp(r->method, "HEAD")};
    c->x = exchange_start(p, r->origin, buf_view(b), NULL, 0, &o, &EVENTS, c);
    return c;
}

void call_cancel(struct call *c)
{
    if (!c->x)
        return; /* from inside <done> */
    exchange_cancel(c->x);
    c->x = NULL;
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}
