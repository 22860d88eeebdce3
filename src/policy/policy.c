/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy.h"

#include <stdlib.h>

#include "base/mem.h"
#include "policy/run.h"

static void build_route(const struct policy *p, struct policy_route *ret, const struct route_rule_settings *r)
{
    const struct guardrails *g = p->guardrails;
    for (unsigned i = 0; g && i < 2; i++) {
        ret->mask[i] = guard_mask_new(&g->stage[i], r);
        ret->any[i] = guard_mask_any(&g->stage[i], ret->mask[i], false);
    }
    ret->acts = g && guard_mask_any(&g->stage[RULE_POST_CALL], ret->mask[RULE_POST_CALL], true);
}

static void build_webhook(struct policy *p, const struct webhook_settings *s, const struct strings *roots,
                          const struct net_egress *egress)
{
    if (!s->enabled)
        return;
    service_init(&p->webhook, s->url, &s->auth, roots, egress);
    p->webhook.timeout_ms = s->timeout_ms;
    p->webhook.max_retries = s->max_retries;
    p->webhook.max_body_bytes = s->max_body_bytes;
    p->webhook.failure_mode = s->failure_mode;
    p->has_webhook[s->stage] = true;
}

static void add_plugin(struct plugin_chain *chain, const struct plugin_settings *s,
                       const struct strings *roots, const struct net_egress *egress)
{
    struct policy_plugin *p = &chain->plugin[chain->n++];
    p->settings = s;
    service_init(&p->service, s->endpoint, &s->auth, roots, egress);
    p->service.timeout_ms = s->timeout_ms;
    p->service.max_body_bytes = s->max_body_bytes;
    p->service.failure_mode = s->failure_mode;
    p->m_blocks = metric_series(M_PLUGIN_BLOCKS, s->slug, NULL, NULL);
    p->m_transforms = metric_series(M_PLUGIN_TRANSFORMS, s->slug, NULL, NULL);
    p->m_errors = metric_series(M_PLUGIN_ERRORS, s->slug, NULL, NULL);
    chain->fail_closed |= s->failure_mode == FAILURE_CLOSED;
}

/* Equal positions keep the order of the file. */
static void sort_chain(struct plugin_chain *chain)
{
    for (unsigned i = 1; i < chain->n; i++)
        for (unsigned k = i; k > 0; k--) {
            struct policy_plugin *a = &chain->plugin[k - 1], *b = &chain->plugin[k];
            if (a->settings->position <= b->settings->position)
                break;
            struct policy_plugin swap = *a;
            *a = *b;
            *b = swap;
        }
}

static void build_plugins(struct policy *p, const struct plugins_settings *s, const struct strings *roots,
                          const struct net_egress *egress)
{
    for (unsigned i = 0; i < PLUGIN_STAGE_COUNT; i++)
        p->chain[i].plugin = mem_array(s->n_instances ? s->n_instances : 1, sizeof *p->chain[i].plugin);
    for (unsigned i = 0; i < s->n_instances; i++)
        if (!s->instances[i].org_id && !s->instances[i].project_id)
            add_plugin(&p->chain[s->instances[i].stage], &s->instances[i], roots, egress);
    for (unsigned i = 0; i < PLUGIN_STAGE_COUNT; i++)
        sort_chain(&p->chain[i]);
}

static void build_pii(struct policy *p, const struct pii_settings *s, const struct strings *roots,
                      const struct net_egress *egress)
{
    if (!s->enabled)
        return;
    p->has_pii = true;
    service_init(&p->sanitize, s->url, &s->auth, roots, egress);
    if (s->restoration != PII_NEVER)
        service_init(&p->restore, s->restore_url, &s->auth, roots, egress);
    struct service *both[] = {&p->sanitize, &p->restore};
    for (unsigned i = 0; i < ARRAY_LEN(both); i++) {
        both[i]->timeout_ms = s->timeout_ms;
        both[i]->max_retries = s->max_retries;
        both[i]->max_body_bytes = s->max_body_bytes;
        both[i]->failure_mode = s->failure_mode;
    }
}

static bool is_idle(const struct policy *p)
{
    bool any = p->guardrails || p->has_webhook[0] || p->has_webhook[1] || p->has_pii;
    for (unsigned i = 0; i < PLUGIN_STAGE_COUNT; i++)
        any |= p->chain[i].n > 0;
    return !any;
}

struct policy *policy_new(const struct policy_settings *s, const struct policy_route_rules *routes,
                          unsigned n_routes, const struct strings *ca_bundles,
                          const struct net_egress *egress)
{
    struct policy *p = MEM_NEW(struct policy);
    p->settings = s;
    map_init(&p->routes);
    p->guardrails = guardrails_new(&s->guardrails);
    build_webhook(p, &s->webhook, ca_bundles, egress);
    build_plugins(p, &s->plugins, ca_bundles, egress);
    build_pii(p, &s->pii, ca_bundles, egress);
    if (is_idle(p)) {
        policy_free(p);
        return NULL;
    }
    build_route(p, &p->no_route, NULL);
    p->route = mem_array(n_routes ? n_routes : 1, sizeof *p->route);
    p->n_routes = n_routes;
    for (unsigned i = 0; i < n_routes; i++) {
        build_route(p, &p->route[i], routes[i].rules);
        map_put(&p->routes, span_str(routes[i].model), &p->route[i]);
    }
    p->m_open_webhook = metric_series(M_FAIL_OPEN, "guardrail_webhook", NULL, NULL);
    p->m_open_plugin = metric_series(M_FAIL_OPEN, "plugin", NULL, NULL);
    p->m_open_pii = metric_series(M_FAIL_OPEN, "pii_sanitizer", NULL, NULL);
    p->m_open_budget = metric_series(M_FAIL_OPEN, "scan_budget", NULL, NULL);
    return p;
}

static void free_route(struct policy_route *r)
{
    free(r->mask[0]);
    free(r->mask[1]);
}

void policy_free(struct policy *p)
{
    if (!p)
        return;
    for (unsigned i = 0; i < p->n_routes; i++)
        free_route(&p->route[i]);
    free(p->route);
    free_route(&p->no_route);
    map_fini(&p->routes);
    for (unsigned i = 0; i < PLUGIN_STAGE_COUNT; i++) {
        for (unsigned k = 0; k < p->chain[i].n; k++)
            service_fini(&p->chain[i].plugin[k].service);
        free(p->chain[i].plugin);
    }
    if (p->has_webhook[0] || p->has_webhook[1])
        service_fini(&p->webhook);
    if (p->has_pii) {
        service_fini(&p->sanitize);
        service_fini(&p->restore);
    }
    guardrails_free(p->guardrails);
    free(p);
}

const struct policy_route *policy_route_of(const struct policy *p, const char *route)
{
    const struct policy_route *r = route ? map_get(&p->routes, span_str(route)) : NULL;
    return r ? r : &p->no_route;
}

bool policy_applies_to_stream(const struct policy *p, const char *route)
{
    return p && p->guardrails && p->guardrails->streaming == STREAM_APPLY &&
           policy_route_of(p, route)->any[RULE_POST_CALL];
}
