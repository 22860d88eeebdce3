/* SPDX-License-Identifier: Apache-2.0
 *
 * Closed-loop load on one loopback port: N connections, each sends the same request again and again and reads
 * the whole reply (Content-Length or chunked). Prints one JSON line: requests, events (SSE data lines),
 * errors, and percentiles of the time to the first byte of the reply's body and of the gap between events, in
 * microseconds.
 *
 * usage: bench-load PORT CONNECTIONS SECONDS REQUEST_FILE [--hold]
 *   REQUEST_FILE holds the whole request, head and body. --hold: open the connections, send one request each,
 * print "open N" when the first body byte of each has come, and read on until the standard input ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct conn {
    int fd;
    uint64_t sent_us, last_us;
    bool in_body, chunked, counted;
    size_t left; /* of a Content-Length body */
    char head[4096];
    size_t n_head;
    char tail[8]; /* last bytes seen, for the end of a chunked body */
    size_t unsent;
};

struct samples {
    uint32_t *v;
    size_t n, cap;
};

static char *request;
static size_t n_request;
static int ep, port;
static uint64_t requests, events, errors, opened;
static struct samples first_byte, gap;
static bool hold;

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void add(struct samples *s, uint64_t v)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 1 << 16;
        s->v = realloc(s->v, s->cap * sizeof *s->v);
    }
    s->v[s->n++] = (uint32_t)v;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t quantile(struct samples *s, double q)
{
    return s->n ? s->v[(size_t)(q * (double)(s->n - 1))] : 0;
}

static void send_request(struct conn *c)
{
    c->sent_us = now_us();
    c->last_us = 0;
    c->in_body = false;
    c->n_head = 0;
    memset(c->tail, 0, sizeof c->tail);
    ssize_t w = send(c->fd, request, n_request, MSG_NOSIGNAL);
    if (w != (ssize_t)n_request)
        errors++; /* bodies here are far below the socket buffer */
}

static void open_conn(struct conn *c)
{
    int one = 1;
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof a) < 0) {
        perror("connect");
        exit(1);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev);
    send_request(c);
}

static void reopen(struct conn *c)
{
    errors++;
    close(c->fd);
    if (!hold)
        open_conn(c);
}

/* Body bytes; true when the reply is complete. */
static bool body(struct conn *c, const char *p, size_t n)
{
    uint64_t now = now_us();
    if (n && !c->last_us) {
        add(&first_byte, now - c->sent_us);
        if (!c->counted) {
            c->counted = true;
            opened++;
        }
    } else if (n) {
        add(&gap, now - c->last_us);
    }
    if (n)
        c->last_us = now;
    for (const char *q = p; (q = memmem(q, n - (size_t)(q - p), "data: ", 6)); q += 6)
        events++;
    if (!c->chunked) {
        c->left -= n < c->left ? n : c->left;
        return c->left == 0;
    }
    size_t keep = n < 7 ? n : 7;
    memmove(c->tail, c->tail + keep, 7 - keep);
    memcpy(c->tail + 7 - keep, p + n - keep, keep);
    return memcmp(c->tail, "\r\n0\r\n\r\n", 7) == 0;
}

static void readable(struct conn *c)
{
    static char in[65536];
    ssize_t n = recv(c->fd, in, sizeof in, 0);
    if (n <= 0) {
        reopen(c);
        return;
    }
    char *p = in;
    size_t left = (size_t)n;
    if (!c->in_body) {
        size_t take = left < sizeof c->head - 1 - c->n_head ? left : sizeof c->head - 1 - c->n_head;
        memcpy(c->head + c->n_head, p, take);
        c->head[c->n_head + take] = 0;
        char *end = strstr(c->head, "\r\n\r\n");
        if (!end) {
            c->n_head += take;
            return;
        }
        size_t used = (size_t)(end + 4 - c->head) - c->n_head;
        if (strncmp(c->head, "HTTP/1.1 200", 12) != 0)
            errors++;
        char *cl = strcasestr(c->head, "content-length:");
        c->chunked = !cl || cl > end;
        c->left = c->chunked ? 0 : strtoul(cl + 15, NULL, 10);
        c->in_body = true;
        memcpy(c->tail, "\0\0\0\0\0\r\n", 7);
        p += used;
        left -= used;
        if (left == 0)
            return;
    }
    if (body(c, p, left)) {
        requests++;
        if (!hold)
            send_request(c);
    }
}

static void report(double seconds)
{
    qsort(first_byte.v, first_byte.n, sizeof *first_byte.v, by_value);
    qsort(gap.v, gap.n, sizeof *gap.v, by_value);
    printf("{\"seconds\":%.3f,\"requests\":%llu,\"events\":%llu,\"errors\":%llu,\"first_byte_us\":{\"p50\":%"
           "u,\"p99\":%u},"
           "\"gap_us\":{\"p50\":%u,\"p99\":%u}}\n",
           seconds, (unsigned long long)requests, (unsigned long long)events, (unsigned long long)errors,
           quantile(&first_byte, 0.5), quantile(&first_byte, 0.99), quantile(&gap, 0.5),
           quantile(&gap, 0.99));
}

static bool input_ended(void)
{
    struct pollfd p = {.fd = 0, .events = POLLIN};
    char c;
    return poll(&p, 1, 0) > 0 && read(0, &c, 1) <= 0;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: bench-load PORT CONNECTIONS SECONDS REQUEST_FILE [--hold]\n");
        return 2;
    }
    port = atoi(argv[1]);
    size_t n = strtoul(argv[2], NULL, 10);
    double seconds = atof(argv[3]);
    hold = argc > 5 && strcmp(argv[5], "--hold") == 0;
    FILE *f = fopen(argv[4], "rb");
    if (!f) {
        perror(argv[4]);
        return 1;
    }
    request = malloc(4 << 20);
    n_request = fread(request, 1, 4 << 20, f);
    fclose(f);
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
    ep = epoll_create1(0);
    struct conn *conns = calloc(n, sizeof *conns);
    uint64_t start = now_us(), stop = start + (uint64_t)(seconds * 1e6);
    bool told = false;
    for (size_t i = 0; i < n; i++)
        open_conn(&conns[i]);
    while (hold ? !input_ended() : now_us() < stop) {
        struct epoll_event ev[256];
        int got = epoll_wait(ep, ev, 256, 50);
        for (int i = 0; i < got; i++)
            readable(ev[i].data.ptr);
        if (hold && !told && (opened == n || now_us() > stop)) {
            printf("open %llu\n", (unsigned long long)opened);
            fflush(stdout);
            told = true;
        }
    }
    report((double)(now_us() - start) / 1e6);
    return 0;
}
