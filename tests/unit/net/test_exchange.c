/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "net/upstream_unit.h"

static struct net_loop loop;
static struct pool *pool;
static struct up up;

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
    net_loop_fini(&loop); /* aborts when a handle is left */
    return 0;
}

static void assert_body(const struct owner *o, const char *text)
{
    assert_int_equal(o->body.n, strlen(text));
    assert_memory_equal(o->body.p, text, o->body.n);
}

/* One whole exchange on a connection that is already accepted or comes now. */
static void serve(struct owner *o, bool fresh, const char *reply)
{
    owner_init(o);
    owner_get(o, pool, &up.origin, NULL);
    if (fresh)
        up_accept(&up);
    up_expect(&up, GET_HEAD);
    up_send(&up, reply);
    RUN_UNTIL(&loop, owner_over(o));
}

static void test_length(void **state)
{
    (void)state;
    struct owner o;
    serve(&o, true, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    assert_int_equal(o.ends, 1);
    assert_int_equal(o.status, 200);
    assert_int_equal(o.flushes, 0); /* on_end stands for it */
    assert_false(o.close_delimited);
    assert_false(o.reused);
    assert_body(&o, "hello");
    assert_int_equal(pool_idle(pool), 1);
    owner_fini(&o);
    for (int i = 0; i < 3; i++) {
        serve(&o, false,
              i == 1 ? "HTTP/1.1 204 No Content\r\n\r\n" : "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert_int_equal(o.ends, 1);
        assert_int_equal(o.flushes, 0);
        assert_true(o.reused);
        assert_int_equal(pool_idle(pool), 1);
        owner_fini(&o);
    }
    assert_int_equal(pool_counts(pool).connects, 1);
    assert_int_equal(pool_counts(pool).reused, 3);
    serve(&o, false, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx");
    assert_int_equal(o.ends, 1);
    assert_int_equal(pool_idle(pool), 0);
    owner_fini(&o);
}

/* Whatever way the bytes are cut, the same comes out. */
static void test_every_cut(void **state)
{
    (void)state;
    static const char REPLY[] = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                "5;ext=1\r\nhello\r\nA\r\n, worlds!!\r\n0\r\nTrailer: x\r\n\r\n";
    for (size_t cut = 0; cut < sizeof REPLY - 1; cut++) {
        struct owner o;
        owner_init(&o);
        owner_get(&o, pool, &up.origin, NULL);
        if (cut == 0)
            up_accept(&up);
        up_expect(&up, GET_HEAD);
        up_send_n(&up, REPLY, cut);
        if (cut)
            turn(&loop);
        assert_false(owner_over(&o));
        up_send_n(&up, REPLY + cut, sizeof REPLY - 1 - cut);
        RUN_UNTIL(&loop, owner_over(&o));
        assert_int_equal(o.ends, 1);
        assert_body(&o, "hello, worlds!!");
        owner_fini(&o);
    }
    assert_int_equal(pool_counts(pool).connects, 1);

    struct owner o;
    owner_init(&o);
    owner_get(&o, pool, &up.origin, NULL);
    up_expect(&up, GET_HEAD);
    for (size_t i = 0; i < sizeof REPLY - 1; i++) {
        up_send_n(&up, REPLY + i, 1);
        turn(&loop);
    }
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.ends, 1);
    assert_body(&o, "hello, worlds!!");
    assert_int_equal(o.flushes, 16); /* one for each read that had a head or body bytes */
    owner_fini(&o);
}

static void test_close_delimited(void **state)
{
    (void)state;
    struct owner o;
    owner_init(&o);
    owner_get(&o, pool, &up.origin, NULL);
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    up_send_turn(&up, "HTTP/1.1 200 OK\r\n\r\nab");
    up_send_turn(&up, "cd");
    assert_false(owner_over(&o));
    up_hang_up(&up);
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.ends, 1);
    assert_true(o.close_delimited);
    assert_body(&o, "abcd");
    assert_int_equal(pool_idle(pool), 0);
    owner_fini(&o);

    /* A reset is not an end, even when it comes together with the last bytes. */
    owner_init(&o);
    owner_get(&o, pool, &up.origin, NULL);
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    up_send(&up, "HTTP/1.1 200 OK\r\n\r\nab");
    up_reset(&up);
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.fails, 1);
    assert_int_equal(o.why, EXCHANGE_RESET);
    owner_fini(&o);
}

static void test_bad_replies(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        enum exchange_fail why;
        bool hang_up;
    } CASES[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", EXCHANGE_BAD_REPLY,
         false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", EXCHANGE_BAD_REPLY, false},
        {"SSH-2.0-OpenSSH_9.2\r\n\r\n", EXCHANGE_BAD_REPLY, false},
        {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", EXCHANGE_BAD_REPLY, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", EXCHANGE_BAD_REPLY, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd", EXCHANGE_BAD_REPLY, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", EXCHANGE_RESET, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", EXCHANGE_RESET, true},
        {"HTTP/1.1 200 OK\r\nContent-Le", EXCHANGE_RESET, true},
        {"", EXCHANGE_RESET, true},
        {"HTTP/1.1 100 Continue\r\n\r\n", EXCHANGE_RESET, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct owner o;
        owner_init(&o);
        owner_get(&o, pool, &up.origin, NULL);
        up_accept(&up);
        up_expect(&up, GET_HEAD);
        up_send(&up, CASES[i].reply);
        if (CASES[i].hang_up)
            up_hang_up(&up);
        RUN_UNTIL(&loop, owner_over(&o));
        assert_int_equal(o.fails, 1);
        assert_int_equal(o.ends, 0);
        assert_int_equal(o.why, CASES[i].why);
        assert_true(o.detail[0] != 0);
        assert_int_equal(pool_idle(pool), 0);
        owner_fini(&o);
    }
    assert_int_equal(pool_counts(pool).replaced, 0);
}

static void test_head_too_large(void **state)
{
    (void)state;
    const struct exchange_options opt = {.max_head_bytes = 1000};
    struct owner o;
    owner_init(&o);
    owner_get(&o, pool, &up.origin, &opt);
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    up_send_turn(&up, "HTTP/1.1 200 OK\r\nX: ");
    char big[2000];
    memset(big, 'x', sizeof big);
    up_send_n(&up, big, sizeof big);
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.why, EXCHANGE_BAD_REPLY);
    owner_fini(&o);
}

/* An upstream that closes a kept connection, seen before or only after the next request was sent. */
static void test_replaced(void **state)
{
    (void)state;
    struct owner o;
    serve(&o, true, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    owner_fini(&o);
    assert_int_equal(pool_idle(pool), 1);
    up_hang_up(&up); /* not seen yet: no turn of the loop */
    owner_init(&o);
    owner_get(&o, pool, &up.origin, NULL);
    assert_true(exchange_reused(o.x));
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    up_send(&up, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ny");
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.ends, 1);
    assert_false(o.reused);
    owner_fini(&o);
    assert_int_equal(pool_counts(pool).replaced, 1);

    /* The new one is not replaced again. */
    up_reset(&up);
    owner_init(&o);
    owner_get(&o, pool, &up.origin, NULL);
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    up_hang_up(&up);
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.why, EXCHANGE_RESET);
    owner_fini(&o);
    assert_int_equal(pool_counts(pool).replaced, 2);

    /* Once a byte of the reply has come, it is not replaced. */
    serve(&o, true, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    owner_fini(&o);
    owner_init(&o);
    owner_get(&o, pool, &up.origin, NULL);
    up_expect(&up, GET_HEAD);
    up_send(&up, "H");
    up_hang_up(&up);
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.why, EXCHANGE_RESET);
    owner_fini(&o);
    assert_int_equal(pool_counts(pool).replaced, 2);
    assert_true(up_no_connection(&up));
}

static void test_idle_closed(void **state)
{
    (void)state;
    struct owner o;
    serve(&o, true, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    owner_fini(&o);
    up_hang_up(&up);
    RUN_UNTIL(&loop, pool_idle(pool) == 0);

    serve(&o, true, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    owner_fini(&o);
    up_send(&up, "HTTP/1.1 408 Request Timeout\r\n\r\n"); /* unasked */
    RUN_UNTIL(&loop, pool_idle(pool) == 0);

    serve(&o, true, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1"); /* bytes behind the reply */
    assert_int_equal(o.ends, 1);
    assert_body(&o, "ab");
    assert_int_equal(pool_idle(pool), 0);
    owner_fini(&o);
}

static void test_idle_limits(void **state)
{
    (void)state;
    struct pool *small = pool_new(&loop, 2, 30);
    struct owner o[3];
    struct up ups[3];
    for (int i = 0; i < 3; i++) {
        owner_init(&o[i]);
        owner_get(&o[i], small, &up.origin, NULL);
        up_accept(&up);
        up_expect(&up, GET_HEAD);
        ups[i] = up;
        up.fd = -1;
        buf_init(&up.got, SIZE_MAX / 2);
    }
    for (int i = 0; i < 3; i++) {
        up_send(&ups[i], "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        RUN_UNTIL(&loop, owner_over(&o[i]));
        owner_fini(&o[i]);
        assert_int_equal(pool_idle(small), i < 2 ? i + 1 : 2);
    }
    RUN_UNTIL(&loop, up_recv(&ups[0]) < 0); /* the oldest had to go */
    assert_int_equal(up_recv(&ups[2]), 0);
    RUN_UNTIL(&loop, pool_idle(small) == 0); /* time */
    RUN_UNTIL(&loop, up_recv(&ups[2]) < 0);
    for (int i = 0; i < 3; i++) {
        close(ups[i].fd);
        buf_fini(&ups[i].got);
    }
    pool_free(small);
}

static void test_refused(void **state)
{
    (void)state;
    struct up none;
    up_open(&none, &loop);
    close(none.listener);
    none.listener = -1;
    struct owner o;
    owner_init(&o);
    owner_get(&o, pool, &none.origin, NULL);
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.why, EXCHANGE_CONNECT);
    assert_int_equal(pool_counts(pool).connect_errors, 1);
    owner_fini(&o);
    up_close(&none);
}

static void test_egress(void **state)
{
    (void)state;
    const struct net_egress rules = {.block_loopback = true};
    static const char *const HOSTS[] = {"127.0.0.1", "localhost"};
    for (size_t i = 0; i < ARRAY_LEN(HOSTS); i++) {
        char url[64];
        const char *why;
        struct net_origin origin;
        snprintf(url, sizeof url, "http://%s:%u", HOSTS[i], up.port);
        assert_true(origin_parse(span_str(url), &origin, &why));
        origin.egress = &rules;
        origin_seal(&origin);
        struct owner o;
        owner_init(&o);
        owner_get(&o, pool, &origin, NULL);
        RUN_UNTIL(&loop, owner_over(&o));
        assert_int_equal(o.why, EXCHANGE_EGRESS);
        assert_non_null(strstr(o.detail, "loopback"));
        owner_fini(&o);
        origin_fini(&origin);
    }
    assert_true(up_no_connection(&up));
}

static void test_names(void **state)
{
    (void)state;
    char url[64];
    const char *why;
    struct net_origin origin;
    snprintf(url, sizeof url, "http://localhost:%u", up.port); /* may have ::1 first, where nobody listens */
    assert_true(origin_parse(span_str(url), &origin, &why));
    struct owner o[3];
    for (int i = 0; i < 3; i++) { /* the first two share a lookup, the third finds it kept */
        owner_init(&o[i]);
        owner_get(&o[i], pool, &origin, NULL);
        if (i == 0)
            continue;
        for (int k = i == 1 ? 0 : 2; k <= i; k++) {
            up_accept(&up);
            up_expect(&up, GET_HEAD);
            up_send(&up, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        }
        RUN_UNTIL(&loop, owner_over(&o[i]) && owner_over(&o[i == 1 ? 0 : i]));
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(o[i].ends, 1);
        owner_fini(&o[i]);
    }
    origin_fini(&origin);

    assert_true(origin_parse(SPAN("http://no-such-name.invalid"), &origin, &why));
    owner_init(&o[0]);
    owner_get(&o[0], pool, &origin, NULL);
    RUN_UNTIL(&loop, owner_over(&o[0]));
    assert_int_equal(o[0].why, EXCHANGE_RESOLVE);
    owner_fini(&o[0]);
    owner_init(&o[0]);
    owner_get(&o[0], pool, &origin, NULL);
    owner_fini(&o[0]); /* cancelled while resolving */
    origin_fini(&origin);
}

/* A listener whose queue is full does not answer. */
static void test_connect_timeout(void **state)
{
    (void)state;
    int full[8];
    listen(up.listener, 0);
    struct sockaddr_in a = loopback(up.port);
    for (size_t i = 0; i < ARRAY_LEN(full); i++) {
        full[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        connect(full[i], (struct sockaddr *)&a, sizeof a);
    }
    const struct exchange_options opt = {.connect_ms = 40};
    struct owner o;
    owner_init(&o);
    owner_get(&o, pool, &up.origin, &opt);
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.why, EXCHANGE_CONNECT_TIMEOUT);
    owner_fini(&o);
    owner_init(&o);
    owner_get(&o, pool, &up.origin, &opt);
    turn(&loop);
    owner_fini(&o); /* cancelled while connecting */
    for (size_t i = 0; i < ARRAY_LEN(full); i++)
        close(full[i]);
}

static void test_timeouts(void **state)
{
    (void)state;
    const struct exchange_options opt = {.head_ms = 30, .idle_ms = 500};
    struct owner o;
    owner_init(&o);
    owner_get(&o, pool, &up.origin, &opt);
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    up_send(&up, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n");
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.why, EXCHANGE_HEAD_TIMEOUT);
    owner_fini(&o);

    owner_init(&o);
    owner_get(&o, pool, &up.origin, &opt);
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    uint64_t from = clock_mono_ms();
    up_send(&up, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
    for (int i = 0; i < 6; i++) { /* each byte buys time; steps far below the limit, for busy machines */
        uint64_t next = clock_mono_ms() + 100;
        up_send(&up, "x");
        RUN_UNTIL(&loop, clock_mono_ms() >= next || owner_over(&o));
        assert_false(owner_over(&o));
    }
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.why, EXCHANGE_IDLE_TIMEOUT);
    assert_int_equal(o.body.n, 6);
    assert_true(clock_mono_ms() - from >= 600 + 400);
    owner_fini(&o);
}

static void test_pause(void **state)
{
    (void)state;
    const struct exchange_options opt = {.idle_ms = 30};
    struct owner o;
    owner_init(&o);
    o.pause_in_head = true;
    owner_get(&o, pool, &up.origin, &opt);
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    up_send_turn(&up, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nab");
    RUN_UNTIL(&loop, o.body.n == 2);
    up_send(&up, "cd");
    uint64_t until = clock_mono_ms() + 60; /* longer than the idle time-out, which rests */
    RUN_UNTIL(&loop, clock_mono_ms() >= until);
    assert_int_equal(o.body.n, 2);
    assert_false(owner_over(&o));
    exchange_resume(o.x);
    RUN_UNTIL(&loop, o.body.n == 4);
    exchange_pause(o.x);
    exchange_resume(o.x);
    up_send(&up, "ef");
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.ends, 1);
    assert_body(&o, "abcdef");
    assert_int_equal(pool_idle(pool), 1);
    owner_fini(&o);

    /* A reply that completes while paused gives the connection back in a state that notices its end. */
    owner_init(&o);
    o.pause_in_head = true;
    owner_get(&o, pool, &up.origin, NULL);
    up_expect(&up, GET_HEAD);
    up_send(&up, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
    RUN_UNTIL(&loop, owner_over(&o));
    owner_fini(&o);
    assert_int_equal(pool_idle(pool), 1);
    up_hang_up(&up);
    RUN_UNTIL(&loop, pool_idle(pool) == 0);
}

static void test_cancel(void **state)
{
    (void)state;
    struct owner o;
    owner_init(&o);
    owner_get(&o, pool, &up.origin, NULL);
    owner_fini(&o); /* before anything happened */
    for (int stage = CANCEL_IN_HEAD; stage <= CANCEL_IN_FAIL; stage++) {
        owner_init(&o);
        o.cancel = (enum owner_cancel)stage;
        owner_get(&o, pool, &up.origin, NULL);
        do {
            up_accept(&up); /* the first one may be that of the exchange cancelled above */
            RUN_UNTIL(&loop, up_has(&up, GET_HEAD) || up_recv(&up) < 0);
        } while (up.got.n == 0);
        up_send(&up, stage == CANCEL_IN_FAIL ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"
                     : stage == CANCEL_IN_FLUSH
                         ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n"
                         : "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked"
                           "\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n");
        RUN_UNTIL(&loop, o.x == NULL);
        RUN_UNTIL(&loop, up_recv(&up) < 0); /* the upstream notices */
        assert_int_equal(o.bodies, stage == CANCEL_IN_HEAD || stage == CANCEL_IN_FAIL ? 0
                                   : stage == CANCEL_IN_BODY                          ? 1
                                                                                      : 2);
        assert_int_equal(o.ends, stage == CANCEL_IN_END);
        assert_int_equal(o.fails, stage == CANCEL_IN_FAIL);
        o.cancel = CANCEL_NOT;
        owner_fini(&o);
    }
    owner_init(&o);
    owner_get(&o, pool, &up.origin, NULL);
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    owner_fini(&o); /* while waiting for the head */
    RUN_UNTIL(&loop, up_recv(&up) < 0);
    assert_int_equal(pool_idle(pool), 0);
}

/* The next exchange may start from inside on_end and gets the connection that has just become free. */
static void start_next(struct owner *o)
{
    owner_get(o->user, pool, &up.origin, NULL);
    assert_true(exchange_reused(((struct owner *)o->user)->x));
}

static void test_next_in_end(void **state)
{
    (void)state;
    struct owner a, b;
    owner_init(&a);
    owner_init(&b);
    a.in_end = start_next;
    a.user = &b;
    owner_get(&a, pool, &up.origin, NULL);
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    up_send(&up, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
    RUN_UNTIL(&loop, owner_over(&a));
    up_expect(&up, GET_HEAD);
    assert_int_equal(b.flushes, 0);
    up_send(&up, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb");
    RUN_UNTIL(&loop, owner_over(&b));
    assert_body(&b, "b");
    owner_fini(&a);
    owner_fini(&b);
}

/* A large body to an upstream that reads slowly: nothing is copied in bulk, everything arrives in order. */
static void test_large_request(void **state)
{
    (void)state;
    enum { PART = 1 << 20, PARTS = 12 };
    char *bytes = mem_alloc(PART);
    for (size_t i = 0; i < PART; i++)
        bytes[i] = (char)(i % 251);
    struct iovec body[PARTS];
    for (int i = 0; i < PARTS; i++)
        body[i] = (struct iovec){bytes, PART};
    struct owner o;
    owner_init(&o);
    const struct exchange_options opt = {.head_ms = 20000};
    o.x = exchange_start(pool, &up.origin, SPAN("POST / HTTP/1.1\r\n\r\n"), body, PARTS, &opt, &OWNER_EVENTS,
                         &o);
    up_accept(&up);
    for (int i = 0; i < 5; i++)
        turn(&loop);
    size_t want = strlen("POST / HTTP/1.1\r\n\r\n") + (size_t)PART * PARTS;
    RUN_UNTIL(&loop, (up_recv(&up), up.got.n >= want));
    assert_int_equal(up.got.n, want);
    for (int i = 0; i < PARTS; i++)
        assert_memory_equal(up.got.p + want - (size_t)PART * (PARTS - i), bytes, PART);
    up_send(&up, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.ends, 1);
    assert_int_equal(pool_idle(pool), 1);
    owner_fini(&o);

    /* A refusal before the body is through is delivered; the connection is not used again. */
    owner_init(&o);
    up_reset(&up);
    RUN_UNTIL(&loop, pool_idle(pool) == 0);
    o.x = exchange_start(pool, &up.origin, SPAN("POST / HTTP/1.1\r\n\r\n"), body, PARTS, &opt, &OWNER_EVENTS,
                         &o);
    up_accept(&up);
    RUN_UNTIL(&loop, up_recv(&up) > 0);
    up_send(&up, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
    up_hang_up(&up); /* with unread bytes: a reset behind the reply */
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.ends, 1);
    assert_int_equal(o.status, 413);
    assert_body(&o, "big");
    assert_int_equal(pool_idle(pool), 0);
    owner_fini(&o);
    free(bytes);
}

static void test_head_request(void **state)
{
    (void)state;
    const struct exchange_options opt = {.head_request = true};
    struct owner o;
    owner_init(&o);
    owner_get(&o, pool, &up.origin, &opt);
    up_accept(&up);
    up_expect(&up, GET_HEAD);
    up_send(&up, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.ends, 1);
    assert_int_equal(pool_idle(pool), 1);
    owner_fini(&o);
}

static void test_many_parts(void **state)
{
    (void)state;
    struct iovec body[200];
    for (size_t i = 0; i < ARRAY_LEN(body); i++)
        body[i] = (struct iovec){(void *)"ab", i % 3};
    struct owner o;
    owner_init(&o);
    const struct exchange_options opt = {0};
    o.x = exchange_start(pool, &up.origin, SPAN("POST\r\n"), body, ARRAY_LEN(body), &opt, &OWNER_EVENTS, &o);
    up_accept(&up);
    RUN_UNTIL(&loop, (up_recv(&up), up.got.n >= 6 + 199));
    assert_int_equal(up.got.n, 6 + 199);
    assert_memory_equal(up.got.p, "POST\r\naabaaba", 13);
    owner_fini(&o);
}

static void test_fail_names(void **state)
{
    (void)state;
    for (int i = 0; i < EXCHANGE_FAIL_COUNT; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(exchange_fail_name((enum exchange_fail)i),
                                    exchange_fail_name((enum exchange_fail)k));
    assert_string_equal(exchange_fail_name(EXCHANGE_EGRESS), "egress_blocked");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_length),      TEST(test_every_cut),     TEST(test_close_delimited),
        TEST(test_bad_replies), TEST(test_replaced),      TEST(test_head_too_large),
        TEST(test_idle_closed), TEST(test_idle_limits),   TEST(test_refused),
        TEST(test_egress),      TEST(test_names),         TEST(test_connect_timeout),
        TEST(test_timeouts),    TEST(test_pause),         TEST(test_cancel),
        TEST(test_next_in_end), TEST(test_large_request), TEST(test_head_request),
        TEST(test_many_parts),  TEST(test_fail_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
