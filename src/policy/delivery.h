/* SPDX-License-Identifier: Apache-2.0
 *
 * The delivery policy: the one function that finalises a buffered, successful body before it goes to a client
 * (D1), whatever the body's source. In order: output guardrails, the webhook if it is for replies,
 * post_response plugins, PII response leg. It never sees the bill: usage was read from the upstream's own
 * bytes before, and what is stored is stored before.
 *
 * A policy hangs on the plan, so a request obeys the configuration that it started with, and an entry stored
 * under an older one obeys the present one (D2). Thread: policies are read by all workers; a call belongs to
 * the loop that it was started on.
 */
#ifndef ROLTER_POLICY_DELIVERY_H
#define ROLTER_POLICY_DELIVERY_H

#include "dialect/dialect.h"
#include "net/loop.h"
#include "policy/policy.h"

struct pool;

/* Where the body comes from. */
enum delivery_source {
    DELIVERY_LIVE, /* an upstream's reply to this very request, stored or not */
    DELIVERY_EXACT,
    DELIVERY_SEMANTIC,
    DELIVERY_COALESCED, /* the reply to an equal request at the same time */
    DELIVERY_STALE,
};

/* What the policy may know about the request that is answered. All of it lives until the call is over. */
struct delivery_input {
    struct net_loop *loop;
    struct pool *pool; /* for calls to services */
    enum delivery_source source;
    enum dialect_id dialect_id;
    const char *route; /* public name; NULL for "provider/model" requests */
    struct span model; /* as the client wrote it */
    struct span request_id;
    struct span trace_id;         /* of traceparent, or empty */
    struct span key_name;         /* of the virtual key, or empty */
    struct span content_type;     /* of the body */
    bool encoded;                 /* the body has a content coding, so nobody here can read it */
    struct span body;             /* the upstream's bytes */
    struct policy_ticket *ticket; /* what the request legs left for this one, or NULL */
};

/* Whether any stage wants to see successful replies to requests of this kind that are not streams; asked
 * before the reply's head goes to the client. False costs nothing more. <route> as in delivery_input;
 * <ticket> may be NULL. */
bool policy_wants_reply(const struct policy *p, const char *route, enum dialect_id dialect,
                        const struct policy_ticket *ticket);

/* Whether a stage other than the guardrails wants to see replies: those do not look at streams. */
bool policy_wants_whole(const struct policy *p, const struct policy_ticket *ticket);

/* Finalises <in>->body. <done> runs exactly once unless the call is cancelled: from inside this call, which
 * then returns NULL, or later on the loop of <in>. POLICY_OTHER: same content type, no content coding. */
struct policy_call *policy_deliver(const struct policy *p, const struct delivery_input *in,
                                   policy_done_fn *done, void *arg);

#endif
