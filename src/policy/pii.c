/* SPDX-License-Identifier: Apache-2.0
 *
 * The PII sanitizer. On requests it puts placeholders where personal data was and gives a token for them,
 * which the ticket keeps; on replies it may sanitize as well, and then originals come back for callers who
 * may have them. What was restored goes to the client straight from the answer of the service: it is never
 * copied here, and the answer's bytes are overwritten (service.h).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "json/write.h"
#include "policy/answers.h"
#include "policy/run.h"

bool pii_sees_reply(const struct policy *p, bool may_restore)
{
    return p->has_pii && (p->settings->pii.direction != PII_REQUEST || may_restore);
}

static void refuse(struct policy_call *c, const char *why)
{
    char reason[160];
    metric_add(metric_plain(M_PII_BLOCKS), 1);
    snprintf(reason, sizeof reason, "pii_sanitizer_unavailable: %.100s", why);
    policy_refuse(c, 502, "pii_sanitizer_unavailable", NULL, SPAN("The PII sanitizer is unavailable."),
                  span_str(reason));
}

/* True when the leg goes on with the body as it is. */
static bool fail(struct policy_call *c, enum metric_id metric, const char *why)
{
    metric_add(metric_plain(metric), 1);
    if (policy_may_go_on(c, c->p->sanitize.failure_mode, c->p->m_open_pii, "pii_sanitizer", SPAN_NONE, why))
        return true;
    refuse(c, why);
    return false;
}

/* What keeps the body from being sent, or NULL. */
static const char *unfit(struct policy_call *c)
{
    if (!policy_doc(c))
        return "the body is not a JSON object";
    return c->body.n > c->p->sanitize.max_body_bytes ? "the body is too large" : NULL;
}

static void begin(struct policy_call *c, struct buf *b, struct json_out *o)
{
    buf_init(b, SIZE_MAX / 2);
    size_t names = c->model.n + c->route_name.n + c->trace_id.n + c->request_id.n + c->key_name.n;
    for (unsigned i = 0; i < c->p->settings->pii.entities.n; i++)
        names += strlen(c->p->settings->pii.entities.item[i]) + 1;
    if (c->ticket)
        names += c->ticket->token_bytes;
    buf_reserve(b, c->body.n + 6 * names + 4096); /* growing would leave copies behind */
    json_out_init(o, b);
    json_out_object(o);
}

static void ask(struct policy_call *c, const struct service *s, struct buf *b, struct json_out *o,
                service_fn *done)
{
    json_out_name(o, "content");
    json_out_raw(o, c->body);
    json_out_object_end(o);
    c->service = service_ask(s, c->pool, c->trace_id.n ? c->trace_id : c->request_id, b, done, c);
}

static void ask_sanitize(struct policy_call *c, bool reversible, service_fn *done)
{
    const struct strings *entities = &c->p->settings->pii.entities;
    struct buf b;
    struct json_out o;
    begin(c, &b, &o);
    json_out_member_str(&o, "direction", c->is_reply ? "response" : "request");
    policy_envelope(c, &o, true);
    if (entities->n) {
        json_out_name(&o, "entities");
        json_out_array(&o);
        for (unsigned i = 0; i < entities->n; i++)
            json_out_str(&o, entities->item[i]);
        json_out_array_end(&o);
    }
    json_out_member_bool(&o, "reversible", reversible);
    ask(c, &c->p->sanitize, &b, &o, done);
}

static char *same_scope(struct span s)
{
    return mem_spandup(s.n ? s : SPAN(""));
}

/* The token is good for this route and key only, and for this request. */
static void keep_token(struct policy_call *c, struct span token)
{
    struct policy_ticket *t = c->ticket;
    if (!t || !t->may_restore || token.n == 0)
        return;
    t->token = mem_spandup(token);
    t->token_bytes = token.n;
    t->route = same_scope(c->route_name);
    t->key = same_scope(c->key_name);
}

static void on_sanitized(void *arg, struct span body, const char *why)
{
    struct policy_call *c = arg;
    struct sanitizer_answer a;
    c->service = NULL;
    if (!why)
        answer_sanitizer(body, &c->arena, &a, &why);
    if (why) {
        if (fail(c, M_PII_ERRORS, why))
            policy_next(c);
        return;
    }
    metric_add(metric_plain(M_PII_REDACTED), a.entities);
    if (!c->is_reply)
        keep_token(c, a.token);
    policy_set_body(c, a.content);
    policy_next(c);
}

enum stage_answer stage_pii_request(struct policy_call *c)
{
    const struct policy *p = c->p;
    if (!p->has_pii || p->settings->pii.direction == PII_RESPONSE)
        return STAGE_NEXT;
    const char *why = unfit(c);
    if (why)
        return fail(c, M_PII_ERRORS, why) ? STAGE_NEXT : STAGE_STOP;
    ask_sanitize(c, c->ticket && c->ticket->may_restore, on_sanitized);
    return STAGE_WAIT;
}

enum stage_answer stage_pii_sanitize(struct policy_call *c)
{
    const struct policy *p = c->p;
    if (!p->has_pii || p->settings->pii.direction == PII_REQUEST)
        return STAGE_NEXT;
    const char *why = unfit(c);
    if (why)
        return fail(c, M_PII_ERRORS, why) ? STAGE_NEXT : STAGE_STOP;
    ask_sanitize(c, false, on_sanitized);
    return STAGE_WAIT;
}

static void on_restored(void *arg, struct span body, const char *why)
{
    struct policy_call *c = arg;
    struct sanitizer_answer a;
    struct arena strings; /* of the answer: not in the call's, whose chunks live on */
    c->service = NULL;
    arena_init(&strings, NULL);
    if (!why)
        answer_sanitizer(body, &strings, &a, &why);
    if (why) {
        arena_reset(&strings);
        if (fail(c, M_PII_RESTORE_ERRORS, why))
            policy_next(c);
        return;
    }
    metric_add(metric_plain(M_PII_RESTORATIONS), 1);
    c->body = a.content;
    c->changed = true;
    arena_reset(&strings);
    policy_pass(c);
}

enum stage_answer stage_pii_restore(struct policy_call *c)
{
    const struct policy_ticket *t = c->ticket;
    if (!c->p->has_pii || !t || !t->token || !t->may_restore)
        return STAGE_NEXT;
    if (!span_eq(span_str(t->route), c->route_name) || !span_eq(span_str(t->key), c->key_name))
        return STAGE_NEXT; /* made for somebody else */
    const char *why = unfit(c);
    if (why)
        return fail(c, M_PII_RESTORE_ERRORS, why) ? STAGE_NEXT : STAGE_STOP;
    struct buf b;
    struct json_out o;
    begin(c, &b, &o);
    json_out_member_span(&o, "trace_id", c->trace_id.n ? c->trace_id : c->request_id);
    json_out_name(&o, "tenant");
    json_out_object(&o);
    if (c->key_name.n)
        json_out_member_span(&o, "key", c->key_name);
    json_out_object_end(&o);
    json_out_member_span(&o, "restoration_token", span_of(t->token, t->token_bytes));
    ask(c, &c->p->restore, &b, &o, on_restored);
    return STAGE_WAIT;
}
