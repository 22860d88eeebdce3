/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request must pass before anything is looked up or sent (C13). In order: refusal of streams that a
 * stage on replies would have to see, pre_route plugins, guardrails on requests, the guardrail webhook, the
 * sanitizer's request leg, pre_upstream plugins.
 */
#ifndef ROLTER_POLICY_ADMISSION_H
#define ROLTER_POLICY_ADMISSION_H

#include "dialect/dialect.h"
#include "net/loop.h"
#include "policy/policy.h"

struct pool;

/* All of it lives until the call is over. */
struct admission_input {
    struct net_loop *loop;
    struct pool *pool;
    enum dialect_id dialect_id;
    const char *route; /* public name; NULL for "provider/model" requests */
    struct span model, request_id, trace_id, key_name;
    bool stream;
    bool restore_asked;         /* the caller sent x-rolter-pii-restore */
    const struct json_doc *doc; /* the body */
    struct policy_ticket *ticket;
};

/* <done> runs exactly once unless the call is cancelled: from inside, then NULL is returned, or later on the
 * loop. POLICY_OTHER's body is a JSON object; whether it still names the model is for the caller to see to.
 */
struct policy_call *policy_admit(const struct policy *p, const struct admission_input *in,
                                 policy_done_fn *done, void *arg);

/* Whether streams of this kind are looked at while they flow (stream.h). */
bool policy_applies_to_stream(const struct policy *p, const char *route);

/* The value of x-rolter-pii-restore: 1, true, yes in any case. */
bool policy_restore_is_asked(struct span value);

#endif
