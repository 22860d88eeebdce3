/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <sys/un.h>

#include "net/net_unit.h"
#include "net/stream.h"

/* One side of a connection: what it saw, and what it does. */
struct side {
    struct stream *s;
    struct buf got;
    unsigned reads, dones, drains, connected;
    int eof, error, connect_error;
    bool echo, stop_after_read, close_in_read;
};

static struct net_loop loop;

static void on_read(struct stream *s, void *arg, const char *p, size_t n)
{
    struct side *x = arg;
    x->reads++;
    buf_add(&x->got, p, n);
    if (x->stop_after_read)
        stream_read_stop(s);
    if (x->close_in_read) {
        stream_close(s, false);
        x->s = NULL;
        return;
    }
    const struct iovec iov[] = {{(void *)p, n / 2}, {(void *)(p + n / 2), n - n / 2}};
    if (x->echo)
        assert_int_equal(stream_writev(s, iov, 2), 0);
}

static void on_read_done(struct stream *s, void *arg)
{
    (void)s;
    ((struct side *)arg)->dones++;
}

static void on_eof(struct stream *s, void *arg)
{
    (void)s;
    ((struct side *)arg)->eof++;
}

static void on_error(struct stream *s, void *arg, int err)
{
    struct side *x = arg;
    assert_int_equal(x->error, 0);
    x->error = err;
    stream_close(s, false);
    x->s = NULL;
}

static void on_drain(struct stream *s, void *arg)
{
    (void)s;
    ((struct side *)arg)->drains++;
}

static const struct stream_events EVENTS = {on_read, on_read_done, on_eof, on_error, on_drain};

static void on_connect(struct stream *s, void *arg, int err)
{
    struct side *x = arg;
    x->connected++;
    x->connect_error = err;
    if (err)
        x->s = NULL; /* closes by itself */
    else
        stream_read_start(s);
}

static void side_init(struct side *x)
{
    *x = (struct side){0};
    buf_init(&x->got, SIZE_MAX / 2);
}

static void side_fini(struct side *x)
{
    if (x->s)
        stream_close(x->s, false);
    x->s = NULL;
    buf_fini(&x->got);
}

/* Connects <client> to <server> over loopback TCP; both read. */
static void connect_pair(struct side *client, struct side *server)
{
    uint16_t port;
    int fd = listen_any(&port);
    struct sockaddr_in a = loopback(port);
    side_init(client);
    side_init(server);
    client->s = stream_connect(&loop, (struct sockaddr *)&a, NULL, NULL, on_connect, &EVENTS, client);
    assert_int_equal(client->connected, 0); /* never from inside */
    RUN_UNTIL(&loop, client->connected);
    assert_int_equal(client->connect_error, 0);
    int peer = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(peer >= 0);
    close(fd);
    server->s = stream_accept(&loop, peer, NULL, &EVENTS, server);
    assert_non_null(server->s);
    stream_read_start(server->s);
}

static void send_text(struct side *x, const char *text)
{
    const struct iovec iov = {(void *)text, strlen(text)};
    assert_int_equal(stream_writev(x->s, &iov, 1), 0);
}

static void test_echo(void **state)
{
    (void)state;
    struct side c, s;
    connect_pair(&c, &s);
    s.echo = true;
    send_text(&c, "hello");
    RUN_UNTIL(&loop, c.got.n == 5);
    assert_memory_equal(c.got.p, "hello", 5);
    assert_int_equal(c.reads, c.dones);
    assert_int_equal(stream_queued(c.s), 0);
    char name[64];
    assert_non_null(strstr(stream_peer_name(c.s, name, sizeof name), "127.0.0.1:"));
    assert_null(stream_tls_error(c.s));
    assert_ptr_equal(stream_loop(c.s), &loop);

    stream_shutdown(c.s);
    RUN_UNTIL(&loop, s.eof);
    assert_false(stream_peer_is_gone(s.s)); /* half-closed is still there */
    send_text(&s, "late");
    RUN_UNTIL(&loop, c.got.n == 9);
    stream_close(c.s, true);
    c.s = NULL;
    RUN_UNTIL(&loop, stream_peer_is_gone(s.s));
    side_fini(&c);
    side_fini(&s);
}

static void test_reset(void **state)
{
    (void)state;
    struct side c, s;
    connect_pair(&c, &s);
    stream_close(c.s, true);
    c.s = NULL;
    RUN_UNTIL(&loop, s.error);
    assert_int_equal(s.error, UV_ECONNRESET);
    assert_int_equal(s.eof, 0);
    side_fini(&c);
    side_fini(&s);
}

static void test_refused(void **state)
{
    (void)state;
    uint16_t port;
    close(listen_any(&port));
    struct sockaddr_in a = loopback(port);
    struct side c;
    side_init(&c);
    c.s = stream_connect(&loop, (struct sockaddr *)&a, NULL, NULL, on_connect, &EVENTS, &c);
    RUN_UNTIL(&loop, c.connected);
    assert_int_equal(c.connect_error, UV_ECONNREFUSED);
    c.s = stream_connect(&loop, (struct sockaddr *)&a, NULL, NULL, on_connect, &EVENTS, &c);
    stream_close(c.s, false); /* cancels */
    c.s = NULL;
    for (int i = 0; i < 5; i++)
        turn(&loop);
    assert_int_equal(c.connected, 1);
    side_fini(&c);
}

/* A peer that does not read: what it does not take is queued, goes out when it reads, in order and complete.
 */
static void test_slow_reader(void **state)
{
    (void)state;
    enum { PIECE = 100000, PIECES = 100 };
    struct side c, s;
    connect_pair(&c, &s);
    stream_read_stop(s.s);
    char *piece = mem_alloc(PIECE);
    for (int i = 0; i < PIECES; i++) {
        memset(piece, 'a' + i % 26, PIECE);
        const struct iovec iov[] = {{piece, 1}, {piece + 1, 0}, {piece + 1, PIECE - 1}};
        assert_int_equal(stream_writev(c.s, iov, 3), 0);
    }
    free(piece);
    assert_true(stream_queued(c.s) > 0);
    turn(&loop);
    assert_int_equal(s.reads, 0);
    stream_read_start(s.s);
    RUN_UNTIL(&loop, s.got.n == (size_t)PIECE * PIECES);
    RUN_UNTIL(&loop, c.drains == 1);
    assert_int_equal(stream_queued(c.s), 0);
    for (size_t i = 0; i < s.got.n; i += 997)
        assert_int_equal(s.got.p[i], 'a' + (int)(i / PIECE % 26));
    side_fini(&c);
    side_fini(&s);
}

/* A graceful close delivers what is queued, even to a client whose own bytes nobody reads any more. */
static void test_graceful(void **state)
{
    (void)state;
    struct side c, s;
    connect_pair(&c, &s);
    stream_read_stop(c.s);
    char *big = mem_zalloc(8 << 20);
    const struct iovec iov = {big, 8 << 20};
    assert_int_equal(stream_writev(s.s, &iov, 1), 0);
    assert_true(stream_queued(s.s) > 0);
    send_text(&c, "unread"); /* a plain close would turn this into a reset that destroys the reply */
    stream_close_gracefully(s.s, 5000);
    s.s = NULL;
    turn(&loop);
    stream_read_start(c.s);
    RUN_UNTIL(&loop, c.eof);
    assert_int_equal(c.got.n, 8 << 20);
    assert_int_equal(c.error, 0);
    free(big);
    side_fini(&c);
    side_fini(&s);

    connect_pair(&c, &s); /* a peer that never closes does not hold us longer than the time given */
    stream_close_gracefully(s.s, 20);
    s.s = NULL;
    RUN_UNTIL(&loop, c.eof);
    RUN_UNTIL(&loop, stream_peer_is_gone(c.s) || (send_text(&c, "x"), false));
    side_fini(&c);
    side_fini(&s);
}

static void test_close_in_read(void **state)
{
    (void)state;
    struct side c, s;
    connect_pair(&c, &s);
    s.close_in_read = true;
    send_text(&c, "x");
    RUN_UNTIL(&loop, c.eof || c.error);
    assert_int_equal(s.reads, 1);
    assert_int_equal(s.dones, 0);
    side_fini(&c);
    side_fini(&s);
}

/* Writing to a peer that has gone: the write fails, on_error follows once, and what the peer had said before
 * comes. */
static void test_write_after_reset(void **state)
{
    (void)state;
    struct side c, s;
    connect_pair(&c, &s);
    send_text(&s, "bye");
    stream_read_stop(s.s);
    send_text(&c, "never read");
    turn(&loop);
    stream_close(s.s, false); /* with unread bytes: a reset */
    s.s = NULL;
    stream_read_stop(c.s);
    RUN_UNTIL(&loop, stream_peer_is_gone(c.s));
    stream_read_start(c.s);
    const struct iovec iov = {(void *)"x", 1};
    assert_true(stream_writev(c.s, &iov, 1) < 0);
    assert_int_equal(c.error, 0); /* not from inside */
    RUN_UNTIL(&loop, c.error);
    assert_memory_equal(c.got.p, "bye", 3);
    side_fini(&c);
    side_fini(&s);
}

static void test_unix_pair(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    struct side a, b;
    side_init(&a);
    side_init(&b);
    a.s = stream_accept(&loop, fds[0], NULL, &EVENTS, &a);
    b.s = stream_accept(&loop, fds[1], NULL, &EVENTS, &b);
    stream_read_start(a.s);
    stream_read_start(b.s);
    b.echo = true;
    send_text(&a, "ping");
    RUN_UNTIL(&loop, a.got.n == 4);
    char name[64];
    assert_string_equal(stream_peer_name(a.s, name, sizeof name), "unix");
    stream_shutdown(a.s);
    RUN_UNTIL(&loop, b.eof);
    assert_false(stream_peer_is_gone(b.s));
    stream_close(a.s, false);
    a.s = NULL;
    RUN_UNTIL(&loop, stream_peer_is_gone(b.s));
    side_fini(&a);
    side_fini(&b);
}

/* ---- the loop ---- */

struct counted {
    struct net_post post;
    unsigned *n, at;
};

static void count(struct net_post *p, struct net_loop *l)
{
    (void)l;
    struct counted *c = CONTAINER_OF(p, struct counted, post);
    c->at = ++*c->n;
}

static void post_all(void *arg)
{
    struct counted *c = arg;
    for (unsigned i = 0; i < 1000; i++)
        net_loop_post(&loop, &c[i].post);
}

static void test_post(void **state)
{
    (void)state;
    static struct counted calls[1000];
    unsigned n = 0;
    for (unsigned i = 0; i < 1000; i++)
        calls[i] = (struct counted){.post.fn = count, .n = &n};
    uv_thread_t thread;
    assert_int_equal(uv_thread_create(&thread, post_all, calls), 0);
    RUN_UNTIL(&loop, n == 1000);
    uv_thread_join(&thread);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(calls[i].at, i + 1);

    struct counted a = {.post.fn = count, .n = &n}, b = a;
    list_init(&a.post.node);
    list_init(&b.post.node);
    net_loop_defer(&loop, &a.post);
    net_loop_defer(&loop, &a.post); /* once */
    net_loop_defer(&loop, &b.post);
    net_loop_undefer(&b.post);
    net_loop_undefer(&b.post);
    assert_int_equal(n, 1000);
    net_loop_run(&loop); /* a deferred call is something to do */
    assert_int_equal(n, 1001);
    assert_true(net_now_us(&loop) / 1000 + 1000 > net_now_ms(&loop));
}

static int setup(void **state)
{
    (void)state;
    return net_loop_init(&loop, 0);
}

static int teardown(void **state)
{
    (void)state;
    net_loop_fini(&loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_echo, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_reader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_graceful, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close_in_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_after_reset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unix_pair, setup, teardown),
        cmocka_unit_test_setup_teardown(test_post, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
