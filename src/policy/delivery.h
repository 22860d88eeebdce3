/* SPDX-License-Identifier: Apache-2.0
 *
 * The delivery policy: the one function that finalises a buffered, successful body before it goes to a client
 * (D1), whatever the body's source. In order: output guardrails, post_response plugins, PII response leg. It
 * never sees the bill: usage was read from the upstream's own bytes before, and what is stored is stored
 * before.
 *
 * A policy is immutable; it hangs on the plan, so a request obeys the configuration that it started with, and
 * an entry stored under an older one obeys the present one (D2). Thread: policies are read by all workers; a
 * call belongs to the loop that it was started on.
 */
#ifndef ROLTER_POLICY_DELIVERY_H
#define ROLTER_POLICY_DELIVERY_H

#include "dialect/dialect.h"
#include "net/loop.h"

struct policy;
struct policy_call;

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
    enum delivery_source source;
    enum dialect_id dialect_id;
    const char *route; /* public name; NULL for "provider/model" requests */
    struct span request_id;
    struct span trace_id;     /* of traceparent, or empty */
    struct span key_name;     /* of the virtual key, or empty */
    struct span content_type; /* of the body */
    bool encoded;             /* the body has a content coding, so nobody here can read it */
    struct span body;         /* the upstream's bytes */
    void *ticket;             /* what the request legs left for this one (policy/...), or NULL */
};

enum delivery_verdict {
    DELIVERY_SAME,  /* deliver the body as it is */
    DELIVERY_OTHER, /* deliver <body> instead; same content type, no content coding */
    DELIVERY_REFUSE,
};

struct delivery_result {
    enum delivery_verdict verdict;
    struct span body; /* DELIVERY_OTHER */
    int status;       /* DELIVERY_REFUSE: 403, or 502 for a PII leg that is down */
    const char *code; /* of the error body; static text */
    struct span message;
    struct span reason; /* the row's `error`: "guardrail_blocked: rule" */
};

/* The slices of <r> live during the call only. */
typedef void policy_done_fn(void *arg, const struct delivery_result *r);

/* Whether any stage wants to see successful replies to requests of this kind that are not streams; asked
 * before the reply's head goes to the client. False costs nothing more. <route> as in delivery_input. */
bool policy_wants_reply(const struct policy *p, const char *route, enum dialect_id dialect);

/* Finalises <in>->body. <done> runs exactly once unless the call is cancelled: from inside this call, which
 * then returns NULL, or later on the loop of <in>. */
struct policy_call *policy_deliver(const struct policy *p, const struct delivery_input *in,
                                   policy_done_fn *done, void *arg);
/* The client has gone: <done> will not run. */
void policy_call_cancel(struct policy_call *c);

#endif
