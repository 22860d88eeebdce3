/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for tests of the network layer: a loop, a listener on loopback, waiting for a condition.
 */
#ifndef ROLTER_TESTS_NET_UNIT_H
#define ROLTER_TESTS_NET_UNIT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/loop.h"

/* Turns the loop until <cond> holds; fails the test after ten seconds. */
#define RUN_UNTIL(l, cond)                                                                                   \
    do {                                                                                                     \
        uint64_t give_up = clock_mono_ms() + 10000;                                                          \
        while (!(cond)) {                                                                                    \
            assert_true(clock_mono_ms() < give_up);                                                          \
            turn(l);                                                                                         \
        }                                                                                                    \
    } while (0)

static inline void on_tick(uv_timer_t *t)
{
    (void)t;
}

/* One turn that lasts at most some milliseconds even when nothing happens. */
static inline void turn(struct net_loop *l)
{
    uv_timer_t tick;
    uv_timer_init(&l->uv, &tick);
    uv_timer_start(&tick, on_tick, 5, 5);
    uv_run(&l->uv, UV_RUN_ONCE);
    uv_timer_stop(&tick);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&l->uv, UV_RUN_NOWAIT);
}

/* A listening socket on 127.0.0.1; its port in *ret_port. */
static inline int listen_any(uint16_t *ret_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *ret_port = ntohs(a.sin_port);
    return fd;
}

static inline struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

#endif
