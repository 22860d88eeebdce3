/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "../http/hostile.h"
#include "server_rig.h"

static const char post[] =
    "POST /v1/x?q=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\nX-Y:  z \r\n\r\nhello world";

static void answers_a_request(void **state)
{
    struct rig *r = rig_new();
    rig_open(r);
    assert_true(server_port(r->s) > 0);
    struct client *c = rig_connect(r);
    client_say(r, c, post);
    RIG_WAIT(r, client_has(c, "POST /v1/x 11\n"));
    assert_string_equal(r->last_path, "/v1/x");
    assert_true(strncmp(r->last_peer, "127.0.0.1:", 10) == 0 && r->last_loopback);
    assert_true(span_eq(buf_view(&r->last_body), SPAN("hello world")));
    assert_true(client_has(c, "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:01 GMT\r\n"));
    assert_int_equal(server_connections(r->s), 1);
    assert_int_equal(server_requests_in_flight(r->s), 0);
    client_say(r, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    RIG_WAIT(r, client_has(c, "GET / 0\n"));
    /* An idle connection holds nothing. */
    struct conn *idle = LIST_ITEM(r->s->conns.next, struct conn, all);
    assert_true(!idle->hold && !idle->body && !idle->arena.chunks && !idle->head && !idle->user);
    assert_false(c->eof);
    client_close(c);
    RIG_WAIT(r, server_connections(r->s) == 0);
    assert_int_equal(r->gone, 0);
    rig_free(r);
}

static void split_anywhere(void **state)
{
    struct rig *r = rig_new();
    rig_open(r);
    struct client *c = rig_connect(r);
    for (size_t cut = 1; cut < sizeof post - 1; cut++) {
        unsigned before = r->bodies;
        struct conn *conn;
        client_send(r, c, post, cut);
        /* Until the server has seen the first part. */
        RIG_WAIT(r, !list_empty(&r->s->conns) &&
                        (conn = LIST_ITEM(r->s->conns.next, struct conn, all),
                         conn->state == CONN_HEAD ? conn->hold_n == cut : conn->state == CONN_BODY));
        client_send(r, c, post + cut, sizeof post - 1 - cut);
        RIG_WAIT(r, r->bodies == before + 1 && client_count(c, "POST /v1/x 11\n") == r->bodies);
        assert_true(span_eq(buf_view(&r->last_body), SPAN("hello world")));
    }
    assert_int_equal(r->rejects, 0);
    rig_free(r);
}

static void check_order(const struct client *c, unsigned n)
{
    struct span rest = buf_view(&c->in);
    for (unsigned i = 0; i < n; i++) {
        char want[64];
        snprintf(want, sizeof want, "GET /%u 0\n", i);
        ptrdiff_t at = span_find(rest, span_str(want));
        assert_true(at >= 0 && at < 200);
        rest = span_of(rest.p + at + strlen(want), rest.n - (size_t)at - strlen(want));
    }
    assert_int_equal(rest.n, 0);
}

static void pipelined_burst(void **state)
{
    struct buf burst;
    buf_init(&burst, 1 << 20);
    for (int i = 0; i < 1000; i++)
        buf_printf(&burst, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i);
    /* Answered at once, and answered from outside of the callbacks. */
    for (int parked = 0; parked < 2; parked++) {
        struct rig *r = rig_new();
        r->does = parked ? RIG_PARK : RIG_ANSWER;
        rig_open(r);
        struct client *c = rig_connect(r);
        client_send(r, c, burst.p, burst.n);
        for (unsigned done = 0; parked && done < 1000; done++) {
            RIG_WAIT(r, r->parked);
            assert_true(r->parked->hold_cap <= 131072);
            struct conn *conn = r->parked;
            r->parked = NULL;
            rig_answer(r, conn);
        }
        RIG_WAIT(r, client_has(c, "GET /999 0\n"));
        check_order(c, 1000);
        assert_int_equal(r->heads, 1000);
        rig_free(r);
    }
    buf_fini(&burst);
}

/* A client that only sends: neither its requests nor the replies pile up. */
static void pipelining_without_reading(void **state)
{
    struct rig *r = rig_new();
    r->reply_bytes = 30000;
    rig_open(r);
    struct client *c = rig_connect(r);
    struct buf many;
    buf_init(&many, 64 << 20);
    for (int i = 0; i < 20000; i++)
        buf_printf(&many, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i);
    size_t at = 0;
    unsigned stuck = 0;
    while (stuck < 20 && at < many.n) {
        ssize_t n = send(c->fd, many.p + at, many.n - at, MSG_DONTWAIT);
        at += n > 0 ? (size_t)n : 0;
        unsigned heads = r->heads;
        rig_turn(r, c);
        stuck = n > 0 || heads != r->heads ? 0 : stuck + 1;
        if (!list_empty(&r->s->conns)) {
            struct conn *conn = LIST_ITEM(r->s->conns.next, struct conn, all);
            assert_true(conn->hold_n <= HOLD_STOP_BYTES + NET_READ_BYTES);
            assert_true(conn_queued(conn) <= QUEUE_STOP_BYTES + 31000);
        }
    }
    assert_true(r->heads < 20000);
    /* It reads after all: everything is answered, in order. */
    struct span rest = span_of(many.p + at, many.n - at);
    while (rest.n) {
        ssize_t n = send(c->fd, rest.p, rest.n, MSG_DONTWAIT);
        rest = n > 0 ? span_of(rest.p + n, rest.n - (size_t)n) : rest;
        rig_turn(r, NULL);
        if (c->in.n > 32 << 20)
            buf_consume(&c->in, c->in.n - 100000);
    }
    RIG_WAIT(r, client_has(c, "GET /19999 0\n") ||
                    (buf_consume(&c->in, c->in.n > 200000 ? c->in.n - 100000 : 0), 0));
    assert_int_equal(r->heads, 20000);
    buf_fini(&many);
    rig_free(r);
}

static void versions_and_keep_alive(void **state)
{
    static const struct {
        const char *request;
        bool stays;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nHost: a\r\n\r\n", false},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true},
    };
    struct rig *r = rig_new();
    rig_open(r);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        r->n_clients = 0;
        struct client *c = rig_connect(r);
        client_say(r, c, cases[i].request);
        RIG_WAIT(r, client_has(c, "GET / 0\n"));
        assert_int_equal(client_has(c, "connection: close"), !cases[i].stays);
        if (cases[i].stays) {
            client_say(r, c, "GET /again HTTP/1.1\r\nHost: a\r\n\r\n");
            RIG_WAIT(r, client_has(c, "GET /again 0\n"));
        } else {
            RIG_WAIT(r, c->eof);
        }
        assert_false(c->reset);
        client_close(c);
        buf_fini(&c->in);
        RIG_WAIT(r, server_connections(r->s) == 0);
    }
    r->n_clients = 0;
    rig_free(r);
}

static void chunked_bodies(void **state)
{
    static const char text[] = "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nT: 1\r\n\r\n";
    struct rig *r = rig_new();
    rig_open(r);
    struct client *c = rig_connect(r);
    for (size_t step = 1; step < sizeof text; step += step < 8 ? 1 : 13) {
        unsigned before = r->bodies;
        for (size_t at = 0; at < sizeof text - 1; at += step) {
            client_send(r, c, text + at, at + step < sizeof text ? step : sizeof text - 1 - at);
            rig_turn(r, NULL);
        }
        RIG_WAIT(r, r->bodies == before + 1 && client_count(c, "POST /c 11\n") == r->bodies);
        assert_true(span_eq(buf_view(&r->last_body), SPAN("hello world")));
    }
    /* Followed by another request in the same bytes. */
    client_say(r, c,
               "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
               "GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
    RIG_WAIT(r, client_has(c, "POST /c 0\n") && client_has(c, "GET /next 0\n"));
    client_say(r, c, "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n");
    RIG_WAIT(r, c->eof);
    assert_int_equal(r->last_status, 400);
    assert_true(client_has(c, "HTTP/1.1 400 Bad Request"));
    rig_free(r);
}

static void large_bodies(void **state)
{
    struct rig *r = rig_new();
    rig_open(r);
    struct client *c = rig_connect(r);
    size_t max = 5 << 20;
    char *body = mem_alloc(max);
    for (size_t i = 0; i < max; i++)
        body[i] = (char)('a' + i % 23);
    static const size_t sizes[] = {4095, 4096, 32768, 65535, 65536, 65537, 1 << 20, 5 << 20};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (int chunked = 0; chunked < 2; chunked++) {
            char text[200];
            unsigned before = r->bodies;
            snprintf(text, sizeof text,
                     chunked ? "POST /l HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n"
                             : "POST /l HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
                     sizes[i]);
            client_say(r, c, text);
            client_send(r, c, body, sizes[i]);
            if (chunked)
                client_say(r, c, "\r\n0\r\n\r\n");
            RIG_WAIT(r, r->bodies == before + 1);
            assert_true(span_eq(buf_view(&r->last_body), span_of(body, sizes[i])));
        }
    }
    /* A length that is only announced costs little. */
    client_say(r, c, "POST /l HTTP/1.1\r\nHost: a\r\nContent-Length: 16000000\r\n\r\nx");
    struct conn *conn = LIST_ITEM(r->s->conns.next, struct conn, all);
    RIG_WAIT(r, conn->body);
    assert_true(conn->body_cap <= 131072);
    free(body);
    rig_free(r);
}

static void expect_continue(void **state)
{
    struct rig *r = rig_new();
    rig_open(r);
    struct client *c = rig_connect(r);
    client_say(r, c, "POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    RIG_WAIT(r, client_has(c, "HTTP/1.1 100 Continue\r\n\r\n"));
    client_say(r, c, "abc");
    RIG_WAIT(r, client_has(c, "POST /e 3\n"));
    /* With its body, it needs no asking; refused, it gets no "continue", and what follows is unknowable. */
    client_say(r, c, "POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc");
    RIG_WAIT(r, client_has(c, "POST /f 3\n"));
    r->does = RIG_REFUSE_HEAD;
    client_say(r, c, "POST /g HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    RIG_WAIT(r, c->eof);
    assert_int_equal(client_count(c, "100 Continue"), 1);
    assert_true(client_has(c, "HTTP/1.1 401") && client_has(c, "connection: close"));
    rig_free(r);
}

static void refused_before_the_body(void **state)
{
    struct rig *r = rig_new();
    r->does = RIG_REFUSE_HEAD;
    rig_open(r);
    struct client *c = rig_connect(r);
    /* What came with the head is passed over, and the connection lives on. */
    client_say(r, c, post);
    RIG_WAIT(r, client_count(c, "401") == 1);
    client_say(r, c, "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
    RIG_WAIT(r, client_count(c, "401") == 2);
    assert_false(client_has(c, "connection: close"));
    /* A long upload: the client is still sending when the answer comes, and can read it. */
    client_say(r, c, "POST /u HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
    char *body = mem_zalloc(8000000);
    client_send(r, c, body, 8000000);
    shutdown(c->fd, SHUT_WR);
    RIG_WAIT(r, c->eof || c->reset);
    assert_true(client_count(c, "401") == 3 && client_has(c, "connection: close"));
    assert_false(c->reset);
    free(body);
    rig_free(r);
}

static void bodies_over_the_limit(void **state)
{
    struct rig *r = rig_new();
    r->max_body = 10;
    rig_open(r);
    static const char *const cases[] = {
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n", /* at once, before the body */
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n5\r\nghijk\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nghijkghijkghijk",
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        struct client *c = rig_connect(r);
        client_say(r, c, cases[i]);
        RIG_WAIT(r, c->eof);
        assert_true(client_has(c, "HTTP/1.1 413 "));
        assert_int_equal(r->rejects, i + 1);
    }
    struct client *c = rig_connect(r);
    client_say(
        r, c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n");
    RIG_WAIT(r, client_has(c, "POST / 10\n"));
    assert_int_equal(server_requests_in_flight(r->s), 0);
    rig_free(r);
}

static void heads_over_the_limit(void **state)
{
    struct rig *r = rig_new();
    r->o.max_head_bytes = 2000;
    rig_open(r);
    struct client *c = rig_connect(r);
    client_say(r, c, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    char *long_value = mem_alloc(100000);
    memset(long_value, 'x', 100000);
    client_send(r, c, long_value, 100000);
    RIG_WAIT(r, c->eof || c->reset);
    assert_true(client_has(c, "HTTP/1.1 431 "));
    assert_false(c->reset);
    free(long_value);
    rig_free(r);
}

static int status_for(struct rig *r, const struct hostile *h)
{
    r->n_clients = 0;
    unsigned rejects = r->rejects, bodies = r->bodies;
    struct client *c = rig_connect(r);
    client_send(r, c, h->raw.p, h->raw.n);
    RIG_WAIT(r, h->status == 200 ? r->bodies > bodies : r->rejects > rejects || c->eof || c->reset);
    int status = r->rejects > rejects ? r->last_status : r->bodies > bodies ? 200 : 0;
    client_close(c);
    buf_fini(&c->in);
    r->n_clients = 0;
    RIG_WAIT(r, server_connections(r->s) == 0);
    return status;
}

static void hostile_table(void **state)
{
    struct rig *r = rig_new();
    r->o.max_head_bytes = HTTP_HEAD_BYTES_DEFAULT;
    r->max_body = HOSTILE_BODY_MAX;
    rig_open(r);
    for (size_t i = 0; i < ARRAY_LEN(hostile_requests); i++) {
        int status = status_for(r, &hostile_requests[i]);
        if (status != hostile_requests[i].status)
            fail_msg("%s: %d, not %d", hostile_requests[i].name, status, hostile_requests[i].status);
    }
    rig_free(r);
}

static void aborts(void **state)
{
    struct rig *r = rig_new();
    rig_open(r);
    for (int i = 0; i < 2; i++) {
        r->does = i ? RIG_ABORT_BODY : RIG_ABORT_HEAD;
        struct client *c = rig_connect(r);
        client_say(r, c, post);
        client_say(r, c, post);
        RIG_WAIT(r, c->reset);
    }
    assert_int_equal(server_connections(r->s), 0);
    assert_int_equal(r->gone, 0);
    rig_free(r);
}

static void closing_from_a_callback(void **state)
{
    struct rig *r = rig_new();
    rig_open(r);
    r->does = RIG_PARK;
    struct client *c = rig_connect(r);
    client_say(r, c, post);
    RIG_WAIT(r, r->parked);
    r->does = RIG_CLOSE_SERVER;
    struct client *d = rig_connect(r);
    client_say(r, d, post);
    RIG_WAIT(r, (c->reset || c->eof) && (d->reset || d->eof));
    assert_int_equal(r->gone, 2);
    rig_free(r);
}

static void gives_memory_back(void **state)
{
    struct rig *r = rig_new();
    r->does = RIG_PARK;
    rig_open(r);
    struct client *c = rig_connect(r);
    char *body = mem_zalloc(100000);
    client_say(r, c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    client_send(r, c, body, 100000);
    RIG_WAIT(r, r->parked);
    assert_int_equal(conn_body(r->parked).n, 100000);
    size_t kept = r->s->kept.bytes;
    conn_drop_body(r->parked);
    assert_int_equal(conn_body(r->parked).n, 0);
    assert_true(r->s->kept.bytes >= kept + 100000);
    rig_answer(r, r->parked);
    free(body);
    rig_free(r);
}

/* Large bodies stay where they were read; none is written over by what is read later. */
static void large_bodies_are_not_copied(void **state)
{
    enum { N = 4, BYTES = 20000 };
    struct rig *r = rig_new();
    r->does = RIG_STREAM;
    rig_open(r);
    struct conn *conn[N];
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int i = 0; i < N; i++) {
        buf_clear(&text);
        buf_printf(&text, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", BYTES);
        for (int k = 0; k < BYTES; k++)
            buf_add_char(&text, (char)('a' + i));
        client_send(r, rig_connect(r), text.p, text.n);
        RIG_WAIT(r, r->bodies == (unsigned)i + 1);
        conn[i] = r->parked;
        assert_int_equal(conn[i]->body_from, BODY_READ);
        for (int k = 0; k <= i; k++) {
            struct span body = conn_body(conn[k]);
            assert_int_equal(body.n, BYTES);
            assert_int_equal(body.p[0], 'a' + k);
            assert_memory_equal(body.p, body.p + 1, BYTES - 1);
            assert_int_equal(body.p[BYTES], 0);
        }
    }
    conn_drop_body(conn[0]); /* its buffer comes next but one */
    assert_int_equal(r->loop.n_spare, 1);
    client_send(r, rig_connect(r), text.p, text.n);
    RIG_WAIT(r, r->bodies == 5);
    assert_int_equal(r->loop.n_spare, 0);
    for (int k = 1; k < N; k++)
        assert_memory_equal(conn_body(conn[k]).p, conn_body(conn[k]).p + 1, BYTES - 1);
    /* What follows at once needs the buffer: then the body is copied. */
    buf_add_str(&text, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client_send(r, rig_connect(r), text.p, text.n);
    RIG_WAIT(r, r->bodies == 6);
    assert_int_equal(r->parked->body_from, BODY_KEPT);
    assert_int_equal(conn_body(r->parked).n, BYTES);
    buf_fini(&text);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_a_request),
        cmocka_unit_test(split_anywhere),
        cmocka_unit_test(pipelined_burst),
        cmocka_unit_test(pipelining_without_reading),
        cmocka_unit_test(versions_and_keep_alive),
        cmocka_unit_test(chunked_bodies),
        cmocka_unit_test(large_bodies),
        cmocka_unit_test(expect_continue),
        cmocka_unit_test(refused_before_the_body),
        cmocka_unit_test(bodies_over_the_limit),
        cmocka_unit_test(heads_over_the_limit),
        cmocka_unit_test(hostile_table),
        cmocka_unit_test(aborts),
        cmocka_unit_test(closing_from_a_callback),
        cmocka_unit_test(gives_memory_back),
        cmocka_unit_test(large_bodies_are_not_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
