/* SPDX-License-Identifier: Apache-2.0
 *
 * How each route caches: its own table with the defaults filled in, and a digest of what it makes of a
 * request, so that entries of another upstream, model or parameter are not found after a reload.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "gateway/plan.h"
#include "gateway/plan_parts.h"
#include "gateway/reply_cache.h"

static bool names_it(const struct strings *list, struct span name)
{
    for (unsigned i = 0; i < list->n; i++)
        if (span_eq(span_str(list->item[i]), name))
            return true;
    return false;
}

bool plan_caller_wins(const struct plan_route *route, struct span name)
{
    if (!route->settings)
        return true;
    const struct param_policy_settings *p = &route->settings->param_policy;
    if (p->deny_mode)
        return names_it(&p->allow, name);
    return !names_it(&p->deny, name);
}

/* A member of `params` that goes up for every variant, whatever the caller says. */
static bool is_overridden(const struct plan_route *r, struct span name)
{
    if (plan_caller_wins(r, name))
        return false;
    for (unsigned v = 0; v < r->n_variants; v++) {
        bool there = false;
        for (unsigned i = 0; i < r->variants[v].params.n && !there; i++)
            there = span_eq(r->variants[v].params.item[i].name, name);
        if (!there)
            return false;
    }
    return true;
}

static void find_overridden(struct arena *a, struct plan_route *r)
{
    struct plan_cache *c = &r->cache;
    struct json_members params = r->n_variants ? r->variants[0].params : r->params;
    c->overridden = ARENA_ARRAY(a, struct span, params.n);
    for (unsigned i = 0; i < params.n; i++)
        if (is_overridden(r, params.item[i].name))
            c->overridden[c->n_overridden++] = params.item[i].name;
}

/* Members of `params` that a variant sets where the caller has said nothing. */
static void find_defaulted(struct arena *a, struct plan_route *r)
{
    struct plan_cache *c = &r->cache;
    unsigned n = r->params.n;
    for (unsigned v = 0; v < r->n_variants; v++)
        n += r->variants[v].params.n;
    c->defaulted = ARENA_ARRAY(a, struct span, n);
    for (unsigned v = 0; v <= r->n_variants; v++) {
        struct json_members params = v < r->n_variants ? r->variants[v].params : r->params;
        for (unsigned i = 0; i < params.n; i++)
            if (plan_caller_wins(r, params.item[i].name))
                c->defaulted[c->n_defaulted++] = params.item[i].name;
    }
}

static struct key_param *key_params(struct arena *a, const struct plan_route *r, struct json_members m)
{
    struct key_param *list = ARENA_ARRAY(a, struct key_param, m.n);
    for (unsigned i = 0; i < m.n; i++)
        list[i] = (struct key_param){m.item[i].name, m.item[i].value, plan_caller_wins(r, m.item[i].name)};
    return list;
}

static unsigned add_targets(struct arena *a, const struct plan_route *r, const struct plan_pool *pool,
                            const struct plan_variant *v, struct key_target *out)
{
    struct json_members m = v ? v->params : r->params;
    const struct key_param *params = key_params(a, r, m);
    for (unsigned i = 0; i < pool->n; i++) {
        const struct plan_target *t = &pool->targets[i];
        out[i] = (struct key_target){
            .variant = v ? span_str(v->name) : SPAN_NONE,
            .provider = t->provider->name,
            .api_base = span_str(t->provider->settings->api_base),
            .model = t->model ? t->model_span : SPAN_NONE,
            .params = params,
            .n_params = m.n,
        };
    }
    return pool->n;
}

static void digest_targets(struct plan *p, struct plan_route *r)
{
    unsigned n = r->pool.n;
    for (unsigned v = 0; v < r->n_variants; v++)
        n += r->variants[v].pool.n;
    struct arena scratch;
    arena_init(&scratch, NULL);
    struct key_target *targets = mem_array(n + 1, sizeof *targets);
    n = add_targets(&scratch, r, &r->pool, NULL, targets);
    for (unsigned v = 0; v < r->n_variants; v++)
        n += add_targets(&scratch, r, &r->variants[v].pool, &r->variants[v], targets + n);
    struct span extras[] = {p->injected, span_str(p->settings->compatibility.anthropic_version)};
    key_targets(targets, n, extras, ARRAY_LEN(extras), &r->cache.targets);
    free(targets);
    arena_reset(&scratch);
}

static void build(struct plan *p, struct plan_route *r)
{
    const struct cache_settings *all = &p->settings->cache;
    struct plan_cache *c = &r->cache;
    *c = (struct plan_cache){.coalesce = true, .ttl_ms = (uint64_t)all->default_ttl_secs * 1000};
    if (r->settings && r->settings->cache.present) {
        const struct route_cache_settings *s = &r->settings->cache;
        c->opted = s->enabled;
        c->coalesce = s->coalesce;
        c->store_truncated = s->store_truncated;
        c->per_route = s->scope == CACHE_SCOPE_ROUTE;
        if (s->ttl_secs)
            c->ttl_ms = (uint64_t)s->ttl_secs * 1000;
        c->revalidate_ms = (uint64_t)s->stale_while_revalidate_secs * 1000;
        c->if_error_ms = (uint64_t)s->stale_if_error_secs * 1000;
    }
    key_scope_of_route(span_str(r->model), &c->scope);
    c->purge_id = purge_name(span_str(r->model));
    find_overridden(&p->settings->arena, r);
    find_defaulted(&p->settings->arena, r);
    digest_targets(p, r);
    for (unsigned k = 0; k < CACHE_KINDS; k++)
        for (unsigned i = 0; i < CACHE_RESULTS; i++)
            if ((k == 0) == (i != CACHE_HIT))
                c->m_requests[k][i] = metric_series(M_CACHE_REQUESTS, r->model,
                                                    k ? cache_kind_name(k) : "none", cache_result_name(i));
}

void plan_build_cache(struct plan *p)
{
    if (!p->settings->cache.enabled)
        return;
    for (unsigned i = 0; i < p->n_routes; i++)
        build(p, &p->routes[i]);
    for (unsigned i = 0; i < p->n_providers; i++)
        build(p, &p->direct_routes[i]);
}
