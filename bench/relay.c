/* SPDX-License-Identifier: Apache-2.0
 *
 * The floor for comparisons: a two-way relay that parses nothing. One client connection, one upstream
 * connection, bytes copied both ways; two reads and two writes a request. One thread, epoll.
 *
 * usage: bench-relay LISTEN_PORT UPSTREAM_PORT     (loopback; port 0 = chosen; prints "listening on PORT")
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct end {
    int fd;
    struct end *peer;
    bool writing; /* EPOLLOUT is armed: <rest> waits */
    char *rest;
    size_t n_rest;
};

static char buf[65536];
static int ep;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void watch(struct end *e, unsigned events, int op)
{
    struct epoll_event ev = {.events = events, .data.ptr = e};
    if (epoll_ctl(ep, op, e->fd, &ev) < 0)
        die("epoll_ctl");
}

static void drop(struct end *e)
{
    struct end *p = e->peer;
    close(e->fd);
    e->fd = -1;
    if (p->fd >= 0) {
        close(p->fd);
        p->fd = -1;
    }
    /* Events of this turn may still name them: leaked on purpose, a benchmark closes few connections. */
}

static void pump(struct end *from)
{
    struct end *to = from->peer;
    ssize_t n = recv(from->fd, buf, sizeof buf, 0);
    if (n <= 0) {
        if (n < 0 && errno == EAGAIN)
            return;
        drop(from);
        return;
    }
    ssize_t w = send(to->fd, buf, (size_t)n, MSG_NOSIGNAL);
    if (w < 0 && errno != EAGAIN) {
        drop(from);
        return;
    }
    if (w < 0)
        w = 0;
    if (w < n) {
        to->rest = malloc((size_t)(n - w));
        to->n_rest = (size_t)(n - w);
        memcpy(to->rest, buf + w, to->n_rest);
        to->writing = true;
        watch(to, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
        watch(from, 0, EPOLL_CTL_MOD);
    }
}

static void flush_rest(struct end *e)
{
    ssize_t w = send(e->fd, e->rest, e->n_rest, MSG_NOSIGNAL);
    if (w < 0 && errno != EAGAIN) {
        drop(e);
        return;
    }
    if (w > 0) {
        e->n_rest -= (size_t)w;
        memmove(e->rest, e->rest + w, e->n_rest);
    }
    if (e->n_rest)
        return;
    free(e->rest);
    e->rest = NULL;
    e->writing = false;
    watch(e, EPOLLIN, EPOLL_CTL_MOD);
    watch(e->peer, EPOLLIN, EPOLL_CTL_MOD);
}

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void accept_one(int listener, int upstream_port)
{
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct sockaddr_in a = loopback(upstream_port);
    int up = socket(AF_INET, SOCK_STREAM, 0);
    if (up < 0 || connect(up, (struct sockaddr *)&a, sizeof a) < 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(up, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct end *c = calloc(1, sizeof *c), *u = calloc(1, sizeof *u);
    *c = (struct end){.fd = fd, .peer = u};
    *u = (struct end){.fd = up, .peer = c};
    watch(c, EPOLLIN, EPOLL_CTL_ADD);
    watch(u, EPOLLIN, EPOLL_CTL_ADD);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: bench-relay LISTEN_PORT UPSTREAM_PORT\n");
        return 2;
    }
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in a = loopback(atoi(argv[1]));
    socklen_t len = sizeof a;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 4096) < 0)
        die("listen");
    getsockname(listener, (struct sockaddr *)&a, &len);
    printf("listening on %d\n", ntohs(a.sin_port));
    fflush(stdout);
    ep = epoll_create1(0);
    struct end door = {.fd = listener};
    watch(&door, EPOLLIN, EPOLL_CTL_ADD);
    for (;;) {
        struct epoll_event ev[256];
        int n = epoll_wait(ep, ev, 256, -1);
        for (int i = 0; i < n; i++) {
            struct end *e = ev[i].data.ptr;
            if (e == &door)
                accept_one(listener, atoi(argv[2]));
            else if (e->fd >= 0 && e->writing && ev[i].events & EPOLLOUT)
                flush_rest(e);
            else if (e->fd >= 0 && ev[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
                pump(e);
        }
    }
}
