/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "balance/kv_source.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/plan_parts.h"

static bool ends_in_v1(const char *base_path)
{
    size_t n = strlen(base_path);
    return n >= 3 && strcmp(base_path + n - 3, "/v1") == 0;
}

static const char *env_value(const char *name)
{
    const char *v = name ? getenv(name) : NULL;
    return v && *v ? v : NULL;
}

static char *auth_line(enum auth_style style, const char *key)
{
    static const char *const before[] = {[AUTH_BEARER] = "authorization: Bearer ",
                                         [AUTH_X_API_KEY] = "x-api-key: ",
                                         [AUTH_API_KEY] = "api-key: "};
    return mem_printf("%s%s\r\n", before[style], key);
}

/* The upstream keys that resolve, with their weights; a list beats the single pair (reference 1.2). */
static void resolve_keys(struct plan_provider *p, unsigned **ret_weights)
{
    const struct provider_settings_file *s = p->settings;
    p->auth_lines = mem_array(s->n_api_keys + 1, sizeof *p->auth_lines);
    p->key_names = mem_array(s->n_api_keys + 1, sizeof *p->key_names);
    unsigned *weights = mem_array(s->n_api_keys + 1, sizeof *weights);
    for (unsigned i = 0; i < s->n_api_keys; i++) {
        const char *key = s->api_keys[i].key ? s->api_keys[i].key : env_value(s->api_keys[i].env);
        if (!key)
            continue;
        weights[p->n_keys] = s->api_keys[i].weight ? s->api_keys[i].weight : 1;
        p->key_names[p->n_keys] = s->api_keys[i].key ? "of the file" : s->api_keys[i].env;
        p->auth_lines[p->n_keys++] = auth_line(p->auth, key);
    }
    if (s->n_api_keys == 0) {
        const char *key = s->api_key ? s->api_key : env_value(s->api_key_env);
        if (key) {
            weights[0] = 1;
            p->key_names[0] = s->api_key ? "of the file" : s->api_key_env;
            p->auth_lines[p->n_keys++] = auth_line(p->auth, key);
        }
    }
    *ret_weights = weights;
}

static void configure(struct plan *p, struct plan_provider *pp, const unsigned *weights)
{
    const struct settings *s = p->settings;
    struct provider_settings ps = {
        .api_base = pp->settings->api_base,
        .queue_workers = s->queue.enabled ? s->queue.workers : 0,
        .queue_capacity = s->queue.capacity,
        .health_failures_down = s->health.consecutive_failure_threshold,
        .health_successes_up = s->health.recovery_success_threshold,
        .engine_fresh_ms = s->metrics_scrape.enabled ? secs_to_ms(3 * s->metrics_scrape.interval_secs) : 0,
        .key_weights = weights,
        .n_keys = pp->n_keys,
    };
    provider_configure(pp->state, &ps);
}

struct span plan_field_line(struct arena *a, const char *name, struct span value)
{
    if (value.n == 0 || !http_value_is_safe(value))
        return SPAN_NONE;
    return span_str(arena_printf(a, "%s: %.*s\r\n", name, SPAN_FMT(value)));
}

static void build_texts(struct plan *p, struct plan_provider *pp)
{
    struct arena *a = &p->settings->arena;
    pp->name = span_str(pp->settings->name);
    pp->base_path = span_str(pp->origin.base_path);
    pp->head_middle =
        span_str(arena_printf(a, " HTTP/1.1\r\nhost: %s\r\ncontent-length: ", pp->origin.host_header));
    pp->reply_field = plan_field_line(a, "x-rolter-provider", pp->name);
}

static void build_provider(struct plan *p, struct plan_provider *pp)
{
    const struct provider_settings_file *s = pp->settings;
    const char *why;
    CHECK_MSG(origin_parse(span_str(s->api_base), &pp->origin, &why),
              "the configuration reader checked this");
    const struct strings *roots = s->ca_bundles.n ? &s->ca_bundles : &p->settings->ca_bundles;
    pp->origin.ca_bundles = roots->item;
    pp->origin.n_ca_bundles = roots->n;
    pp->origin.verify = !s->insecure_tls;
    pp->origin.egress = &p->egress;
    origin_seal(&pp->origin);
    pp->strip_v1 = ends_in_v1(pp->origin.base_path) ||
                   ((s->kind == KIND_HOSTED || s->kind == KIND_OPENROUTER) && pp->origin.base_path[0] != 0);
    pp->auth = s->kind == KIND_ANTHROPIC      ? AUTH_X_API_KEY
               : s->kind == KIND_AZURE_OPENAI ? AUTH_API_KEY
                                              : AUTH_BEARER;
    build_texts(p, pp);
    pp->state = fleet_provider_get(p->fleet, s->name);
    unsigned *weights;
    resolve_keys(pp, &weights);
    configure(p, pp, weights);
    free(weights);
    pp->m_queue_wait = metric_series(M_QUEUE_WAIT, s->name, NULL, NULL);
    pp->m_in_flight = metric_series(M_INFLIGHT, s->name, NULL, NULL);
    pp->m_queued = metric_series(M_QUEUE_DEPTH, s->name, NULL, NULL);
    pp->m_healthy = metric_series(M_PROVIDER_HEALTHY, s->name, NULL, NULL);
    if (s->kv_events.present) {
        pp->kv = kv_source_get(s->name, s->kv_events.dp_ranks);
        pp->m_kv_age = metric_series(M_TELEMETRY_AGE, s->name, "vllm", NULL);
        pp->m_kv_blocks = metric_series(M_KV_BLOCKS, s->name, NULL, NULL);
        pp->m_kv_trusted = metric_series(M_KV_TRUSTED, s->name, NULL, NULL);
    }
    if (s->lmcache.present)
        pp->m_lmcache_age = metric_series(M_TELEMETRY_AGE, s->name, "lmcache", NULL);
    for (int f = 0; f < EXCHANGE_FAIL_COUNT; f++)
        pp->m_errors[f] =
            metric_series(M_UPSTREAM_ERRORS, s->name, exchange_fail_name((enum exchange_fail)f), NULL);
    pp->m_errors[EXCHANGE_FAIL_COUNT] = metric_series(M_UPSTREAM_ERRORS, s->name, "status", NULL);
}

void plan_build_providers(struct plan *p)
{
    p->n_providers = p->settings->n_providers;
    p->providers = mem_array(p->n_providers, sizeof *p->providers);
    map_init(&p->provider_by_slug);
    for (unsigned i = 0; i < p->n_providers; i++) {
        struct plan_provider *pp = &p->providers[i];
        pp->settings = &p->settings->providers[i];
        pp->index = i;
        build_provider(p, pp);
        const char *slug = pp->settings->slug ? pp->settings->slug : pp->settings->name;
        map_put(&p->provider_by_slug, span_str(slug), pp);
    }
}

static double age_secs(uint64_t at_ms)
{
    uint64_t now = clock_mono_ms();
    return at_ms == 0 ? INFINITY : now > at_ms ? (double)(now - at_ms) / 1000 : 0;
}

static void refresh_kv(const struct plan_provider *pp)
{
    uint64_t now = clock_mono_ms(), age = kv_source_age_ms(pp->kv, now);
    metric_set(pp->m_kv_age, age == UINT64_MAX ? INFINITY : (double)age / 1000);
    metric_set(pp->m_kv_blocks, (double)kv_source_blocks(pp->kv));
    metric_set(pp->m_kv_trusted, kv_source_is_fresh(pp->kv, now) ? 1 : 0);
}

void plan_refresh_gauges(const struct plan *p)
{
    for (unsigned i = 0; i < p->n_providers; i++) {
        const struct plan_provider *pp = &p->providers[i];
        metric_set(pp->m_in_flight, provider_in_flight(pp->state));
        metric_set(pp->m_queued, provider_queued(pp->state));
        metric_set(pp->m_healthy, provider_is_healthy(pp->state) ? 1 : 0);
        metric_set(pp->m_lmcache_age, age_secs(provider_lmcache_at_ms(pp->state)));
        if (pp->kv)
            refresh_kv(pp);
    }
}

void plan_free_secret(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void plan_key_judged(const struct plan_provider *p, int key, int status, uint64_t now_ms)
{
    bool refused = status == 401 || status == 403;
    if (!refused && (status < 200 || status > 299))
        return;
    if (LIKELY(!provider_key_judged(p->state, key, refused, now_ms)))
        return;
    char what[160] = "requests without a key";
    if (key >= 0)
        snprintf(what, sizeof what, "key %d (%s)", key + 1, p->key_names[key]);
    if (refused)
        log_warn("provider %s refuses %s with status %d", p->settings->name, what, status);
    else
        log_info("provider %s takes %s again", p->settings->name, what);
}

void plan_free_providers(struct plan *p, uint64_t now_ms)
{
    for (unsigned i = 0; i < p->n_providers; i++) {
        struct plan_provider *pp = &p->providers[i];
        /* A provider that stays is set anew at the next scrape. */
        metric_set(pp->m_in_flight, provider_in_flight(pp->state));
        metric_set(pp->m_queued, provider_queued(pp->state));
        for (unsigned k = 0; k < pp->n_keys; k++)
            plan_free_secret(pp->auth_lines[k]);
        free(pp->auth_lines);
        free(pp->key_names);
        origin_fini(&pp->origin);
        kv_source_unref(pp->kv);
        fleet_provider_put(p->fleet, pp->state, now_ms);
    }
    free(p->providers);
    map_fini(&p->provider_by_slug);
}
