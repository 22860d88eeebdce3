/* SPDX-License-Identifier: Apache-2.0
 *
 * What a proxy adds to each event of many open streams. bench-stamp is the upstream and the clients in one
 * process: it writes the time into each event, and looks at the clock when the event comes back.
 *
 *   bench-stamp   prints "listening on PORT" (the upstream), then for each line "PORT STREAMS EVENTS SECONDS"
 * on stdin opens STREAMS streams at that port (a proxy in front of the upstream, or the upstream itself),
 * each with EVENTS events a second, and prints one line of JSON: events seen and their delay in microseconds.
 *
 * A fifth word "shared" on the line: the clients' requests share one upstream stream (a proxy that coalesces
 * equal requests), and its events are counted at each of the clients.
 *
 * Streams take turns evenly, so that events do not come in bursts. One thread; what it does itself is in the
 * delay of a run without a proxy.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS_MAX = 4096, SAMPLES_MAX = 1 << 22, CARRY = 64, WARM_MS = 500 };

struct peer {
    int fd;
    int is_client, is_open; /* upstream side: has its request, so it sends events */
    size_t have;
    char carry[CARRY]; /* the end of what was read, for a stamp in two pieces */
};

static int epoll, listener;
static struct peer *upstream[STREAMS_MAX];
static unsigned n_upstream;
static uint32_t *samples;
static size_t n_samples;
static uint64_t counts_from;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "bench-stamp: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct peer *peer_new(int fd, int is_client)
{
    struct peer *p = calloc(1, sizeof *p);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    p->fd = fd;
    p->is_client = is_client;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = p};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0)
        die("epoll_ctl");
    return p;
}

static void send_all(int fd, const char *p, size_t n)
{
    if (send(fd, p, n, MSG_NOSIGNAL) != (ssize_t)n)
        die("send");
}

static void peer_close(struct peer *p)
{
    for (unsigned i = 0; i < n_upstream; i++)
        if (upstream[i] == p)
            upstream[i] = upstream[--n_upstream];
    close(p->fd);
    free(p);
}

/* The whole request comes in one or two reads and is small; its end is all that matters. */
static void upstream_read(struct peer *p)
{
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    char buf[65536];
    ssize_t n = recv(p->fd, buf, sizeof buf, 0);
    if (n <= 0) {
        peer_close(p);
        return;
    }
    if (p->is_open || buf[n - 1] != '}')
        return;
    p->is_open = 1;
    send_all(p->fd, head, sizeof head - 1);
    if (n_upstream == STREAMS_MAX)
        exit(1);
    upstream[n_upstream++] = p;
}

static void client_read(struct peer *p)
{
    char buf[CARRY + 65536];
    memcpy(buf, p->carry, p->have);
    ssize_t n = recv(p->fd, buf + p->have, sizeof buf - p->have, 0);
    if (n <= 0)
        die("a stream ended");
    uint64_t now = now_ns();
    size_t end = p->have + (size_t)n, done = 0;
    for (char *at = buf; (at = memmem(at, end - (size_t)(at - buf), "\"t\":", 4));) {
        char *stop = memchr(at, '}', end - (size_t)(at - buf));
        if (!stop)
            break;
        uint64_t sent = strtoull(at + 4, NULL, 10);
        if (sent >= counts_from && n_samples < SAMPLES_MAX)
            samples[n_samples++] = (uint32_t)((now - sent) / 1000);
        done = (size_t)(stop - buf) + 1;
        at = stop;
    }
    p->have = end - done < CARRY ? end - done : CARRY;
    memmove(p->carry, buf + end - p->have, p->have);
}

static void send_event(struct peer *p)
{
    char event[96], chunk[128];
    int n =
        snprintf(event, sizeof event, "data: {\"choices\":[],\"t\":%llu}\n\n", (unsigned long long)now_ns());
    n = snprintf(chunk, sizeof chunk, "%x\r\n%s\r\n", (unsigned)n, event);
    send_all(p->fd, chunk, (size_t)n);
}

static void poll_once(int timeout_ms)
{
    struct epoll_event e[64];
    int n = epoll_wait(epoll, e, 64, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct peer *p = e[i].data.ptr;
        if (!p) {
            int fd = accept(listener, NULL, NULL);
            if (fd >= 0)
                peer_new(fd, 0);
        } else if (p->is_client) {
            client_read(p);
        } else {
            upstream_read(p);
        }
    }
}

static int by_size(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static struct peer *open_client(unsigned port)
{
    static const char body[] =
        "{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    char request[512];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        die("connect");
    int n = snprintf(request, sizeof request,
                     "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer sk-bench\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     sizeof body - 1, body);
    send_all(fd, request, (size_t)n);
    return peer_new(fd, 1);
}

static void run(unsigned port, unsigned streams, unsigned events, unsigned seconds, int shared)
{
    unsigned wanted = shared ? 1 : streams;
    struct peer **clients = calloc(streams, sizeof *clients);
    n_samples = 0;
    for (unsigned i = 0; i < streams; i++) {
        clients[i] = open_client(port);
        uint64_t end = now_ns() + 5000000000u;
        while (n_upstream < wanted && n_upstream <= i && now_ns() < end)
            poll_once(100);
    }
    if (n_upstream < wanted) {
        fprintf(stderr, "bench-stamp: only %u streams came through\n", n_upstream);
        exit(1);
    }
    uint64_t begin = now_ns(), step = 1000000000u / events / wanted, k = 0;
    counts_from = begin + WARM_MS * 1000000u;
    uint64_t end = counts_from + seconds * 1000000000ull;
    for (uint64_t now = begin; now < end; now = now_ns()) {
        for (; begin + k * step <= now; k++)
            send_event(upstream[k % n_upstream]);
        uint64_t due = begin + k * step;
        now = now_ns();
        poll_once(due > now ? (int)((due - now) / 1000000) : 0);
    }
    for (unsigned i = 0; i < streams; i++)
        peer_close(clients[i]);
    free(clients);
    for (uint64_t stop = now_ns() + 2000000000u; n_upstream > 0 && now_ns() < stop;)
        poll_once(10);
    qsort(samples, n_samples, sizeof *samples, by_size);
    if (n_samples == 0)
        exit(1);
    printf("{\"events\":%zu,\"delay_us\":{\"p50\":%u,\"p99\":%u,\"max\":%u}}\n", n_samples,
           samples[n_samples / 2], samples[n_samples - 1 - n_samples / 100], samples[n_samples - 1]);
    fflush(stdout);
}

int main(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    char line[128];
    char mode[16];
    unsigned port, streams, events, seconds;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    samples = malloc(SAMPLES_MAX * sizeof *samples);
    epoll = epoll_create1(0);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (!samples || bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 4096) < 0 ||
        getsockname(listener, (struct sockaddr *)&a, &n) < 0)
        die("listen");
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
    printf("listening on %u\n", ntohs(a.sin_port));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int n_read = sscanf(line, "%u %u %u %u %15s", &port, &streams, &events, &seconds, mode);
        if (n_read >= 4 && streams >= 1 && streams <= STREAMS_MAX && events >= 1)
            run(port, streams, events, seconds, n_read == 5);
    }
    return 0;
}
