/* SPDX-License-Identifier: Apache-2.0
 *
 * route: from the model's name to the targets that may serve this request, and the conversation for the
 * strategies that read it.
 */
#include "gateway/prompt_blocks.h"
#include "gateway/request.h"
#include "gateway/token_ids.h"

/* Chat requests and the like are not translated for a provider that speaks Anthropic's dialect only (R31). */
static bool speaks(const struct plan_provider *p, enum dialect_id d)
{
    return p->settings->kind != KIND_ANTHROPIC || d == DIALECT_MESSAGES;
}

struct tally {
    unsigned spoken, usable;
};

static void add_pool(struct request *r, struct plan_pool *pool, struct plan_variant *v, struct tally *t)
{
    struct candidate_pool *c = &r->pools[r->n_pools++];
    c->pool = pool;
    c->variant = v;
    size_t words = pool->n > 64 ? (pool->n + 63) / 64 : 0;
    target_set_init(&c->allowed, pool->n, words ? ARENA_ARRAY(r->arena, uint64_t, words) : NULL);
    target_set_init(&c->eligible, pool->n, words ? ARENA_ARRAY(r->arena, uint64_t, words) : NULL);
    for (unsigned i = 0; i < pool->n; i++) {
        const struct plan_provider *p = pool->targets[i].provider;
        bool spoken = speaks(p, r->dialect_id), permitted = plan_key_allows_provider(r->key, p);
        t->spoken += spoken;
        if (spoken && permitted) {
            t->usable++;
            target_set_add(&c->allowed, i);
        }
    }
}

/* The primary variant by ticket, exactly by weight over all workers; then the others in declared order. */
static void add_variants(struct request *r, struct tally *t)
{
    struct plan_route *route = r->route;
    uint64_t ticket = atomic_fetch_add_explicit(&route->state->variant_ticket, 1, memory_order_relaxed);
    unsigned primary = route->variant_order[ticket % route->n_variant_order];
    add_pool(r, &route->variants[primary].pool, &route->variants[primary], t);
    for (unsigned i = 0; i < route->n_variants; i++)
        if (i != primary)
            add_pool(r, &route->variants[i].pool, &route->variants[i], t);
}

enum step step_route(struct request *r)
{
    r->route = plan_find_route(r->plan, r->model, &r->direct_model);
    if (!plan_key_allows_model(r->key, r->model))
        return request_refuse(r, 403, "model_not_allowed", "model",
                              "This key may not use the model \"%.*s\".",
                              SPAN_FMT(span_of(r->model.p, r->model.n > 200 ? 200 : r->model.n)));
    if (!r->route)
        return request_refuse(r, 404, "model_not_found", "model", "The model \"%.*s\" does not exist.",
                              SPAN_FMT(span_of(r->model.p, r->model.n > 200 ? 200 : r->model.n)));
    unsigned n = r->route->n_variants ? r->route->n_variants : 1;
    r->pools = ARENA_ARRAY(r->arena, struct candidate_pool, n);
    struct tally t = {0};
    if (r->route->n_variants)
        add_variants(r, &t);
    else
        add_pool(r, &r->route->pool, NULL, &t);
    if (t.spoken == 0)
        return request_refuse(
            r, 400, "dialect_not_supported", "model",
            "The providers of this model speak Anthropic's messages API only; use /v1/messages.");
    if (t.usable == 0)
        return request_refuse(r, 403, "provider_not_allowed", "model",
                              "This key may not use the providers of this model.");
    return STEP_limits;
}

enum step step_context(struct request *r)
{
    if (!r->route->settings)
        return STEP_pick;
    enum strategy_id strategy = r->route->settings->strategy;
    if (strategy_reads_prompt(strategy)) {
        struct prompt_options o = {.include_tools = r->route->settings->affinity.include_tools};
        dialect_prompt_with(r->dialect_id, &r->doc, &o, r->arena, &r->prompt);
        r->prompt_read = true;
    }
    if (strategy_reads_blocks(strategy)) {
        prompt_blocks_read(r->dialect_id, &r->doc, r->body_arena, &r->blocks, &r->prompt);
        r->prompt_read = true;
    }
    if (strategy_reads_tokens(strategy)) {
        token_ids_from_head(r->head, r->arena, &r->tokens);
        r->wants_ids = r->tokens.n == 0 && r->route->settings->tokenize_by_engine;
        r->cache_salt = json_string(&r->doc, json_get(&r->doc, 0, "cache_salt"), r->body_arena);
    }
    return STEP_pick;
}
