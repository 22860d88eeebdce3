/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/status.h"

#include <math.h>

#include "json/write.h"

static void member_known(struct json_out *o, const char *name, double v)
{
    if (!isnan(v) && v >= 0)
        json_out_member_double(o, name, v);
}

static void engine(struct json_out *o, const struct provider *p, uint64_t now_ms)
{
    struct engine_metrics m;
    if (!provider_engine(p, now_ms, &m))
        return;
    json_out_name(o, "engine");
    json_out_object(o);
    member_known(o, "running", m.running);
    member_known(o, "waiting", m.waiting);
    member_known(o, "kv_usage", m.kv_usage);
    member_known(o, "cache_blocks", m.cache_blocks);
    member_known(o, "block_tokens", m.block_tokens);
    json_out_object_end(o);
}

static void providers(struct json_out *o, const struct plan *p, uint64_t now_ms)
{
    json_out_name(o, "providers");
    json_out_array(o);
    for (unsigned i = 0; i < p->n_providers; i++) {
        const struct plan_provider *pp = &p->providers[i];
        json_out_object(o);
        json_out_member_str(o, "name", pp->settings->name);
        json_out_member_str(o, "kind", pp->settings->kind_name);
        json_out_member_bool(o, "healthy", provider_is_healthy(pp->state));
        json_out_member_u64(o, "in_flight", provider_in_flight(pp->state));
        json_out_member_u64(o, "queued", provider_queued(pp->state));
        json_out_member_u64(o, "load", provider_load(pp->state, now_ms));
        json_out_member_u64(o, "keys", pp->n_keys);
        engine(o, pp->state, now_ms);
        json_out_object_end(o);
    }
    json_out_array_end(o);
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
        json_out_member_u64(o, "served", target_served(t->state));
        json_out_member_double(o, "latency_ms", target_latency_ms(t->state));
        json_out_object_end(o);
    }
    json_out_array_end(o);
}

static void routes(struct json_out *o, const struct plan *p, uint64_t now_ms)
{
    json_out_name(o, "routes");
    json_out_array(o);
    for (unsigned i = 0; i < p->n_routes; i++) {
        const struct plan_route *r = &p->routes[i];
        json_out_object(o);
        json_out_member_str(o, "model", r->model);
        json_out_member_str(o, "strategy", strategy_name(r->settings->strategy));
        if (r->n_variants == 0)
            pool(o, p, &r->pool, now_ms);
        else {
            json_out_name(o, "variants");
            json_out_array(o);
            for (unsigned v = 0; v < r->n_variants; v++) {
                json_out_object(o);
                json_out_member_str(o, "name", r->variants[v].name);
                json_out_member_u64(o, "weight", r->variants[v].weight);
                pool(o, p, &r->variants[v].pool, now_ms);
                json_out_object_end(o);
            }
            json_out_array_end(o);
        }
        json_out_object_end(o);
    }
    json_out_array_end(o);
}

void status_write(struct gateway *g, uint64_t now_ms, struct buf *b)
{
    const struct plan *p = gateway_plan(g);
    struct json_out o;
    json_out_init(&o, b);
    json_out_object(&o);
    json_out_member_str(&o, "version", ROLTER_VERSION);
    json_out_member_u64(&o, "config_version", p->version);
    json_out_member_str(&o, "config_file", p->settings->path);
    json_out_member_u64(&o, "workers", gateway_workers(g));
    json_out_member_bool(&o, "draining", gateway_is_draining(g));
    json_out_member_u64(&o, "requests_in_flight", gateway_requests_in_flight(g));
    json_out_member_u64(&o, "client_connections", gateway_connections(g));
    providers(&o, p, now_ms);
    routes(&o, p, now_ms);
    json_out_object_end(&o);
    buf_add_char(b, '\n');
}
