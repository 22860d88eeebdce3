/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "gateway/plan_parts.h"
#include "json/write.h"

/* A bounded label (R42) for "provider/model" requests. */
#define DIRECT_MODEL "provider/*"

static struct span json_quoted(struct arena *a, const char *text)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    struct json_out o;
    json_out_init(&o, &b);
    json_out_str(&o, text);
    struct span s = arena_dup(a, buf_view(&b));
    buf_fini(&b);
    return s;
}

static struct plan_provider *provider_named(struct plan *p, const char *name)
{
    for (unsigned i = 0; i < p->n_providers; i++)
        if (strcmp(p->providers[i].settings->name, name) == 0)
            return &p->providers[i];
    UNREACHABLE(); /* the configuration reader checked references */
}

static struct span reply_fields(struct arena *a, const struct plan_target *t)
{
    struct span line = plan_field_line(a, "x-rolter-target", t->model_span);
    return span_str(arena_printf(a, "%.*s%.*s", SPAN_FMT(t->provider->reply_field), SPAN_FMT(line)));
}

static void build_prefix_metrics(struct plan_target *t, enum strategy_id strategy, const char *public_model)
{
    static const char *const kinds[] = {"prompt", "cached", "predicted"};
    unsigned n = strategy_predicts(strategy) ? 3 : 2;
    for (unsigned k = 0; k < n; k++)
        t->m_prefix_tokens[k] = metric_series(M_PREFIX_TOKENS, public_model ? public_model : DIRECT_MODEL,
                                              target_name(t->state), kinds[k]);
}

void plan_pool_init(struct plan *p, struct plan_pool *pool, enum strategy_id strategy,
                    const struct strategy_settings *settings, const struct target_settings *targets,
                    unsigned n, const char *public_model, const struct plan_pool *previous)
{
    pool->n = n;
    pool->targets = mem_array(n, sizeof *pool->targets);
    struct pool_target *members = mem_array(n, sizeof *members);
    for (unsigned i = 0; i < n; i++) {
        struct plan_target *t = &pool->targets[i];
        t->provider = provider_named(p, targets[i].provider);
        t->model = targets[i].model ? targets[i].model : public_model;
        t->model_json = t->model ? json_quoted(&p->settings->arena, t->model) : SPAN_NONE;
        t->model_span = span_str(t->model);
        t->reply_fields = reply_fields(&p->settings->arena, t);
        const struct provider_settings_file *ps = t->provider->settings;
        const char *model_label = t->model ? t->model : "*";
        t->state = fleet_target_get(p->fleet, ps->name, ps->api_base, model_label);
        t->m_ok = metric_series(M_TARGET_REQUESTS, ps->name, model_label, "ok");
        t->m_error = metric_series(M_TARGET_REQUESTS, ps->name, model_label, "error");
        members[i] = (struct pool_target){.target = t->state,
                                          .weight = targets[i].weight,
                                          .cache_tokens = ps->cache_tokens,
                                          .kv = t->provider->kv};
        build_prefix_metrics(t, strategy, public_model);
        if (strategy_reads_blocks(strategy)) {
            t->m_prediction_error = metric_series(M_PREDICTION_ERROR, ps->name, NULL, NULL);
            for (unsigned k = 0; k < MIRROR_RESET_COUNT; k++)
                t->m_resets[k] =
                    metric_series(M_MIRROR_RESETS, ps->name, mirror_reset_name((enum mirror_reset)k), NULL);
        }
        if (t->model)
            members[i].cost_known = plan_price(p, t->model, public_model, &members[i].cost);
    }
    pool->balancer = balancer_new(strategy, members, n, settings, previous ? previous->balancer : NULL);
    free(members);
    struct prefix_stats stats;
    for (unsigned i = 0; i < n && balancer_prefix_stats(pool->balancer, i, &stats); i++)
        pool->targets[i].m_evictions =
            metric_series(M_PREFIX_EVICTIONS, public_model, target_name(pool->targets[i].state), NULL);
}

void plan_pool_fini(struct plan *p, struct plan_pool *pool, uint64_t now_ms)
{
    balancer_unref(pool->balancer);
    for (unsigned i = 0; i < pool->n; i++)
        fleet_target_put(p->fleet, pool->targets[i].state, now_ms);
    free(pool->targets);
    *pool = (struct plan_pool){0};
}

/* The route's members, with those of the variant in the place of equal names (R25). */
static struct json_members merge_params(struct arena *a, struct json_members base, struct json_members over)
{
    struct json_members m = {.item = ARENA_ARRAY(a, struct json_member, base.n + over.n + 1)};
    for (unsigned i = 0; i < base.n; i++) {
        bool replaced = false;
        for (unsigned k = 0; k < over.n; k++)
            replaced |= span_eq(base.item[i].name, over.item[k].name);
        if (!replaced)
            m.item[m.n++] = base.item[i];
    }
    for (unsigned k = 0; k < over.n; k++)
        m.item[m.n++] = over.item[k];
    return m;
}

static void build_metrics(struct plan_route *r)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    static const char *const kinds[] = {"prompt", "completion", "cache_read", "cache_write"};
    for (unsigned i = 0; i < ARRAY_LEN(classes); i++)
        r->m_responses[i] = metric_series(M_RESPONSES, r->model, classes[i], NULL);
    for (unsigned i = 0; i < ARRAY_LEN(kinds); i++)
        r->m_tokens[i] = metric_series(M_TOKENS, r->model, kinds[i], NULL);
    for (unsigned i = 0; i < PICK_REASON_COUNT; i++)
        r->m_picks[i] = metric_series(M_PICKS, r->model, pick_reason_name((enum pick_reason)i), NULL);
    r->m_latency = metric_series(M_LATENCY, r->model, NULL, NULL);
    r->m_ttft = metric_series(M_TTFT, r->model, NULL, NULL);
}

/* Variant indexes in a smooth weighted order, one period long, so that a ticket picks the primary exactly by
 * weight over all workers. */
static void build_variant_order(struct plan_route *r)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < r->n_variants; i++)
        total += r->variants[i].weight;
    uint64_t scale = total > 65536 ? total / 65536 + 1 : 1;
    uint64_t n = 0;
    int64_t *current = mem_array(r->n_variants, sizeof *current);
    uint64_t *weight = mem_array(r->n_variants, sizeof *weight);
    for (unsigned i = 0; i < r->n_variants; i++) {
        weight[i] = r->variants[i].weight / scale;
        if (weight[i] == 0)
            weight[i] = 1;
        n += weight[i];
    }
    r->variant_order = mem_array((size_t)n, sizeof *r->variant_order);
    r->n_variant_order = (unsigned)n;
    for (uint64_t k = 0; k < n; k++) {
        unsigned best = 0;
        for (unsigned i = 0; i < r->n_variants; i++) {
            current[i] += (int64_t)weight[i];
            if (current[i] > current[best])
                best = i;
        }
        current[best] -= (int64_t)n;
        r->variant_order[k] = best;
    }
    free(current);
    free(weight);
}

static const struct plan_pool *previous_variant(const struct plan_route *previous, const char *name)
{
    for (unsigned i = 0; previous && i < previous->n_variants; i++)
        if (strcmp(previous->variants[i].name, name) == 0)
            return &previous->variants[i].pool;
    return NULL;
}

static void build_route(struct plan *p, struct plan_route *r, const struct route_settings *s,
                        const struct plan_route *previous)
{
    r->model = s->model;
    r->settings = s;
    r->params = s->params;
    if (previous) {
        r->state = previous->state;
        atomic_fetch_add(&r->state->refs, 1);
    } else {
        r->state = MEM_NEW(struct route_state);
        atomic_init(&r->state->refs, 1);
    }
    build_metrics(r);
    if (s->n_variants == 0) {
        plan_pool_init(p, &r->pool, s->strategy, &s->affinity, s->targets, s->n_targets, s->model,
                       previous ? &previous->pool : NULL);
        return;
    }
    r->n_variants = s->n_variants;
    r->variants = mem_array(s->n_variants, sizeof *r->variants);
    for (unsigned i = 0; i < s->n_variants; i++) {
        const struct variant_settings *vs = &s->variants[i];
        struct plan_variant *v = &r->variants[i];
        v->name = vs->name;
        v->weight = vs->weight ? vs->weight : 1;
        v->params = merge_params(&p->settings->arena, s->params, vs->params);
        v->m_requests = metric_series(M_VARIANT_REQUESTS, s->model, vs->name, NULL);
        plan_pool_init(p, &v->pool, s->strategy, &s->affinity, vs->targets, vs->n_targets, s->model,
                       previous_variant(previous, vs->name));
    }
    build_variant_order(r);
}

/* "provider/model" requests go through a route of their own with a single target. */
static void build_direct(struct plan *p, struct plan_route *r, struct plan_provider *pp)
{
    r->model = DIRECT_MODEL;
    r->state = MEM_NEW(struct route_state);
    atomic_init(&r->state->refs, 1);
    build_metrics(r);
    struct target_settings t = {.provider = pp->settings->name, .weight = 1};
    plan_pool_init(p, &r->pool, STRATEGY_ROUND_ROBIN, NULL, &t, 1, NULL, NULL);
    pp->direct = &r->pool;
}

void plan_build_routes(struct plan *p, struct plan *previous)
{
    const struct settings *s = p->settings;
    p->n_routes = s->n_routes;
    p->routes = mem_array(p->n_routes, sizeof *p->routes);
    map_init(&p->route_by_model);
    for (unsigned i = 0; i < p->n_routes; i++) {
        struct span name = span_str(s->routes[i].model);
        build_route(p, &p->routes[i], &s->routes[i],
                    previous ? map_get(&previous->route_by_model, name) : NULL);
        map_put(&p->route_by_model, name, &p->routes[i]);
    }
    p->direct_routes = mem_array(p->n_providers, sizeof *p->direct_routes);
    for (unsigned i = 0; i < p->n_providers; i++)
        build_direct(p, &p->direct_routes[i], &p->providers[i]);
}

static void free_route(struct plan *p, struct plan_route *r, uint64_t now_ms)
{
    if (r->pool.balancer)
        plan_pool_fini(p, &r->pool, now_ms);
    for (unsigned i = 0; i < r->n_variants; i++)
        plan_pool_fini(p, &r->variants[i].pool, now_ms);
    free(r->variants);
    free(r->variant_order);
    if (atomic_fetch_sub(&r->state->refs, 1) == 1)
        free(r->state);
}

void plan_free_routes(struct plan *p, uint64_t now_ms)
{
    for (unsigned i = 0; i < p->n_routes; i++)
        free_route(p, &p->routes[i], now_ms);
    for (unsigned i = 0; i < p->n_providers; i++)
        free_route(p, &p->direct_routes[i], now_ms);
    free(p->routes);
    free(p->direct_routes);
    map_fini(&p->route_by_model);
}

struct plan_route *plan_find_route(const struct plan *p, struct span model, struct span *ret_upstream_model)
{
    struct plan_route *r = map_get(&p->route_by_model, model);
    if (r)
        return r;
    const char *slash = model.n ? memchr(model.p, '/', model.n) : NULL;
    if (!slash)
        return NULL;
    struct plan_provider *pp = map_get(&p->provider_by_slug, span_of(model.p, (size_t)(slash - model.p)));
    size_t behind = model.n - (size_t)(slash - model.p) - 1;
    if (!pp || behind == 0)
        return NULL;
    *ret_upstream_model = span_of(slash + 1, behind);
    return &p->direct_routes[pp->index];
}
