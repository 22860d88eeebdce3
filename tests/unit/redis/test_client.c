/* SPDX-License-Identifier: Apache-2.0
 *
 * The client against a real redis-server: working, killed, frozen, full, restarted.
 */
#include "unit.h"

#include "redis/redis_rig.h"

enum { ANSWER_MS = 50 };

static struct net_loop loop;
static struct resolver *resolver;
static struct rig rig;
static struct lines lines;
static struct answer a;
static struct redis_client *client; /* freed by the teardown when a test fails */

static int setup(void **state)
{
    (void)state;
    assert_int_equal(net_loop_init(&loop, 0), 0);
    resolver = resolver_new(&loop);
    rig_open(&rig, NULL);
    lines.n = 0;
    answer_init(&a);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_close(&rig);
    redis_client_free(client);
    client = NULL;
    resolver_free(resolver);
    net_loop_fini(&loop); /* aborts when a handle is left */
    buf_fini(&a.text);
    return 0;
}

static void end(struct redis_client *c)
{
    client = NULL;
    redis_client_free(c);
}

static struct redis_client *client_of(const char *url, unsigned answer_ms)
{
    char why[256] = "";
    const struct redis_options o = {
        .url = url, .consumer = "test", .answer_ms = answer_ms, .tell = on_line, .tell_arg = &lines};
    struct redis_server *s = redis_server_new(&o, why);
    assert_string_equal(why, "");
    client = redis_client_new(s, &loop, resolver);
    redis_server_unref(s);
    return client;
}

static struct redis_client *connected(const char *url)
{
    struct redis_client *c = client_of(url, ANSWER_MS);
    RUN_UNTIL(&loop, redis_client_is_up(c));
    return c;
}

static void test_commands(void **state)
{
    (void)state;
    const char *const urls[] = {rig.url, rig.unix_url};
    for (int i = 0; i < 2; i++) {
        struct redis_client *c = client_of(urls[i], 1000);
        assert_int_equal(SEND(c, &a, 0, "PING"), REDIS_AWAY); /* not connected yet */
        RUN_UNTIL(&loop, redis_client_is_up(c));
        ASK(&loop, c, &a, "SET", "k", "v");
        assert_int_equal(a.type, REDIS_STATUS);
        ASK(&loop, c, &a, "GET", "k");
        assert_int_equal(a.type, REDIS_STRING);
        assert_text(&a, "v");
        ASK(&loop, c, &a, "GET", "none");
        assert_int_equal(a.type, REDIS_NIL);
        ASK(&loop, c, &a, "INCRBY", "n", "-7");
        assert_int_equal(a.type, REDIS_INTEGER);
        ASK(&loop, c, &a, "LPUSH", "k", "v");
        assert_int_equal(a.outcome, REDIS_REFUSED);
        assert_memory_equal(a.text.p, "WRONGTYPE ", 10);
        ASK(&loop, c, &a, "RPUSH", "l", "a", "", "c");
        ASK(&loop, c, &a, "LRANGE", "l", "0", "2");
        assert_text(&a, "|a||c");
        ASK(&loop, c, &a, "DEL", "k", "n", "l");
        assert_int_equal(a.integer, 3);
        end(c);
    }
    assert_int_equal(lines.n, 2);
    assert_false(lines.bad[0]);
}

/* A megabyte of every byte there is, there and back. */
static void test_binary(void **state)
{
    (void)state;
    struct redis_client *c = client_of(rig.url, 2000);
    RUN_UNTIL(&loop, redis_client_is_up(c));
    char *body = mem_alloc(1 << 20);
    for (int i = 0; i < 1 << 20; i++)
        body[i] = (char)(i * 31 >> 3);
    const struct span argv[] = {SPAN("SET"), span_of("\0\r\n", 3), span_of(body, 1 << 20)};
    answer_init(&a);
    assert_int_equal(redis_command(c, &(struct redis_request){argv, 3, 1}, 0, on_answer, &a, NULL),
                     REDIS_DONE);
    RUN_UNTIL(&loop, a.n);
    assert_int_equal(a.outcome, REDIS_DONE);
    const struct span get[] = {SPAN("GET"), span_of("\0\r\n", 3)};
    answer_init(&a);
    assert_int_equal(redis_command(c, &(struct redis_request){get, 2, 1}, 0, on_answer, &a, NULL),
                     REDIS_DONE);
    RUN_UNTIL(&loop, a.n);
    assert_int_equal(a.text.n, 1 << 20);
    assert_memory_equal(a.text.p, body, a.text.n);
    free(body);
    end(c);
}

struct order {
    int next;
};

static void on_ordered(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct order *o = arg;
    assert_int_equal(outcome, REDIS_DONE);
    assert_int_equal(reply->integer, ++o->next);
}

/* A thousand commands of one turn leave together and come back in order. */
static void test_pipeline(void **state)
{
    (void)state;
    struct redis_client *c = client_of(rig.url, 2000);
    RUN_UNTIL(&loop, redis_client_is_up(c));
    struct order o = {0};
    const struct span argv[] = {SPAN("INCR"), SPAN("counter")};
    for (int i = 0; i < 1000; i++)
        assert_int_equal(redis_command(c, &(struct redis_request){argv, 2, 1}, 0, on_ordered, &o, NULL),
                         REDIS_DONE);
    RUN_UNTIL(&loop, o.next == 1000);
    end(c);
}

static void test_transaction(void **state)
{
    (void)state;
    struct redis_client *c = connected(rig.url);
    const struct span set[] = {SPAN("SET"), SPAN("k"), SPAN("1")};
    const struct span get[] = {SPAN("GET"), SPAN("k")};
    const struct span bad[] = {SPAN("NOSUCH"), SPAN("k")};
    const struct redis_request good[] = {{set, 3, 1}, {get, 2, 1}}, broken[] = {{set, 3, 1}, {bad, 2, 1}};
    answer_init(&a);
    assert_int_equal(redis_transaction(c, good, 2, 0, on_answer, &a, NULL), REDIS_DONE);
    RUN_UNTIL(&loop, a.n);
    assert_text(&a, "|OK|1");
    answer_init(&a);
    assert_int_equal(redis_transaction(c, good, 1, 0, on_answer, &a, NULL), REDIS_DONE);
    RUN_UNTIL(&loop, a.n);
    assert_int_equal(a.items, 1);
    answer_init(&a);
    assert_int_equal(redis_transaction(c, broken, 2, 0, on_answer, &a, NULL), REDIS_DONE);
    RUN_UNTIL(&loop, a.n);
    assert_int_equal(a.outcome, REDIS_REFUSED);
    assert_memory_equal(a.text.p, "EXECABORT ", 10);
    ASK(&loop, c, &a, "GET", "k"); /* the order of replies is intact */
    assert_text(&a, "1");
    end(c);
}

/* A cancelled call is not heard of, and the next one gets its own reply. */
static void test_cancel(void **state)
{
    (void)state;
    struct redis_client *c = connected(rig.url);
    struct answer never = {0};
    struct redis_call *call;
    ASK(&loop, c, &a, "SET", "k", "v");
    const struct span get[] = {SPAN("GET"), SPAN("other")};
    assert_int_equal(redis_command(c, &(struct redis_request){get, 2, 1}, 0, on_answer, &never, &call),
                     REDIS_DONE);
    redis_cancel(call);
    ASK(&loop, c, &a, "GET", "k");
    assert_text(&a, "v");
    assert_int_equal(never.n, 0);
    assert_int_equal(SEND(c, NULL, 0, "SET", "k", "w"),
                     REDIS_DONE); /* nobody waits, it is done all the same */
    ASK(&loop, c, &a, "GET", "k");
    assert_text(&a, "w");
    assert_int_equal(SEND(c, &never, 0, "GET", "k"), REDIS_DONE);
    end(c);
    RUN_UNTIL(&loop, true);
    assert_int_equal(never.n, 0);
}

/* Killed: what is under way ends at once, what comes then is refused at once; started again: it works. */
static void test_killed(void **state)
{
    (void)state;
    struct redis_client *c = connected(rig.url);
    answer_init(&a);
    assert_int_equal(SEND(c, &a, 5000, "BLPOP", "nothing", "0"), REDIS_DONE);
    RUN_UNTIL(&loop, true);
    const uint64_t killed = clock_mono_us();
    rig_kill(&rig);
    RUN_UNTIL(&loop, a.n);
    assert_int_equal(a.outcome, REDIS_LOST);
    assert_true(a.at_us - killed < 500000);
    assert_int_equal(SEND(c, &a, 0, "PING"), REDIS_AWAY);
    rig_start(&rig, NULL);
    RUN_UNTIL(&loop, redis_client_is_up(c));
    ASK(&loop, c, &a, "PING");
    assert_text(&a, "PONG");
    assert_int_equal(lines.n, 3);
    assert_true(lines.bad[1]);
    assert_non_null(strstr(lines.text[1], " is away: "));
    assert_false(lines.bad[2]);
    end(c);
}

/* Frozen: the answer's time is spent once, then nothing is waited for until the server answers again. */
static void test_frozen(void **state)
{
    (void)state;
    struct redis_client *c = connected(rig.url);
    struct answer more[20] = {0};
    kill(rig.pid, SIGSTOP);
    const uint64_t start = clock_mono_us();
    for (int i = 0; i < 20; i++)
        assert_int_equal(SEND(c, &more[i], 0, "GET", "k"), REDIS_DONE);
    RUN_UNTIL(&loop, more[19].n);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(more[i].n, 1);
        assert_int_equal(more[i].outcome, REDIS_TIMEOUT);
        assert_true(more[i].at_us - start >= (ANSWER_MS - 2) * 1000);
        assert_true(more[i].at_us - start < (ANSWER_MS + 200) * 1000);
        buf_fini(&more[i].text);
    }
    const uint64_t later = clock_mono_ms() + 1500; /* several probes, which the kernel lets connect */
    while (clock_mono_ms() < later) {
        assert_int_equal(SEND(c, &a, 0, "GET", "k"), REDIS_AWAY);
        turn(&loop);
    }
    kill(rig.pid, SIGCONT);
    RUN_UNTIL(&loop, redis_client_is_up(c));
    ASK(&loop, c, &a, "PING");
    assert_int_equal(lines.n, 3); /* connected, away, connected */
    assert_non_null(strstr(lines.text[1], "no answer in 50 ms"));
    end(c);
}

/* An idle connection to a server that froze is noticed before anybody asks. */
static void test_frozen_idle(void **state)
{
    (void)state;
    struct redis_client *c = connected(rig.url);
    kill(rig.pid, SIGSTOP);
    RUN_UNTIL(&loop, !redis_client_is_up(c));
    assert_int_equal(lines.n, 2);
    kill(rig.pid, SIGCONT);
    RUN_UNTIL(&loop, redis_client_is_up(c));
    end(c);
}

/* What a caller has left of its own time may be short; the connection is not blamed for it. */
static void test_short_time(void **state)
{
    (void)state;
    struct redis_client *c = client_of(rig.url, 2000);
    RUN_UNTIL(&loop, redis_client_is_up(c));
    answer_init(&a);
    kill(rig.pid, SIGSTOP);
    assert_int_equal(SEND(c, &a, 5, "SET", "k", "late"), REDIS_DONE);
    RUN_UNTIL(&loop, a.n);
    assert_int_equal(a.outcome, REDIS_TIMEOUT);
    assert_true(redis_client_is_up(c));
    kill(rig.pid, SIGCONT);
    ASK(&loop, c, &a, "GET", "k"); /* gets its own reply, not the late one */
    assert_text(&a, "late");
    assert_int_equal(lines.n, 1);
    end(c);
}

static void test_password(void **state)
{
    (void)state;
    char url[128];
    rig_kill(&rig);
    rig_start(&rig, (const char *const[]){"--requirepass", "p@ss/word", "--user", "eve", "on", ">se:cret",
                                          "~*", "+@all", NULL});
    snprintf(url, sizeof url, "redis://:p%%40ss%%2Fword@127.0.0.1:%u/3", rig.port);
    struct redis_client *c = connected(url);
    ASK(&loop, c, &a, "SET", "k", "three");
    end(c);
    snprintf(url, sizeof url, "redis://eve:se%%3Acret@127.0.0.1:%u", rig.port);
    c = connected(url);
    ASK(&loop, c, &a, "GET", "k"); /* database 0 */
    assert_int_equal(a.type, REDIS_NIL);
    end(c);
    lines.n = 0;
    snprintf(url, sizeof url, "redis://:wrong-secret@127.0.0.1:%u", rig.port);
    c = client_of(url, ANSWER_MS);
    RUN_UNTIL(&loop, lines.n);
    assert_true(lines.bad[0]);
    assert_non_null(strstr(lines.text[0], "it refused the connection (WRONGPASS)"));
    assert_null(strstr(lines.text[0], "secret"));
    end(c);
    lines.n = 0;
    c = client_of(rig.url, ANSWER_MS);
    RUN_UNTIL(&loop, lines.n);
    assert_non_null(strstr(lines.text[0], "it wants a password"));
    end(c);
}

/* rediss://, with the server's name checked; a server that is not trusted is away, and why is said. */
static void test_tls(void **state)
{
    (void)state;
    char cert[96], key[96], port_text[8], url[64], why[256] = "";
    uint16_t port;
    int status = -1;
    snprintf(cert, sizeof cert, "%s/cert.pem", rig.folder);
    snprintf(key, sizeof key, "%s/key.pem", rig.folder);
    const pid_t pid = rig_spawn(
        (const char *const[]){"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                              "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test",
                              "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert, NULL});
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(listen_any(&port));
    snprintf(port_text, sizeof port_text, "%u", port);
    rig_kill(&rig);
    rig_start(&rig, (const char *const[]){"--tls-port", port_text, "--tls-cert-file", cert, "--tls-key-file",
                                          key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no", NULL});
    const char *const bundles[] = {cert};
    struct redis_options o = {.consumer = "test",
                              .url = url,
                              .ca_bundles = bundles,
                              .n_ca_bundles = 1,
                              .answer_ms = 2000,
                              .tell = on_line,
                              .tell_arg = &lines};
    for (int trusted = 1; trusted >= 0; trusted--) {
        snprintf(url, sizeof url, "rediss://127.0.0.1:%u", port);
        o.n_ca_bundles = (size_t)trusted;
        lines.n = 0;
        struct redis_server *s = redis_server_new(&o, why);
        assert_string_equal(why, "");
        client = redis_client_new(s, &loop, resolver);
        redis_server_unref(s);
        RUN_UNTIL(&loop, lines.n);
        assert_int_equal(lines.bad[0], !trusted);
        if (trusted) {
            ASK(&loop, client, &a, "SET", "k", "v");
            ASK(&loop, client, &a, "GET", "k");
            assert_text(&a, "v");
        } else {
            assert_non_null(strstr(lines.text[0], "certificate"));
        }
        end(client);
    }
}

/* A server that answers late is no server: its first answer comes too late for the greeting. */
static void test_slow(void **state)
{
    (void)state;
    struct stub stub;
    stub_open(&stub, serve_slowly, slow_way_new(&rig, 3 * ANSWER_MS));
    struct redis_client *c = client_of(stub.url, ANSWER_MS);
    RUN_UNTIL(&loop, lines.n);
    assert_non_null(strstr(lines.text[0], "no answer in 50 ms"));
    end(c);
    c = client_of(stub.url, 10 * ANSWER_MS); /* for somebody with more time it is */
    RUN_UNTIL(&loop, redis_client_is_up(c));
    ASK(&loop, c, &a, "SET", "k", "v");
    assert_int_equal(a.outcome, REDIS_DONE);
    end(c);
    stub_close(&stub);
}

/* What is no reply, or nobody asked for, ends the connection; callers get neutral outcomes. */
static void test_garbage(void **state)
{
    (void)state;
    static const char *const GARBAGE[] = {
        "HTTP/1.1 400 Bad Request\r\n\r\n", "*1000000000\r\n", "+OK\r\n+OK\r\n",
        "$-5\r\n$9999999999999\r\nx",       "\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(GARBAGE); i++) {
        struct stub stub;
        lines.n = 0;
        stub_open(&stub, serve_garbage, GARBAGE[i]);
        struct redis_client *c = client_of(stub.url, 2000);
        RUN_UNTIL(&loop, redis_client_is_up(c));
        answer_init(&a);
        assert_int_equal(SEND(c, &a, 300, "GET", "k"), REDIS_DONE);
        RUN_UNTIL(&loop, lines.n >= 2 || a.n);
        RUN_UNTIL(&loop, a.n);
        if (a.outcome == REDIS_DONE) /* a reply, and one too many */
            assert_text(&a, i == 2 ? "OK" : "");
        else
            assert_true(a.outcome == REDIS_LOST || a.outcome == REDIS_TIMEOUT);
        end(c);
        stub_close(&stub);
    }
}

/* Full: what is refused is said once; reading goes on; room again is said once. */
static void test_full(void **state)
{
    (void)state;
    struct redis_client *c = connected(rig.url);
    ASK(&loop, c, &a, "SET", "k", "v");
    ASK(&loop, c, &a, "CONFIG", "SET", "maxmemory", "1");
    for (int i = 0; i < 5; i++) {
        ASK(&loop, c, &a, "SET", "more", "v");
        assert_int_equal(a.outcome, REDIS_REFUSED);
        ASK(&loop, c, &a, "GET", "k");
        assert_text(&a, "v");
    }
    assert_int_equal(lines.n, 2);
    assert_non_null(strstr(lines.text[1], "takes no writes: OOM"));
    ASK(&loop, c, &a, "CONFIG", "SET", "maxmemory", "0");
    ASK(&loop, c, &a, "SET", "more", "v");
    assert_int_equal(lines.n, 3);
    end(c);
}

/* A master that became a replica is left, and joined again when it is a master once more. */
static void test_readonly(void **state)
{
    (void)state;
    struct redis_client *c = connected(rig.url);
    ASK(&loop, c, &a, "REPLICAOF", "127.0.0.1", "1");
    ASK(&loop, c, &a, "SET", "k", "v");
    assert_int_equal(a.outcome, REDIS_REFUSED);
    assert_false(redis_client_is_up(c));
    assert_non_null(strstr(lines.text[1], "replica"));
    RUN_UNTIL(&loop, redis_client_is_up(c));
    ASK(&loop, c, &a, "REPLICAOF", "NO", "ONE");
    ASK(&loop, c, &a, "SET", "k", "v");
    assert_int_equal(a.outcome, REDIS_DONE);
    end(c);
}

/* The queue is bounded by calls and by bytes. */
static void test_bounds(void **state)
{
    (void)state;
    char why[256];
    const struct redis_options o = {
        .url = rig.url, .consumer = "test", .answer_ms = 2000, .max_calls = 10, .max_queue_bytes = 100000};
    struct redis_server *s = redis_server_new(&o, why);
    struct redis_client *c = client = redis_client_new(s, &loop, resolver);
    redis_server_unref(s);
    RUN_UNTIL(&loop, redis_client_is_up(c));
    static char big[60000];
    memset(big, 'x', sizeof big - 1);
    assert_int_equal(SEND(c, NULL, 0, "SET", "k", big), REDIS_DONE);
    assert_int_equal(SEND(c, NULL, 0, "SET", "k", big), REDIS_BUSY);
    for (int i = 0; i < 9; i++)
        assert_int_equal(SEND(c, NULL, 0, "PING"), REDIS_DONE);
    assert_int_equal(SEND(c, NULL, 0, "PING"), REDIS_BUSY);
    struct answer last = {0};
    RUN_UNTIL(&loop, SEND(c, &last, 0, "SET", "k", big) == REDIS_DONE);
    RUN_UNTIL(&loop, last.n);
    buf_fini(&last.text);
    ASK(&loop, c, &a, "GET", "k");
    assert_int_equal(a.text.n, sizeof big - 1);
    end(c);
}

static void test_bad_options(void **state)
{
    (void)state;
    char why[256];
    struct redis_options o = {.url = "http://h", .consumer = "test"};
    assert_null(redis_server_new(&o, why));
    o.url = "unix:///x";
    o.cluster = true;
    assert_null(redis_server_new(&o, why));
    assert_non_null(strstr(why, "cluster"));
    o.url = "rediss://h";
    o.cluster = false;
    o.ca_bundles = (const char *const[]){"/nonexistent.pem"};
    o.n_ca_bundles = 1;
    assert_null(redis_server_new(&o, why));
    assert_non_null(strstr(why, "/nonexistent.pem"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_commands),
        T(test_binary),
        T(test_pipeline),
        T(test_transaction),
        T(test_cancel),
        T(test_killed),
        T(test_frozen),
        T(test_frozen_idle),
        T(test_short_time),
        T(test_password),
        T(test_full),
        T(test_readonly),
        T(test_tls),
        T(test_slow),
        T(test_garbage),
        T(test_bounds),
        cmocka_unit_test(test_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
