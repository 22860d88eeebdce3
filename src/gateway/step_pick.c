/* SPDX-License-Identifier: Apache-2.0
 *
 * pick: one question to the balancer for each attempt, over the targets that can be used now. A variant
 * without an eligible target is passed over before anything fails open (R25).
 */
#include "gateway/request.h"

enum { PICK_RACES_MAX = 8 };

static void target_set_remove(struct target_set *s, unsigned i)
{
    if (s->many)
        s->many[i / 64] &= ~((uint64_t)1 << (i % 64));
    else
        s->one &= ~((uint64_t)1 << i);
}

static void fill_context(const struct request *r, const struct candidate_pool *c, struct pick_context *ctx)
{
    *ctx = (struct pick_context){
        .allowed = c->allowed,
        .eligible = c->eligible,
        .session = http_field_get(r->head, HTTP_F_X_SESSION_ID),
        .prompt = r->prompt.text,
        .prompt_len = r->prompt.len,
        .prompt_digest = r->prompt.digest,
        .blocks = r->blocks,
        .tokens = r->tokens,
        .cache_salt = r->cache_salt,
        .now_ms = net_now_ms(&r->worker->loop),
        .now_us = net_now_us(&r->worker->loop),
        .settles = true,
        .rng = &r->worker->loop.rng,
    };
}

/* The pool to pick from: the first with an eligible target, else the first with an allowed one. NULL: none
 * left. */
static struct candidate_pool *choose_pool(struct request *r, struct pick_context *ctx)
{
    struct candidate_pool *open = NULL;
    for (unsigned i = 0; i < r->n_pools; i++) {
        struct candidate_pool *c = &r->pools[i];
        if (target_set_empty(&c->allowed))
            continue;
        fill_context(r, c, ctx);
        if (balance_fill_eligible(c->pool->balancer, &r->plan->reliability, ctx))
            return c;
        if (!open)
            open = c;
    }
    if (open) {
        fill_context(r, open, ctx);
        balance_fill_eligible(open->pool->balancer, &r->plan->reliability, ctx);
    }
    return open;
}

static bool take(struct request *r, struct candidate_pool *c, struct pick *p, uint64_t now_ms)
{
    struct plan_target *t = &c->pool->targets[p->index];
    unsigned load = provider_load(t->provider->state, now_ms);
    metric_add(t->m_evictions, p->receipt.prefix.evicted);
    if (!target_lease_begin(t->state, &r->plan->reliability, now_ms, p->fail_open, &r->lease)) {
        balance_first_token(c->pool->balancer, &p->receipt, net_now_us(&r->worker->loop), false);
        balance_withdraw(c->pool->balancer, &p->receipt);
        return false;
    }
    target_set_remove(&c->allowed, (unsigned)p->index);
    r->target = t;
    r->variant = c->variant;
    r->pick = *p;
    r->picked_from = c->pool;
    r->may_withdraw = r->owes_record = true;
    r->load_seen = load;
    r->picked_us = net_now_us(&r->worker->loop);
    metric_add(r->route->m_picks[pick_word(p)], 1);
    if (p->why.lmcache_decides)
        metric_add(metric_plain(M_LMCACHE_DECISIONS), 1);
    if (p->why.has_resident)
        metric_add(metric_plain(M_KV_DECISIONS), 1);
    return true;
}

/* How long to wait before this provider is tried again by this request; 0 the first time (R26). */
static uint64_t back_off_ms(struct request *r, uint64_t now_ms)
{
    for (unsigned i = 0; i < r->n_tried; i++)
        if (r->tried[i].provider == r->target->provider)
            return r->tried[i].ready_ms > now_ms ? r->tried[i].ready_ms - now_ms : 0;
    return 0;
}

static void back_off_over(uv_timer_t *t)
{
    struct request *r = t->data;
    r->picked_us = net_now_us(&r->worker->loop); /* the wait was not the target's */
    request_resume(r, STEP_queue);
}

enum step step_pick(struct request *r)
{
    CHECK(!r->reply_begun && !r->lease.target && !r->exchange);
    if (r->wants_ids)
        return STEP_tokenize;
    struct pick_context ctx;
    for (unsigned race = 0;; race++) {
        struct candidate_pool *c = choose_pool(r, &ctx);
        if (!c)
            return STEP_give_up;
        struct pick p = balance_pick(c->pool->balancer, &ctx);
        if (p.index < 0)
            return STEP_give_up;
        /* Another request may take a half-open breaker's probe between the question and the lease. */
        if (race >= PICK_RACES_MAX)
            p.fail_open = true;
        if (take(r, c, &p, ctx.now_ms))
            break;
    }
    r->attempts++;
    if (r->attempts > 1)
        metric_add(metric_plain(M_RETRIES), 1);
    else if (r->variant)
        metric_add(r->variant->m_requests, 1);
    uint64_t wait = back_off_ms(r, ctx.now_ms);
    if (wait == 0)
        return STEP_queue;
    request_timer(r, wait, back_off_over);
    return STEP_PARKED;
}
