/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "server_rig.h"

#define GET "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"

static struct conn *only_conn(const struct rig *r)
{
    return list_empty(&r->s->conns) ? NULL : LIST_ITEM(r->s->conns.next, struct conn, all);
}

static struct rig *parked_rig(enum rig_does does)
{
    struct rig *r = rig_new();
    r->does = does;
    rig_open(r);
    client_say(r, rig_connect(r), GET);
    RIG_WAIT(r, r->parked);
    return r;
}

static void half_closed_client_gets_its_reply(void **state)
{
    struct rig *r = parked_rig(RIG_PARK);
    struct client *c = &r->clients[0];
    shutdown(c->fd, SHUT_WR);
    RIG_WAIT(r, client_has(c, "HTTP/1.1 100 Continue\r\n\r\n"));
    /* Asked twice whether it has gone, it has not. */
    RIG_WAIT(r, only_conn(r)->read_due.kind >= DUE_PROBE_2);
    assert_int_equal(r->gone, 0);
    rig_answer(r, r->parked);
    RIG_WAIT(r, c->eof);
    assert_true(client_has(c, "GET /x 0\n"));
    assert_int_equal(client_count(c, "100 Continue"), 1);
    assert_int_equal(server_connections(r->s), 0);
    rig_free(r);
}

static void half_closed_with_pipelined_requests(void **state)
{
    struct rig *r = rig_new();
    rig_open(r);
    struct client *c = rig_connect(r);
    client_say(r, c, GET GET GET);
    shutdown(c->fd, SHUT_WR);
    RIG_WAIT(r, c->eof);
    assert_int_equal(client_count(c, "GET /x 0\n"), 3);
    /* An end in the middle of a head or a body is the end. */
    static const char *const parts[] = {"GET /x HT",
                                        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc", ""};
    for (unsigned i = 0; i < ARRAY_LEN(parts); i++) {
        c = rig_connect(r);
        client_say(r, c, parts[i]);
        shutdown(c->fd, SHUT_WR);
        RIG_WAIT(r, c->eof || c->reset);
        assert_int_equal(c->in.n, 0);
    }
    assert_int_equal(r->gone, 1); /* the one whose body did not come */
    rig_free(r);
}

static void old_clients_get_no_interim_reply(void **state)
{
    struct rig *r = rig_new();
    r->does = RIG_PARK;
    rig_open(r);
    struct client *c = rig_connect(r);
    client_say(r, c, "GET /x HTTP/1.0\r\n\r\n");
    RIG_WAIT(r, r->parked);
    shutdown(c->fd, SHUT_WR);
    RIG_WAIT(r, only_conn(r)->read_due.kind >= DUE_PROBE_1);
    rig_answer(r, r->parked);
    RIG_WAIT(r, c->eof);
    assert_true(client_has(c, "GET /x 0\n") && !client_has(c, "100 Continue"));
    rig_free(r);
}

static void closed_client_is_found_gone(void **state)
{
    for (int streaming = 0; streaming < 2; streaming++) {
        struct rig *r = parked_rig(streaming ? RIG_STREAM : RIG_PARK);
        struct client *c = &r->clients[0];
        if (streaming)
            RIG_WAIT(r, c->in.n > 0); /* unread bytes would make the close a reset */
        uint64_t since = clock_mono_ms();
        client_close(c);
        RIG_WAIT(r, r->gone == 1);
        assert_true(clock_mono_ms() - since < 2000); /* before the first check of the slow series */
        assert_int_equal(r->half_closed, streaming);
        assert_int_equal(server_connections(r->s), 0);
        assert_int_equal(server_requests_in_flight(r->s), 0);
        rig_free(r);
    }
}

static void reset_is_noticed_at_once(void **state)
{
    struct rig *r = parked_rig(RIG_PARK);
    client_reset(&r->clients[0]);
    uint64_t since = clock_mono_ms();
    RIG_WAIT(r, r->gone == 1);
    assert_true(clock_mono_ms() - since < 500);
    /* In the middle of a body, and between requests. */
    struct client *c = rig_connect(r);
    client_say(r, c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc");
    RIG_WAIT(r, only_conn(r) && only_conn(r)->state == CONN_BODY);
    client_reset(c);
    RIG_WAIT(r, r->gone == 2);
    c = rig_connect(r);
    RIG_WAIT(r, server_connections(r->s) == 1);
    client_reset(c);
    RIG_WAIT(r, server_connections(r->s) == 0);
    assert_int_equal(r->gone, 2);
    rig_free(r);
}

/* Nothing is read from a client that pipelined too much, so the kernel is asked. */
static void reset_behind_unread_input(void **state)
{
    struct rig *r = parked_rig(RIG_PARK);
    r->s->due_ms[DUE_PROBE_3] = 20;
    struct client *c = &r->clients[0];
    for (int i = 0; i < 3000 && only_conn(r)->reading; i++)
        client_say(r, c, GET GET GET GET GET GET GET GET GET GET);
    RIG_WAIT(r, !only_conn(r)->reading);
    client_reset(c);
    RIG_WAIT(r, r->gone == 1);
    assert_int_equal(r->heads, 1);
    rig_free(r);
}

static void slow_reader(void **state)
{
    struct rig *r = parked_rig(RIG_STREAM);
    struct client *c = &r->clients[0];
    struct conn *conn = r->parked;
    static char part[1 << 20];
    size_t total = 0;
    while (conn_queued(conn) == 0) {
        assert_int_equal(rig_write(conn, span_of(part, sizeof part), SPAN_NONE), 0);
        total += sizeof part;
    }
    assert_int_equal(r->drains, 0);
    RIG_WAIT(r, r->drains == 1);
    RIG_WAIT(r, c->in.n > total);
    /* A reply that is finished while it is queued arrives whole before the end. */
    c->in.n = total = 0;
    while (conn_queued(conn) == 0) {
        rig_write(conn, span_of(part, sizeof part), SPAN_NONE);
        total += sizeof part;
    }
    conn_finish(conn, false);
    assert_int_equal(server_requests_in_flight(r->s), 0);
    RIG_WAIT(r, c->eof);
    assert_int_equal(c->in.n, total);
    assert_int_equal(r->drains, 1); /* not for a request that is over */
    assert_int_equal(r->gone, 0);
    rig_free(r);
}

static void stalled_reader_is_gone(void **state)
{
    struct rig *r = rig_new();
    r->does = RIG_STREAM;
    r->o.write_ms = 50;
    rig_open(r);
    struct client *c = rig_connect(r);
    client_say(r, c, GET);
    RIG_WAIT(r, r->parked);
    static char part[1 << 20];
    while (conn_queued(r->parked) == 0)
        rig_write(r->parked, span_of(part, sizeof part), SPAN_NONE);
    RIG_WAIT_PAUSED(r, c, r->gone == 1);
    /* The same when the owner is through with it. */
    r->does = RIG_ANSWER;
    r->reply_bytes = sizeof part;
    c = rig_connect(r);
    for (int i = 0; i < 20; i++)
        client_say(r, c, GET);
    RIG_WAIT_PAUSED(r, c, server_connections(r->s) == 1);
    RIG_WAIT_PAUSED(r, c, server_connections(r->s) == 0);
    assert_int_equal(r->gone, 1);
    rig_free(r);
}

static void time_outs(void **state)
{
    static const struct {
        const char *sent;
        int status;
    } cases[] = {
        {"", 0}, /* nothing asked, nothing answered */
        {"GET / HTT", 408},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc", 408},
        {GET, 200},             /* idle after it */
        {GET "GET / HTT", 408}, /* a second head that is slow */
    };
    struct rig *r = rig_new();
    r->o.head_ms = 50;
    r->o.body_ms = 60;
    r->o.idle_ms = 70;
    rig_open(r);
    unsigned rejects = 0;
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t since = clock_mono_ms();
        struct client *c = rig_connect(r);
        client_say(r, c, cases[i].sent);
        RIG_WAIT(r, c->eof);
        assert_true(clock_mono_ms() - since >= 50);
        rejects += cases[i].status == 408;
        assert_int_equal(r->rejects, rejects);
        assert_int_equal(client_has(c, "HTTP/1.1 408 "), cases[i].status == 408);
        assert_int_equal(c->in.n == 0, cases[i].status == 0);
    }
    assert_int_equal(server_requests_in_flight(r->s), 0);
    rig_free(r);
}

static void shorter_limits_hold_for_those_who_wait(void **state)
{
    struct rig *r = rig_new();
    rig_open(r);
    struct client *a = rig_connect(r), *b = rig_connect(r);
    client_say(r, a, GET);
    client_say(r, b, "GET /x");
    RIG_WAIT(r, client_has(a, "GET /x 0\n") && server_connections(r->s) == 2);
    r->o.idle_ms = r->o.head_ms = 30;
    server_update(r->s, &r->o);
    RIG_WAIT(r, a->eof && b->eof);
    rig_free(r);
}

static void drain(void **state)
{
    struct rig *r = parked_rig(RIG_PARK);
    struct client *busy = &r->clients[0];
    r->does = RIG_ANSWER;
    struct client *idle = rig_connect(r), *part = rig_connect(r), *silent = rig_connect(r);
    client_say(r, idle, GET);
    client_say(r, part, "GET /part HT");
    RIG_WAIT(r, client_has(idle, "GET /x 0\n") && server_connections(r->s) == 4);
    server_drain(r->s);
    RIG_WAIT(r, idle->eof);
    assert_true(!busy->eof && !part->eof && !silent->eof);
    client_say(r, part, "TP/1.1\r\nHost: a\r\n\r\n");
    client_say(r, silent, GET);
    rig_answer(r, r->parked);
    struct client *late = rig_connect(r); /* the listener stays */
    client_say(r, late, GET GET);
    RIG_WAIT(r, busy->eof && part->eof && silent->eof && late->eof);
    assert_true(client_has(part, "GET /part 0\n") && client_has(part, "connection: close"));
    assert_true(client_has(busy, "connection: close") && client_has(silent, "connection: close"));
    assert_int_equal(client_count(late, "GET /x 0\n"), 1);
    assert_int_equal(server_connections(r->s), 0);
    rig_free(r);
}

static int connect_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void unix_socket(void **state)
{
    char dir[] = "/tmp/rolter-test-XXXXXX", path[64], error[256] = "";
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/s", dir);
    struct rig *r = rig_new();
    r->o.host = NULL;
    r->o.unix_path = path;
    r->does = RIG_PARK;
    rig_open(r);
    struct client *c = rig_adopt(r, connect_unix(path));
    client_say(r, c, GET);
    RIG_WAIT(r, r->parked);
    assert_string_equal(r->last_peer, "unix");
    assert_true(r->last_loopback);
    shutdown(c->fd, SHUT_WR);
    RIG_WAIT(r, only_conn(r)->read_due.kind >= DUE_PROBE_2);
    rig_answer(r, r->parked);
    RIG_WAIT(r, client_has(c, "GET /x 0\n") && c->eof);
    r->parked = NULL;
    c = rig_adopt(r, connect_unix(path));
    client_say(r, c, GET);
    RIG_WAIT(r, r->parked);
    client_close(c);
    RIG_WAIT(r, r->gone == 1);

    /* In use, it is not taken away; another loop's server may share it. */
    assert_null(server_open(&r->loop, &r->o, &rig_events, r, error));
    assert_non_null(strstr(error, path));
    struct rig *other = rig_new();
    other->o.host = NULL;
    other->o.unix_of = r->s;
    rig_open(other);
    c = rig_adopt(other, connect_unix(path));
    client_say(other, c, GET);
    RIG_WAIT(other, client_has(c, "GET /x 0\n"));
    rig_free(other);
    assert_int_equal(access(path, F_OK), 0);
    rig_free(r);
    assert_int_equal(access(path, F_OK), -1);

    /* Left behind by one that died, it is; a file that is no socket is not. */
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    r = rig_new();
    r->o.host = NULL;
    r->o.unix_path = path;
    rig_open(r);
    rig_free(r);
    fclose(fopen(path, "w"));
    r = rig_new();
    r->o.host = NULL;
    r->o.unix_path = path;
    assert_null(server_open(&r->loop, &r->o, &rig_events, r, error));
    assert_non_null(strstr(error, "no socket"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    rig_free(r);
}

static void several_workers_one_port(void **state)
{
    struct rig *a = rig_new(), *b = rig_new();
    a->o.reuse_port = b->o.reuse_port = true;
    rig_open(a);
    b->o.port = server_port(a->s);
    rig_open(b);
    assert_int_equal(server_port(b->s), server_port(a->s));
    char error[256] = "";
    struct rig *c = rig_new();
    c->o.port = server_port(a->s);
    assert_null(server_open(&c->loop, &c->o, &rig_events, c, error));
    assert_non_null(strstr(error, "in use"));
    c->o.host = "host.invalid";
    assert_null(server_open(&c->loop, &c->o, &rig_events, c, error));
    assert_non_null(strstr(error, "host.invalid"));
    rig_free(c);
    rig_free(b);
    rig_free(a);
}

static void out_of_descriptors(void **state)
{
    struct rig *r = rig_new();
    rig_open(r);
    struct client *c = rig_connect(r);
    int next = dup(c->fd);
    close(next);
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    client_say(r, c, GET);
    RIG_WAIT(r, uv_is_active((uv_handle_t *)&r->s->accept_timer));
    assert_false(uv_is_active((uv_handle_t *)&r->s->listeners[LISTEN_TCP].poll));
    assert_int_equal(server_connections(r->s), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    RIG_WAIT(r, client_has(c, "GET /x 0\n"));
    rig_free(r);
}

static size_t resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long size, resident;
    assert_int_equal(fscanf(f, "%lu %lu", &size, &resident), 2);
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void idle_connections_are_cheap(void **state)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 1100)
        skip();
    /* Both ends are in this process. */
    unsigned n = limit.rlim_cur < 20100 ? ((unsigned)limit.rlim_cur - 100) / 2 : 10000;
    struct rig *r = rig_new();
    rig_open(r);
    int *fds = mem_array(n, sizeof *fds);
    size_t before = resident_bytes();
    for (unsigned i = 0; i < n; i++) {
        fds[i] = connect_port(server_port(r->s));
        assert_int_equal(send(fds[i], GET, sizeof GET - 1, MSG_NOSIGNAL), (ssize_t)(sizeof GET - 1));
        if (i % 64 == 63)
            RIG_WAIT(r, r->heads == i + 1);
    }
    RIG_WAIT(r, r->heads == n && server_requests_in_flight(r->s) == 0);
    assert_int_equal(server_connections(r->s), n);
    size_t each = (resident_bytes() - before) / n;
    print_message("%zu bytes for each of %u idle connections (struct conn: %zu)\n", each, n,
                  sizeof(struct conn));
    assert_true(each < 2048 || UNIT_SANITIZED);
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
    RIG_WAIT(r, server_connections(r->s) == 0);
    free(fds);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: memory that other tests gave back would hide what this one takes. */
        cmocka_unit_test(idle_connections_are_cheap),
        cmocka_unit_test(half_closed_client_gets_its_reply),
        cmocka_unit_test(half_closed_with_pipelined_requests),
        cmocka_unit_test(old_clients_get_no_interim_reply),
        cmocka_unit_test(closed_client_is_found_gone),
        cmocka_unit_test(reset_is_noticed_at_once),
        cmocka_unit_test(reset_behind_unread_input),
        cmocka_unit_test(slow_reader),
        cmocka_unit_test(stalled_reader_is_gone),
        cmocka_unit_test(time_outs),
        cmocka_unit_test(shorter_limits_hold_for_those_who_wait),
        cmocka_unit_test(drain),
        cmocka_unit_test(unix_socket),
        cmocka_unit_test(several_workers_one_port),
        cmocka_unit_test(out_of_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
