/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/status.h"

#include <math.h>

#include "admin/status_parts.h"
#include "balance/kv_source.h"
#include "base/clock.h"
#include "fleet/prefill.h"

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

/* What `least_prefill` charges; all routes of a provider add up. */
static void prefill(struct json_out *o, const struct provider *p, uint64_t now_ms)
{
    json_out_name(o, "prefill");
    json_out_object(o);
    json_out_member_u64(o, "open", provider_prefill_open(p));
    json_out_member_u64(o, "backlog_tokens", (uint64_t)provider_prefill_backlog(p, now_ms * 1000));
    json_out_member_u64(o, "tokens_per_sec", (uint64_t)provider_prefill_rate(p, now_ms * 1000));
    json_out_object_end(o);
}

static void kv_events(struct json_out *o, const struct kv_source *kv, uint64_t now_ms)
{
    json_out_name(o, "kv_events");
    json_out_object(o);
    json_out_member_bool(o, "trusted", kv_source_is_fresh(kv, now_ms));
    json_out_member_u64(o, "blocks", kv_source_blocks(kv));
    uint64_t age = kv_source_age_ms(kv, now_ms);
    if (age != UINT64_MAX)
        json_out_member_u64(o, "age_ms", age);
    json_out_object_end(o);
}

static void errors(struct json_out *o, const struct plan_provider *pp)
{
    json_out_name(o, "errors");
    json_out_object(o);
    for (unsigned i = 0; i <= EXCHANGE_FAIL_COUNT; i++) {
        uint64_t n = metric_value(pp->m_errors[i]);
        if (n)
            json_out_member_u64(
                o, i < EXCHANGE_FAIL_COUNT ? exchange_fail_name((enum exchange_fail)i) : "status", n);
    }
    json_out_object_end(o);
}

static void providers(struct json_out *o, const struct plan *p, uint64_t now_ms)
{
    json_out_name(o, "providers");
    json_out_array(o);
    for (unsigned i = 0; i < p->n_providers; i++) {
        const struct plan_provider *pp = &p->providers[i];
        double lmcache;
        json_out_object(o);
        json_out_member_str(o, "name", pp->settings->name);
        json_out_member_str(o, "kind", pp->settings->kind_name);
        json_out_member_bool(o, "healthy", provider_is_healthy(pp->state));
        json_out_member_u64(o, "in_flight", provider_in_flight(pp->state));
        json_out_member_u64(o, "queued", provider_queued(pp->state));
        json_out_member_u64(o, "load", provider_load(pp->state, now_ms));
        json_out_member_u64(o, "keys", pp->n_keys);
        engine(o, pp->state, now_ms);
        prefill(o, pp->state, now_ms);
        if (pp->kv)
            kv_events(o, pp->kv, now_ms);
        if (provider_lmcache(pp->state, now_ms, &lmcache))
            json_out_member_double(o, "lmcache_free", lmcache);
        errors(o, pp);
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
    json_out_member_u64(&o, "now_ms", clock_wall_ms());
    json_out_member_u64(&o, "workers", gateway_workers(g));
    json_out_member_bool(&o, "draining", gateway_is_draining(g));
    json_out_member_u64(&o, "requests", metric_value(metric_plain(M_REQUESTS)));
    json_out_member_u64(&o, "requests_in_flight", gateway_requests_in_flight(g));
    json_out_member_u64(&o, "client_connections", gateway_connections(g));
    json_out_member_u64(&o, "client_disconnects", metric_value(metric_plain(M_CLIENT_DISCONNECTS)));
    json_out_member_u64(&o, "retries", metric_value(metric_plain(M_RETRIES)));
    json_out_member_u64(&o, "reload_failures", metric_value(metric_plain(M_CONFIG_RELOAD_FAILURES)));
    providers(&o, p, now_ms);
    status_routes(&o, p, now_ms);
    status_cache(&o, gateway_cache(g));
    status_policy(&o);
    status_limits(&o, p, clock_wall_ms());
    json_out_object_end(&o);
    buf_add_char(b, '\n');
}
