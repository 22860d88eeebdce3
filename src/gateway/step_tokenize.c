/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenize: the prompt's token ids from an engine, for strategies that compare them with what engines say
 * (P6). Once per request, before its first pick, and only when the client sent none. Ids that are known are
 * taken at once; those of the conversation's last turn will do while the engine is asked in the background;
 * else the request waits for the engine until the deadline. Without ids the pick is neutral.
 */
#include "gateway/request.h"
#include "gateway/token_ids.h"
#include "gateway/token_question.h"

enum { QUESTION_BYTES_MAX = 16 << 20 };

static void count(const struct request *r, enum tokenize_outcome o)
{
    metric_add(r->plan->m_tokenize[o], 1);
}

/* The least loaded of the targets that can be used now and whose tokenizer is not resting; equal ones by
 * chance. */
static struct plan_target *whom(struct request *r)
{
    struct plan_target *best = NULL;
    unsigned least = 0, equals = 0;
    for (unsigned i = 0; i < r->n_pools && !best; i++) {
        struct candidate_pool *c = &r->pools[i];
        struct pick_context ctx = {
            .allowed = c->allowed, .eligible = c->eligible, .now_ms = net_now_ms(&r->worker->loop)};
        if (!balance_fill_eligible(c->pool->balancer, &r->plan->reliability, &ctx))
            continue;
        for (unsigned k = 0; k < c->pool->n; k++) {
            struct plan_target *t = &c->pool->targets[k];
            if (!target_set_has(&ctx.eligible, k) || !tokenizer_is_fit(r->worker->tokenizer, t->provider))
                continue;
            unsigned load = provider_load(t->provider->state, ctx.now_ms);
            if (!best || load < least) {
                best = t;
                least = load;
                equals = 1;
            } else if (load == least && rng_below(&r->worker->loop.rng, ++equals) == 0) {
                best = t;
            }
        }
    }
    return best;
}

/* False: nobody can be asked. */
static bool ask(struct request *r, const struct token_question *q, struct tokenize_wait *w)
{
    struct tokenizer *t = r->worker->tokenizer;
    if (tokenizer_join(t, q->key, w))
        return true;
    struct plan_target *target = whom(r);
    if (!target)
        return false;
    struct buf body;
    buf_init(&body, QUESTION_BYTES_MAX);
    token_question_write(q, target->model_json, r->body_arena, &body);
    bool ok = !body.full && tokenizer_ask(t, r->plan, target->provider, q->key, buf_view(&body), w);
    buf_fini(&body);
    return ok;
}

/* The ids of the longest beginning that is known, into r->tokens. How many bytes of the messages that are; 0:
 * none is known. */
static size_t take_beginning(struct request *r, const struct token_question *q)
{
    for (unsigned i = 0; i < q->n_beginnings; i++)
        if (token_cache_get(r->worker->token_cache, q->beginning[i].key, r->arena, &r->tokens))
            return q->beginning[i].bytes;
    return 0;
}

/* The wait is over, with the ids, or without: then the beginning that is known has to do, if any. */
static enum step go_on(struct request *r, const struct token_ids *ids, enum tokenize_outcome o,
                       const char *why)
{
    request_timer_stop(r);
    metric_observe(metric_plain(M_TOKENIZE_WAIT),
                   (double)(net_now_us(&r->worker->loop) - r->tokenize_since_us) / 1000);
    count(r, o);
    if (ids) {
        uint32_t *id = arena_alloc(r->arena, ids->n * sizeof *id);
        memcpy(id, ids->id, ids->n * sizeof *id);
        r->tokens = (struct token_ids){.id = id, .n = ids->n};
    } else if (r->tokens.n == 0) {
        r->tokens = (struct token_ids){.why = why};
    }
    return STEP_pick;
}

static void answered(struct tokenize_wait *w, const struct token_ids *ids)
{
    struct request *r = CONTAINER_OF(w, struct request, tokenize);
    request_resume(r, go_on(r, ids, ids ? TOKENIZE_ENGINE : TOKENIZE_FAILED, TOKEN_IDS_FAILED));
}

static void too_late(uv_timer_t *timer)
{
    struct request *r = timer->data;
    tokenizer_was_late(r->worker->tokenizer, tokenizer_asked(&r->tokenize));
    tokenizer_leave(&r->tokenize);
    request_resume(r, go_on(r, NULL, TOKENIZE_TIMEOUT, TOKEN_IDS_LATE));
}

static enum step without(struct request *r, enum tokenize_outcome o, const char *why)
{
    count(r, o);
    if (r->tokens.n == 0)
        r->tokens = (struct token_ids){.why = why};
    return STEP_pick;
}

/* With one target there is nothing to choose. */
static bool has_choice(const struct request *r)
{
    unsigned n = 0;
    for (unsigned i = 0; i < r->n_pools; i++)
        for (unsigned k = 0; k < r->pools[i].pool->n && n < 2; k++)
            n += target_set_has(&r->pools[i].allowed, k);
    return n > 1;
}

enum step step_tokenize(struct request *r)
{
    struct token_question q;
    const struct route_settings *s = r->route->settings;
    uint64_t seed = hash_bytes_seed(s->model, strlen(s->model), token_cache_seed(r->worker->token_cache));
    r->wants_ids = false;
    if (!has_choice(r))
        return STEP_pick;
    if (!token_question_read(r->dialect_id, &r->doc, &s->params, seed, r->arena, &q))
        return without(r, TOKENIZE_UNSUPPORTED, TOKEN_IDS_UNSUPPORTED);
    if (q.given.n) {
        r->tokens = q.given;
        return STEP_pick;
    }
    if (token_cache_get(r->worker->token_cache, q.key, r->arena, &r->tokens)) {
        count(r, TOKENIZE_CACHED);
        return STEP_pick;
    }
    if (take_beginning(r, &q) * 2 >= q.bytes && q.bytes > 0) {
        count(r, TOKENIZE_BEGINNING);
        ask(r, &q, NULL);
        return STEP_pick;
    }
    r->tokenize.done = answered;
    r->tokenize_since_us = net_now_us(&r->worker->loop);
    if (!ask(r, &q, &r->tokenize))
        return without(r, TOKENIZE_UNAVAILABLE, TOKEN_IDS_UNAVAILABLE);
    request_timer(r, s->tokenize_timeout_ms, too_late);
    return STEP_PARKED;
}
