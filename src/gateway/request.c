/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

enum { FREE_REQUESTS_MAX = 256 };

static enum step (*const step_functions[])(struct request *r) = {
#define STEP(name, does, waits) [STEP_##name] = step_##name,
#include "gateway/steps.h"
#undef STEP
};

const char *step_name(enum step s)
{
    static const char *const names[] = {
#define STEP(name, does, waits) [STEP_##name] = #name,
#include "gateway/steps.h"
#undef STEP
        [STEP_COUNT] = "?",
        [STEP_PARKED] = "parked",
        [STEP_GONE] = "gone",
    };
    return names[s];
}

void request_run(struct request *r, enum step s)
{
    while (s < STEP_COUNT)
        s = step_functions[s](r);
    CHECK(s == STEP_PARKED || s == STEP_GONE);
    if (s == STEP_PARKED && r->owes_record) { /* sent, or waiting to be */
        r->owes_record = false;
        balance_record(r->picked_from->balancer, &r->blocks, &r->pick.receipt);
    }
}

void request_resume(struct request *r, enum step s)
{
    MAGIC_CHECK(r, REQUEST_MAGIC);
    request_run(r, s);
}

static struct request *request_alloc(struct worker *w, struct plan *plan)
{
    struct list *node = list_pop(&w->free_requests);
    struct request *r = node ? LIST_ITEM(node, struct request, node) : mem_alloc(sizeof *r);
    w->n_free_requests -= node != NULL;
    memset(r, 0, offsetof(struct request, tried));
    r->magic = REQUEST_MAGIC;
    r->worker = w;
    r->plan = plan_ref(plan);
    arena_init(&r->large, &w->loop.chunks);
    r->started_us = clock_mono_us();
    r->wall_ms = clock_wall_ms_at(r->started_us);
    r->upstream_key = -1;
    usage_init(&r->usage);
    buf_init(&r->reply_body, 4u << 20);
    buf_init(&r->kept.body, 65536);
    list_push(&w->requests, &r->node);
    return r;
}

struct request *request_new(struct worker *w, struct conn *c)
{
    struct request *r = request_alloc(w, w->plan);
    r->conn = c;
    r->head = conn_head(c);
    r->arena = r->body_arena = conn_arena(c);
    conn_set_user(c, r);
    return r;
}

struct request *request_new_background(struct request *of)
{
    struct worker *w = of->worker;
    struct request *r = request_alloc(w, of->plan);
    conn_take_memory(of->conn, &r->memory);
    r->arena = r->body_arena = &r->memory.arena;
    if (of->body_arena == &of->large) {
        r->large = of->large;
        r->body_arena = &r->large;
        arena_init(&of->large, &w->loop.chunks);
    }
    r->dialect = of->dialect;
    r->dialect_id = of->dialect_id;
    r->key = of->key;
    r->id = of->id;
    r->head = of->head;
    r->doc = of->doc;
    r->model_node = of->model_node;
    r->model = of->model;
    r->direct_model = of->direct_model;
    r->stream = of->stream;
    r->route = of->route;
    r->pools = of->pools;
    r->n_pools = of->n_pools;
    r->limits_taken = of->limits_taken; /* what it costs is charged like what was asked */
    r->counted = true;
    atomic_fetch_add_explicit(&w->in_flight, 1, memory_order_relaxed);
    return r;
}

void request_free(struct request *r)
{
    struct worker *w = r->worker;
    buf_fini(&r->reply_body);
    buf_fini(&r->kept.body);
    policy_ticket_free(r->policy_ticket);
    if (r->sse_open)
        sse_fini(&r->sse);
    arena_reset(&r->large);
    conn_memory_free(&r->memory, &w->loop);
    plan_unref(r->plan);
    r->magic = 0;
    if (w->n_free_requests == FREE_REQUESTS_MAX) {
        free(r);
        return;
    }
    list_push_front(&w->free_requests, &r->node);
    w->n_free_requests++;
}

void request_detach(struct request *r)
{
    struct arena *before = r->arena;
    conn_take_memory(r->conn, &r->memory);
    conn_set_user(r->conn, NULL);
    r->conn = NULL;
    r->arena = &r->memory.arena;
    if (r->body_arena == before)
        r->body_arena = r->arena;
}

HOT void request_write(struct request *r, const struct iovec *iov, unsigned n)
{
    if (LIKELY(r->conn != NULL))
        conn_writev(r->conn, iov, n);
}

HOT size_t request_unsent(const struct request *r)
{
    return r->conn ? conn_queued(r->conn) : 0;
}

HOT void request_drop_body(struct request *r)
{
    if (r->body_dropped || !r->exchange || !exchange_is_sent(r->exchange))
        return;
    r->body_dropped = true;
    size_t before = (size_t)(r->direct_model.p - r->model.p);
    r->model = arena_dup(r->arena, r->model);
    if (r->direct_model.n)
        r->direct_model = span_of(r->model.p + before, r->direct_model.n);
    r->doc = (struct json_doc){0};
    r->cache_salt = SPAN_NONE;
    r->blocks.key = NULL; /* only for picks, and there will be none */
    r->blocks.n = 0;
    r->prompt.text = SPAN_NONE; /* its length is still asked for */
    if (r->conn)
        conn_drop_body(r->conn);
    arena_reset(&r->large);
}

void request_timer(struct request *r, uint64_t ms, uv_timer_cb fn)
{
    if (!r->timer_open) {
        CHECK(uv_timer_init(&r->worker->loop.uv, &r->timer) == 0);
        r->timer_open = true;
    }
    r->timer.data = r;
    uv_timer_start(&r->timer, fn, ms, 0);
}

void request_timer_stop(struct request *r)
{
    if (r->timer_open)
        uv_timer_stop(&r->timer);
}

HOT void request_prefill_over(struct request *r, bool is_timed)
{
    if (r->picked_from && r->pick.receipt.prefill.is_charged)
        balance_first_token(r->picked_from->balancer, &r->pick.receipt,
                            r->read_us ? r->read_us : net_now_us(&r->worker->loop), is_timed);
}

void request_withdraw_pick(struct request *r)
{
    if (r->may_withdraw)
        balance_withdraw(r->picked_from->balancer, &r->pick.receipt);
    r->may_withdraw = false;
}

void request_settle_pick(struct request *r)
{
    if (r->may_withdraw)
        metric_add(r->target->m_evictions, balance_settle(r->picked_from->balancer, &r->pick.receipt));
    r->may_withdraw = false;
}

void request_end_attempt(struct request *r)
{
    /* A client that leaves while the upstream works does not undo the work. */
    if (r->client_gone && r->exchange)
        request_settle_pick(r);
    request_prefill_over(r, false);
    r->owes_record = false;
    request_withdraw_pick(r);
    if (r->exchange) {
        exchange_cancel(r->exchange);
        r->exchange = NULL;
    }
    request_timer_stop(r);
    queue_wait_over(r);
    if (r->ticket)
        queue_abandon(r);
    if (r->gate_held) {
        r->gate_held = false;
        provider_gate_leave(r->target->provider->state);
    }
    target_lease_end(&r->lease);
}

static void refuse_write(struct request *r, int status, const char *code, const char *param,
                         struct span message, unsigned retry_after_secs)
{
    struct buf body;
    buf_init(&body, 65536);
    dialect_error(&body, r->dialect, status, code, param, message, r->id);
    struct buf *out = &r->worker->out;
    buf_clear(out);
    reply_head_begin(r, out, status);
    if (retry_after_secs)
        buf_printf(out, "retry-after: %u\r\n", retry_after_secs);
    if (status == 405)
        buf_printf(out, "allow: %s\r\n", r->allow);
    if (status == 401)
        BUF_LIT(out, "www-authenticate: Bearer\r\n");
    if (r->dialect && r->dialect->anthropic_errors && r->id.n) { /* where Anthropic's clients look for it */
        BUF_LIT(out, "request-id: ");
        buf_add_span(out, r->id);
        BUF_LIT(out, "\r\n");
    }
    buf_add_str(out, "content-type: application/json\r\n");
    reply_write_whole(r, out, buf_view(&body));
    buf_fini(&body);
    r->status = status;
    r->error = code;
}

enum step request_refuse(struct request *r, int status, const char *code, const char *param, const char *fmt,
                         ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    request_end_attempt(r);
    refuse_write(r, status, code, param, span_str(text), 0);
    return STEP_finish;
}

enum step request_refuse_retry(struct request *r, int status, const char *code, unsigned retry_after_secs,
                               const char *message)
{
    request_end_attempt(r);
    refuse_write(r, status, code, NULL, span_str(message), retry_after_secs);
    return STEP_finish;
}
