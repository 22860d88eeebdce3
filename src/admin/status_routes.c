/* SPDX-License-Identifier: Apache-2.0
 *
 * Routes on the status page: targets, why they were picked, times, tokens, what the caches did.
 */
#include "admin/status_parts.h"
#include "gateway/semantic.h"

static void histogram(struct json_out *o, const char *name, const char *sum_name, metric_series_t s)
{
    uint64_t n;
    double sum;
    metric_totals(s, &n, &sum);
    json_out_name(o, name);
    json_out_object(o);
    json_out_member_u64(o, "count", n);
    json_out_member_double(o, sum_name, sum);
    json_out_object_end(o);
}

/* What is remembered of prompts that went there. */
static void memory_of_prompts(struct json_out *o, const struct balancer *b, unsigned i)
{
    struct mirror_stats m;
    struct prefix_stats x;
    if (balancer_mirror_stats(b, i, &m)) {
        json_out_name(o, "mirror");
        json_out_object(o);
        json_out_member_u64(o, "blocks", m.blocks);
        json_out_member_u64(o, "size", m.size);
        json_out_member_u64(o, "evictions", m.evictions);
        json_out_object_end(o);
    }
    if (balancer_prefix_stats(b, i, &x)) {
        json_out_name(o, "prefix_index");
        json_out_object(o);
        json_out_member_u64(o, "prompts", x.prompts);
        json_out_member_u64(o, "bytes", x.bytes);
        json_out_member_u64(o, "evictions", x.evictions);
        json_out_object_end(o);
    }
}

static void prefix_tokens(struct json_out *o, const struct plan_target *t)
{
    static const char *const kinds[] = {"prompt", "cached", "predicted"};
    json_out_name(o, "prefix_tokens");
    json_out_object(o);
    for (unsigned i = 0; i < ARRAY_LEN(kinds); i++)
        if (t->m_prefix_tokens[i])
            json_out_member_u64(o, kinds[i], metric_value(t->m_prefix_tokens[i]));
    json_out_object_end(o);
    if (t->m_prediction_error)
        histogram(o, "prediction_error", "sum", t->m_prediction_error);
}

static void pool(struct json_out *o, const struct plan *p, const struct plan_pool *pool, uint64_t now_ms)
{
    json_out_name(o, "targets");
    json_out_array(o);
    for (unsigned i = 0; i < pool->n; i++) {
        const struct plan_target *t = &pool->targets[i];
        json_out_object(o);
        json_out_member_str(o, "provider", t->provider->settings->name);
        json_out_member_str(o, "model", t->model);
        json_out_member_str(o, "state", target_state_name(target_state(t->state, &p->reliability, now_ms)));
        json_out_member_u64(o, "in_flight", target_in_flight(t->state));
        json_out_member_u64(o, "served", target_served(t->state));
        json_out_member_double(o, "latency_ms", target_latency_ms(t->state));
        prefix_tokens(o, t);
        memory_of_prompts(o, pool->balancer, i);
        json_out_object_end(o);
    }
    json_out_array_end(o);
}

static void counted(struct json_out *o, const struct plan_route *r)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    static const char *const kinds[] = {"prompt", "completion", "cache_read", "cache_write"};
    json_out_name(o, "responses");
    json_out_object(o);
    for (unsigned i = 0; i < ARRAY_LEN(classes); i++) {
        uint64_t n = metric_value(r->m_responses[i]);
        if (n)
            json_out_member_u64(o, classes[i], n);
    }
    json_out_object_end(o);
    json_out_name(o, "picks");
    json_out_object(o);
    for (unsigned i = 0; i < PICK_REASON_COUNT; i++) {
        uint64_t n = metric_value(r->m_picks[i]);
        if (n)
            json_out_member_u64(o, pick_reason_name((enum pick_reason)i), n);
    }
    json_out_object_end(o);
    json_out_name(o, "tokens");
    json_out_object(o);
    for (unsigned i = 0; i < ARRAY_LEN(kinds); i++)
        json_out_member_u64(o, kinds[i], metric_value(r->m_tokens[i]));
    json_out_object_end(o);
    histogram(o, "latency", "sum_ms", r->m_latency);
    histogram(o, "ttft", "sum_ms", r->m_ttft);
}

static void cache(struct json_out *o, const struct plan_cache *c)
{
    uint64_t sum[CACHE_RESULTS] = {0};
    for (unsigned k = 0; k < CACHE_KINDS; k++)
        for (unsigned i = 0; i < ARRAY_LEN(sum); i++)
            sum[i] += metric_value(c->m_requests[k][i]);
    if (!c->opted && sum[CACHE_MISS] + sum[CACHE_HIT] + sum[CACHE_BYPASS] == 0)
        return;
    json_out_name(o, "cache");
    json_out_object(o);
    json_out_member_u64(o, "ttl_secs", c->ttl_ms / 1000);
    json_out_member_str(o, "scope", c->per_route ? "route" : "key");
    json_out_member_u64(o, "misses", sum[CACHE_MISS]);
    json_out_member_u64(o, "bypassed", sum[CACHE_BYPASS]);
    json_out_name(o, "hits");
    json_out_object(o);
    for (unsigned k = 1; k < CACHE_KINDS; k++)
        json_out_member_u64(o, cache_kind_name(k), metric_value(c->m_requests[k][CACHE_HIT]));
    json_out_object_end(o);
    json_out_object_end(o);
}

/* Shadow mode: of each band of similarity, how often the stored reply said what the fresh one says. */
static void bands(struct json_out *o, const struct plan_semantic *m)
{
    json_out_name(o, "shadow");
    json_out_array(o);
    for (unsigned b = 0; b < SEMANTIC_BANDS; b++) {
        uint64_t agrees = metric_value(m->m_shadow[b][SEMANTIC_AGREES]);
        uint64_t differs = metric_value(m->m_shadow[b][SEMANTIC_DIFFERS]);
        uint64_t unknown = metric_value(m->m_shadow[b][SEMANTIC_UNKNOWN]);
        if (agrees + differs + unknown == 0)
            continue;
        json_out_object(o);
        json_out_member_str(o, "band", semantic_band_name(b));
        json_out_member_u64(o, "agrees", agrees);
        json_out_member_u64(o, "differs", differs);
        json_out_member_u64(o, "unknown", unknown);
        if (agrees + differs > 0)
            json_out_member_double(o, "precision", (double)agrees / (double)(agrees + differs));
        json_out_object_end(o);
    }
    json_out_array_end(o);
}

static void semantic(struct json_out *o, const struct plan_semantic *m)
{
    json_out_name(o, "semantic");
    json_out_object(o);
    json_out_member_str(o, "provider", m->settings->provider);
    json_out_member_str(o, "model", m->settings->model);
    json_out_member_double(o, "threshold", m->settings->threshold);
    json_out_member_double(o, "shadow_ratio", m->settings->shadow_ratio);
    json_out_member_str(o, "guard", m->settings->guard == SEMANTIC_GUARD_LEXICAL ? "lexical" : "none");
    json_out_member_str(o, "lookup", m->settings->lookup == SEMANTIC_RACE ? "race" : "wait");
    bands(o, m);
    json_out_object_end(o);
}

static void variants(struct json_out *o, const struct plan *p, const struct plan_route *r, uint64_t now_ms)
{
    json_out_name(o, "variants");
    json_out_array(o);
    for (unsigned v = 0; v < r->n_variants; v++) {
        json_out_object(o);
        json_out_member_str(o, "name", r->variants[v].name);
        json_out_member_u64(o, "weight", r->variants[v].weight);
        json_out_member_u64(o, "requests", metric_value(r->variants[v].m_requests));
        pool(o, p, &r->variants[v].pool, now_ms);
        json_out_object_end(o);
    }
    json_out_array_end(o);
}

void status_routes(struct json_out *o, const struct plan *p, uint64_t now_ms)
{
    json_out_name(o, "routes");
    json_out_array(o);
    for (unsigned i = 0; i < p->n_routes; i++) {
        const struct plan_route *r = &p->routes[i];
        json_out_object(o);
        json_out_member_str(o, "model", r->model);
        json_out_member_str(o, "strategy", strategy_name(r->settings->strategy));
        counted(o, r);
        cache(o, &r->cache);
        if (r->cache.semantic)
            semantic(o, r->cache.semantic);
        if (r->n_variants == 0)
            pool(o, p, &r->pool, now_ms);
        else
            variants(o, p, r, now_ms);
        json_out_object_end(o);
    }
    json_out_array_end(o);
    if (p->n_providers == 0)
        return;
    const struct plan_route *direct = &p->direct_routes[0]; /* all of them count together */
    json_out_name(o, "direct");
    json_out_object(o);
    json_out_member_str(o, "model", direct->model);
    counted(o, direct);
    json_out_object_end(o);
}
