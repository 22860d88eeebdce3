/* SPDX-License-Identifier: Apache-2.0
 *
 * The bounded queue in front of a provider (R29): a slot is held from here until the reply's head has come. A
 * full queue fails over to another target first; then the configured back-pressure decides. Who has waited as
 * long as one may goes on to targets that are free at once.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "gateway/request.h"

enum { QUEUE_POLL_MS = 10 };

void queue_wait_over(struct request *r)
{
    if (!r->queue_since_us)
        return;
    uint64_t waited = net_now_us(&r->worker->loop) - r->queue_since_us;
    r->queue_us += waited;
    r->queue_since_us = 0;
    metric_observe(r->target->provider->m_queue_wait, (double)waited / 1000);
}

static void slot_taken(struct request *r)
{
    r->gate_held = true;
    queue_wait_over(r);
}

/* On the request's own loop. */
static void grant_arrived(struct net_post *p, struct net_loop *l)
{
    struct queue_ticket *t = CONTAINER_OF(p, struct queue_ticket, post);
    struct request *r = t->request;
    free(t);
    if (!r)
        return;
    r->ticket = NULL;
    request_timer_stop(r);
    slot_taken(r);
    request_resume(r, STEP_exchange);
}

/* On the thread that gave the slot up. */
static void granted(struct gate_waiter *w)
{
    struct queue_ticket *t = CONTAINER_OF(w, struct queue_ticket, waiter);
    t->post.fn = grant_arrived;
    net_loop_post(t->loop, &t->post);
}

void queue_abandon(struct request *r)
{
    struct queue_ticket *t = r->ticket;
    r->ticket = NULL;
    t->request = NULL;
    if (provider_gate_cancel(r->target->provider->state, &t->waiter)) {
        free(t);
        return;
    }
    /* The slot was granted meanwhile; the ticket goes when its post arrives. */
    provider_gate_leave(r->target->provider->state);
}

/* On to another target, to which nothing was sent either: it is no attempt. */
static enum step try_elsewhere(struct request *r)
{
    request_end_attempt(r);
    r->attempts--;
    return STEP_pick;
}

/* From now on this request takes what is free and waits nowhere; give_up says what there is to say. */
static enum step timed_out(struct request *r)
{
    metric_add(metric_plain(M_QUEUE_TIMEOUTS), 1);
    r->queue_timed_out = true;
    return try_elsewhere(r);
}

static void wait_over(uv_timer_t *t)
{
    struct request *r = t->data;
    request_resume(r, timed_out(r));
}

static void poll_again(uv_timer_t *t)
{
    request_resume(t->data, STEP_queue);
}

/* Whether another target can be used now; waiting is for when there is none. */
static bool is_usable_elsewhere(const struct request *r)
{
    uint64_t now = net_now_ms(&r->worker->loop);
    for (unsigned i = 0; i < r->n_pools; i++) {
        const struct candidate_pool *c = &r->pools[i];
        for (unsigned k = 0; k < c->pool->n; k++)
            if (target_set_has(&c->allowed, k) &&
                target_state(c->pool->targets[k].state, &r->plan->reliability, now) == TARGET_USABLE)
                return true;
    }
    return false;
}

static enum step queue_full(struct request *r)
{
    const struct queue_settings *q = &r->plan->settings->queue;
    if (q->backpressure == BACKPRESSURE_BLOCK && !is_usable_elsewhere(r)) {
        uint64_t now = net_now_ms(&r->worker->loop);
        if (!r->queue_deadline_ms)
            r->queue_deadline_ms = now + q->block_timeout_ms;
        if (!r->queue_since_us)
            r->queue_since_us = net_now_us(&r->worker->loop);
        if (now >= r->queue_deadline_ms)
            return timed_out(r);
        request_timer(r, QUEUE_POLL_MS, poll_again);
        return STEP_PARKED;
    }
    metric_add(metric_plain(M_QUEUE_REJECTIONS), 1);
    r->queue_was_full = true;
    return try_elsewhere(r);
}

enum step step_queue(struct request *r)
{
    struct provider *p = r->target->provider->state;
    if (!r->plan->settings->queue.enabled)
        return STEP_exchange;
    if (provider_gate_enter(p, NULL, false) == GATE_GRANTED) {
        slot_taken(r);
        return STEP_exchange;
    }
    if (r->queue_timed_out)
        return try_elsewhere(r);
    struct queue_ticket *t = MEM_NEW(struct queue_ticket);
    t->request = r;
    t->loop = &r->worker->loop;
    t->waiter.granted = granted;
    switch (provider_gate_enter(p, &t->waiter, true)) {
    case GATE_GRANTED:
        free(t);
        slot_taken(r);
        return STEP_exchange;
    case GATE_FULL:
        free(t);
        return queue_full(r);
    case GATE_QUEUED:
        break;
    }
    r->ticket = t;
    if (!r->queue_since_us)
        r->queue_since_us = net_now_us(&r->worker->loop);
    /* A place in the queue is waited for as long as a reply's head would be. */
    uint64_t limit = (uint64_t)r->plan->settings->timeouts.request_secs * 1000;
    if (limit)
        request_timer(r, limit, wait_over);
    return STEP_PARKED;
}
