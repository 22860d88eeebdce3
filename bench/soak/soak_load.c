/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: soak-load --port N --requests N --connections N --seed N --key KEY --routes A,B --embeds A,B
 * --providers A,B
 *                  --out FILE [--calm] [--plain] [--repeats N]
 *
 * Sends that many requests, or until the standard input ends, and prints "done N" now and then and one JSON
 * line at the end. FILE gets four bytes for each request number: kind + 16 * fault, outcome (+ HEAD_SEEN),
 * status as 16 bit. Exit status 1 when a reply was wrong.
 */
#include "soak.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum fault {
    F_NONE,
    F_CUT_HEAD,  /* leaves in the head of the request, */
    F_CUT_BODY,  /* its body, */
    F_CUT_WAIT,  /* while waiting, */
    F_CUT_REPLY, /* in the reply */
    F_HALF,      /* closes its sending side and reads on */
    F_DRIP,      /* pauses while sending */
    F_SLOW,      /* pauses while reading */
    FAULT_COUNT
};
enum { HANG_US = 40000000, REPLY_MAX = 8 << 20, IN_KEEP = 256 << 10, WRONG_TOLD = 20 };

struct conn {
    int fd; /* -1: none */
    bool connecting, reused, is_slow_socket, reading_stopped, armed_out;
    bool reset; /* how a fault leaves: RST, else FIN */
    enum fault fault;
    size_t fault_at; /* bytes sent or received */
    struct ask asks[2];
    unsigned n_asks, at;
    struct bytes out, in;
    size_t sent;
    struct reply reply;
    uint64_t due_us; /* 0: none */
    uint64_t moved_us;
};

struct record {
    uint8_t kind, outcome;
    uint16_t status;
};

struct options opt = {.requests = 1000, .connections = 50, .seed = 1, .key = "sk-soak"};
static struct record *records;
static struct conn *conns; /* of opt.connections */
static uint32_t launched, done, outcomes[O_WRONG + 1], faults[FAULT_COUNT];
static bool ending;
static int ep;
static uint64_t rng_state, now_us, next_due_us = UINT64_MAX;

uint64_t draw(void)
{
    uint64_t z = (rng_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void tick(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    now_us = (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void record(const struct conn *c, enum outcome o, bool head_seen, int status)
{
    const struct ask *a = &c->asks[c->at];
    records[a->n] = (struct record){(uint8_t)(a->kind | (int)c->fault << 4),
                                    (uint8_t)(o + (head_seen ? HEAD_SEEN : 0)), (uint16_t)status};
    outcomes[o]++;
    done++;
}

static void wrong(struct conn *c, const char *why)
{
    const struct ask *a = &c->asks[c->at];
    static unsigned told;
    if (told++ < WRONG_TOLD) {
        size_t n = c->in.n < 600 ? c->in.n : 600;
        fprintf(
            stderr,
            "wrong: s%u-%u kind %d fault %d/%d at %zu, sent %zu of %zu, reused %d: %s (status %d)\n%.*s\n",
            opt.seed, a->n, a->kind, c->fault, c->reset, c->fault_at, c->sent, c->out.n, c->reused, why,
            c->reply.status, (int)n, c->in.n ? c->in.p : "");
    }
    record(c, O_WRONG, c->reply.head_seen, c->reply.status);
    c->at++;
}

static void hang_up(struct conn *c, bool reset)
{
    if (c->fd < 0)
        return;
    struct linger l = {.l_onoff = 1};
    if (reset)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    close(c->fd);
    c->fd = -1;
    c->in.n = 0;
    if (c->in.cap > IN_KEEP) {
        free(c->in.p);
        c->in = (struct bytes){0};
    }
}

static void want(struct conn *c)
{
    bool out = c->connecting || (c->sent < c->out.n && !c->due_us);
    struct epoll_event ev = {.events = (c->reading_stopped ? 0u : EPOLLIN) | (out ? EPOLLOUT : 0u),
                             .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &ev);
    c->armed_out = out;
}

static void set_due(struct conn *c, uint64_t us)
{
    c->due_us = now_us + us;
    if (c->due_us < next_due_us)
        next_due_us = c->due_us;
}

static void open_conn(struct conn *c, bool slow)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)opt.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, small = 4096;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) {
        perror("socket");
        exit(2);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (slow)
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    c->is_slow_socket = slow;
    c->reused = false;
    c->reading_stopped = false;
    c->connecting = connect(c->fd, (struct sockaddr *)&a, sizeof a) < 0;
    if (c->connecting && errno != EINPROGRESS) {
        perror("connect");
        exit(2);
    }
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev);
    c->armed_out = true;
}

static void draw_fault(struct conn *c)
{
    c->fault = F_NONE;
    if (opt.calm || c->n_asks > 1 || !chance(250))
        return;
    const struct ask *a = &c->asks[0];
    size_t body = c->out.n - a->head_end;
    c->fault = (enum fault)(1 + below(FAULT_COUNT - 1));
    c->reset = chance(500);
    if (c->fault == F_CUT_BODY && body < 2)
        c->fault = F_CUT_HEAD;
    if (c->fault == F_CUT_HEAD)
        c->fault_at = 1 + below((uint32_t)a->head_end - 2);
    else if (c->fault == F_CUT_BODY)
        c->fault_at = a->head_end + below((uint32_t)body - 1);
    else if (c->fault == F_DRIP)
        c->fault_at = 1 + below((uint32_t)c->out.n);
    else
        c->fault_at = 1 + below(chance(500) ? 400 : 8000);
    faults[c->fault]++;
}

/* The connection's next request, or pair; false: no more. */
static bool begin(struct conn *c)
{
    if (launched == opt.requests || ending) {
        hang_up(c, false);
        return false;
    }
    c->n_asks = chance(50) && launched + 2 <= opt.requests ? 2 : 1;
    c->at = 0;
    c->out.n = c->sent = 0;
    c->in.n = 0;
    c->reply = (struct reply){0};
    for (unsigned i = 0; i < c->n_asks; i++) {
        do {
            c->asks[i] = (struct ask){.n = launched, .kind = draw_kind()};
            c->asks[i].keep = i + 1 < c->n_asks;
            /* Only the last one of a pair may be something that ends the connection. */
        } while (i + 1 < c->n_asks && (c->asks[i].kind == K_HUGE || c->asks[i].kind == K_BROKEN));
        launched++;
        build(&c->out, &c->asks[i]);
    }
    draw_fault(c);
    if (c->fault == F_SLOW || chance(150))
        hang_up(c, false);
    c->due_us = 0;
    c->moved_us = now_us;
    c->reused = true;
    if (c->fd < 0)
        open_conn(c, c->fault == F_SLOW);
    return true;
}

static void next(struct conn *c);
static void send_more(struct conn *c);

/* The client leaves: what is unanswered stays so. */
static void leave(struct conn *c)
{
    bool no_head = c->sent < c->asks[0].head_end || c->asks[0].kind == K_BROKEN;
    for (; c->at < c->n_asks; c->at++) {
        record(c, no_head ? O_NO_ROW : O_ABORTED, c->reply.head_seen, c->reply.status);
        c->reply.head_seen = false;
    }
    hang_up(c, c->reset);
    next(c);
}

/* Nothing more comes from the other side. */
static void lost(struct conn *c)
{
    bool begun = c->at < c->n_asks && c->reply.head_seen;
    if (begun && c->reply.until_eof) {
        wrong(c, "a reply without framing");
    } else if (begun) {
        if (opt.calm || c->reply.status != 200)
            wrong(c, "a reply that broke off");
        else {
            record(c, O_BROKEN, true, c->reply.status);
            c->at++;
        }
    }
    for (bool first = !begun && c->at == 0; c->at < c->n_asks; first = false) {
        if (first && c->asks[0].kind != K_BROKEN) {
            wrong(c, "no reply");
            continue;
        }
        record(c, c->asks[c->at].kind == K_BROKEN ? O_NO_ROW : O_LOST, false, 0);
        c->at++;
    }
    hang_up(c, false);
    next(c);
}

static void next(struct conn *c)
{
    if (c->at < c->n_asks)
        return;
    if (begin(c) && c->fd >= 0 && !c->connecting)
        send_more(c);
}

/* Whole replies in the input; false: the connection is not the same any more. */
static bool take_replies(struct conn *c)
{
    while (c->at < c->n_asks) {
        const struct ask *a = &c->asks[c->at];
        if (!reply_feed(&c->reply, c->in.p, c->in.n)) {
            wrong(c, "not HTTP");
            hang_up(c, true);
            break;
        }
        if (!c->reply.is_done)
            return true;
        const char *why = reply_check(a, &c->reply, c->in.p);
        bool over = c->reply.close || a->kind == K_BROKEN;
        if (a->close && !c->reply.close)
            why = "no Connection: close in the reply";
        if (why) {
            wrong(c, why);
            hang_up(c, true);
            break;
        }
        bool no_row = a->kind == K_BROKEN;
        record(c, no_row ? O_NO_ROW : O_COMPLETE, true, c->reply.status);
        c->at++;
        size_t used = c->reply.scan;
        memmove(c->in.p, c->in.p + used, c->in.n - used);
        c->in.n -= used;
        c->reply = (struct reply){0};
        c->moved_us = now_us;
        if (over || (c->at == c->n_asks && (c->fault == F_HALF || c->sent < c->out.n || c->in.n))) {
            if (c->in.n && !over)
                fprintf(stderr, "bytes behind the last reply\n"), outcomes[O_WRONG]++;
            hang_up(c, false);
            break;
        }
    }
    for (; c->fd < 0 && c->at < c->n_asks; c->at++)
        record(c, c->asks[c->at].kind == K_BROKEN ? O_NO_ROW : O_LOST, false, 0);
    next(c);
    return false;
}

static void readable(struct conn *c)
{
    static char chunk[65536];
    for (;;) {
        size_t most = sizeof chunk;
        if (c->fault == F_CUT_REPLY || (c->fault == F_SLOW && c->fault_at))
            most = c->fault_at > c->in.n ? c->fault_at - c->in.n : 1;
        ssize_t n = recv(c->fd, chunk, most < sizeof chunk ? most : sizeof chunk, 0);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            lost(c);
            return;
        }
        bytes_add(&c->in, chunk, (size_t)n);
        c->moved_us = now_us;
        if (c->in.n > REPLY_MAX) {
            wrong(c, "a reply without end");
            hang_up(c, true);
            next(c);
            return;
        }
        if (!take_replies(c))
            return;
        if (c->fault == F_CUT_REPLY && c->in.n >= c->fault_at) {
            leave(c);
            return;
        }
        if (c->fault == F_SLOW && c->fault_at && c->in.n >= c->fault_at) {
            c->fault_at = 0;
            c->reading_stopped = true;
            set_due(c, 20000 + below(300000));
            want(c);
            return;
        }
        if ((size_t)n < sizeof chunk)
            return;
    }
}

static void all_sent(struct conn *c)
{
    if (c->fault == F_CUT_WAIT) {
        set_due(c, below(chance(500) ? 2000 : 80000));
    } else if (c->fault == F_HALF) {
        shutdown(c->fd, SHUT_WR);
    }
}

static void send_more(struct conn *c)
{
    if (c->due_us || c->sent == c->out.n)
        return;
    bool cuts = c->fault == F_CUT_HEAD || c->fault == F_CUT_BODY || (c->fault == F_DRIP && c->fault_at);
    size_t end = cuts ? c->fault_at : c->out.n;
    ssize_t n = send(c->fd, c->out.p + c->sent, end - c->sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) {
        if (c->armed_out) /* what came before the reset is worth reading */
            c->sent = c->out.n;
        want(c);
        return;
    }
    if (n > 0) {
        c->sent += (size_t)n;
        c->moved_us = now_us;
    }
    if (cuts && c->sent == end) {
        if (c->fault != F_DRIP) {
            leave(c);
            return;
        }
        c->fault_at = 0;
        set_due(c, 1000 + below(100000));
    } else if (c->sent == c->out.n) {
        all_sent(c);
    }
    if (c->armed_out != (c->sent < c->out.n && !c->due_us))
        want(c);
}

static void on_due(struct conn *c)
{
    c->due_us = 0;
    if (c->fault == F_CUT_WAIT) {
        leave(c);
    } else if (c->fault == F_SLOW) {
        c->reading_stopped = false;
        want(c);
        readable(c);
    } else {
        send_more(c);
    }
}

static void on_event(struct conn *c, uint32_t events)
{
    if (c->fd < 0)
        return;
    if (c->connecting && events & (EPOLLOUT | EPOLLERR)) {
        int err = 0;
        socklen_t n = sizeof err;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &n);
        if (err) {
            fprintf(stderr, "connect: %s\n", strerror(err));
            exit(2);
        }
        c->connecting = false;
        send_more(c);
        return;
    }
    int fd = c->fd;
    if (events & EPOLLOUT)
        send_more(c);
    if (c->fd == fd && !c->reading_stopped && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        readable(c);
}

static void look_at_time(bool look_for_hangs)
{
    next_due_us = UINT64_MAX;
    for (unsigned i = 0; i < opt.connections; i++) {
        struct conn *c = &conns[i];
        if (c->fd < 0)
            continue;
        if (c->due_us && c->due_us <= now_us)
            on_due(c);
        if (c->due_us && c->due_us < next_due_us)
            next_due_us = c->due_us;
        if (look_for_hangs && c->fd >= 0 && now_us - c->moved_us > HANG_US) {
            wrong(c, "hangs");
            c->reset = true;
            leave(c);
        }
    }
}

static bool input_ended(void)
{
    struct pollfd p = {.fd = 0, .events = POLLIN};
    char c;
    return poll(&p, 1, 0) > 0 && read(0, &c, 1) <= 0;
}

static void run(void)
{
    struct epoll_event ev[256];
    uint64_t told_us = 0;
    for (unsigned i = 0; i < opt.connections; i++) {
        conns[i].fd = -1;
        conns[i].n_asks = conns[i].at = 0;
        begin(&conns[i]);
    }
    while (done < launched) {
        uint64_t wait = next_due_us <= now_us ? 0 : (next_due_us - now_us) / 1000 + 1;
        int n = epoll_wait(ep, ev, 256, wait < 200 ? (int)wait : 200);
        tick();
        for (int i = 0; i < n; i++)
            on_event(ev[i].data.ptr, ev[i].events);
        bool tell = now_us - told_us > 250000;
        if (tell || next_due_us <= now_us)
            look_at_time(tell);
        if (tell) {
            printf("done %u\n", done);
            fflush(stdout);
            told_us = now_us;
            ending = ending || input_ended();
        }
    }
    for (unsigned i = 0; i < opt.connections; i++)
        hang_up(&conns[i], false);
}

static void read_names(struct names *n, char *text)
{
    for (char *save, *p = strtok_r(text, ",", &save); p && n->n < 64; p = strtok_r(NULL, ",", &save))
        n->list[n->n++] = p;
}

static void read_options(int argc, char **argv)
{
    static const struct option known[] = {{"port", 1, 0, 'p'},
                                          {"requests", 1, 0, 'n'},
                                          {"connections", 1, 0, 'c'},
                                          {"seed", 1, 0, 's'},
                                          {"key", 1, 0, 'k'},
                                          {"routes", 1, 0, 'r'},
                                          {"embeds", 1, 0, 'e'},
                                          {"providers", 1, 0, 'd'},
                                          {"out", 1, 0, 'o'},
                                          {"calm", 0, 0, 'C'},
                                          {"plain", 0, 0, 'P'},
                                          {"repeats", 1, 0, 'R'},
                                          {0}};
    for (int o; (o = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (o) {
        case 'p':
            opt.port = atoi(optarg);
            break;
        case 'n':
            opt.requests = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'c':
            opt.connections = (unsigned)atoi(optarg);
            break;
        case 's':
            opt.seed = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'k':
            opt.key = optarg;
            break;
        case 'o':
            opt.out = optarg;
            break;
        case 'r':
            read_names(&opt.routes, optarg);
            break;
        case 'e':
            read_names(&opt.embeds, optarg);
            break;
        case 'd':
            read_names(&opt.providers, optarg);
            break;
        case 'C':
            opt.calm = true;
            break;
        case 'P':
            opt.plain = true;
            break;
        case 'R':
            opt.repeats = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        default:
            exit(2);
        }
    }
    if (!opt.port || !opt.out || !opt.routes.n || !opt.embeds.n || !opt.providers.n) {
        fprintf(stderr, "usage: see soak_load.c\n");
        exit(2);
    }
}

static void report(double seconds)
{
    printf("{\"seconds\":%.1f,\"requests\":%u,\"complete\":%u,\"aborted\":%u,\"broken\":%u,\"lost\":%u,\"no_"
           "row\":%u,"
           "\"wrong\":%u,\"faults\":%u,\"status\":{",
           seconds, launched, outcomes[O_COMPLETE], outcomes[O_ABORTED], outcomes[O_BROKEN], outcomes[O_LOST],
           outcomes[O_NO_ROW], outcomes[O_WRONG],
           faults[1] + faults[2] + faults[3] + faults[4] + faults[5] + faults[6] + faults[7]);
    uint32_t by_status[600] = {0};
    for (uint32_t i = 0; i < launched; i++)
        if ((records[i].outcome & 7) == O_COMPLETE && records[i].status < 600)
            by_status[records[i].status]++;
    for (unsigned s = 0, some = 0; s < 600; s++)
        if (by_status[s])
            printf("%s\"%u\":%u", some++ ? "," : "", s, by_status[s]);
    printf("}}\n");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
    rng_state = opt.seed;
    records = calloc(opt.requests, sizeof *records);
    conns = calloc(opt.connections, sizeof *conns);
    ep = epoll_create1(0);
    tick();
    uint64_t begun = now_us;
    run();
    FILE *f = fopen(opt.out, "wb");
    if (!f || fwrite(records, sizeof *records, launched, f) != launched || fclose(f) != 0) {
        perror(opt.out);
        return 2;
    }
    report((double)(now_us - begun) / 1e6);
    return outcomes[O_WRONG] ? 1 : 0;
}
