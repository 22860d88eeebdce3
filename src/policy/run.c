/* SPDX-License-Identifier: Apache-2.0
 *
 * The two legs: which stages in which order, and what they share.
 */
#include "policy/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "json/write.h"

enum { NOTES_MAX = 8192 };

typedef enum stage_answer stage_fn(struct policy_call *c);

static stage_fn *const request_leg[] = {stage_stream,  stage_pre_route,   stage_guard,
                                        stage_webhook, stage_pii_request, stage_pre_upstream};
static stage_fn *const reply_leg[] = {stage_guard, stage_webhook, stage_post_response, stage_pii_sanitize,
                                      stage_pii_restore};

struct policy_call *policy_call_new(const struct policy *p, struct net_loop *loop)
{
    struct policy_call *c = MEM_NEW(struct policy_call);
    c->p = p;
    arena_init(&c->arena, &loop->chunks);
    return c;
}

static void free_call(struct policy_call *c)
{
    arena_reset(&c->arena);
    free(c);
}

void policy_call_cancel(struct policy_call *c)
{
    if (c->service)
        service_cancel(c->service);
    free_call(c);
}

struct policy_call *policy_run(struct policy_call *c)
{
    stage_fn *const *leg = c->is_reply ? reply_leg : request_leg;
    unsigned n = c->is_reply ? ARRAY_LEN(reply_leg) : ARRAY_LEN(request_leg);
    while (c->stage < n) {
        switch (leg[c->stage](c)) {
        case STAGE_NEXT:
            c->stage++;
            c->index = 0;
            break;
        case STAGE_WAIT:
            return c;
        case STAGE_STOP:
            return NULL;
        }
    }
    policy_pass(c);
    return NULL;
}

void policy_next(struct policy_call *c)
{
    c->stage++;
    c->index = 0;
    policy_run(c);
}

void policy_again(struct policy_call *c)
{
    policy_run(c);
}

void policy_pass(struct policy_call *c)
{
    const struct policy_result r = {
        .verdict = c->changed ? POLICY_OTHER : POLICY_SAME,
        .body = c->body,
    };
    c->done(c->arg, &r);
    free_call(c);
}

void policy_refuse(struct policy_call *c, int status, const char *code, const char *param,
                   struct span message, struct span reason)
{
    const struct policy_result r = {
        .verdict = POLICY_REFUSE,
        .status = status,
        .code = code,
        .param = param,
        .message = message,
        .reason = reason,
    };
    c->done(c->arg, &r);
    free_call(c);
}

const struct json_doc *policy_doc(struct policy_call *c)
{
    struct json_fault fault;
    if (c->doc_known)
        return c->doc;
    c->doc_known = true;
    c->doc = NULL;
    if (!c->encoded && json_parse(&c->arena, c->body, NULL, &c->own_doc, &fault) &&
        json_is(&c->own_doc, 0, JSON_OBJECT))
        c->doc = &c->own_doc;
    return c->doc;
}

void policy_set_body(struct policy_call *c, struct span body)
{
    c->body = arena_dup(&c->arena, body);
    c->changed = true;
    c->doc_known = false;
    c->doc = NULL;
}

static struct buf *begin_note(struct policy_call *c)
{
    struct buf *b = c->ticket ? &c->ticket->notes : NULL;
    if (b)
        buf_add_char(b, b->n ? ',' : '[');
    return b;
}

/* A note is there whole or not at all. */
static void end_note(struct buf *b, size_t before)
{
    if (b->full) {
        b->n = before;
        b->full = false;
    }
}

void policy_note(struct policy_call *c, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t before = c->ticket ? c->ticket->notes.n : 0;
    struct buf *b = begin_note(c);
    if (!b)
        return;
    buf_add_str(b, text);
    end_note(b, before);
}

void policy_note_span(struct policy_call *c, const char *kind, struct span name, const char *more,
                      struct span json)
{
    size_t before = c->ticket ? c->ticket->notes.n : 0;
    struct buf *b = begin_note(c);
    struct json_out o;
    if (!b)
        return;
    json_out_init(&o, b);
    json_out_object(&o);
    json_out_member_span(&o, kind, name);
    if (more) {
        json_out_name(&o, more);
        json_out_raw(&o, json);
    }
    json_out_object_end(&o);
    end_note(b, before);
}

void policy_envelope(struct policy_call *c, struct json_out *o, bool with_route)
{
    json_out_member_span(o, "model", c->model);
    json_out_member_span(o, "route", with_route ? c->route_name : SPAN(""));
    json_out_member_span(o, "trace_id", c->trace_id.n ? c->trace_id : c->request_id);
    json_out_name(o, "tenant");
    json_out_object(o);
    if (c->key_name.n)
        json_out_member_span(o, "key", c->key_name);
    json_out_object_end(o);
}

bool policy_may_go_on(struct policy_call *c, enum failure_mode mode, metric_series_t m_open,
                      const char *control, struct span name, const char *why)
{
    if (mode == FAILURE_CLOSED)
        return false;
    metric_add(m_open, 1);
    struct buf b;
    buf_init(&b, 1024);
    struct json_out o;
    json_out_init(&o, &b);
    json_out_object(&o);
    if (name.n)
        json_out_member_span(&o, "name", name);
    json_out_member_str(&o, "why", why);
    json_out_object_end(&o);
    policy_note_span(c, "fail_open", span_str(control), "detail", buf_view(&b));
    buf_fini(&b);
    return true;
}

struct policy_ticket *policy_ticket_new(void)
{
    struct policy_ticket *t = MEM_NEW(struct policy_ticket);
    buf_init(&t->notes, NOTES_MAX);
    return t;
}

void policy_ticket_free(struct policy_ticket *t)
{
    if (!t)
        return;
    if (t->token)
        explicit_bzero(t->token, t->token_bytes);
    free(t->token);
    free(t->route);
    free(t->key);
    buf_fini(&t->notes);
    free(t);
}

struct span policy_ticket_notes(struct policy_ticket *t)
{
    struct buf *b = &t->notes;
    if (b->n == 0)
        return SPAN_NONE;
    b->max = b->n + 1;
    buf_add_char(b, ']');
    return buf_view(b);
}

struct policy_call *policy_admit(const struct policy *p, const struct admission_input *in,
                                 policy_done_fn *done, void *arg)
{
    struct policy_call *c = policy_call_new(p, in->loop);
    c->route = policy_route_of(p, in->route);
    c->pool = in->pool;
    c->model = in->model;
    c->route_name = span_str(in->route ? in->route : "");
    c->request_id = in->request_id;
    c->trace_id = in->trace_id;
    c->key_name = in->key_name;
    c->stream = in->stream;
    c->restore_asked = in->restore_asked;
    c->ticket = in->ticket;
    c->body = in->doc->text;
    c->doc = in->doc;
    c->doc_known = true;
    c->done = done;
    c->arg = arg;
    return policy_run(c);
}

struct policy_call *policy_deliver(const struct policy *p, const struct delivery_input *in,
                                   policy_done_fn *done, void *arg)
{
    struct policy_call *c = policy_call_new(p, in->loop);
    c->is_reply = true;
    c->route = policy_route_of(p, in->route);
    c->pool = in->pool;
    c->model = in->model;
    c->route_name = span_str(in->route ? in->route : "");
    c->request_id = in->request_id;
    c->trace_id = in->trace_id;
    c->key_name = in->key_name;
    c->ticket = in->ticket;
    c->body = in->body;
    c->encoded = in->encoded;
    c->done = done;
    c->arg = arg;
    return policy_run(c);
}

bool policy_wants_reply(const struct policy *p, const char *route, enum dialect_id dialect,
                        const struct policy_ticket *ticket)
{
    return p && (policy_route_of(p, route)->any[RULE_POST_CALL] || policy_wants_whole(p, ticket));
}

bool policy_wants_whole(const struct policy *p, const struct policy_ticket *ticket)
{
    return p && (p->has_webhook[RULE_POST_CALL] || p->chain[PLUGIN_POST_RESPONSE].n > 0 ||
                 pii_sees_reply(p, ticket && ticket->may_restore));
}

bool policy_restore_is_asked(struct span value)
{
    return span_eq(value, SPAN("1")) || span_eq_nocase(value, SPAN("true")) ||
           span_eq_nocase(value, SPAN("yes"));
}
