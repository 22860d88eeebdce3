/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of policy/: the compiled policy, and the walk of one body through the stages of a leg. A stage
 * answers at once or waits for a service, whose callback goes on with policy_next.
 */
#ifndef ROLTER_POLICY_RUN_H
#define ROLTER_POLICY_RUN_H

#include "base/map.h"
#include "observe/metrics.h"
#include "policy/admission.h"
#include "policy/delivery.h"
#include "policy/guardrails.h"
#include "policy/service.h"

struct policy_plugin {
    const struct plugin_settings *settings;
    struct service service;
    metric_series_t m_blocks, m_transforms, m_errors;
};

struct plugin_chain {
    struct policy_plugin *plugin; /* by position */
    unsigned n;
    bool fail_closed; /* one of them is */
};

struct policy_route {
    uint64_t *mask[2]; /* of guardrails->stage */
    bool any[2];       /* some rule applies */
    bool acts;         /* a rule on replies that blocks or redacts */
};

struct policy {
    const struct policy_settings *settings;
    struct guardrails *guardrails; /* or NULL */
    struct service webhook;
    bool has_webhook[2]; /* enum rule_stage */
    struct plugin_chain chain[PLUGIN_STAGE_COUNT];
    bool has_pii;
    struct service sanitize, restore; /* the latter only when something may be restored */
    struct map routes;                /* struct policy_route */
    struct policy_route *route;
    unsigned n_routes;
    struct policy_route no_route; /* of "provider/model" requests: all rules */
    metric_series_t m_open_webhook, m_open_plugin, m_open_pii, m_open_budget;
};

const struct policy_route *policy_route_of(const struct policy *p, const char *route);

struct policy_ticket {
    bool may_restore;
    char *token; /* NUL-terminated; NULL: nothing to restore */
    size_t token_bytes;
    char *route, *key; /* the scope that the token is for */
    struct buf notes;  /* "[{...},{...}" */
};

enum stage_answer { STAGE_NEXT, STAGE_WAIT, STAGE_STOP };

struct policy_call {
    const struct policy *p;
    const struct policy_route *route;
    bool is_reply;

    /* the request */
    struct pool *pool;
    struct span model, route_name, request_id, trace_id, key_name;
    bool stream, restore_asked;
    struct policy_ticket *ticket; /* may be NULL */

    /* the body as it is now */
    struct span body;
    bool changed, encoded;
    const struct json_doc *doc; /* of <body>; NULL: not read yet, or no JSON */
    bool doc_known;
    struct json_doc own_doc;

    struct arena arena;
    unsigned stage, index; /* in the leg; in the stage's chain */
    struct service_call *service;
    policy_done_fn *done;
    void *arg;
};

/* Makes a call and runs it as far as it gets; NULL when it is done already. */
struct policy_call *policy_run(struct policy_call *c);
struct policy_call *policy_call_new(const struct policy *p, struct net_loop *loop);

/* A service has answered: the stage that waited is over, or goes on with its next service. Either may free
 * <c>. */
void policy_next(struct policy_call *c);
void policy_again(struct policy_call *c);
/* Ends the call with a refusal; <c> is gone. <reason> may be empty: then the row has <code>. */
void policy_refuse(struct policy_call *c, int status, const char *code, const char *param,
                   struct span message, struct span reason);
/* Ends it with the body as it is now; <c> is gone. */
void policy_pass(struct policy_call *c);

/* The body as a JSON object; NULL when it is none (a content coding included). */
const struct json_doc *policy_doc(struct policy_call *c);
/* <body> is copied. */
void policy_set_body(struct policy_call *c, struct span body);

/* A note for the row: one JSON object. More than a few KiB are dropped. */
void policy_note(struct policy_call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void policy_note_span(struct policy_call *c, const char *kind, struct span name, const char *more,
                      struct span json);

/* The members that all requests to services share: model, route, trace_id, tenant. */
struct json_out;
void policy_envelope(struct policy_call *c, struct json_out *o, bool with_route);

/* A service could not say what it should. True when the body goes on without it: noted and counted. */
bool policy_may_go_on(struct policy_call *c, enum failure_mode mode, metric_series_t m_open,
                      const char *control, struct span name, const char *why);

/* The stages. */
enum stage_answer stage_guard(struct policy_call *c);
enum stage_answer stage_webhook(struct policy_call *c);
enum stage_answer stage_pre_route(struct policy_call *c);
enum stage_answer stage_pre_upstream(struct policy_call *c);
enum stage_answer stage_post_response(struct policy_call *c);
enum stage_answer stage_pii_request(struct policy_call *c);
enum stage_answer stage_pii_sanitize(struct policy_call *c);
enum stage_answer stage_pii_restore(struct policy_call *c);
enum stage_answer stage_stream(struct policy_call *c);

/* Whether the sanitizer has anything to do with this request's reply. */
bool pii_sees_reply(const struct policy *p, bool may_restore);

#endif
