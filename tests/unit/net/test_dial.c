/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "net/dial.h"
#include "net/net_unit.h"

static struct net_loop loop;
static struct resolver *resolver;
static struct net_origin origin;
static uint16_t port;
static int listener;

struct outcome {
    int done;
    struct stream *s;
    enum exchange_fail why;
    char detail[200], peer[64];
};

static void on_done(void *arg, struct stream *s, enum exchange_fail why, const char *detail)
{
    struct outcome *o = arg;
    o->done++;
    o->s = s;
    o->why = why;
    snprintf(o->detail, sizeof o->detail, "%s", detail ? detail : "");
    if (!s)
        return;
    stream_peer_name(s, o->peer, sizeof o->peer);
    stream_close(s, true);
}

static int setup(void **state)
{
    (void)state;
    char url[64];
    const char *why;
    assert_int_equal(net_loop_init(&loop, 0), 0);
    resolver = resolver_new(&loop);
    listener = listen_any(&port);
    snprintf(url, sizeof url, "http://many.test:%u", port);
    assert_true(origin_parse(span_str(url), &origin, &why));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close(listener);
    origin_fini(&origin);
    resolver_free(resolver);
    net_loop_fini(&loop);
    return 0;
}

/* many.test has these addresses, in this order. */
static void set_addrs(const char *const *literals, unsigned n)
{
    struct resolve_addrs a = {.n = n};
    for (unsigned i = 0; i < n; i++)
        assert_true(uv_ip4_addr(literals[i], 0, &a.a[i].v4) == 0 ||
                    uv_ip6_addr(literals[i], 0, &a.a[i].v6) == 0);
    resolver_put(resolver, "many.test", &a);
}

static struct outcome run(unsigned timeout_ms)
{
    struct outcome o = {0};
    dial_start(&loop, resolver, &origin, NULL, timeout_ms, on_done, &o);
    assert_int_equal(o.done, 0);
    RUN_UNTIL(&loop, o.done);
    assert_int_equal(o.done, 1);
    return o;
}

/* Nobody listens on 127.0.0.2 and 127.0.0.3. */
static void test_in_order(void **state)
{
    (void)state;
    set_addrs((const char *[]){"127.0.0.2", "127.0.0.1", "127.0.0.3"}, 3);
    struct outcome o = run(5000);
    assert_non_null(o.s);
    assert_int_equal(strncmp(o.peer, "127.0.0.1:", 10), 0);
    set_addrs((const char *[]){"127.0.0.2", "127.0.0.3"}, 2);
    o = run(0);
    assert_null(o.s);
    assert_int_equal(o.why, EXCHANGE_CONNECT);
    assert_non_null(strstr(o.detail, "refused"));
}

static void test_egress(void **state)
{
    (void)state;
    const struct net_egress rules = {.block_link_local = true};
    origin.egress = &rules;
    set_addrs((const char *[]){"169.254.169.254", "fe80::1", "127.0.0.1"}, 3);
    struct outcome o = run(5000);
    assert_non_null(o.s);
    assert_int_equal(strncmp(o.peer, "127.0.0.1:", 10), 0);
    set_addrs((const char *[]){"169.254.169.254", "::ffff:169.254.1.1"}, 2);
    o = run(5000);
    assert_int_equal(o.why, EXCHANGE_EGRESS);
    assert_string_equal(o.detail, "many.test has a link-local address");
    set_addrs((const char *[]){"169.254.169.254", "127.0.0.2"}, 2); /* what was tried counts */
    o = run(5000);
    assert_int_equal(o.why, EXCHANGE_CONNECT);
}

/* An address that does not answer leaves time for the next one. */
static void test_share_of_time(void **state)
{
    (void)state;
    struct sockaddr_in deaf = loopback(port);
    int fds[9];
    deaf.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fds[0], (struct sockaddr *)&deaf, sizeof deaf), 0);
    assert_int_equal(listen(fds[0], 0), 0);
    for (size_t i = 1; i < ARRAY_LEN(fds); i++) { /* its queue is full */
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        connect(fds[i], (struct sockaddr *)&deaf, sizeof deaf);
    }
    set_addrs((const char *[]){"127.0.0.2", "127.0.0.1"}, 2);
    uint64_t from = clock_mono_ms();
    struct outcome o = run(1000); /* the second half must do on a busy machine as well */
    assert_non_null(o.s);
    assert_int_equal(strncmp(o.peer, "127.0.0.1:", 10), 0);
    assert_true(clock_mono_ms() - from >= 495);
    set_addrs((const char *[]){"127.0.0.2", "127.0.0.2"}, 2);
    from = clock_mono_ms();
    o = run(60);
    assert_int_equal(o.why, EXCHANGE_CONNECT_TIMEOUT);
    assert_true(clock_mono_ms() - from >= 55);
    set_addrs((const char *[]){"127.0.0.2"}, 1);
    memset(&o, 0, sizeof o);
    struct dial *d = dial_start(&loop, resolver, &origin, NULL, 400, on_done, &o);
    turn(&loop);
    dial_cancel(d);
    uint64_t until = clock_mono_ms() + 420;
    RUN_UNTIL(&loop, clock_mono_ms() >= until);
    assert_int_equal(o.done, 0);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
}

/* ---- the resolver ---- */

struct lookup {
    struct resolve_wait wait;
    int done, err;
    unsigned n;
    struct lookup *forget; /* taken back from inside */
};

static void on_lookup(struct resolve_wait *w, const struct resolve_addrs *addrs, int err)
{
    struct lookup *l = CONTAINER_OF(w, struct lookup, wait);
    l->done++;
    l->err = err;
    l->n = addrs ? addrs->n : 0;
    if (l->forget)
        resolver_forget(&l->forget->wait);
}

static void lookup_init(struct lookup *l)
{
    *l = (struct lookup){.wait.fn = on_lookup};
    list_init(&l->wait.node);
}

static void test_resolver(void **state)
{
    (void)state;
    struct resolve_addrs a;
    struct lookup one, two, three;
    lookup_init(&one);
    lookup_init(&two);
    lookup_init(&three);
    assert_true(resolver_lookup(resolver, "192.0.2.7", &one.wait, &a));
    assert_int_equal(a.n, 1);
    assert_int_equal(a.a[0].sa.sa_family, AF_INET);
    assert_true(resolver_lookup(resolver, "2001:db8::7", &one.wait, &a));
    assert_int_equal(a.a[0].sa.sa_family, AF_INET6);

    one.forget = &three;
    assert_false(resolver_lookup(resolver, "localhost", &one.wait, &a));
    assert_false(resolver_lookup(resolver, "localhost", &two.wait, &a));
    assert_false(resolver_lookup(resolver, "localhost", &three.wait, &a));
    RUN_UNTIL(&loop, one.done && two.done);
    assert_int_equal(one.err, 0);
    assert_true(one.n > 0 && one.n == two.n);
    assert_int_equal(three.done, 0);
    assert_true(resolver_lookup(resolver, "localhost", &one.wait, &a)); /* kept */

    assert_false(resolver_lookup(resolver, "no-such-name.invalid", &two.wait, &a));
    RUN_UNTIL(&loop, two.done == 2);
    assert_true(two.err < 0);
    assert_false(
        resolver_lookup(resolver, "no-such-name.invalid", &two.wait, &a)); /* failures are not kept */
    resolver_forget(&two.wait);                                            /* and the lookup runs on */

    for (int i = 0; i < 600; i++) { /* many names: old ones make room */
        char host[32];
        snprintf(host, sizeof host, "h%d.test", i);
        const struct resolve_addrs some = {.n = 1, .a[0].v4.sin_family = AF_INET};
        resolver_put(resolver, host, &some);
        assert_true(resolver_lookup(resolver, host, &one.wait, &a));
    }
    assert_false(resolver_lookup(resolver, "h0.test", &one.wait, &a));
    resolver_forget(&one.wait);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_in_order),
        TEST(test_egress),
        TEST(test_share_of_time),
        TEST(test_resolver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
