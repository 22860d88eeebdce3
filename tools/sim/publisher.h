/* SPDX-License-Identifier: Apache-2.0
 *
 * Publishes batches of KV events over ZeroMQ as vLLM's publisher does: a PUB socket (an XPUB, which is the
 * same on the wire and tells who is there) with messages of three frames (topic; sequence number, 8 bytes,
 * highest first; payload), and a ROUTER that sends what is kept from a number on. Numbers begin with 0. No
 * heartbeats are asked for. A subscriber that reads too slowly loses messages, and so does a client of the
 * replay: the sockets' own limits are those of the engines.
 *
 * An endpoint with '*' or "::", or of ipc, is bound; any other one is connected to. Owner: one; thread: the
 * loop's. It does not know what a payload means.
 */
#ifndef ROLTER_SIM_PUBLISHER_H
#define ROLTER_SIM_PUBLISHER_H

#include "base/span.h"
#include "net/loop.h"

struct publisher;

struct publisher_options {
    const char *endpoint, *replay_endpoint; /* the latter may be NULL: no replay */
    const char *topic;
    bool replay_topic; /* replies to a replay have the topic frame (vLLM 0.26 and later) */
};

/* Read at each use, so they may change. An "every" of N: each N-th batch since the start; 0: none. */
struct publisher_faults {
    uint64_t keep;            /* batches that a replay can give */
    uint64_t drop_every;      /* not sent, but kept: a gap that a replay fills */
    uint64_t malformed_every; /* cut in the middle; a replay gives the same bytes */
    uint64_t duplicate_every; /* sent twice */
};

struct publisher_counts {
    uint64_t batches, dropped, malformed, duplicated, replays, replayed;
    uint64_t subscriptions; /* at present */
};

/* <o>'s strings and <f> must outlive it. NULL: ret_error (256 bytes) says why. */
struct publisher *publisher_open(struct net_loop *l, const struct publisher_options *o,
                                 const struct publisher_faults *f, char *ret_error);
void publisher_close(struct publisher *p);

void publisher_send(struct publisher *p, struct span payload);
/* As after a new start of the process: connections break, numbers begin with 0, nothing is kept. The same
 * ports. False: ret_error says why; then it can only be closed. */
bool publisher_restart(struct publisher *p, char *ret_error);
/* Numbers begin with 0 and nothing is kept, but connections stay. */
void publisher_renumber(struct publisher *p);

/* Where others find it: ports that the kernel chose are filled in. "" without replay. */
const char *publisher_endpoint(const struct publisher *p);
const char *publisher_replay_endpoint(const struct publisher *p);
const struct publisher_counts *publisher_counts(struct publisher *p);

#endif
