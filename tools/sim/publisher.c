/* SPDX-License-Identifier: Apache-2.0 */
#include "publisher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

#include "base/mem.h"

enum {
    PUB_HWM = 100000, /* as vLLM sets it; the ROUTER keeps libzmq's own */
    KEEP_BYTES_MAX = 512 << 20,
    ENDPOINT_MAX = 256,
    FRAMES_MAX = 8,
};

struct kept {
    uint64_t seq;
    size_t n;
    char *p;
};

struct publisher {
    struct net_loop *loop;
    struct publisher_options o;
    const struct publisher_faults *faults;
    void *context, *pub, *router;
    uv_poll_t *poll; /* of the router; frees itself */
    char endpoint[ENDPOINT_MAX], replay_endpoint[ENDPOINT_MAX];
    uint64_t next_seq, sent; /* <sent>: batches since the start, for the faults */
    struct kept *ring;       /* ring_n from ring_first on, sizes of powers of two */
    size_t ring_first, ring_n, ring_cap, ring_bytes;
    struct publisher_counts counts;
};

static bool is_bound(const char *endpoint)
{
    return strchr(endpoint, '*') || strstr(endpoint, "::") || strncmp(endpoint, "ipc://", 6) == 0;
}

/* <at> holds where the socket stands already (after a restart), or nothing. */
static void *open_socket(struct publisher *p, int type, const char *endpoint, char *at, char *ret_error)
{
    void *s = zmq_socket(p->context, type);
    int hwm = PUB_HWM, linger = 0, all = 1, rc;
    size_t n = ENDPOINT_MAX;
    CHECK(s);
    zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger);
    if (type == ZMQ_XPUB) {
        zmq_setsockopt(s, ZMQ_SNDHWM, &hwm, sizeof hwm);
        zmq_setsockopt(s, ZMQ_XPUB_VERBOSER, &all, sizeof all);
    }
    if (is_bound(endpoint)) {
        rc = zmq_bind(s, *at ? at : endpoint);
        if (rc == 0)
            rc = zmq_getsockopt(s, ZMQ_LAST_ENDPOINT, at, &n);
    } else {
        rc = zmq_connect(s, endpoint);
        snprintf(at, ENDPOINT_MAX, "%s", endpoint);
    }
    if (rc == 0)
        return s;
    snprintf(ret_error, 256, "cannot publish on %.150s: %s", endpoint, zmq_strerror(zmq_errno()));
    zmq_close(s);
    return NULL;
}

/* One message's frames, at most FRAMES_MAX; what is longer is read and not kept. False: nothing is there. */
static bool receive(void *socket, zmq_msg_t *frames, unsigned *ret_n)
{
    int more = 1;
    *ret_n = 0;
    for (unsigned i = 0; more; i++) {
        zmq_msg_t m;
        zmq_msg_init(&m);
        if (zmq_msg_recv(&m, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&m);
            return i != 0;
        }
        more = zmq_msg_more(&m);
        if (i < FRAMES_MAX)
            frames[(*ret_n)++] = m;
        else
            zmq_msg_close(&m);
    }
    return true;
}

static void put_seq(uint8_t *out, uint64_t seq)
{
    for (unsigned i = 0; i < 8; i++)
        out[i] = (uint8_t)(seq >> (56 - 8 * i));
}

static void send_frame(void *socket, const void *p, size_t n, bool more)
{
    /* A full pipe of a PUB or ROUTER drops; there is nothing else that can go wrong with a local send. */
    (void)zmq_send(socket, p, n, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
}

/* Reads who has come and gone: a message each, 1 or 0 and the topic. */
static void count_subscriptions(struct publisher *p)
{
    zmq_msg_t f[FRAMES_MAX];
    unsigned n;
    while (receive(p->pub, f, &n)) {
        const uint8_t *b = zmq_msg_data(&f[0]);
        if (zmq_msg_size(&f[0]) && b[0] <= 1)
            p->counts.subscriptions += b[0] ? 1 : UINT64_MAX;
        while (n)
            zmq_msg_close(&f[--n]);
    }
}

static void send_live(struct publisher *p, const uint8_t *seq, struct span payload)
{
    count_subscriptions(p);
    send_frame(p->pub, p->o.topic, strlen(p->o.topic), true);
    send_frame(p->pub, seq, 8, true);
    send_frame(p->pub, payload.p, payload.n, false);
}

static void send_replayed(struct publisher *p, zmq_msg_t *identity, const char *topic, const uint8_t *seq,
                          struct span payload)
{
    send_frame(p->router, zmq_msg_data(identity), zmq_msg_size(identity), true);
    send_frame(p->router, "", 0, true);
    if (p->o.replay_topic)
        send_frame(p->router, topic, strlen(topic), true);
    send_frame(p->router, seq, 8, true);
    send_frame(p->router, payload.p, payload.n, false);
}

static struct kept *kept_at(struct publisher *p, size_t i)
{
    return &p->ring[(p->ring_first + i) & (p->ring_cap - 1)];
}

static void forget_oldest(struct publisher *p)
{
    struct kept *k = kept_at(p, 0);
    p->ring_bytes -= k->n;
    free(k->p);
    p->ring_first++;
    p->ring_n--;
}

/* How much is kept may have been changed. */
static void trim(struct publisher *p)
{
    while (p->ring_n && (p->ring_n > p->faults->keep || p->ring_bytes > KEEP_BYTES_MAX))
        forget_oldest(p);
}

static void replay(struct publisher *p, zmq_msg_t *identity, uint64_t start)
{
    uint8_t seq[8];
    p->counts.replays++;
    trim(p);
    for (size_t i = 0; i < p->ring_n; i++) {
        const struct kept *k = kept_at(p, i);
        if (k->seq < start)
            continue;
        put_seq(seq, k->seq);
        send_replayed(p, identity, p->o.topic, seq, span_of(k->p, k->n));
        p->counts.replayed++;
    }
    memset(seq, 0xff, sizeof seq);
    send_replayed(p, identity, "", seq, SPAN_NONE);
}

/* Answers what was asked. Must run after anything that was done to the router: its descriptor tells of
 * changes only. */
static void serve_replays(struct publisher *p)
{
    zmq_msg_t f[FRAMES_MAX];
    unsigned n;
    while (p->router && receive(p->router, f, &n)) {
        /* Anything but [identity, "", number] gets no answer. */
        if (n == 3 && zmq_msg_size(&f[1]) == 0 && zmq_msg_size(&f[2]) == 8) {
            const uint8_t *b = zmq_msg_data(&f[2]);
            uint64_t start = 0;
            for (unsigned i = 0; i < 8; i++)
                start = start << 8 | b[i];
            replay(p, &f[0], start);
        }
        while (n)
            zmq_msg_close(&f[--n]);
    }
}

static void on_router(uv_poll_t *h, int status, int events)
{
    serve_replays(h->data);
}

static void on_closed(uv_handle_t *h)
{
    free(h);
}

static bool open_sockets(struct publisher *p, char *ret_error)
{
    p->context = zmq_ctx_new();
    CHECK(p->context);
    p->pub = open_socket(p, ZMQ_XPUB, p->o.endpoint, p->endpoint, ret_error);
    if (!p->pub)
        return false;
    if (!p->o.replay_endpoint)
        return true;
    p->router = open_socket(p, ZMQ_ROUTER, p->o.replay_endpoint, p->replay_endpoint, ret_error);
    if (!p->router)
        return false;
    int fd;
    size_t n = sizeof fd;
    zmq_getsockopt(p->router, ZMQ_FD, &fd, &n);
    p->poll = MEM_NEW(uv_poll_t);
    p->poll->data = p;
    uv_poll_init(&p->loop->uv, p->poll, fd);
    uv_poll_start(p->poll, UV_READABLE, on_router);
    serve_replays(p);
    return true;
}

/* Ports are free when it returns. */
static void close_sockets(struct publisher *p)
{
    if (p->poll)
        uv_close((uv_handle_t *)p->poll, on_closed);
    if (p->pub)
        zmq_close(p->pub);
    if (p->router)
        zmq_close(p->router);
    p->poll = NULL;
    p->pub = p->router = NULL;
    while (zmq_ctx_term(p->context) < 0 && errno == EINTR)
        ;
}

static void forget_all(struct publisher *p)
{
    while (p->ring_n)
        forget_oldest(p);
    p->next_seq = 0;
}

struct publisher *publisher_open(struct net_loop *l, const struct publisher_options *o,
                                 const struct publisher_faults *f, char *ret_error)
{
    struct publisher *p = MEM_NEW(struct publisher);
    p->loop = l;
    p->o = *o;
    p->faults = f;
    if (open_sockets(p, ret_error))
        return p;
    publisher_close(p);
    return NULL;
}

void publisher_close(struct publisher *p)
{
    if (!p)
        return;
    close_sockets(p);
    forget_all(p);
    free(p->ring);
    free(p);
}

static void keep(struct publisher *p, struct span payload)
{
    if (p->ring_n == p->ring_cap) {
        size_t cap = p->ring_cap ? p->ring_cap * 2 : 64;
        struct kept *v = mem_array(cap, sizeof *v);
        for (size_t i = 0; i < p->ring_n; i++)
            v[i] = *kept_at(p, i);
        free(p->ring);
        p->ring = v;
        p->ring_first = 0;
        p->ring_cap = cap;
    }
    *kept_at(p, p->ring_n++) = (struct kept){p->next_seq, payload.n, mem_spandup(payload)};
    p->ring_bytes += payload.n;
    trim(p);
}

static bool is_due(uint64_t every, uint64_t n)
{
    return every && n % every == 0;
}

void publisher_send(struct publisher *p, struct span payload)
{
    uint8_t seq[8];
    uint64_t n = ++p->sent;
    p->counts.batches++;
    if (is_due(p->faults->malformed_every, n)) {
        payload.n /= 2;
        p->counts.malformed++;
    }
    put_seq(seq, p->next_seq);
    keep(p, payload);
    p->next_seq++;
    if (is_due(p->faults->drop_every, n)) {
        p->counts.dropped++;
        return;
    }
    send_live(p, seq, payload);
    if (is_due(p->faults->duplicate_every, n)) {
        p->counts.duplicated++;
        send_live(p, seq, payload);
    }
}

bool publisher_restart(struct publisher *p, char *ret_error)
{
    close_sockets(p);
    forget_all(p);
    p->sent = 0;
    p->counts = (struct publisher_counts){0};
    return open_sockets(p, ret_error);
}

void publisher_renumber(struct publisher *p)
{
    forget_all(p);
}

const char *publisher_endpoint(const struct publisher *p)
{
    return p->endpoint;
}

const char *publisher_replay_endpoint(const struct publisher *p)
{
    return p->replay_endpoint;
}

const struct publisher_counts *publisher_counts(struct publisher *p)
{
    count_subscriptions(p);
    return &p->counts;
}
