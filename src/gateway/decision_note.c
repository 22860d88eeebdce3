/* SPDX-License-Identifier: Apache-2.0
 *
 * From a request that ends to its record.
 */
#include "gateway/cached.h"
#include "gateway/decisions.h"

static void note_pick(const struct request *r, struct decision *d)
{
    const struct plan_pool *pool = r->picked_from;
    int next = r->pick.why.runner_up;
    DECISION_TEXT(d->provider, r->target->provider->name);
    DECISION_TEXT(d->target, r->target->model ? r->target->model_span : r->direct_model);
    d->strategy = strategy_name(balancer_strategy(pool->balancer));
    d->reason = pick_reason_name(pick_word(&r->pick));
    d->why = r->pick.why;
    d->load = r->load_seen;
    if (next >= 0 && (unsigned)next < pool->n)
        DECISION_TEXT(d->runner_up, span_str(target_name(pool->targets[next].state)));
}

static void note_cache(const struct request *r, struct decision *d)
{
    const struct cached *c = r->cached;
    double similarity;
    d->cache = cache_result_name(c->result);
    d->cache_kind = cache_kind_name(c->kind);
    d->cache_reason = c->is_background ? "revalidate" : c->reason;
    if (semantic_similarity(r, &similarity))
        d->similarity = (float)similarity;
    else if (c->result == CACHE_MISS)
        d->semantic_reason = semantic_reason(r);
    if (c->result != CACHE_HIT || !c->entry)
        return;
    DECISION_TEXT(d->provider, c->entry->facts.provider);
    DECISION_TEXT(d->target, c->entry->facts.target);
    DECISION_TEXT(d->variant, c->entry->facts.variant);
}

void decision_note(const struct request *r, uint64_t latency_us)
{
    struct decision d = {
        .started_ms = r->wall_ms,
        .finished_us = r->started_us + latency_us,
        .latency_us = latency_us,
        .ttft_us = r->first_byte_us ? r->first_byte_us - r->started_us : 0,
        .queue_us = r->queue_us,
        .prompt_tokens = r->usage.prompt,
        .cached_tokens = r->usage.cache_read,
        .why.runner_up = -1,
        .similarity = -1,
        .status = r->status,
        .attempts = r->attempts,
        .stream = r->stream,
    };
    DECISION_TEXT(d.request_id, r->id);
    DECISION_TEXT(d.route, span_str(r->route->model));
    DECISION_TEXT(d.error, span_str(r->error));
    if (r->variant)
        DECISION_TEXT(d.variant, span_str(r->variant->name));
    if (r->target)
        note_pick(r, &d);
    if (r->cached)
        note_cache(r, &d);
    decision_ring_put(r->worker->decisions, &d);
}
