/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy: guardrails, webhook, plugins and PII sanitizer made ready for requests. Immutable after
 * policy_new; it hangs on the plan, so each request obeys the configuration that it started with.
 *
 * Two legs: admission.h is what a request must pass, delivery.h what a reply must. A ticket is what the first
 * leaves for the second: the sanitizer's restoration token, whether the caller may have originals back, and
 * notes for the row. It belongs to one request, is never stored and never logged (except for the notes), and
 * is overwritten when it goes.
 */
#ifndef ROLTER_POLICY_POLICY_H
#define ROLTER_POLICY_POLICY_H

#include "net/origin.h"
#include "policy/settings.h"

struct policy;
struct policy_ticket;
struct policy_call;

struct policy_route_rules {
    const char *model;
    const struct route_rule_settings *rules;
};

/* NULL when nothing is switched on. Everything passed in outlives the policy. */
struct policy *policy_new(const struct policy_settings *s, const struct policy_route_rules *routes,
                          unsigned n_routes, const struct strings *ca_bundles,
                          const struct net_egress *egress);
void policy_free(struct policy *p);

struct policy_ticket *policy_ticket_new(void);
void policy_ticket_free(struct policy_ticket *t);
/* What the stages noted, as a JSON array for the row; empty when there is nothing. Ends the notes; lives as
 * long as the ticket. */
struct span policy_ticket_notes(struct policy_ticket *t);

enum policy_verdict {
    POLICY_SAME,  /* the body as it is */
    POLICY_OTHER, /* <body> instead */
    POLICY_REFUSE,
};

struct policy_result {
    enum policy_verdict verdict;
    struct span body;
    int status;       /* POLICY_REFUSE: 400 (requests), 403 (replies), 502 for a sanitizer that is down */
    const char *code; /* of the error body; static text */
    const char *param;
    struct span message;
    struct span reason; /* the row's `error`: "guardrail_blocked: rule" */
};

/* The slices of <r> live during the call only. */
typedef void policy_done_fn(void *arg, const struct policy_result *r);
/* The request is over: <done> will not run. */
void policy_call_cancel(struct policy_call *c);

#endif
