/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream on its way to one client through the guardrails (policy/stream.h). What is billed, stored and
 * given to others are the upstream's own bytes; what this client gets is made of them here, whatever their
 * source: the upstream, a flight's log, an entry. After a refusal the client's body ends; the upstream's goes
 * on.
 */
#ifndef ROLTER_GATEWAY_APPLIED_H
#define ROLTER_GATEWAY_APPLIED_H

#include "gateway/request.h"

struct policy_stream;

struct applied {
    struct policy_stream *stream;
    struct buf out; /* for the client; whoever sends it clears it */
    bool refused;   /* nothing comes after what <out> has */
    bool closed;    /* the body's end has been sent */
};

/* Before the head of an event stream goes to the client: sets r->applied when rules look at it. */
void applied_begin(struct request *r);
/* Bytes of the stream; what may go out is appended to r->applied->out. */
void applied_feed(struct request *r, const char *p, size_t n);
/* The stream has ended well. */
void applied_end(struct request *r);
/* The request is over: notes and metrics; what the row says of a refusal. Idempotent. */
void applied_over(struct request *r);

#endif
