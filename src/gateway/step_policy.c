/* SPDX-License-Identifier: Apache-2.0
 *
 * policy: what the request must pass before anything is looked up or sent (C13): guardrails, plugins, the
 * sanitizer's request leg, and the refusal of streams that a policy on replies would have to see.
 *
 * A body that a stage changed takes the place of the client's: r->doc, its text and r->model_node are those
 * of the new one from here on, for the cache's key, the conversation and the upstream alike. `model` and
 * `stream` were settled by the client's own body; a changed body says the same.
 */
#include "gateway/request.h"
#include "json/write.h"
#include "policy/admission.h"

static struct span quoted(struct request *r, struct span s)
{
    struct buf b;
    buf_init(&b, s.n * 6 + 64);
    buf_add_char(&b, '"');
    json_escape(&b, s);
    buf_add_char(&b, '"');
    struct span text = arena_dup(r->body_arena, buf_view(&b));
    buf_fini(&b);
    return text;
}

static bool parse(struct request *r, struct span text)
{
    struct json_fault fault;
    return json_parse(r->body_arena, text, NULL, &r->doc, &fault) && json_is(&r->doc, 0, JSON_OBJECT);
}

/* False when the body cannot be used. */
static bool adopt(struct request *r, struct span body)
{
    static _Thread_local struct json_edits e; /* some KiB that nobody needs after this call */
    if (!parse(r, arena_dup(r->body_arena, body)))
        return false;
    json_edits_init(&e, &r->doc, r->body_arena);
    uint32_t model = json_get(&r->doc, 0, "model");
    if (!json_string_eq(&r->doc, model, r->model) || json_count_name(&r->doc, 0, "model") != 1)
        json_edits_set(&e, SPAN("model"), quoted(r, r->model));
    if (r->dialect->has_stream && json_is(&r->doc, json_get(&r->doc, 0, "stream"), JSON_TRUE) != r->stream)
        json_edits_set(&e, SPAN("stream"), r->stream ? SPAN("true") : SPAN("false"));
    struct span text;
    if (!json_edits_apply(&e, &text) || (e.n && !parse(r, text)))
        return false;
    r->model_node = json_get(&r->doc, 0, "model");
    return true;
}

static enum step refuse(struct request *r, const struct policy_result *d)
{
    enum step next = request_refuse(r, d->status, d->code, d->param, "%.*s", SPAN_FMT(d->message));
    if (d->reason.n)
        r->error = arena_dup(r->arena, d->reason).p;
    return next;
}

static void on_done(void *arg, const struct policy_result *d)
{
    struct request *r = arg;
    bool parked = r->admission != NULL;
    r->admission = NULL;
    r->admitted = true;
    r->after_policy = STEP_lookup;
    if (d->verdict == POLICY_REFUSE)
        r->after_policy = refuse(r, d);
    else if (d->verdict == POLICY_OTHER && !adopt(r, d->body))
        r->after_policy = request_refuse(r, 502, "policy_failed", NULL,
                                         "What became of the body under the policy cannot be sent.");
    if (parked)
        request_resume(r, r->after_policy);
}

enum step step_policy(struct request *r)
{
    const struct policy *p = r->plan->policy;
    if (LIKELY(!p))
        return STEP_lookup;
    if (r->doc.odd & JSON_ODD_INVALID_UTF8) /* no rule could tell what such a text says */
        return request_refuse(r, 400, "invalid_json", NULL, "The body is not valid UTF-8.");
    r->policy_ticket = policy_ticket_new();
    struct admission_input *in = ARENA_NEW(r->arena, struct admission_input);
    const struct http_head *h = r->head;
    *in = (struct admission_input){
        .loop = &r->worker->loop,
        .pool = r->worker->pool,
        .dialect_id = r->dialect_id,
        .route = r->route->settings ? r->route->model : NULL,
        .model = r->model,
        .request_id = r->id,
        .trace_id = request_trace_id(r),
        .key_name = r->key ? r->key->name_span : SPAN_NONE,
        .stream = r->stream,
        .restore_asked = policy_restore_is_asked(span_trim(http_field_find(h, SPAN("x-rolter-pii-restore")))),
        .doc = &r->doc,
        .ticket = r->policy_ticket,
    };
    struct policy_call *call = policy_admit(p, in, on_done, r);
    if (r->admitted)
        return r->after_policy;
    r->admission = call;
    return STEP_PARKED;
}
