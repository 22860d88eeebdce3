/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/plan.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "gateway/plan_parts.h"
#include "json/json.h"
#include "policy/policy.h"

static void build_egress(struct plan *p)
{
    const struct egress_settings *e = &p->settings->egress;
    p->egress = (struct net_egress){
        .block_link_local = e->block_link_local,
        .block_loopback = e->block_loopback,
        .block_private = e->block_private,
        .allow_hosts = e->allow_hosts.item,
        .n_allow_hosts = e->allow_hosts.n,
    };
}

static void put_lower(struct map *names, struct arena *a, struct span name)
{
    static char present = 1;
    name = arena_dup(a, name);
    for (size_t k = 0; k < name.n; k++)
        if (name.p[k] >= 'A' && name.p[k] <= 'Z')
            ((char *)name.p)[k] |= 0x20;
    map_put(names, name, &present);
}

static void build_client(struct plan *p)
{
    const struct client_settings *c = &p->settings->client;
    struct arena *a = &p->settings->arena;
    map_init(&p->forwarded);
    map_init(&p->injected_names);
    for (unsigned i = 0; i < c->forwarded_headers.n; i++)
        put_lower(&p->forwarded, a, span_str(c->forwarded_headers.item[i]));
    if (c->request_id_header && strcasecmp(c->request_id_header, "x-request-id") != 0)
        p->id_header = span_str(c->request_id_header);
    struct buf lines;
    buf_init(&lines, 65536);
    for (unsigned i = 0; i < c->injected_headers.n; i++) {
        const struct json_member *m = &c->injected_headers.item[i];
        /* The value is a JSON string; the schema has refused what may not stand in a field. */
        struct json_doc doc;
        struct json_fault fault;
        CHECK(json_parse(a, m->value, NULL, &doc, &fault) && json_is(&doc, 0, JSON_STRING));
        struct span v = json_string(&doc, 0, a);
        put_lower(&p->injected_names, a, m->name);
        buf_printf(&lines, "%.*s: %.*s\r\n", SPAN_FMT(m->name), SPAN_FMT(v));
    }
    p->injected = arena_dup(a, buf_view(&lines));
    buf_fini(&lines);
}

static void build_tokenize_metrics(struct plan *p)
{
    static const char *const outcomes[TOKENIZE_OUTCOME_COUNT] = {
        [TOKENIZE_CACHED] = "cached",           [TOKENIZE_BEGINNING] = "beginning",
        [TOKENIZE_ENGINE] = "engine",           [TOKENIZE_TIMEOUT] = "timeout",
        [TOKENIZE_FAILED] = "failed",           [TOKENIZE_UNAVAILABLE] = "unavailable",
        [TOKENIZE_UNSUPPORTED] = "unsupported",
    };
    for (unsigned i = 0; i < TOKENIZE_OUTCOME_COUNT; i++)
        p->m_tokenize[i] = metric_series(M_TOKENIZE, outcomes[i], NULL, NULL);
}

static void build_prices(struct plan *p)
{
    map_init(&p->price_by_model);
    for (unsigned i = 0; i < p->settings->n_model_prices; i++) {
        struct model_price_settings *m = &p->settings->model_prices[i];
        map_put(&p->price_by_model, span_str(m->model), m);
    }
}

static void build_policy(struct plan *p)
{
    const struct settings *s = p->settings;
    struct policy_route_rules *routes = mem_array(s->n_routes + 1, sizeof *routes);
    for (unsigned i = 0; i < s->n_routes; i++)
        routes[i] = (struct policy_route_rules){s->routes[i].model, &s->routes[i].rules};
    p->policy = policy_new(&s->policy, routes, s->n_routes, &s->ca_bundles, &p->egress);
    free(routes);
}

struct plan *plan_build(struct settings *settings, struct fleet *fleet, struct plan *previous,
                        uint64_t now_ms)
{
    struct plan *p = MEM_NEW(struct plan);
    atomic_init(&p->refs, 1);
    p->version = previous ? previous->version + 1 : 1;
    p->settings = settings;
    p->fleet = fleet;
    p->reliability = (struct reliability){
        .cooldown_base_ms = secs_to_ms(settings->cooldown.base_secs),
        .cooldown_max_ms = secs_to_ms(settings->cooldown.max_secs),
        .breaker_enabled = settings->breaker.enabled,
        .breaker_failures = settings->breaker.failure_threshold,
        .breaker_open_ms = secs_to_ms(settings->breaker.open_secs),
    };
    build_egress(p);
    build_client(p);
    build_prices(p);
    build_tokenize_metrics(p);
    plan_build_providers(p);
    plan_build_routes(p, previous);
    plan_build_cache(p);
    if (p->settings->cache.enabled)
        plan_build_semantic(p);
    plan_build_keys(p);
    build_policy(p);
    plan_build_limits(p, previous);
    fleet_sweep(fleet, now_ms);
    return p;
}

struct plan *plan_ref(struct plan *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void plan_unref(struct plan *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    uint64_t now_ms = clock_mono_ms();
    policy_free(p->policy);
    plan_free_semantic(p);
    plan_free_limits(p);
    plan_free_keys(p);
    plan_free_routes(p, now_ms);
    plan_free_providers(p, now_ms);
    map_fini(&p->forwarded);
    map_fini(&p->injected_names);
    map_fini(&p->price_by_model);
    settings_free(p->settings);
    free(p);
}

static double rate_of(const struct plan *p, const char *currency)
{
    const struct currency_settings *c = &p->settings->currency;
    if (!currency || strcmp(currency, c->base) == 0)
        return 1;
    for (unsigned i = 0; i < c->rates.n; i++)
        if (span_eq(c->rates.item[i].name, span_str(currency))) {
            char text[64];
            struct span v = c->rates.item[i].value;
            size_t n = v.n < sizeof text - 1 ? v.n : sizeof text - 1;
            memcpy(text, v.p, n);
            text[n] = 0;
            double r = strtod(text, NULL);
            return r > 0 ? r : 1;
        }
    return 1;
}

static const struct model_price_settings *prices_of(const struct plan *p, const char *upstream_model,
                                                    const char *public_model)
{
    const struct model_price_settings *m = map_get(&p->price_by_model, span_str(upstream_model));
    return m ? m : map_get(&p->price_by_model, span_str(public_model));
}

bool plan_price(const struct plan *p, const char *upstream_model, const char *public_model, double *ret)
{
    const struct model_price_settings *m = prices_of(p, upstream_model, public_model);
    if (!m)
        return false;
    *ret = (m->input_per_mtok + m->output_per_mtok) / rate_of(p, m->currency);
    return true;
}

bool plan_cost(const struct plan *p, const char *upstream_model, const char *public_model, uint64_t prompt,
               uint64_t cached, uint64_t completion, double *ret)
{
    const struct model_price_settings *m = prices_of(p, upstream_model, public_model);
    if (!m)
        return false;
    double cached_price = m->cached_input_per_mtok >= 0 ? m->cached_input_per_mtok : m->input_per_mtok;
    if (cached > prompt)
        cached = prompt;
    double cost = ((double)(prompt - cached) * m->input_per_mtok + (double)cached * cached_price +
                   (double)completion * m->output_per_mtok) /
                  1e6;
    *ret = cost / rate_of(p, m->currency);
    return true;
}
