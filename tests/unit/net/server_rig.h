/* SPDX-License-Identifier: Apache-2.0
 *
 * A server and its clients in one thread: the rig turns the loop and reads what the clients' sockets hold
 * until a condition holds. The owner answers "<method> <path> <body bytes>" and can be told to behave in
 * other ways.
 */
#ifndef ROLTER_TESTS_UNIT_NET_SERVER_RIG_H
#define ROLTER_TESTS_UNIT_NET_SERVER_RIG_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/http_reply.h"
#include "net/server.h"
#include "net/server_impl.h"

enum { RIG_CLIENTS = 8, RIG_DEADLINE_MS = 10000 };

struct client {
    int fd;
    struct buf in;
    bool eof, reset;
};

enum rig_does {
    RIG_ANSWER,
    RIG_PARK,
    RIG_REFUSE_HEAD,
    RIG_ABORT_HEAD,
    RIG_ABORT_BODY,
    RIG_CLOSE_SERVER,
    RIG_STREAM
};

struct rig {
    struct net_loop loop;
    struct server *s;
    struct server_options o;
    struct client clients[RIG_CLIENTS];
    unsigned n_clients;
    /* the owner */
    enum rig_does does;
    size_t max_body;
    size_t reply_bytes; /* filler behind the usual answer */
    bool always_close;
    struct conn *parked;
    struct buf head, last_body;
    unsigned heads, bodies, rejects, gone, drains, half_closed;
    int last_status;
    char last_path[64], last_peer[64];
    bool last_loopback;
};

static inline int rig_write(struct conn *c, struct span a, struct span b)
{
    struct iovec iov[2] = {{(void *)(uintptr_t)a.p, a.n}, {(void *)(uintptr_t)b.p, b.n}};
    return conn_writev(c, iov, b.n ? 2 : 1);
}

static inline void rig_answer(struct rig *r, struct conn *c)
{
    const struct http_head *h = conn_head(c);
    static char filler[1 << 20];
    char text[200];
    int n = snprintf(text, sizeof text, "%.*s %.*s %zu\n", SPAN_FMT(h->method), SPAN_FMT(h->path),
                     conn_body(c).n);
    buf_clear(&r->head);
    reply_begin(&r->head, 200, 1000);
    reply_content_length(&r->head, (uint64_t)n + r->reply_bytes);
    bool close = r->always_close || conn_will_close(c);
    if (close)
        reply_connection_close(&r->head);
    reply_end(&r->head);
    buf_add(&r->head, text, (size_t)n);
    rig_write(c, buf_view(&r->head), span_of(filler, r->reply_bytes));
    conn_finish(c, !close);
}

static inline void rig_short(struct rig *r, struct conn *c, int status)
{
    buf_clear(&r->head);
    reply_begin(&r->head, status, 1000);
    reply_content_length(&r->head, 0);
    if (conn_will_close(c))
        reply_connection_close(&r->head);
    reply_end(&r->head);
    rig_write(c, buf_view(&r->head), SPAN_NONE);
}

static inline void rig_on_head(struct conn *c, void *arg)
{
    struct rig *r = arg;
    r->heads++;
    const struct http_head *h = conn_head(c);
    snprintf(r->last_path, sizeof r->last_path, "%.*s", SPAN_FMT(h->path));
    conn_peer(c, r->last_peer, sizeof r->last_peer);
    r->last_loopback = conn_is_loopback(c);
    conn_set_user(c, r);
    switch (r->does) {
    case RIG_REFUSE_HEAD:
        rig_short(r, c, 401);
        conn_finish(c, true);
        return;
    case RIG_ABORT_HEAD:
        conn_abort(c);
        return;
    case RIG_CLOSE_SERVER:
        server_close(r->s);
        r->s = NULL;
        return;
    default:
        conn_want_body(c, r->max_body);
    }
}

static inline void rig_on_body(struct conn *c, void *arg)
{
    struct rig *r = arg;
    r->bodies++;
    assert_ptr_equal(conn_user(c), r);
    buf_clear(&r->last_body);
    buf_add_span(&r->last_body, conn_body(c));
    assert_int_equal(conn_body(c).p[conn_body(c).n], 0);
    if (r->does == RIG_PARK) {
        assert_null(r->parked);
        r->parked = c;
    } else if (r->does == RIG_ABORT_BODY) {
        conn_abort(c);
    } else if (r->does == RIG_STREAM) {
        r->parked = c;
        rig_write(c, SPAN("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), SPAN_NONE);
    } else {
        rig_answer(r, c);
    }
}

static inline void rig_on_reject(struct conn *c, void *arg, int status, const char *text)
{
    struct rig *r = arg;
    assert_non_null(text);
    r->rejects++;
    r->last_status = status;
    assert_true(conn_will_close(c));
    rig_short(r, c, status);
}

static inline void rig_on_gone(struct conn *c, void *arg)
{
    struct rig *r = arg;
    assert_non_null(conn_head(c));
    r->gone++;
    if (r->parked == c)
        r->parked = NULL;
    /* Whatever the owner still tries is harmless. */
    assert_true(rig_write(c, SPAN("x"), SPAN_NONE) < 0);
    conn_finish(c, true);
}

static inline void rig_on_drain(struct conn *c, void *arg)
{
    struct rig *r = arg;
    assert_int_equal(conn_queued(c), 0);
    r->drains++;
}

static inline void rig_on_half_closed(struct conn *c, void *arg)
{
    struct rig *r = arg;
    r->half_closed++;
    rig_write(c, SPAN("3\r\n:\n\n\r\n"), SPAN_NONE);
}

static const struct server_events rig_events = {rig_on_head, rig_on_body,  rig_on_reject,
                                                rig_on_gone, rig_on_drain, rig_on_half_closed};

static inline struct rig *rig_new(void)
{
    struct rig *r = MEM_NEW(struct rig);
    assert_int_equal(net_loop_init(&r->loop, 0), 0);
    r->o = (struct server_options){
        .host = "127.0.0.1", .max_head_bytes = 65536, .head_ms = 60000, .body_ms = 60000, .idle_ms = 60000};
    r->max_body = 16 << 20;
    buf_init(&r->head, 1 << 20);
    buf_init(&r->last_body, 64 << 20);
    return r;
}

static inline void rig_open(struct rig *r)
{
    char error[256] = "";
    r->s = server_open(&r->loop, &r->o, &rig_events, r, error);
    assert_string_equal(error, "");
    assert_non_null(r->s);
}

static inline void client_read(struct client *c)
{
    char part[65536];
    while (!c->eof && !c->reset) {
        ssize_t n = recv(c->fd, part, sizeof part, MSG_DONTWAIT);
        if (n > 0)
            buf_add(&c->in, part, (size_t)n);
        else if (n == 0)
            c->eof = true;
        else if (errno == EAGAIN)
            return;
        else
            c->reset = true;
    }
}

/* One turn: waits for the loop or a client, at most 20 ms. <paused>: a client that does not read, or NULL. */
static inline void rig_turn(struct rig *r, const struct client *paused)
{
    struct pollfd p[RIG_CLIENTS + 1];
    nfds_t n = 0;
    p[n++] = (struct pollfd){.fd = uv_backend_fd(&r->loop.uv), .events = POLLIN};
    for (unsigned i = 0; i < r->n_clients; i++)
        if (&r->clients[i] != paused && !r->clients[i].eof && !r->clients[i].reset)
            p[n++] = (struct pollfd){.fd = r->clients[i].fd, .events = POLLIN};
    uv_update_time(&r->loop.uv);
    int wait = uv_backend_timeout(&r->loop.uv);
    poll(p, n, wait < 0 || wait > 20 ? 20 : wait);
    uv_run(&r->loop.uv, UV_RUN_NOWAIT);
    for (unsigned i = 0; i < r->n_clients; i++)
        if (&r->clients[i] != paused)
            client_read(&r->clients[i]);
}

#define RIG_WAIT_PAUSED(r, paused, cond)                                                                     \
    do {                                                                                                     \
        uint64_t until_ = clock_mono_ms() + RIG_DEADLINE_MS;                                                 \
        while (!(cond)) {                                                                                    \
            if (clock_mono_ms() > until_)                                                                    \
                fail_msg("waited in vain for: %s", #cond);                                                   \
            rig_turn((r), (paused));                                                                         \
        }                                                                                                    \
    } while (0)
#define RIG_WAIT(r, cond) RIG_WAIT_PAUSED(r, NULL, cond)

static inline struct client *rig_adopt(struct rig *r, int fd)
{
    assert_true(r->n_clients < RIG_CLIENTS);
    struct client *c = &r->clients[r->n_clients++];
    *c = (struct client){.fd = fd};
    buf_init(&c->in, 256 << 20);
    return c;
}

static inline int connect_port(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static inline struct client *rig_connect(struct rig *r)
{
    return rig_adopt(r, connect_port(server_port(r->s)));
}

static inline void client_send(struct rig *r, struct client *c, const void *p, size_t n)
{
    uint64_t until = clock_mono_ms() + RIG_DEADLINE_MS;
    for (size_t at = 0; at < n;) {
        ssize_t k = send(c->fd, (const char *)p + at, n - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k > 0)
            at += (size_t)k;
        else if (errno != EAGAIN || clock_mono_ms() > until)
            return; /* the test sees what is missing */
        else
            rig_turn(r, NULL);
    }
}

static inline void client_say(struct rig *r, struct client *c, const char *text)
{
    client_send(r, c, text, strlen(text));
}

static inline bool client_has(const struct client *c, const char *text)
{
    return span_find(buf_view(&c->in), span_str(text)) >= 0;
}

static inline unsigned client_count(const struct client *c, const char *text)
{
    unsigned n = 0;
    struct span rest = buf_view(&c->in), what = span_str(text);
    for (ptrdiff_t at; (at = span_find(rest, what)) >= 0; n++)
        rest = span_of(rest.p + at + what.n, rest.n - (size_t)at - what.n);
    return n;
}

static inline void client_close(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->eof = true;
}

static inline void client_reset(struct client *c)
{
    struct linger l = {.l_onoff = 1};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    client_close(c);
}

static inline void rig_free(struct rig *r)
{
    for (unsigned i = 0; i < r->n_clients; i++) {
        if (r->clients[i].fd >= 0)
            close(r->clients[i].fd);
        buf_fini(&r->clients[i].in);
    }
    if (r->s) {
        size_t in_flight = server_requests_in_flight(r->s), gone = r->gone;
        server_close(r->s);
        assert_int_equal(r->gone, gone + in_flight);
    }
    net_loop_fini(&r->loop);
    buf_fini(&r->head);
    buf_fini(&r->last_body);
    free(r);
}

#endif
