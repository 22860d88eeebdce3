/* SPDX-License-Identifier: Apache-2.0
 *
 * The guardrail webhook: one service for requests or for replies.
 */
#include <stdio.h>

#include "json/write.h"
#include "policy/answers.h"
#include "policy/run.h"

enum { REASON_SHOWN = 200 };

static void block(struct policy_call *c, struct span said)
{
    char message[REASON_SHOWN + 64], reason[REASON_SHOWN + 64];
    if (said.n > REASON_SHOWN)
        said.n = REASON_SHOWN;
    metric_add(metric_plain(M_WEBHOOK_BLOCKS), 1);
    snprintf(message, sizeof message, "%.*s",
             SPAN_FMT(said.n ? said : SPAN("The guardrail webhook has blocked this.")));
    snprintf(reason, sizeof reason, "guardrail_blocked: %.*s", SPAN_FMT(said.n ? said : SPAN("webhook")));
    policy_refuse(c, c->is_reply ? 403 : 400, "guardrail_blocked", NULL, span_str(message), span_str(reason));
}

/* True when the leg goes on. */
static bool fail(struct policy_call *c, const char *why)
{
    char reason[160];
    metric_add(metric_plain(M_WEBHOOK_ERRORS), 1);
    if (policy_may_go_on(c, c->p->webhook.failure_mode, c->p->m_open_webhook, "guardrail_webhook", SPAN_NONE,
                         why))
        return true;
    snprintf(reason, sizeof reason, "guardrail_blocked: webhook unavailable (%.100s)", why);
    policy_refuse(c, c->is_reply ? 403 : 400, "guardrail_blocked", NULL,
                  SPAN("The guardrail webhook is unavailable."), span_str(reason));
    return false;
}

static void on_answer(void *arg, struct span body, const char *why)
{
    struct policy_call *c = arg;
    struct action_answer a;
    c->service = NULL;
    if (!why)
        answer_action(body, &c->arena, &a, &why);
    if (why) {
        if (fail(c, why))
            policy_next(c);
        return;
    }
    switch (a.action) {
    case ACTION_ALLOW:
        break;
    case ACTION_BLOCK:
        block(c, a.reason);
        return;
    case ACTION_TRANSFORM:
        metric_add(metric_plain(M_WEBHOOK_TRANSFORMS), 1);
        policy_set_body(c, a.content);
        break;
    case ACTION_ANNOTATE:
        policy_note_span(c, "webhook", SPAN("annotate"), a.annotations.n ? "annotations" : NULL,
                         a.annotations);
        break;
    }
    policy_next(c);
}

enum stage_answer stage_webhook(struct policy_call *c)
{
    const struct service *s = &c->p->webhook;
    if (!c->p->has_webhook[c->is_reply ? RULE_POST_CALL : RULE_PRE_CALL])
        return STAGE_NEXT;
    if (c->is_reply && c->stream)
        return STAGE_NEXT;
    if (!policy_doc(c))
        return fail(c, "the body is not a JSON object") ? STAGE_NEXT : STAGE_STOP;
    if (c->body.n > s->max_body_bytes)
        return fail(c, "the body is too large") ? STAGE_NEXT : STAGE_STOP;
    struct buf b;
    struct json_out o;
    buf_init(&b, SIZE_MAX / 2);
    buf_reserve(&b, c->body.n + 1024);
    json_out_init(&o, &b);
    json_out_object(&o);
    json_out_member_str(&o, "direction", c->is_reply ? "response" : "request");
    policy_envelope(c, &o, true);
    json_out_name(&o, "content");
    json_out_raw(&o, c->body);
    json_out_object_end(&o);
    c->service = service_ask(s, c->pool, c->trace_id.n ? c->trace_id : c->request_id, &b, on_answer, c);
    return STAGE_WAIT;
}
