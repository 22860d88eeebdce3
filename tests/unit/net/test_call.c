/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "net/call.h"
#include "net/upstream_unit.h"

static struct net_loop loop;
static struct pool *pool;
static struct up up;

struct result {
    int done, status;
    bool failed, too_large, timed_out;
    enum exchange_fail why;
    struct buf body, type;
};

static void on_done(struct call *c, void *arg, const struct call_reply *r)
{
    struct result *out = arg;
    out->done++;
    out->status = r->status;
    out->failed = r->failed;
    out->too_large = r->too_large;
    out->timed_out = r->timed_out;
    out->why = r->why;
    buf_add_span(&out->body, r->body);
    buf_add_span(&out->type, r->content_type);
    call_cancel(c); /* changes nothing here */
}

static int setup(void **state)
{
    (void)state;
    assert_int_equal(net_loop_init(&loop, 0), 0);
    pool = pool_new(&loop, 4, 60000);
    up_open(&up, &loop);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    up_close(&up);
    pool_free(pool);
    net_loop_fini(&loop);
    return 0;
}

static struct call *start(struct result *r, const char *method, const char *body, unsigned timeout_ms)
{
    *r = (struct result){0};
    buf_init(&r->body, 1 << 20);
    buf_init(&r->type, 1 << 20);
    char *copy = mem_strdup(body);
    const struct call_request q = {.origin = &up.origin,
                                   .method = method,
                                   .path = SPAN("/v1/x?y=1"),
                                   .headers = SPAN("X-A: b\r\n"),
                                   .body = span_str(copy),
                                   .timeout_ms = timeout_ms,
                                   .max_reply_bytes = 10};
    struct call *c = call_start(pool, &q, on_done, r);
    free(copy); /* the call has its own */
    assert_int_equal(r->done, 0);
    return c;
}

static void result_fini(struct result *r)
{
    buf_fini(&r->body);
    buf_fini(&r->type);
}

/* Waits for the request, checks it whole, and replies. */
static void serve(struct result *r, const char *want, const char *reply)
{
    char *text = mem_printf(want, up.origin.host_header);
    if (pool_counts(pool).reused == 0)
        up_accept(&up);
    RUN_UNTIL(&loop, up_has(&up, text));
    assert_int_equal(up.got.n, strlen(text));
    buf_clear(&up.got);
    free(text);
    up_send(&up, reply);
    RUN_UNTIL(&loop, r->done);
    assert_int_equal(r->done, 1);
}

static void test_ok(void **state)
{
    (void)state;
    struct result r;
    start(&r, "GET", "", 5000);
    serve(&r, "GET /v1/x?y=1 HTTP/1.1\r\nHost: %s\r\nX-A: b\r\n\r\n",
          "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n0123456789");
    assert_false(r.failed);
    assert_int_equal(r.status, 404);
    assert_int_equal(r.body.n, 10);
    assert_memory_equal(r.body.p, "0123456789", 10);
    assert_int_equal(r.type.n, 10);
    result_fini(&r);
    start(&r, "POST", "{}", 5000);
    serve(&r, "POST /v1/x?y=1 HTTP/1.1\r\nHost: %s\r\nX-A: b\r\nContent-Length: 2\r\n\r\n{}",
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n");
    assert_false(r.failed);
    assert_int_equal(r.body.n, 1);
    result_fini(&r);
    start(&r, "POST", "", 0);
    serve(&r, "POST /v1/x?y=1 HTTP/1.1\r\nHost: %s\r\nX-A: b\r\nContent-Length: 0\r\n\r\n",
          "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_false(r.failed);
    result_fini(&r);
    start(&r, "HEAD", "", 0);
    serve(&r, "HEAD /v1/x?y=1 HTTP/1.1\r\nHost: %s\r\nX-A: b\r\n\r\n",
          "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
    assert_false(r.failed);
    result_fini(&r);
    assert_int_equal(pool_counts(pool).connects, 1);
}

static void test_too_large(void **state)
{
    (void)state;
    struct result r;
    start(&r, "GET", "", 5000);
    serve(&r, "GET /v1/x?y=1 HTTP/1.1\r\nHost: %s\r\nX-A: b\r\n\r\n",
          "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890");
    assert_true(r.failed && r.too_large && !r.timed_out);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body.n, 0);
    assert_int_equal(pool_idle(pool), 0);
    result_fini(&r);
}

static void test_timeout(void **state)
{
    (void)state;
    struct result r;
    start(&r, "GET", "", 30);
    RUN_UNTIL(&loop, r.done);
    assert_true(r.failed && r.timed_out);
    assert_int_equal(r.status, 0);
    assert_int_equal(r.why, EXCHANGE_HEAD_TIMEOUT);
    result_fini(&r);
    start(&r, "GET", "", 50);
    up_accept(&up);
    RUN_UNTIL(&loop, up_recv(&up) < 0); /* the first one's connection was closed */
    up_accept(&up);
    RUN_UNTIL(&loop, up_recv(&up) > 0);
    up_send(&up, "HTTP/1.1 200 OK\r\n\r\nendless");
    RUN_UNTIL(&loop, r.done);
    assert_true(r.failed && r.timed_out);
    assert_int_equal(r.status, 200);
    result_fini(&r);
}

static void test_failure(void **state)
{
    (void)state;
    struct result r;
    struct call *c = start(&r, "GET", "", 5000);
    up_accept(&up);
    RUN_UNTIL(&loop, up_recv(&up) > 0);
    call_cancel(c);
    RUN_UNTIL(&loop, up_recv(&up) < 0);
    assert_int_equal(r.done, 0);
    result_fini(&r);
    close(up.listener);
    up.listener = -1;
    start(&r, "GET", "", 5000);
    RUN_UNTIL(&loop, r.done);
    assert_true(r.failed && !r.timed_out);
    assert_int_equal(r.why, EXCHANGE_CONNECT);
    result_fini(&r);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_ok), TEST(test_too_large), TEST(test_timeout),
                                       TEST(test_failure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
