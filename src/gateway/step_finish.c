/* SPDX-License-Identifier: Apache-2.0
 *
 * finish: the one place where a request ends, whatever happened: charges back, row, counters, memory, and the
 * connection told.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "gateway/applied.h"
#include "gateway/gateway.h"
#include "gateway/cached.h"
#include "gateway/decisions.h"
#include "gateway/row_writer.h"

static uint64_t known(uint64_t v)
{
    return v == UINT64_MAX ? 0 : v;
}

/* Of a W3C traceparent: 00-<32 hex>-<16 hex>-<2 hex>. */
struct span request_trace_id(const struct request *r)
{
    const struct http_head *h = r->head;
    struct span v = h ? http_field_find(h, SPAN("traceparent")) : SPAN_NONE;
    if (v.n < 55 || v.p[2] != '-' || v.p[35] != '-')
        return SPAN_NONE;
    for (size_t i = 3; i < 35; i++)
        if (!(v.p[i] >= '0' && v.p[i] <= '9') && !(v.p[i] >= 'a' && v.p[i] <= 'f'))
            return SPAN_NONE;
    return span_of(v.p + 3, 32);
}

static void count(struct request *r, uint64_t latency_us)
{
    const struct plan_route *route = r->route;
    if (!route)
        return;
    int class = r->status / 100;
    metric_add(route->m_responses[class >= 1 && class <= 5 ? class : 0], 1);
    metric_observe(route->m_latency, (double)latency_us / 1000);
    if (r->first_byte_us)
        metric_observe(route->m_ttft, (double)(r->first_byte_us - r->started_us) / 1000);
    metric_add(route->m_tokens[0], known(r->usage.prompt));
    metric_add(route->m_tokens[1], known(r->usage.completion));
    metric_add(route->m_tokens[2], known(r->usage.cache_read));
    metric_add(route->m_tokens[3], known(r->usage.cache_write));
}

/* Prompt tokens, those that were cached included: with Anthropic they stand beside the others. */
static uint64_t whole_prompt(const struct request *r)
{
    uint64_t n = known(r->usage.prompt);
    return r->dialect_id == DIALECT_MESSAGES ? n + known(r->usage.cache_read) + known(r->usage.cache_write)
                                             : n;
}

/* By the upstream's own numbers; 0 when they or the price are not known. */
static double cost_of(const struct request *r)
{
    const char *model = r->target->model ? r->target->model : "";
    double cost;
    return plan_cost(r->plan, model, r->route->model, whole_prompt(r), known(r->usage.cache_read),
                     known(r->usage.completion), &cost)
               ? cost
               : 0;
}

static void charge_limits(struct request *r)
{
    bool billed = r->usage_expected && r->target && usage_is_known(&r->usage);
    if (r->limits_taken)
        request_charge_limits(r, billed ? cost_of(r) : 0, billed ? usage_total(&r->usage) : 0);
}

/* What was predicted to be cached against what the engine says (A21). */
static void learn(struct request *r)
{
    if (!r->usage_expected || r->usage.prompt == UINT64_MAX || !r->picked_from)
        return;
    struct prompt_usage u = {.tokens = whole_prompt(r),
                             .cached_known = r->usage.cache_read != UINT64_MAX,
                             .cached = known(r->usage.cache_read)};
    const metric_series_t *m = r->target->m_prefix_tokens;
    double share = pick_predicted_share(&r->pick);
    metric_add(m[0], u.tokens);
    metric_add(m[1], u.cached < u.tokens ? u.cached : u.tokens);
    metric_add(m[2], share > 0 ? (uint64_t)(share * (double)u.tokens) : 0);
    double error = balance_learn(r->picked_from->balancer, &r->pick.receipt, &u);
    if (error >= 0)
        metric_observe(r->target->m_prediction_error, error);
}

static void write_row(struct request *r, uint64_t latency_us)
{
    struct worker *w = r->worker;
    if (!r->plan->settings->logging.file && !r->plan->settings->logging.clickhouse_url)
        return;
    double rate = r->plan->settings->logging.sample_rate;
    if (rate < 1 && (double)(hash_bytes(r->id.p, r->id.n) >> 11) * 0x1.0p-53 >= rate)
        return;
    const struct http_head *h = r->head;
    struct row row = {
        .ts_ms = r->wall_ms,
        .request_id = r->id,
        .trace_id = request_trace_id(r),
        .path = h ? h->path : SPAN_NONE,
        .model = r->model,
        .status = r->status,
        .stream = r->stream,
        .upstream_request_id = r->upstream_request_id,
        .prompt_tokens = known(r->usage.prompt),
        .completion_tokens = known(r->usage.completion),
        .total_tokens = usage_is_known(&r->usage) ? usage_total(&r->usage) : 0,
        .cache_read_tokens = known(r->usage.cache_read),
        .cache_write_tokens = known(r->usage.cache_write),
        .withheld = r->withheld,
        .usage_unknown = r->usage_expected && !usage_is_known(&r->usage),
        .latency_ms = latency_us / 1000,
        .ttft_ms = r->first_byte_us ? (r->first_byte_us - r->started_us) / 1000 : 0,
        .queue_ms = r->queue_us / 1000,
        .attempts = r->attempts,
        .error = span_str(r->error),
        .annotations = r->policy_ticket ? policy_ticket_notes(r->policy_ticket) : SPAN_NONE,
    };
    if (r->key) {
        row.virtual_key = r->key->name_span;
        row.virtual_key_id = span_of(r->key->id, sizeof r->key->id - 1);
    }
    if (r->target) {
        row.provider = r->target->provider->name;
        row.target = r->target->model ? r->target->model_span : r->direct_model;
        row.pick_reason = span_str(pick_reason_name(pick_word(&r->pick)));
        buf_clear(&w->pick_text);
        balance_explain(r->picked_from->balancer, &r->pick, &w->pick_text);
        row.pick_detail = buf_view(&w->pick_text);
        row.cost_usd = cost_of(r);
    }
    if (r->variant)
        row.variant = span_str(r->variant->name);
    if (r->cached)
        cached_row(r, &row);
    buf_clear(&w->row_text);
    row_format(&w->row_text, &row);
    /* Nothing was written when the row is larger than any may be. */
    if (w->row_text.n == 0 || !row_ring_put(w->rows, buf_view(&w->row_text)))
        metric_add(metric_plain(M_LOGS_DROPPED), 1);
    row_writer_note(w->row_writer, &w->unsaid_rows, w->row_text.n);
}

/* The pool counts by itself; what it counted since the last request goes to the metrics. */
static void count_connections(struct worker *w)
{
    struct pool_counts now = pool_counts(w->pool);
    if (now.connects == w->counted.connects && now.connect_errors == w->counted.connect_errors)
        return;
    metric_add(metric_plain(M_UPSTREAM_CONNECTIONS), now.connects - w->counted.connects);
    metric_add(metric_plain(M_UPSTREAM_CONNECT_ERRORS), now.connect_errors - w->counted.connect_errors);
    w->counted = now;
}

static void timer_closed(uv_handle_t *h)
{
    request_free(h->data);
}

/* How the reply ended, for the row. */
static void settle_status(struct request *r)
{
    if (r->cached && r->cached->cut) {
        r->status = 502;
        r->error = "slow_reader";
    } else if (r->client_gone) {
        r->status = 499;
        r->error = "client disconnected";
        metric_add(metric_plain(M_CLIENT_DISCONNECTS), 1);
    } else if (r->reply_begun && !r->upstream_complete) {
        r->status = 502; /* the head said otherwise, but the reply broke off */
    }
}

enum step step_finish(struct request *r)
{
    struct worker *w = r->worker;
    struct conn *c = r->conn;
    request_end_attempt(r);
    tokenizer_leave(&r->tokenize);
    learn(r);
    if (r->delivery.call)
        policy_call_cancel(r->delivery.call);
    if (r->admission)
        policy_call_cancel(r->admission);
    settle_status(r);
    applied_over(r);
    struct request *renews = r->cached ? fill_in_background(r) : NULL;
    charge_limits(r);
    if (!r->no_row) {
        uint64_t latency_us = (r->read_us ? r->read_us : clock_mono_us()) - r->started_us;
        count(r, latency_us);
        write_row(r, latency_us);
        if (w->decisions && r->route)
            decision_note(r, latency_us);
    }
    if (r->cached)
        cached_end(r);
    count_connections(w);
    list_remove(&r->node);
    if (r->counted)
        atomic_fetch_sub_explicit(&w->in_flight, 1, memory_order_release);
    bool gone = r->client_gone, whole = r->upstream_complete, keep = r->reply_keep;
    bool shows_its_end = r->reply_begun && !r->reply_unframed;
    if (c && !gone)
        conn_set_user(c, NULL);
    if (r->timer_open) {
        r->timer.data = r;
        uv_close((uv_handle_t *)&r->timer, timer_closed);
    } else {
        request_free(r);
    }
    if (gone || !c)
        return STEP_GONE;
    /* What went out before, replies to earlier requests of the connection included, may not have been taken
     * yet; a reset would destroy it. Closing suffices where the framing tells that the rest is missing (R36).
     */
    if (whole || shows_its_end)
        conn_finish(c, whole && keep);
    else
        conn_abort(c);
    if (renews)
        fill_background_start(renews);
    return STEP_GONE;
}
