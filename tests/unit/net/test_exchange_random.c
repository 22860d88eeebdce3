/* SPDX-License-Identifier: Apache-2.0
 *
 * Many exchanges at once against an upstream that cuts its replies anywhere, breaks off, answers early;
 * owners that pause, resume and cancel at random moments. What comes out must be what was sent, or a failure
 * with a reason the script explains. Run under sanitizers it looks for what re-entrancy breaks.
 */
#include "unit.h"

#include "base/fmt.h"
#include "net/stream.h"
#include "net/upstream_unit.h"

enum { AT_ONCE = 24, ROUNDS = 1500, BODY_MAX = 300000, SERVED_MAX = 4096 };

static struct net_loop loop;
static struct pool *pool;
static struct net_origin origin;
static struct rng rng;
static int listener;
static char pattern[BODY_MAX];

/* ---- upstream ---- */

struct served {
    struct stream *s;
    struct buf in, out;
    size_t sent;
    bool close_after, break_off, in_reply;
};
static struct served served[SERVED_MAX];
static size_t n_served;

static uint64_t below(uint64_t n)
{
    return rng_below(&rng, n);
}

static void add_chunked(struct buf *b, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t take = 1 + below(n - at < 5000 ? n - at : 5000);
        char hex[FMT_HEX_MAX];
        buf_add(b, hex, fmt_hex(hex, take));
        buf_add_str(b, "\r\n");
        buf_add(b, pattern + at, take);
        buf_add_str(b, "\r\n");
        at += take;
    }
    buf_add_str(b, "0\r\n\r\n");
}

/* A reply whose body is the first <n> bytes of the pattern; the head says how many, whatever the framing. */
static void make_reply(struct served *v)
{
    size_t n = below(4) ? below(3000) : below(BODY_MAX);
    struct buf *b = &v->out;
    buf_clear(b);
    v->sent = 0;
    v->in_reply = true;
    v->close_after = below(10) == 0;
    v->break_off = below(12) == 0;
    if (below(5) == 0)
        buf_add_str(b, "HTTP/1.1 100 Continue\r\n\r\n");
    buf_printf(b, "HTTP/1.1 200 OK\r\nX-Size: %zu\r\n", n);
    if (v->close_after && below(2))
        buf_add_str(b, "Connection: close\r\n");
    switch (below(v->close_after ? 3 : 2)) {
    case 0:
        buf_printf(b, "Content-Length: %zu\r\n\r\n", n);
        buf_add(b, pattern, n);
        break;
    case 1:
        buf_add_str(b, "Transfer-Encoding: chunked\r\n\r\n");
        add_chunked(b, n);
        break;
    default:
        buf_add_str(b, "\r\n");
        buf_add(b, pattern, n);
    }
    if (v->break_off) {
        size_t keep = below(b->n);
        b->n = keep;
    }
}

static void end_served(struct served *v, bool reset)
{
    stream_close(v->s, reset);
    v->s = NULL;
    buf_fini(&v->in);
    buf_fini(&v->out);
}

static void served_read(struct stream *s, void *arg, const char *p, size_t n)
{
    (void)s;
    struct served *v = arg;
    buf_add(&v->in, p, n);
    if (!v->in_reply && v->in.n >= 4 && memcmp(v->in.p + v->in.n - 4, "\r\n\r\n", 4) == 0) {
        buf_clear(&v->in);
        make_reply(v);
    }
}

static void served_eof(struct stream *s, void *arg)
{
    (void)s;
    end_served(arg, false);
}

static void served_error(struct stream *s, void *arg, int err)
{
    (void)s, (void)err;
    end_served(arg, false);
}

static const struct stream_events SERVED_EVENTS = {served_read, NULL, served_eof, served_error, NULL};

static void serve_some(void)
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        assert_true(n_served < SERVED_MAX);
        struct served *v = &served[n_served++];
        buf_init(&v->in, SIZE_MAX / 2);
        buf_init(&v->out, SIZE_MAX / 2);
        v->s = stream_accept(&loop, fd, NULL, &SERVED_EVENTS, v);
        stream_read_start(v->s);
    }
    for (size_t i = 0; i < n_served; i++) {
        struct served *v = &served[i];
        if (!v->s || !v->in_reply || stream_queued(v->s) || below(3) == 0)
            continue;
        size_t left = v->out.n - v->sent;
        size_t take = below(4) == 0 ? left : below(left < 20000 ? left + 1 : 20000);
        const struct iovec iov = {v->out.p + v->sent, take};
        if (stream_writev(v->s, &iov, 1))
            continue;
        v->sent += take;
        if (v->sent < v->out.n)
            continue;
        v->in_reply = false;
        if (v->break_off || v->close_after)
            end_served(v, v->break_off && below(2));
    }
}

/* ---- owners ---- */

struct job {
    struct exchange *x;
    bool paused, has_head;
    size_t want, got;
};
static struct job jobs[AT_ONCE];
static unsigned n_started, n_ended, n_failed, n_cancelled;

static void maybe_act(struct job *j)
{
    switch (below(30)) {
    case 0:
        exchange_cancel(j->x);
        j->x = NULL;
        n_cancelled++;
        break;
    case 1:
    case 2:
        exchange_pause(j->x);
        j->paused = true;
        break;
    }
}

static void on_head(struct exchange *x, void *arg, const struct http_head *h)
{
    struct job *j = arg;
    uint64_t size;
    assert_ptr_equal(j->x, x);
    assert_false(j->has_head);
    j->has_head = true;
    assert_true(span_to_u64(http_field_find(h, SPAN("x-size")), &size));
    j->want = size;
    maybe_act(j);
}

static void on_body(struct exchange *x, void *arg, const char *p, size_t n)
{
    struct job *j = arg;
    assert_ptr_equal(j->x, x);
    assert_true(j->has_head && j->got + n <= j->want);
    assert_memory_equal(p, pattern + j->got, n);
    j->got += n;
    maybe_act(j);
}

static void on_flush(struct exchange *x, void *arg)
{
    struct job *j = arg;
    assert_ptr_equal(j->x, x);
    maybe_act(j);
}

static void start(struct job *j);

static void on_end(struct exchange *x, void *arg, bool close_delimited)
{
    struct job *j = arg;
    assert_ptr_equal(j->x, x);
    /* A reply that ends with the connection may have been broken off by a plain close; others are complete.
     */
    if (!close_delimited)
        assert_int_equal(j->got, j->want);
    n_ended++;
    j->x = NULL;
    if (below(2))
        start(j); /* from inside */
}

static void on_fail(struct exchange *x, void *arg, enum exchange_fail why, const char *detail)
{
    (void)detail;
    struct job *j = arg;
    assert_ptr_equal(j->x, x);
    assert_int_equal(why, EXCHANGE_RESET);
    n_failed++;
    j->x = NULL;
    if (below(2))
        start(j);
}

static const struct exchange_events EVENTS = {on_head, on_body, on_flush, on_end, on_fail};

static void start(struct job *j)
{
    if (n_started == ROUNDS)
        return;
    static const struct exchange_options OPT = {.connect_ms = 60000, .head_ms = 60000, .idle_ms = 60000};
    *j = (struct job){0};
    n_started++;
    j->x = exchange_start(pool, &origin, SPAN(GET_HEAD), NULL, 0, &OPT, &EVENTS, j);
}

static bool step(void)
{
    bool busy = n_started < ROUNDS;
    serve_some();
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct job *j = &jobs[i];
        if (!j->x) {
            start(j);
        } else if (j->paused && below(3) == 0) {
            j->paused = false;
            exchange_resume(j->x);
        } else if (below(300) == 0) {
            exchange_cancel(j->x);
            j->x = NULL;
            n_cancelled++;
        }
        busy = busy || j->x;
    }
    uv_run(&loop.uv, UV_RUN_NOWAIT);
    return busy;
}

static void test_random(void **state)
{
    (void)state;
    uint16_t port;
    char url[64];
    const char *why;
    rng_seed(&rng, 42);
    for (size_t i = 0; i < BODY_MAX; i++)
        pattern[i] = (char)rng_u64(&rng);
    listener = listen_any(&port);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    assert_int_equal(net_loop_init(&loop, 0), 0);
    pool = pool_new(&loop, 8, 60000);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", port);
    assert_true(origin_parse(span_str(url), &origin, &why));

    uint64_t give_up = clock_mono_ms() + 120000;
    while (step())
        assert_true(clock_mono_ms() < give_up);

    assert_int_equal(n_ended + n_failed + n_cancelled, ROUNDS);
    assert_true(n_ended > ROUNDS / 3 && n_failed > 20 && n_cancelled > 20); /* the script reached all of it */
    assert_true(pool_counts(pool).reused > ROUNDS / 10);
    for (size_t i = 0; i < n_served; i++)
        if (served[i].s)
            end_served(&served[i], false);
    pool_free(pool);
    origin_fini(&origin);
    close(listener);
    net_loop_fini(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
