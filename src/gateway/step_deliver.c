/* SPDX-License-Identifier: Apache-2.0
 *
 * deliver: a buffered, successful body goes through the one policy function and then to the client, whole
 * (D1). Every source ends here: what an upstream just said, and what was stored. Usage was read and the reply
 * stored before, from the upstream's own bytes.
 */
#include "gateway/applied.h"
#include "gateway/cached.h"
#include "policy/delivery.h"

/* Billed, but not what the client gets (D4). */
static void withhold(struct request *r, const struct policy_result *d)
{
    r->withheld = true;
    metric_add(metric_plain(M_WITHHELD), 1);
    request_refuse(r, d->status, d->code, d->param, "%.*s", SPAN_FMT(d->message));
    if (d->reason.n)
        r->error = arena_dup(r->arena, d->reason).p;
}

static void write_reply(struct request *r, struct span body)
{
    struct buf *out = &r->worker->out;
    buf_clear(out);
    buf_add_span(out, r->delivery.head);
    r->first_byte_us = r->read_us ? r->read_us : net_now_us(&r->worker->loop);
    r->status = r->delivery.status;
    reply_write_whole(r, out, body);
}

static void on_done(void *arg, const struct policy_result *d)
{
    struct request *r = arg;
    bool parked = r->delivery.call != NULL;
    r->delivery.call = NULL;
    r->delivery.done = true;
    switch (d->verdict) {
    case POLICY_SAME:
        write_reply(r, r->delivery.input.body);
        break;
    case POLICY_OTHER:
        write_reply(r, d->body);
        break;
    case POLICY_REFUSE:
        withhold(r, d);
        break;
    }
    if (parked)
        request_resume(r, STEP_finish);
}

bool delivery_is_policed(const struct request *r)
{
    return r->plan->policy && policy_wants_reply(r->plan->policy, r->route->settings ? r->route->model : NULL,
                                                 r->dialect_id, r->policy_ticket);
}

/* A stored stream that guardrails look at: as a live one, but all of it is there. */
static enum step deliver_applied(struct request *r)
{
    applied_feed(r, r->delivery.input.body.p, r->delivery.input.body.n);
    applied_end(r);
    write_reply(r, buf_view(&r->applied->out));
    return STEP_finish;
}

enum step step_deliver(struct request *r)
{
    if (r->cached && r->cached->entry && r->stream)
        applied_begin(r);
    if (UNLIKELY(r->applied != NULL))
        return deliver_applied(r);
    if (r->cached && r->cached->entry && (r->stream || !delivery_is_policed(r))) {
        pump_entry(r);
        return STEP_GONE; /* it sees to the rest */
    }
    struct delivery *d = &r->delivery;
    d->input.loop = &r->worker->loop;
    d->input.pool = r->worker->pool;
    d->input.model = r->model;
    d->input.ticket = r->policy_ticket;
    d->input.dialect_id = r->dialect_id;
    d->input.route = r->route->settings ? r->route->model : NULL;
    d->input.request_id = r->id;
    d->input.trace_id = request_trace_id(r);
    d->input.key_name = r->key ? r->key->name_span : SPAN_NONE;
    struct policy_call *call = policy_deliver(r->plan->policy, &d->input, on_done, r);
    if (d->done)
        return STEP_finish;
    d->call = call;
    r->read_us = 0; /* what comes next comes later */
    return STEP_PARKED;
}
