/* SPDX-License-Identifier: Apache-2.0
 *
 * A socket's descriptor says that libzmq has news, once: it is taken until nothing is left. A second socket,
 * the monitor, tells of connections.
 */
#include "signals/zmq_peer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "signals/tcp_bytes.h"

enum {
    CONNECTIONS = 16,
    HANDSHAKE_MS = 5000,
    RECONNECT_MS = 100,
    RECONNECT_MAX_MS = 2000,
    /* What comes besides messages, in bytes. */
    GREETING_BYTES = 64,
    HANDSHAKE_BYTES = 512, /* with the greeting, at most */
    PONG_BYTES = 7
};

struct connection {
    int fd; /* libzmq's: it may be closed, and be another's, before we hear of it; only looked at */
    bool shaken;
    uint64_t first; /* bytes when counting began */
};

/* One socket's descriptor on the loop. */
struct watch {
    void *socket;
    uv_poll_t poll;
};

struct zmq_peer {
    struct watch data, monitor;
    void (*ready)(void *arg);
    void *arg;
    unsigned open_handles;
    struct net_loop *loop;
    unsigned heartbeat_ms;
    struct connection connection[CONNECTIONS];
    unsigned n;
    uint64_t taken, since_ms; /* bytes since the connections last changed, and when that was */
};

static void on_poll(uv_poll_t *h, int status, int events)
{
    struct zmq_peer *p = h->data;
    p->ready(p->arg);
}

static bool watch_start(struct zmq_peer *p, struct watch *w, struct net_loop *l)
{
    int fd;
    size_t n = sizeof fd;
    if (zmq_getsockopt(w->socket, ZMQ_FD, &fd, &n) != 0)
        return false;
    CHECK(uv_poll_init(&l->uv, &w->poll, fd) == 0);
    w->poll.data = p;
    p->open_handles++;
    uv_poll_start(&w->poll, UV_READABLE, on_poll);
    return true;
}

static void set_int(void *socket, int option, int v)
{
    CHECK(zmq_setsockopt(socket, option, &v, sizeof v) == 0);
}

static void set_options(void *socket, const struct zmq_peer_options *o)
{
    int64_t max = o->max_frame_bytes;
    set_int(socket, ZMQ_LINGER, 0);
    set_int(socket, ZMQ_RCVHWM, o->queue_messages);
    CHECK(zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max, sizeof max) == 0);
    set_int(socket, ZMQ_IPV6, 1);
    set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    set_int(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS);
    set_int(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS);
    if (o->heartbeat_ms > 0) {
        set_int(socket, ZMQ_HEARTBEAT_IVL, o->heartbeat_ms);
        set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, o->heartbeat_timeout_ms);
    }
    if (o->type == ZMQ_SUB)
        CHECK(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, o->topic, strlen(o->topic)) == 0);
}

static bool monitor_open(struct zmq_peer *p, void *context, struct net_loop *l)
{
    char name[64];
    snprintf(name, sizeof name, "inproc://monitor-%p", (void *)p);
    int events =
        ZMQ_EVENT_CONNECTED | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    if (zmq_socket_monitor(p->data.socket, name, events) != 0)
        return false;
    p->monitor.socket = zmq_socket(context, ZMQ_PAIR);
    if (!p->monitor.socket)
        return false;
    set_int(p->monitor.socket, ZMQ_LINGER, 0);
    return zmq_connect(p->monitor.socket, name) == 0 && watch_start(p, &p->monitor, l);
}

static void on_closed(uv_handle_t *h)
{
    struct zmq_peer *p = h->data;
    if (--p->open_handles == 0)
        free(p);
}

void zmq_peer_close(struct zmq_peer *p)
{
    if (!p)
        return;
    struct watch *watches[] = {&p->data, &p->monitor};
    for (unsigned i = 0; i < ARRAY_LEN(watches); i++)
        if (watches[i]->poll.data)
            uv_close((uv_handle_t *)&watches[i]->poll, on_closed);
    if (p->data.socket) {
        zmq_socket_monitor(p->data.socket, NULL, 0);
        zmq_close(p->data.socket);
    }
    if (p->monitor.socket)
        zmq_close(p->monitor.socket);
    if (p->open_handles == 0)
        free(p);
}

struct zmq_peer *zmq_peer_open(void *context, struct net_loop *l, const struct zmq_peer_options *o,
                               void (*ready)(void *arg), void *arg)
{
    struct zmq_peer *p = MEM_NEW(struct zmq_peer);
    p->ready = ready;
    p->arg = arg;
    p->loop = l;
    p->heartbeat_ms = o->heartbeat_ms > 0 ? (unsigned)o->heartbeat_ms : 0;
    p->data.socket = zmq_socket(context, o->type);
    if (p->data.socket) {
        set_options(p->data.socket, o);
        int (*attach)(void *, const char *) = o->bind ? zmq_bind : zmq_connect;
        if (monitor_open(p, context, l) && watch_start(p, &p->data, l) &&
            attach(p->data.socket, o->endpoint) == 0)
            return p;
    }
    int why = errno;
    zmq_peer_close(p);
    errno = why;
    return NULL;
}

/* Connections */

static void count_anew(struct zmq_peer *p)
{
    p->taken = 0;
    p->since_ms = net_now_ms(p->loop);
    for (unsigned i = 0; i < p->n; i++)
        if (!tcp_bytes_received(p->connection[i].fd, &p->connection[i].first))
            p->connection[i].first = 0;
}

static void came(struct zmq_peer *p, int fd)
{
    if (p->n == CONNECTIONS) { /* more publishers than any stream has: the oldest is not watched any more */
        memmove(p->connection, p->connection + 1, (CONNECTIONS - 1) * sizeof p->connection[0]);
        p->n--;
    }
    p->connection[p->n++] = (struct connection){.fd = fd};
    count_anew(p);
}

/* Somebody may have connected who says nothing. */
static bool has_greeted(const struct connection *c)
{
    uint64_t n;
    return !tcp_bytes_received(c->fd, &n) || n > GREETING_BYTES;
}

/* The event does not say which: the oldest of those that can be meant. */
static unsigned shaken(struct zmq_peer *p)
{
    for (int greeted = 1; greeted >= 0; greeted--)
        for (unsigned i = 0; i < p->n; i++)
            if (!p->connection[i].shaken && (!greeted || has_greeted(&p->connection[i]))) {
                p->connection[i].shaken = true;
                return ZMQ_PEER_CONNECTED;
            }
    return 0;
}

static unsigned went(struct zmq_peer *p, int fd)
{
    for (unsigned i = 0; i < p->n; i++)
        if (p->connection[i].fd == fd) {
            bool was = p->connection[i].shaken;
            memmove(p->connection + i, p->connection + i + 1, (p->n - i - 1) * sizeof p->connection[0]);
            p->n--;
            count_anew(p);
            return was ? ZMQ_PEER_LOST : 0;
        }
    return 0;
}

/* Bytes on the wire: a frame has a byte of flags and one or eight of its length. */
static size_t frame_bytes(zmq_msg_t *m)
{
    size_t n = zmq_msg_size(m);
    return n + (n > 255 ? 9 : 2);
}

/* As zmq_peer_take; <bytes> grows by what was taken. */
static int take(void *socket, zmq_msg_t *frame, int max, uint64_t *bytes)
{
    for (int n = 0;; n++) {
        zmq_msg_t extra, *m = n < max ? &frame[n] : &extra;
        zmq_msg_init(m);
        if (zmq_msg_recv(m, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(m);
            while (n-- > 0)
                if (n < max)
                    zmq_msg_close(&frame[n]);
            return 0;
        }
        bool more = zmq_msg_more(m);
        *bytes += frame_bytes(m);
        if (n >= max)
            zmq_msg_close(m);
        if (more)
            continue;
        if (n < max)
            return n + 1;
        while (max-- > 0)
            zmq_msg_close(&frame[max]);
        return -1;
    }
}

unsigned zmq_peer_events(struct zmq_peer *p)
{
    zmq_msg_t frame[2];
    unsigned ret = 0;
    uint64_t not_counted = 0;
    for (int n; (n = take(p->monitor.socket, frame, 2, &not_counted)) != 0;) {
        uint16_t event;
        uint32_t value;
        if (n < 0)
            continue;
        if (zmq_msg_size(&frame[0]) >= sizeof event + sizeof value) {
            const char *bytes = zmq_msg_data(&frame[0]);
            memcpy(&event, bytes, sizeof event);
            memcpy(&value, bytes + sizeof event, sizeof value);
            if (event == ZMQ_EVENT_CONNECTED || event == ZMQ_EVENT_ACCEPTED)
                came(p, (int)value);
            else if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
                ret |= shaken(p);
            else if (event == ZMQ_EVENT_DISCONNECTED)
                ret |= went(p, (int)value);
        }
        while (n-- > 0)
            zmq_msg_close(&frame[n]);
    }
    return ret;
}

bool zmq_peer_is_connected(const struct zmq_peer *p)
{
    for (unsigned i = 0; i < p->n; i++)
        if (p->connection[i].shaken)
            return true;
    return false;
}

/* Messages */

int zmq_peer_take(struct zmq_peer *p, zmq_msg_t *frame, int max)
{
    return take(p->data.socket, frame, max, &p->taken);
}

bool zmq_peer_send(struct zmq_peer *p, const struct span *frame, int n)
{
    for (int i = 0; i < n; i++)
        if (zmq_send(p->data.socket, frame[i].p, frame[i].n, ZMQ_DONTWAIT | (i + 1 < n ? ZMQ_SNDMORE : 0)) <
            0)
            return false;
    return true;
}

uint64_t zmq_peer_backlog(struct zmq_peer *p)
{
    uint64_t came_in = 0, now;
    for (unsigned i = 0; i < p->n; i++)
        if (tcp_bytes_received(p->connection[i].fd, &now) && now > p->connection[i].first)
            came_in += now - p->connection[i].first;
    uint64_t gone = p->taken + (uint64_t)p->n * HANDSHAKE_BYTES;
    if (p->heartbeat_ms) /* each of ours is answered */
        gone += p->n * ((net_now_ms(p->loop) - p->since_ms) / p->heartbeat_ms * PONG_BYTES);
    return came_in > gone ? came_in - gone : 0;
}
