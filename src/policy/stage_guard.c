/* SPDX-License-Identifier: Apache-2.0
 *
 * Guardrails as a stage, and the refusal of streams that nobody can look at.
 */
#include <stdio.h>

#include "policy/run.h"

static const char *leg_name(const struct policy_call *c)
{
    return c->is_reply ? "reply" : "request";
}

static void note_rules(struct policy_call *c, const struct guard_stage *st, const struct guard_result *r)
{
    char leg[16];
    snprintf(leg, sizeof leg, "\"%s\"", leg_name(c));
    for (unsigned i = 0; r->noted && i < st->n; i++)
        if (r->noted[i / 64] >> i % 64 & 1)
            policy_note_span(c, "rule", st->rule[i].name_span, "in", span_str(leg));
}

static enum stage_answer refuse(struct policy_call *c, const char *rule)
{
    char message[200], reason[200];
    metric_add(metric_plain(c->is_reply ? M_GUARD_OUTPUT_BLOCKS : M_GUARD_BLOCKS), 1);
    snprintf(message, sizeof message, "The %s was blocked by the guardrail \"%.100s\".", leg_name(c), rule);
    snprintf(reason, sizeof reason, "guardrail_blocked: %.150s", rule);
    policy_refuse(c, c->is_reply ? 403 : 400, "guardrail_blocked", NULL, span_str(message), span_str(reason));
    return STAGE_STOP;
}

enum stage_answer stage_guard(struct policy_call *c)
{
    const struct guardrails *g = c->p->guardrails;
    enum rule_stage which = c->is_reply ? RULE_POST_CALL : RULE_PRE_CALL;
    struct guard_result r;
    if (!g || !c->route->any[which])
        return STAGE_NEXT;
    if (c->encoded) /* nothing unseen goes out where a rule would act */
        return c->route->acts ? refuse(c, "content-encoding") : STAGE_NEXT;
    guardrails_apply(g, which, c->route->mask[which], c->body, policy_doc(c), &c->arena, &r);
    note_rules(c, &g->stage[which], &r);
    if (r.verdict == GUARD_BLOCKED)
        return refuse(c, r.rule);
    if (r.over_budget) {
        metric_add(c->p->m_open_budget, 1);
        policy_note(c, "{\"fail_open\":\"scan_budget\",\"detail\":{\"name\":\"%s\"}}", leg_name(c));
    }
    if (r.verdict == GUARD_CHANGED) {
        metric_add(metric_plain(c->is_reply ? M_GUARD_OUTPUT_REDACTIONS : M_GUARD_REDACTIONS), r.redacted);
        policy_set_body(c, r.body);
    }
    return STAGE_NEXT;
}

static enum stage_answer refuse_stream(struct policy_call *c, const char *code, enum metric_id metric,
                                       const char *who)
{
    char message[160];
    metric_add(metric_plain(metric), 1);
    snprintf(message, sizeof message, "Streams are not supported for this model, because %s its replies.",
             who);
    policy_refuse(c, 400, code, "stream", span_str(message), SPAN_NONE);
    return STAGE_STOP;
}

/* R66: rules that only annotate refuse nothing, and what fails open lets a stream pass unseen. */
enum stage_answer stage_stream(struct policy_call *c)
{
    const struct policy *p = c->p;
    bool may_restore = p->has_pii && p->settings->pii.direction != PII_RESPONSE &&
                       (p->settings->pii.restoration == PII_TRUSTED_DOWNSTREAM ||
                        (p->settings->pii.restoration == PII_CALLER_AUTHORIZED && c->restore_asked));
    if (c->ticket)
        c->ticket->may_restore = may_restore;
    if (!c->stream)
        return STAGE_NEXT;
    if (p->guardrails && c->route->acts && p->guardrails->streaming == STREAM_REJECT)
        return refuse_stream(c, "guardrail_streaming_unsupported", M_GUARD_STREAM_REJECTIONS,
                             "guardrails must see");
    if (p->has_webhook[RULE_POST_CALL] && p->webhook.failure_mode == FAILURE_CLOSED)
        return refuse_stream(c, "guardrail_streaming_unsupported", M_GUARD_STREAM_REJECTIONS,
                             "a guardrail webhook must see");
    if (p->chain[PLUGIN_POST_RESPONSE].fail_closed)
        return refuse_stream(c, "plugin_streaming_unsupported", M_PLUGIN_STREAM_REJECTIONS,
                             "a plugin must see");
    if (pii_sees_reply(p, may_restore) && p->settings->pii.streaming == PII_STREAM_REJECT)
        return refuse_stream(c, "pii_streaming_unsupported", M_PII_STREAM_REJECTIONS,
                             "the PII sanitizer must see");
    return STAGE_NEXT;
}
