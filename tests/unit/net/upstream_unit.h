/* SPDX-License-Identifier: Apache-2.0
 *
 * A scripted upstream on a loopback socket, driven by the test itself between turns of the loop, and an owner
 * of exchanges that writes down what it was told.
 */
#ifndef ROLTER_TESTS_UPSTREAM_UNIT_H
#define ROLTER_TESTS_UPSTREAM_UNIT_H

#include <fcntl.h>
#include <netinet/tcp.h>

#include "base/buf.h"
#include "net/exchange.h"
#include "net/net_unit.h"

struct up {
    struct net_loop *loop;
    int listener, fd;
    uint16_t port;
    struct net_origin origin;
    struct buf got; /* bytes of requests on this connection */
};

static inline void up_open(struct up *u, struct net_loop *l)
{
    *u = (struct up){.loop = l, .fd = -1};
    u->listener = listen_any(&u->port);
    fcntl(u->listener, F_SETFL, O_NONBLOCK);
    char url[64];
    const char *why;
    snprintf(url, sizeof url, "http://127.0.0.1:%u", u->port);
    assert_true(origin_parse(span_str(url), &u->origin, &why));
    buf_init(&u->got, SIZE_MAX / 2);
}

static inline void up_hang_up(struct up *u)
{
    if (u->fd >= 0)
        close(u->fd);
    u->fd = -1;
}

static inline void up_reset(struct up *u)
{
    const struct linger rst = {1, 0};
    setsockopt(u->fd, SOL_SOCKET, SO_LINGER, &rst, sizeof rst);
    up_hang_up(u);
}

static inline void up_close(struct up *u)
{
    up_hang_up(u);
    close(u->listener);
    origin_fini(&u->origin);
    buf_fini(&u->got);
}

/* Waits for a new connection; the one before is closed. Pieces go out as they are sent, without waiting for
 * acknowledgements. */
static inline void up_accept(struct up *u)
{
    up_hang_up(u);
    buf_clear(&u->got);
    RUN_UNTIL(u->loop, (u->fd = accept4(u->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
    int on = 1;
    setsockopt(u->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static inline bool up_no_connection(struct up *u)
{
    int fd = accept4(u->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd < 0;
}

/* Reads what is there. 1: bytes, 0: nothing now, -1: ended. */
static inline int up_recv(struct up *u)
{
    char tmp[65536];
    ssize_t n, before = (ssize_t)u->got.n;
    while ((n = recv(u->fd, tmp, sizeof tmp, 0)) > 0)
        buf_add(&u->got, tmp, (size_t)n);
    bool any = (ssize_t)u->got.n > before;
    return any ? 1 : n < 0 && errno == EAGAIN ? 0 : -1;
}

static inline bool up_has(struct up *u, const char *end)
{
    up_recv(u);
    size_t n = strlen(end);
    return u->got.n >= n && memcmp(u->got.p + u->got.n - n, end, n) == 0;
}

/* Waits until what came ends with <end>, then forgets it. */
static inline void up_expect(struct up *u, const char *end)
{
    RUN_UNTIL(u->loop, up_has(u, end));
    buf_clear(&u->got);
}

static inline void up_send_n(struct up *u, const char *p, size_t n)
{
    while (n) {
        ssize_t r = send(u->fd, p, n, MSG_NOSIGNAL);
        if (r < 0) {
            assert_int_equal(errno, EAGAIN);
            turn(u->loop);
            continue;
        }
        p += r;
        n -= (size_t)r;
    }
}

static inline void up_send(struct up *u, const char *text)
{
    up_send_n(u, text, strlen(text));
}

/* Sends and gives the other side a chance to read it as a piece of its own. */
static inline void up_send_turn(struct up *u, const char *text)
{
    up_send(u, text);
    turn(u->loop);
}

/* When the owner cancels. */
enum owner_cancel {
    CANCEL_NOT,
    CANCEL_IN_HEAD,
    CANCEL_IN_BODY,
    CANCEL_IN_FLUSH,
    CANCEL_IN_END,
    CANCEL_IN_FAIL
};

struct owner {
    struct exchange *x; /* NULL when over */
    enum owner_cancel cancel;
    bool pause_in_head;
    void (*in_end)(struct owner *o);
    void *user;
    int status, heads, bodies, flushes, ends, fails;
    bool close_delimited, unflushed, reused;
    enum exchange_fail why;
    char detail[200];
    struct buf body;
};

static inline bool owner_cancel(struct owner *o, struct exchange *x, enum owner_cancel where)
{
    if (o->cancel != where)
        return false;
    exchange_cancel(x);
    o->x = NULL;
    return true;
}

static inline void owner_on_head(struct exchange *x, void *arg, const struct http_head *h)
{
    struct owner *o = arg;
    assert_int_equal(o->heads++, 0);
    o->status = h->status;
    o->reused = exchange_reused(x);
    if (o->pause_in_head)
        exchange_pause(x);
    owner_cancel(o, x, CANCEL_IN_HEAD);
}

static inline void owner_on_body(struct exchange *x, void *arg, const char *p, size_t n)
{
    struct owner *o = arg;
    assert_true(n > 0);
    assert_int_equal(o->heads, 1);
    o->bodies++;
    o->unflushed = true;
    buf_add(&o->body, p, n);
    owner_cancel(o, x, CANCEL_IN_BODY);
}

static inline void owner_on_flush(struct exchange *x, void *arg)
{
    struct owner *o = arg;
    o->flushes++;
    o->unflushed = false;
    owner_cancel(o, x, CANCEL_IN_FLUSH);
}

static inline void owner_on_end(struct exchange *x, void *arg, bool close_delimited)
{
    struct owner *o = arg;
    o->unflushed = false; /* the end of a reply stands for the flush of its last read */
    o->ends++;
    o->close_delimited = close_delimited;
    o->x = NULL;
    owner_cancel(o, x, CANCEL_IN_END); /* not needed, but harmless */
    if (o->in_end)
        o->in_end(o);
}

static inline void owner_on_fail(struct exchange *x, void *arg, enum exchange_fail why, const char *detail)
{
    struct owner *o = arg;
    assert_false(o->unflushed);
    o->fails++;
    o->why = why;
    snprintf(o->detail, sizeof o->detail, "%s", detail ? detail : "");
    o->x = NULL;
    owner_cancel(o, x, CANCEL_IN_FAIL);
}

static const struct exchange_events OWNER_EVENTS = {owner_on_head, owner_on_body, owner_on_flush,
                                                    owner_on_end, owner_on_fail};

static inline void owner_init(struct owner *o)
{
    *o = (struct owner){0};
    buf_init(&o->body, SIZE_MAX / 2);
}

static inline void owner_fini(struct owner *o)
{
    if (o->x)
        exchange_cancel(o->x);
    buf_fini(&o->body);
}

#define GET_HEAD "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

static inline void owner_get(struct owner *o, struct pool *p, const struct net_origin *origin,
                             const struct exchange_options *opt)
{
    static const struct exchange_options NO_LIMITS = {0};
    o->x = exchange_start(p, origin, SPAN(GET_HEAD), NULL, 0, opt ? opt : &NO_LIMITS, &OWNER_EVENTS, o);
    assert_int_equal(o->heads + o->ends + o->fails, 0);
}

static inline bool owner_over(const struct owner *o)
{
    return o->ends + o->fails > 0;
}

#endif
