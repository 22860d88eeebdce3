/* SPDX-License-Identifier: Apache-2.0
 *
 * A ZeroMQ socket on a loop: what waits is counted to some hundred bytes however many messages came, and who
 * connected is not mistaken for somebody who only knocks.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "signals/zmq_peer.h"

enum { DEADLINE_MS = 30000 };

struct bed {
    struct net_loop loop;
    uv_timer_t turn; /* keeps the loop turning */
    void *context;
    struct zmq_peer *peer;
    unsigned events; /* or-ed */
    unsigned lost, messages;
};

static void ready(void *arg) {}

static void on_turn(uv_timer_t *t)
{
    net_loop_stop(t->data);
}

static void bed_init(struct bed *b, const char *endpoint, bool bind)
{
    *b = (struct bed){.lost = 0};
    assert_int_equal(net_loop_init(&b->loop, 0), 0);
    uv_timer_init(&b->loop.uv, &b->turn);
    b->turn.data = &b->loop;
    uv_timer_start(&b->turn, on_turn, 2, 2);
    b->context = zmq_ctx_new();
    b->peer = zmq_peer_open(b->context, &b->loop,
                            &(struct zmq_peer_options){.type = ZMQ_SUB,
                                                       .endpoint = endpoint,
                                                       .bind = bind,
                                                       .topic = "",
                                                       .max_frame_bytes = 1 << 20,
                                                       .queue_messages = 1000,
                                                       .heartbeat_ms = 20,
                                                       .heartbeat_timeout_ms = 20000},
                            ready, NULL);
    assert_non_null(b->peer);
}

static void bed_fini(struct bed *b)
{
    zmq_peer_close(b->peer);
    uv_close((uv_handle_t *)&b->turn, NULL);
    net_loop_fini(&b->loop);
    zmq_ctx_term(b->context);
}

/* A turn of the loop; takes what there is. */
static void turn(struct bed *b)
{
    net_loop_run(&b->loop);
    unsigned events = zmq_peer_events(b->peer);
    b->events |= events;
    b->lost += (events & ZMQ_PEER_LOST) != 0;
    zmq_msg_t frame[3];
    for (int n; (n = zmq_peer_take(b->peer, frame, 3)) != 0; b->messages++)
        while (n-- > 0)
            zmq_msg_close(&frame[n]);
}

static void turn_until(struct bed *b, bool (*what)(struct bed *))
{
    uint64_t end = clock_mono_ms() + DEADLINE_MS;
    while (!what(b)) {
        assert_true(clock_mono_ms() < end);
        turn(b);
    }
}

static bool is_connected(struct bed *b)
{
    return zmq_peer_is_connected(b->peer);
}

static bool has_event(struct bed *b)
{
    return b->events & ZMQ_PEER_CONNECTED;
}

static void *publisher_new(struct bed *b, const char *connect, char bound[64])
{
    void *p = zmq_socket(b->context, ZMQ_XPUB);
    int none = 0, verbose = 1;
    zmq_setsockopt(p, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(p, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(p, ZMQ_XPUB_VERBOSE, &verbose, sizeof verbose);
    if (connect) {
        assert_int_equal(zmq_connect(p, connect), 0);
        return p;
    }
    size_t n = 64;
    assert_int_equal(zmq_bind(p, "tcp://127.0.0.1:*"), 0);
    assert_int_equal(zmq_getsockopt(p, ZMQ_LAST_ENDPOINT, bound, &n), 0);
    return p;
}

static void wait_subscriber(struct bed *b, void *publisher)
{
    char byte;
    uint64_t end = clock_mono_ms() + DEADLINE_MS;
    while (zmq_recv(publisher, &byte, 1, ZMQ_DONTWAIT) < 0) {
        assert_true(clock_mono_ms() < end);
        turn(b);
    }
}

/* <frames> of <size> bytes. */
static void publish(void *publisher, int frames, size_t size)
{
    static const char bytes[1024];
    for (int i = 0; i < frames; i++)
        assert_true(zmq_send(publisher, bytes, size, i + 1 < frames ? ZMQ_SNDMORE : 0) >= 0);
}

/* Small messages are mostly frames' heads: nothing of them may stay in the count, nor of messages that nobody
 * wanted, nor of heartbeats. */
static void test_backlog(void **state)
{
    (void)state;
    void *context = zmq_ctx_new();
    struct bed b = {.context = context};
    char bound[64];
    void *p = publisher_new(&b, NULL, bound);
    bed_init(&b, bound, false);
    wait_subscriber(&b, p);
    turn_until(&b, is_connected);
    const struct {
        int frames;
        size_t size;
        unsigned n;
    } sent[] = {{3, 8, 5000}, {5, 300, 1000}, {3, 255, 1000}, {3, 256, 1000}, {1, 0, 2000}};
    unsigned all = 0;
    for (unsigned i = 0; i < sizeof sent / sizeof *sent; i++) {
        all += sent[i].n;
        for (unsigned k = 0; k < sent[i].n; k++)
            publish(p, sent[i].frames, sent[i].size);
        uint64_t end = clock_mono_ms() + DEADLINE_MS;
        while (b.messages < all) {
            assert_true(clock_mono_ms() < end);
            turn(&b);
        }
        assert_true(zmq_peer_backlog(b.peer) <= 256);
    }
    /* What waits is seen. */
    for (unsigned k = 0; k < 200; k++)
        publish(p, 3, 1000);
    uint64_t end = clock_mono_ms() + DEADLINE_MS;
    while (zmq_peer_backlog(b.peer) < 200 * 3000 - 2000)
        assert_true(clock_mono_ms() < end);
    zmq_close(p);
    bed_fini(&b);
    zmq_ctx_term(context);
}

static int tcp_socket(int (*attach)(int, const struct sockaddr *, socklen_t), uint16_t *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    a.sin_port = htons(*port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && attach(fd, (const struct sockaddr *)&a, sizeof a) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    if (*port == 0)
        *port = ntohs(a.sin_port);
    return fd;
}

/* A port is listened on, and somebody else opened it first and said nothing. */
static void test_knock(void **state)
{
    (void)state;
    struct bed b;
    uint16_t port = 0;
    char endpoint[64];
    close(tcp_socket(bind, &port));
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", port);
    bed_init(&b, endpoint, true);
    int fd = tcp_socket(connect, &port);
    void *p = publisher_new(&b, endpoint, NULL);
    turn_until(&b, has_event);
    assert_true(zmq_peer_is_connected(b.peer));
    close(fd);
    b.events = 0;
    void *second = publisher_new(&b, endpoint, NULL);
    turn_until(&b, has_event);
    assert_int_equal(b.lost, 0);
    assert_true(zmq_peer_is_connected(b.peer));
    zmq_close(p);
    zmq_close(second);
    bed_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_backlog), cmocka_unit_test(test_knock)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
