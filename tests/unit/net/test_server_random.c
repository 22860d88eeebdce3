/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients that send pieces of good and bad requests, close and reset, and an owner that answers, parks,
 * refuses and aborts from everywhere, all by dice. What must hold: a request that began ends exactly once,
 * the counts agree, and nothing is touched that is gone (sanitizer builds).
 */
#include "unit.h"

#include "../http/hostile.h"
#include "base/rng.h"
#include "server_rig.h"

enum { CLIENTS = 6, PARKED_MAX = 64, STEPS = 30000 };

struct request {
    struct conn *conn;
    bool head_only, begun;
};

struct world {
    struct net_loop loop;
    struct server *s;
    struct rng rng;
    struct request *parked[PARKED_MAX];
    unsigned n_parked, n_open;
    uint64_t begun, answered, refused, aborted, rejected, gone, drained;
    bool acting;
};

static bool dice(struct world *w, unsigned percent)
{
    return rng_below(&w->rng, 100) < percent;
}

static void park(struct world *w, struct request *q)
{
    assert_true(w->n_parked < PARKED_MAX);
    w->parked[w->n_parked++] = q;
}

static void unpark(struct world *w, struct request *q)
{
    for (unsigned i = 0; i < w->n_parked; i++)
        if (w->parked[i] == q) {
            w->parked[i] = w->parked[--w->n_parked];
            return;
        }
}

/* Before the call that ends it, since that call may begin the next request. */
static struct conn *end(struct world *w, struct request *q)
{
    struct conn *c = q->conn;
    unpark(w, q);
    assert_true(w->n_open > 0);
    w->n_open--;
    free(q);
    return c;
}

static void say(struct conn *c, const char *text, size_t filler)
{
    static char zeros[300000];
    rig_write(c, span_str(text), span_of(zeros, filler));
}

static void answer(struct world *w, struct request *q)
{
    bool begun = q->begun;
    struct conn *c = end(w, q);
    w->answered++;
    if (!begun)
        say(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", dice(w, 5) ? 300000 : 0);
    conn_finish(c, !dice(w, 10));
}

/* Does something to a request that waits; which may be the caller's own or another connection's. */
static void act(struct world *w)
{
    if (w->n_parked == 0 || w->acting)
        return;
    struct request *q = w->parked[rng_below(&w->rng, w->n_parked)];
    struct conn *c = q->conn;
    w->acting = dice(w, 50); /* sometimes deeper */
    if (dice(w, 5)) {
        w->aborted++;
        conn_abort(end(w, q));
    } else if (q->head_only && dice(w, 70)) {
        unpark(w, q);
        q->head_only = false;
        conn_want_body(c, dice(w, 20) ? 5 : 100000);
    } else if (!q->head_only && dice(w, 30)) {
        q->begun = true;
        say(c, "HTTP/1.1 200 OK\r\n", dice(w, 10) ? 300000 : 10);
        if (dice(w, 50))
            conn_drop_body(c);
    } else {
        w->refused += q->head_only;
        answer(w, q);
    }
    w->acting = false;
}

static void on_head(struct conn *c, void *arg)
{
    struct world *w = arg;
    struct request *q = MEM_NEW(struct request);
    q->conn = c;
    w->begun++;
    w->n_open++;
    assert_null(conn_user(c));
    conn_set_user(c, q);
    assert_non_null(conn_head(c));
    memset(arena_alloc(conn_arena(c), 100), 1, 100);
    q->head_only = true;
    if (dice(w, 10)) {
        answer(w, q);
    } else if (dice(w, 5)) {
        w->aborted++;
        conn_abort(end(w, q));
    } else if (dice(w, 20)) {
        park(w, q);
    } else {
        q->head_only = false;
        conn_want_body(c, dice(w, 10) ? 5 : 100000);
    }
    if (dice(w, 20))
        act(w);
}

static void on_body(struct conn *c, void *arg)
{
    struct world *w = arg;
    struct request *q = conn_user(c);
    assert_ptr_equal(q->conn, c);
    assert_int_equal(conn_body(c).p[conn_body(c).n], 0);
    if (dice(w, 50)) {
        answer(w, q);
    } else if (dice(w, 5)) {
        w->aborted++;
        conn_abort(end(w, q));
    } else {
        park(w, q);
    }
    if (dice(w, 20))
        act(w);
}

static void on_reject(struct conn *c, void *arg, int status, const char *text)
{
    struct world *w = arg;
    assert_true(status >= 400 && status < 600);
    w->rejected++;
    if (conn_user(c))
        end(w, conn_user(c));
    if (dice(w, 80))
        say(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", 0);
    if (dice(w, 20))
        act(w);
    if (dice(w, 5))
        conn_abort(c);
}

static void on_gone(struct conn *c, void *arg)
{
    struct world *w = arg;
    w->gone++;
    struct request *q = conn_user(c);
    assert_ptr_equal(q->conn, c);
    end(w, q);
    if (dice(w, 30))
        act(w);
}

static void on_drain(struct conn *c, void *arg)
{
    struct world *w = arg;
    struct request *q = conn_user(c);
    assert_ptr_equal(q->conn, c);
    w->drained++;
    if (dice(w, 50))
        act(w);
}

static const struct server_events events = {on_head, on_body, on_reject, on_gone, on_drain, on_drain};

static struct span next_text(struct world *w)
{
    static const struct span good[] = {
        SPAN("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        SPAN("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: "
             "a\r\n\r\n"),
        SPAN("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789"),
        SPAN("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n0123456789"),
        SPAN("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
             "chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"),
        SPAN("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4096\r\n\r\n" HOSTILE_4K),
        SPAN("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16384\r\n\r\n" HOSTILE_4K HOSTILE_4K HOSTILE_4K
                 HOSTILE_4K),
        SPAN("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 65536\r\n\r\n" HOSTILE_64K),
        SPAN("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    };
    if (dice(w, 95))
        return good[rng_below(&w->rng, ARRAY_LEN(good))];
    return hostile_requests[rng_below(&w->rng, ARRAY_LEN(hostile_requests))].raw;
}

struct peer {
    int fd; /* -1: none */
    struct span left;
    bool shut;
};

static void step_peer(struct world *w, struct peer *p)
{
    static char sink[200000];
    if (p->fd < 0) {
        *p = (struct peer){.fd = connect_port(server_port(w->s))};
        return;
    }
    unsigned what = (unsigned)rng_below(&w->rng, 1000);
    if (what < 15) {
        struct linger l = {.l_onoff = what < 7};
        setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
        close(p->fd);
        p->fd = -1;
    } else if (what < 20) {
        shutdown(p->fd, SHUT_WR);
        p->shut = true;
    } else if (what < 400) {
        ssize_t n = recv(p->fd, sink, 1 + rng_below(&w->rng, sizeof sink), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            close(p->fd);
            p->fd = -1;
        }
    } else if (!p->shut) {
        if (p->left.n == 0)
            p->left = next_text(w);
        size_t n = dice(w, 50) ? p->left.n : 1 + rng_below(&w->rng, p->left.n);
        ssize_t sent = send(p->fd, p->left.p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0)
            p->left = span_of(p->left.p + sent, p->left.n - (size_t)sent);
    }
}

static void play(uint64_t seed)
{
    struct world w = {0};
    struct peer peers[CLIENTS];
    char error[256] = "";
    assert_int_equal(net_loop_init(&w.loop, 0), 0);
    rng_seed(&w.rng, seed);
    struct server_options o = {.host = "127.0.0.1",
                               .max_head_bytes = 100000,
                               .head_ms = 20,
                               .body_ms = 20,
                               .idle_ms = 20,
                               .write_ms = 20};
    w.s = server_open(&w.loop, &o, &events, &w, error);
    assert_string_equal(error, "");
    for (unsigned i = 0; i < CLIENTS; i++)
        peers[i] = (struct peer){.fd = -1};
    for (unsigned i = 0; i < STEPS; i++) {
        step_peer(&w, &peers[rng_below(&w.rng, CLIENTS)]);
        if (dice(&w, 60))
            uv_run(&w.loop.uv, UV_RUN_NOWAIT);
        if (dice(&w, 30))
            act(&w);
        assert_int_equal(server_requests_in_flight(w.s), w.n_open);
        if (i == STEPS - STEPS / 10)
            server_drain(w.s);
    }
    server_close(w.s);
    assert_int_equal(w.n_open, 0);
    assert_int_equal(w.n_parked, 0);
    for (unsigned i = 0; i < CLIENTS; i++)
        if (peers[i].fd >= 0)
            close(peers[i].fd);
    net_loop_fini(&w.loop);
    /* The dice have been everywhere. */
    assert_true(w.answered > 100 && w.refused > 10 && w.aborted > 10 && w.rejected > 10 && w.gone > 5);
}

static void random_worlds(void **state)
{
    for (uint64_t seed = 1; seed <= 4; seed++)
        play(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_worlds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
