/* SPDX-License-Identifier: Apache-2.0
 *
 * Plugins: services in a chain, each of which sees what the one before it left. The first that blocks, or
 * fails where it must not, ends the chain.
 */
#include <stdio.h>

#include "json/write.h"
#include "policy/answers.h"
#include "policy/run.h"

enum { REASON_SHOWN = 200 };

static const char *const stage_names[] = {"pre_route", "pre_upstream", "post_response"};

static enum plugin_stage stage_of(const struct policy_call *c)
{
    if (c->is_reply)
        return PLUGIN_POST_RESPONSE;
    return c->stage <= 1 ? PLUGIN_PRE_ROUTE : PLUGIN_PRE_UPSTREAM; /* the order of the legs, run.c */
}

static const struct policy_plugin *present(const struct policy_call *c)
{
    return &c->p->chain[stage_of(c)].plugin[c->index];
}

static void block(struct policy_call *c, const struct policy_plugin *p, struct span said)
{
    char message[REASON_SHOWN + 64], reason[REASON_SHOWN + 64];
    if (said.n > REASON_SHOWN)
        said.n = REASON_SHOWN;
    metric_add(p->m_blocks, 1);
    snprintf(message, sizeof message, "%.*s", SPAN_FMT(said.n ? said : SPAN("A plugin has blocked this.")));
    if (said.n)
        snprintf(reason, sizeof reason, "plugin_blocked: %.*s", SPAN_FMT(said));
    else
        snprintf(reason, sizeof reason, "plugin_blocked: %.100s", p->settings->slug);
    policy_refuse(c, c->is_reply ? 403 : 400, "plugin_blocked", NULL, span_str(message), span_str(reason));
}

/* True when the chain goes on. */
static bool fail(struct policy_call *c, const struct policy_plugin *p, const char *why)
{
    char message[160], reason[240];
    metric_add(p->m_errors, 1);
    if (policy_may_go_on(c, p->service.failure_mode, c->p->m_open_plugin, "plugin",
                         span_str(p->settings->slug), why))
        return true;
    snprintf(message, sizeof message, "The plugin \"%.100s\" is unavailable.", p->settings->slug);
    snprintf(reason, sizeof reason, "plugin_blocked: plugin %.80s is unavailable (%.100s)", p->settings->slug,
             why);
    policy_refuse(c, c->is_reply ? 403 : 400, "plugin_blocked", NULL, span_str(message), span_str(reason));
    return false;
}

static void on_answer(void *arg, struct span body, const char *why)
{
    struct policy_call *c = arg;
    const struct policy_plugin *p = present(c);
    struct action_answer a;
    c->service = NULL;
    if (!why)
        answer_action(body, &c->arena, &a, &why);
    if (why) {
        if (!fail(c, p, why))
            return;
    } else if (a.action == ACTION_BLOCK) {
        block(c, p, a.reason);
        return;
    } else if (a.action == ACTION_TRANSFORM) {
        metric_add(p->m_transforms, 1);
        policy_set_body(c, a.content);
    } else if (a.action == ACTION_ANNOTATE) {
        policy_note_span(c, "plugin", span_str(p->settings->slug), a.annotations.n ? "annotations" : NULL,
                         a.annotations);
    }
    c->index++;
    policy_again(c);
}

static enum stage_answer ask(struct policy_call *c, const struct policy_plugin *p)
{
    enum plugin_stage stage = stage_of(c);
    struct buf b;
    struct json_out o;
    buf_init(&b, SIZE_MAX / 2);
    buf_reserve(&b, c->body.n + 1024);
    json_out_init(&o, &b);
    json_out_object(&o);
    json_out_member_str(&o, "plugin", p->settings->slug);
    json_out_member_str(&o, "stage", stage_names[stage]);
    policy_envelope(c, &o, stage != PLUGIN_PRE_ROUTE);
    json_out_name(&o, "content");
    json_out_raw(&o, c->body);
    json_out_object_end(&o);
    c->service =
        service_ask(&p->service, c->pool, c->trace_id.n ? c->trace_id : c->request_id, &b, on_answer, c);
    return STAGE_WAIT;
}

static enum stage_answer run_chain(struct policy_call *c)
{
    const struct plugin_chain *chain = &c->p->chain[stage_of(c)];
    for (; c->index < chain->n; c->index++) {
        const struct policy_plugin *p = present(c);
        const char *why = NULL;
        if (!policy_doc(c))
            why = "the body is not a JSON object";
        else if (c->body.n > p->service.max_body_bytes)
            why = "the body is too large";
        if (!why)
            return ask(c, p);
        if (!fail(c, p, why))
            return STAGE_STOP;
    }
    return STAGE_NEXT;
}

enum stage_answer stage_pre_route(struct policy_call *c)
{
    return run_chain(c);
}

enum stage_answer stage_pre_upstream(struct policy_call *c)
{
    return run_chain(c);
}

enum stage_answer stage_post_response(struct policy_call *c)
{
    return run_chain(c);
}
