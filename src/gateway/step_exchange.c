/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange: sends the request and judges what comes back. A retryable failure goes back to pick; everything
 * else is relayed (relay.c). The judgement of an attempt is told to the target here and nowhere else.
 */
#include "base/clock.h"
#include "gateway/cached.h"

enum { HOLD_MS = 1000, KEY_PARK_MIN_MS = 1000, RETRY_AFTER_MAX_MS = 30000 };

static bool is_retryable(int status)
{
    return status == 408 || status == 429 || status >= 500;
}

static enum outcome outcome_of(int status)
{
    if (status < 400)
        return OUTCOME_OK;
    if (status == 429 || status == 503)
        return OUTCOME_BACKPRESSURE;
    if (status == 408)
        return OUTCOME_TIMEOUT;
    return status < 500 ? OUTCOME_CLIENT_FAULT : OUTCOME_SERVER_FAULT;
}

static void tell(struct request *r, enum outcome o, uint64_t retry_after_ms)
{
    uint64_t now = net_now_ms(&r->worker->loop);
    struct target_change c = target_report(&r->lease, &r->plan->reliability, o, retry_after_ms, now);
    if (c.cooled)
        metric_add(metric_plain(M_COOLDOWNS), 1);
    if (c.breaker_opened)
        metric_add(metric_plain(M_BREAKER_OPENED), 1);
    if (c.breaker_closed)
        metric_add(metric_plain(M_BREAKER_CLOSED), 1);
    metric_add(o == OUTCOME_OK || o == OUTCOME_CLIENT_FAULT ? r->target->m_ok : r->target->m_error, 1);
}

/* Retry-After in whole seconds; dates are not read. 0 = none. */
static uint64_t retry_after_ms(const struct http_head *h)
{
    uint64_t secs;
    if (!span_to_u64(http_field_get(h, HTTP_F_RETRY_AFTER), &secs) || secs > 86400 * 365)
        return 0;
    return secs * 1000;
}

/* Full jitter between 0 and base * 2^(attempt - 1), or what the upstream asked for. */
static void note_tried(struct request *r, uint64_t after_ms)
{
    const struct retry_settings *s = &r->plan->settings->retry;
    uint64_t ceiling = (uint64_t)s->base_backoff_ms << (r->attempts < 20 ? r->attempts - 1 : 20);
    if (ceiling > s->max_backoff_ms)
        ceiling = s->max_backoff_ms;
    uint64_t wait = after_ms ? (after_ms < RETRY_AFTER_MAX_MS ? after_ms : RETRY_AFTER_MAX_MS)
                             : rng_below(&r->worker->loop.rng, ceiling + 1);
    uint64_t ready = net_now_ms(&r->worker->loop) + wait;
    for (unsigned i = 0; i < r->n_tried; i++)
        if (r->tried[i].provider == r->target->provider) {
            r->tried[i].ready_ms = ready;
            return;
        }
    if (r->n_tried < TRIED_PROVIDERS_MAX)
        r->tried[r->n_tried++] = (struct tried_provider){r->target->provider, ready};
}

/* A provider with several keys: the key is parked and the same target may be tried again with another one. */
static bool key_failed(struct request *r, int status, uint64_t after_ms)
{
    const struct plan_provider *p = r->target->provider;
    if ((status != 429 && status != 401) || p->n_keys < 2 || r->upstream_key < 0)
        return false;
    uint64_t now = net_now_ms(&r->worker->loop);
    provider_key_park(p->state, r->upstream_key,
                      now + (after_ms > KEY_PARK_MIN_MS ? after_ms : KEY_PARK_MIN_MS));
    metric_add(metric_plain(M_KEY_COOLDOWNS), 1);
    return provider_has_free_key(p->state, now);
}

static void allow_again(struct request *r)
{
    for (unsigned i = 0; i < r->n_pools; i++) {
        struct candidate_pool *c = &r->pools[i];
        if (c->variant != r->variant)
            continue;
        target_set_add(&c->allowed, (unsigned)(r->target - c->pool->targets));
        return;
    }
}

static bool attempts_left(const struct request *r)
{
    return r->attempts <= r->plan->settings->retry.max_retries;
}

static bool targets_left(const struct request *r)
{
    for (unsigned i = 0; i < r->n_pools; i++)
        if (!target_set_empty(&r->pools[i].allowed))
            return true;
    return false;
}

static void release_slot(struct request *r)
{
    if (r->gate_held) {
        r->gate_held = false;
        provider_gate_leave(r->target->provider->state);
    }
}

static void keep_head(struct request *r, const struct http_head *h, uint64_t after_ms)
{
    struct kept_reply *k = &r->kept;
    struct buf *out = &r->worker->out;
    buf_clear(out);
    reply_head_begin(r, out, h->status);
    reply_head_target(r, out, r->target, r->variant);
    reply_head_fields(r, out, h);
    k->head = arena_dup(r->arena, buf_view(out));
    buf_clear(&k->body);
    k->present = true;
    k->status = h->status;
    k->target = r->target;
    k->variant = r->variant;
    k->pick = r->pick; /* to be told of; what it charged is given back with this attempt, and once */
    k->pick.receipt.prefill.is_charged = k->pick.receipt.prefill.is_predicted = false;
    k->picked_from = r->picked_from;
    k->retry_after_ms = after_ms;
}

/* The held reply is complete, or as complete as it will get in reasonable time: on to the next attempt. */
static void next_attempt(struct request *r)
{
    r->holding = false;
    r->read_us = 0; /* what comes next comes later */
    if (r->kept.body.full)
        r->kept.present = false; /* more than we keep: not relayable any more */
    request_end_attempt(r);
    request_resume(r, STEP_pick);
}

static void hold_over(uv_timer_t *t)
{
    struct request *r = t->data;
    r->kept.present = false;
    next_attempt(r);
}

static void on_head(struct exchange *x, void *arg, const struct http_head *h)
{
    struct request *r = arg;
    release_slot(r);
    if (h->status >= 400)
        request_withdraw_pick(r);
    request_settle_pick(r);
    uint64_t after = retry_after_ms(h);
    plan_key_judged(r->target->provider, r->upstream_key, h->status, net_now_ms(&r->worker->loop));
    bool key_level = key_failed(r, h->status, after);
    /* A key that is used up says nothing about the target while another key is free. */
    tell(r, key_level ? OUTCOME_CLIENT_FAULT : outcome_of(h->status), after);
    r->read_us = net_now_us(&r->worker->loop);
    if (is_retryable(h->status) || key_level) {
        metric_add(r->target->provider->m_errors[EXCHANGE_FAIL_COUNT], 1);
        note_tried(r, key_level ? 1 : after);
        if (key_level)
            allow_again(r);
        if (attempts_left(r) && targets_left(r)) {
            keep_head(r, h, after);
            r->holding = true;
            request_timer(r, HOLD_MS, hold_over);
            return;
        }
    }
    if (UNLIKELY(r->cached != NULL) && is_retryable(h->status)) {
        enum step stale = cached_serve_stale(r);
        if (stale != STEP_COUNT) {
            request_resume(r, stale);
            return;
        }
    }
    relay_head(r, h);
}

HOT static void on_body(struct exchange *x, void *arg, const char *p, size_t n)
{
    struct request *r = arg;
    if (r->holding) {
        buf_add(&r->kept.body, p, n);
        return;
    }
    if (r->is_event_stream)
        request_prefill_over(r, true);
    relay_body(r, p, n);
}

HOT static void on_flush(struct exchange *x, void *arg)
{
    struct request *r = arg;
    if (!r->holding)
        relay_flush(r);
    r->read_us = 0; /* what comes next comes later */
    if (r->holding && r->kept.body.full)
        next_attempt(r);
}

/* A reply is here from pick to its last byte. One that had to wait for its client says nothing about the
 * target. Without the prompt there is no length to learn from. */
static void observe(struct request *r)
{
    if (r->status >= 400 || r->was_paused)
        return;
    double ms = (double)((r->read_us ? r->read_us : net_now_us(&r->worker->loop)) - r->picked_us) / 1000;
    target_observe_latency(r->target->state, ms);
    if (r->prompt_read)
        target_observe_duration(r->target->state, ms, r->load_seen, r->prompt.len / BYTES_PER_TOKEN);
}

static void on_end(struct exchange *x, void *arg, bool close_delimited)
{
    struct request *r = arg;
    r->exchange = NULL;
    if (r->holding) {
        next_attempt(r);
        return;
    }
    observe(r);
    relay_end(r);
}

static enum outcome outcome_of_fail(enum exchange_fail why)
{
    return why == EXCHANGE_CONNECT_TIMEOUT || why == EXCHANGE_HEAD_TIMEOUT || why == EXCHANGE_IDLE_TIMEOUT
               ? OUTCOME_TIMEOUT
               : OUTCOME_TRANSPORT;
}

static void on_fail(struct exchange *x, void *arg, enum exchange_fail why, const char *detail)
{
    struct request *r = arg;
    r->exchange = NULL;
    metric_add(r->target->provider->m_errors[why], 1);
    if (r->holding) {
        r->kept.present = false; /* broken in the middle */
        next_attempt(r);
        return;
    }
    if (r->reply_begun) {
        /* The client sees broken framing (R36); the row says why. */
        r->error = exchange_fail_name(why);
        request_resume(r, STEP_finish);
        return;
    }
    relay_discard(r);
    release_slot(r);
    if (!r->lease.reported)
        tell(r, why == EXCHANGE_EGRESS ? OUTCOME_CLIENT_FAULT : outcome_of_fail(why), 0);
    note_tried(r, 0);
    r->any_fail = true;
    r->last_fail = why;
    request_end_attempt(r);
    request_resume(r, attempts_left(r) && targets_left(r) ? STEP_pick : STEP_give_up);
}

static const struct exchange_events events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_flush = on_flush,
    .on_end = on_end,
    .on_fail = on_fail,
};

enum step step_exchange(struct request *r)
{
    const struct timeout_settings *t = &r->plan->settings->timeouts;
    struct iovec iov[UPSTREAM_IOV_MAX];
    unsigned n;
    size_t bytes;
    if (!upstream_body(r, iov, &n, &bytes))
        return request_refuse(r, 400, "invalid_json", NULL, "The body repeats a member too often.");
    struct span head = upstream_head(r, bytes);
    struct exchange_options o = {
        .connect_ms = secs_to_ms(t->connect_secs),
        .head_ms = secs_to_ms(t->request_secs),
        .idle_ms = secs_to_ms(t->stream_idle_secs),
    };
    r->exchange = exchange_start(r->worker->pool, &r->target->provider->origin, head, iov, n, &o, &events, r);
    return STEP_PARKED;
}
