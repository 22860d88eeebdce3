/* SPDX-License-Identifier: Apache-2.0
 *
 * A ZeroMQ socket on a loop: tells when there is something to take, knows whether a peer is connected, and
 * how much of what peers sent has not been taken yet. libzmq reads on a thread of its own and queues; its
 * limits count messages, and only complete ones, so bytes are watched here: the kernel's count of what came
 * over each connection less what was taken.
 *
 * Thread: the loop's. Nothing here waits.
 */
#ifndef ROLTER_SIGNALS_ZMQ_PEER_H
#define ROLTER_SIGNALS_ZMQ_PEER_H

#include <zmq.h>

#include "net/loop.h"

struct zmq_peer;

struct zmq_peer_options {
    int type; /* ZMQ_SUB, ZMQ_DEALER */
    const char *endpoint;
    bool bind;
    const char *topic; /* ZMQ_SUB */
    int max_frame_bytes, queue_messages;
    int heartbeat_ms, heartbeat_timeout_ms; /* 0: none */
};

/* <ready> is called from the loop when zmq_peer_events or zmq_peer_take may have something; take until there
 * is nothing, or come back without being called. NULL with errno when the endpoint cannot be used (in use, no
 * such address). */
struct zmq_peer *zmq_peer_open(void *context, struct net_loop *l, const struct zmq_peer_options *o,
                               void (*ready)(void *arg), void *arg);
void zmq_peer_close(struct zmq_peer *p);

enum zmq_peer_event {
    ZMQ_PEER_CONNECTED = 1, /* a connection whose handshake is over came into being */
    ZMQ_PEER_LOST = 2       /* one that had been such ended */
};
/* What happened since the last call, or-ed. Comes before the first message of a new connection, when called
 * behind zmq_peer_take. */
unsigned zmq_peer_events(struct zmq_peer *p);
bool zmq_peer_is_connected(const struct zmq_peer *p);

/* The next message's frames, at most <max>: their number, 0 when there is none, -1 for one with more frames,
 * which is dropped. The caller closes the frames. */
int zmq_peer_take(struct zmq_peer *p, zmq_msg_t *frame, int max);
/* Sends one message if it can go at once. */
bool zmq_peer_send(struct zmq_peer *p, const struct span *frame, int n);
/* Bytes that came and were not taken, some hundreds more or less. 0 where the kernel does not count (ipc). */
uint64_t zmq_peer_backlog(struct zmq_peer *p);

#endif
