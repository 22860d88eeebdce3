/* SPDX-License-Identifier: Apache-2.0
 *
 * give_up: nothing is left to try (R16, R28): the last upstream reply as it was, if there was one; else what
 * went wrong last, in the caller's dialect.
 */
#include "gateway/cached.h"

static enum step send_kept(struct request *r)
{
    struct kept_reply *k = &r->kept;
    r->target = k->target;
    r->variant = k->variant;
    r->pick = k->pick;
    r->picked_from = k->picked_from;
    struct buf *out = &r->worker->out;
    buf_clear(out);
    buf_add_span(out, k->head);
    reply_write_whole(r, out, buf_view(&k->body));
    r->status = k->status;
    r->error = "upstream_status";
    return STEP_finish;
}

enum step step_give_up(struct request *r)
{
    request_end_attempt(r);
    if (r->cached) {
        enum step stale = cached_serve_stale(r);
        if (stale != STEP_COUNT)
            return stale;
    }
    if (r->kept.present)
        return send_kept(r);
    if (r->any_fail) {
        switch (r->last_fail) {
        case EXCHANGE_CONNECT_TIMEOUT:
        case EXCHANGE_HEAD_TIMEOUT:
        case EXCHANGE_IDLE_TIMEOUT:
            request_refuse(r, 504, "upstream_timeout", NULL, "The upstream did not answer in time.");
            break;
        case EXCHANGE_EGRESS:
            request_refuse(r, 502, "egress_blocked", NULL, "The upstream's address is not allowed.");
            return STEP_finish;
        default:
            request_refuse(r, 502, "upstream_unavailable", NULL, "The upstream could not be reached (%s).",
                           exchange_fail_name(r->last_fail));
        }
        r->error = exchange_fail_name(r->last_fail);
        return STEP_finish;
    }
    if (r->queue_timed_out)
        return request_refuse_retry(r, 429, "queue_timeout", 1, "The provider's queue did not move in time.");
    if (r->queue_was_full) {
        if (r->plan->settings->queue.backpressure == BACKPRESSURE_DROP)
            return request_refuse_retry(r, 503, "queue_dropped", 1, "The provider's queue is full.");
        return request_refuse_retry(r, 429, "queue_full", 1, "The provider's queue is full.");
    }
    return request_refuse(r, 503, "upstream_unavailable", NULL, "No upstream is available for this model.");
}
