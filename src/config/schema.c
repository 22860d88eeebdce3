/* SPDX-License-Identifier: Apache-2.0 */
#include "config/schema.h"

#include "gateway/settings.h"

static const struct key_spec root_keys[] = {
    KEY_SUB("server", struct settings, server, &schema_server),
    {.name = "tls",
     .type = KEY_TABLE,
     .section = &schema_tls}, /* its field is one of struct settings itself */
    KEY_SUB("admin", struct settings, admin, &schema_admin, .flags = KEYF_RESTART),
    KEY_SUB("timeouts", struct settings, timeouts, &schema_timeouts),
    KEY_SUB("retry", struct settings, retry, &schema_retry),
    KEY_SUB("cooldown", struct settings, cooldown, &schema_cooldown),
    KEY_SUB("breaker", struct settings, breaker, &schema_breaker),
    KEY_SUB("queue", struct settings, queue, &schema_queue),
    KEY_SUB("health", struct settings, health, &schema_health),
    KEY_SUB("metrics_scrape", struct settings, metrics_scrape, &schema_metrics_scrape),
    KEY_SUB("egress", struct settings, egress, &schema_egress),
    KEY_SUB("client", struct settings, client, &schema_client),
    KEY_SUB("compatibility", struct settings, compatibility, &schema_compatibility),
    KEY_SUB("logging", struct settings, logging, &schema_logging),
    KEY_SUB("currency", struct settings, currency, &schema_currency),
    KEY_ITEMS("model_prices", struct settings, model_prices, n_model_prices, &schema_model_prices),
    KEY_ITEMS("providers", struct settings, providers, n_providers, &schema_providers, .flags = KEYF_TIERS),
    KEY_ITEMS("routes", struct settings, routes, n_routes, &schema_routes),
    KEY_ITEMS("virtual_keys", struct settings, virtual_keys, n_virtual_keys, &schema_virtual_keys),
    KEY_SUB("redis", struct settings, redis, &schema_redis),
    KEY_SUB("affinity_sync", struct settings, affinity_sync, &schema_affinity_sync),
    KEY_SUB("cache", struct settings, cache, &schema_cache),
    KEY_ITEMS("budgets", struct settings, budgets, n_budgets, &schema_budgets),
    KEY_ITEMS("rate_limits", struct settings, rate_limits, n_rate_limits, &schema_rate_limits),
    KEY_SUB("guardrails", struct settings, policy.guardrails, &schema_guardrails),
    KEY_SUB("guardrail_webhook", struct settings, policy.webhook, &schema_webhook),
    KEY_SUB("plugins", struct settings, policy.plugins, &schema_plugins),
    KEY_SUB("pii_sanitizer", struct settings, policy.pii, &schema_pii),
    ORIGINAL("provider_groups", "Use a route with several targets."),
    ORIGINAL("adaptive_routing", "There is no such strategy."),
    ORIGINAL("feature_flags", "There is no control plane."),
    ORIGINAL("model_defaults", "Use `routes.params`."),
    ORIGINAL("responses", "Responses are not kept."),
    ORIGINAL("realtime", "There is no such endpoint."),
    ORIGINAL("usage_recording", "Rows have their own queue, see `[logging]`."),
    ORIGINAL("unpriced_policy", "Models without a price cost nothing."),
    ORIGINAL("prompt_templates", "Bodies are forwarded as they are."),
    ORIGINAL("mcp", "There is no such endpoint."),
};
const struct section schema_root = SECTION_ITEMS("", root_keys, "", struct settings);

const struct key_spec *section_find(const struct section *s, struct span name)
{
    for (unsigned i = 0; i < s->n; i++)
        if (span_eq(span_str(s->keys[i].name), name))
            return &s->keys[i];
    return NULL;
}
