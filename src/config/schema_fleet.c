/* SPDX-License-Identifier: Apache-2.0
 * Keys of providers, routes, virtual keys and prices.
 */
#include "config/schema.h"
#include "gateway/settings.h"

enum { MAX_WEIGHT = 1000000 };

static const struct key_spec api_keys_keys[] = {
    KEY("key", KEY_STRING, struct api_key_settings, key, .flags = KEYF_SECRET, .doc = "The key itself."),
    KEY("env", KEY_STRING, struct api_key_settings, env, .doc = "Environment variable with the key."),
    KEY("weight", KEY_UINT, struct api_key_settings, weight, .preset = "1", .max = MAX_WEIGHT,
        .doc = "Share of the calls; 0 counts as 1."),
};
static const struct section api_keys_section =
    SECTION_ITEMS("providers.api_keys", api_keys_keys,
                  "Several keys of one provider; they win over the single one.", struct api_key_settings);

static const struct key_spec providers_keys[] = {
    KEY("name", KEY_STRING, struct provider_settings_file, name, .flags = KEYF_REQUIRED,
        .doc = "Unique name; routes refer to it."),
    KEY("slug", KEY_STRING, struct provider_settings_file, slug,
        .doc = "Unique prefix of `slug/model` requests; the name when absent."),
    KEY("kind", KEY_STRING, struct provider_settings_file, kind_name, .flags = KEYF_REQUIRED,
        .doc = "API of the provider, see below."),
    KEY("api_base", KEY_STRING, struct provider_settings_file, api_base, .flags = KEYF_REQUIRED,
        .doc = "http or https URL; may end in `/v1` (not for `ollama`)."),
    KEY("api_key", KEY_STRING, struct provider_settings_file, api_key, .flags = KEYF_SECRET,
        .doc = "The key itself; not for hosted kinds."),
    KEY("api_key_env", KEY_STRING, struct provider_settings_file, api_key_env,
        .doc = "Environment variable with the key; hosted kinds need it or `api_keys`."),
    KEY_ITEMS("api_keys", struct provider_settings_file, api_keys, n_api_keys, &api_keys_section,
              .doc = "Several keys."),
    KEY("ca_bundles", KEY_STRINGS, struct provider_settings_file, ca_bundles, .flags = KEYF_NO_ZERO_WORDS,
        .preset = "[]", .doc = "PEM files in place of those of `[tls]`."),
    KEY("insecure_tls", KEY_BOOL, struct provider_settings_file, insecure_tls, .preset = "false",
        .doc = "Accepts any certificate. For tests."),
    KEY("cache_tokens", KEY_UINT, struct provider_settings_file, cache_tokens, .preset = "0",
        .unit = "tokens", .max = 1e12,
        .doc = "KV-cache capacity of the replica; 0 learns it from its metrics."),
    KEY_SUB("kv_events", struct provider_settings_file, kv_events, &schema_kv_events,
            .doc = "KV-cache events of the engine."),
    KEY_SUB("lmcache", struct provider_settings_file, lmcache, &schema_lmcache, .doc = "LMCache signal."),
    ORIGINAL("egress_proxy", "Upstreams are reached directly."),
    ORIGINAL("egress_proxies", "Upstreams are reached directly."),
    ORIGINAL("also_track_via_llm_call", "Probes ask a path, not a model."),
    ORIGINAL("llm_probe_model", "Probes ask a path, not a model."),
    ORIGINAL("status_page_url", "Status pages are not read."),
    ORIGINAL("role_profile", "Roles are forwarded as they are."),
    ORIGINAL("model_role_profiles", "Roles are forwarded as they are."),
    ORIGINAL("allow_custom_api_base", "Every kind takes any `api_base` that `[egress]` allows."),
};
const struct section schema_providers = SECTION_LINES(
    "providers", providers_keys,
    "Upstream APIs and engines. A table with the arrays `readonly` and `default` is accepted as well.",
    struct provider_settings_file);

static const struct key_spec targets_keys[] = {
    KEY("provider", KEY_STRING, struct target_settings, provider, .flags = KEYF_REQUIRED,
        .doc = "Name of a provider."),
    KEY("model", KEY_STRING, struct target_settings, model,
        .doc = "Upstream model; the route's name when absent."),
    KEY("weight", KEY_UINT, struct target_settings, weight, .preset = "1", .min = 1, .max = MAX_WEIGHT,
        .doc = "Share under `weighted`; a score under `pipeline`."),
};
static const struct section targets_section =
    SECTION_LINES("routes.targets", targets_keys, "The pool of a route.", struct target_settings);
static const struct section variant_targets_section =
    SECTION_LINES("routes.variants.targets", targets_keys, "The pool of a variant.", struct target_settings);

static const struct key_spec variants_keys[] = {
    KEY("name", KEY_STRING, struct variant_settings, name, .flags = KEYF_REQUIRED,
        .doc = "Name, unique in its route."),
    KEY("weight", KEY_UINT, struct variant_settings, weight, .preset = "1", .min = 1, .max = MAX_WEIGHT,
        .doc = "Share of the requests."),
    KEY_ITEMS("targets", struct variant_settings, targets, n_targets, &variant_targets_section,
              .flags = KEYF_REQUIRED, .doc = "The pool."),
    KEY("params", KEY_FREE, struct variant_settings, params, .preset = "{}",
        .doc = "Body members set for requests of this variant; they win over the route's."),
};
static const struct section variants_section = SECTION_ITEMS(
    "routes.variants", variants_keys, "Weighted pools in place of the single one.", struct variant_settings);

/* The index is the field's bool: deny_mode. */
static const char *const policy_words[] = {"allow", "deny", NULL};
static const struct key_spec param_policy_keys[] = {
    KEY("mode", KEY_ENUM, struct param_policy_settings, deny_mode, .preset = "\"allow\"",
        .words = policy_words,
        .doc = "`allow`: callers may set what `deny` does not name; `deny`: only what `allow` names."),
    KEY("allow", KEY_STRINGS, struct param_policy_settings, allow, .preset = "[]", .doc = "Body members."),
    KEY("deny", KEY_STRINGS, struct param_policy_settings, deny, .preset = "[]", .doc = "Body members."),
};
static const struct section param_policy_section =
    SECTION("routes.param_policy", param_policy_keys,
            "Which of `params` a caller's body may override; a denied value loses.");

static const struct key_spec affinity_keys[] = {
    KEY("threshold", KEY_FLOAT, struct strategy_settings, threshold, .preset = "0.5", .max = 1,
        .doc = "Least share of the prompt that pins it."),
    KEY("balance_abs", KEY_UINT, struct strategy_settings, balance_abs, .preset = "2", .unit = "requests",
        .doc = "Load guard, absolute lead."),
    KEY("balance_rel", KEY_FLOAT, struct strategy_settings, balance_rel, .preset = "1.5", .min = 1,
        .max = 1e9, .doc = "Load guard, relative lead."),
    KEY("max_nodes", KEY_UINT, struct strategy_settings, limits.max_nodes, .preset = "1000000", .min = 1,
        .doc = "Nodes of a target's index at most."),
    KEY("max_bytes", KEY_UINT, struct strategy_settings, limits.max_bytes, .preset = "268435456", .min = 1,
        .unit = "bytes", .doc = "Memory of a target's index at most; less than 4096 counts as that."),
    KEY("include_tools", KEY_BOOL, struct strategy_settings, include_tools, .preset = "false",
        .doc = "Puts the request's `tools` before its turns, in at most half of the text."),
    KEY("miss_weight", KEY_FLOAT, struct strategy_settings, miss_weight, .preset = "3.0", .max = 1e9,
        .doc = "`least_prefill`: what a token that is not cached costs, in tokens that wait."),
    KEY("home_bonus", KEY_FLOAT, struct strategy_settings, home_bonus, .preset = "0.0", .max = 1,
        .doc =
            "`least_prefill`: share of a prompt that its owner counts as holding; 0.6 for several gateways "
            "that do not talk."),
};
static const struct section affinity_section = SECTION(
    "routes.affinity", affinity_keys,
    "KV-cache affinity of a route (`cache_aware`, `least_prefill`; of `pipeline` the bounds of the index).");

/* The index is the field's bool: tokenize_by_engine. */
static const char *const tokenize_words[] = {"header", "engine", NULL};
static const struct key_spec routes_keys[] = {
    KEY("model", KEY_STRING, struct route_settings, model, .flags = KEYF_REQUIRED,
        .doc = "Unique public name."),
    KEY("strategy", KEY_STRING, struct route_settings, strategy_text, .preset = "\"round_robin\"",
        .doc = "How a target is chosen, see below."),
    KEY_ITEMS("targets", struct route_settings, targets, n_targets, &targets_section,
              .doc = "The pool; a route has this or `variants`."),
    KEY_ITEMS("variants", struct route_settings, variants, n_variants, &variants_section,
              .doc = "Weighted pools."),
    KEY("params", KEY_FREE, struct route_settings, params, .preset = "{}",
        .doc = "Body members set where absent."),
    KEY_SUB("param_policy", struct route_settings, param_policy, &param_policy_section,
            .doc = "Who wins over `params`."),
    KEY_SUB("affinity", struct route_settings, affinity, &affinity_section, .doc = "KV-cache affinity."),
    KEY_SUB("cache", struct route_settings, cache, &schema_route_cache,
            .doc = "Response cache of the route."),
    KEY("tokenize", KEY_ENUM, struct route_settings, tokenize_by_engine, .preset = "\"header\"",
        .words = tokenize_words,
        .doc =
            "Where `precise_cache_aware` gets token ids from: the client's header alone, or else an engine's "
            "`/tokenize`."),
    KEY("tokenize_timeout_ms", KEY_UINT, struct route_settings, tokenize_timeout_ms, .preset = "200",
        .min = 1, .max = 60000, .unit = "milliseconds",
        .doc = "So long a request waits for an engine's `/tokenize`."),
    {.name = "advanced", .type = KEY_TABLE, .section = &schema_route_advanced, .doc = "Rules of the route."},
};
const struct section schema_routes = SECTION_LINES(
    "routes", routes_keys, "Public model names and the targets behind them.", struct route_settings);

static const struct key_spec virtual_keys_keys[] = {
    KEY("key", KEY_STRING, struct virtual_key_settings, key, .flags = KEYF_REQUIRED | KEYF_SECRET,
        .doc = "The secret that clients send; unique."),
    KEY("name", KEY_STRING, struct virtual_key_settings, name, .doc = "Name in rows and metrics."),
    KEY("models", KEY_STRINGS, struct virtual_key_settings, models, .preset = "[]",
        .doc = "Allowed models; empty is all."),
    KEY("providers", KEY_STRINGS, struct virtual_key_settings, providers, .preset = "[]",
        .doc = "Names of allowed providers; empty is all."),
    KEY("disabled", KEY_BOOL, struct virtual_key_settings, disabled, .preset = "false",
        .doc = "Refuses the key."),
    KEY("explain", KEY_BOOL, struct virtual_key_settings, explain, .preset = "false",
        .doc =
            "Lets a request with `x-rolter-explain: 1` learn why its target was picked (`x-rolter-pick`)."),
    KEY("expires_at", KEY_TIME, struct virtual_key_settings, expires_at_text,
        .doc = "RFC 3339 instant, as a TOML date-time or a string; the key is refused from then on."),
    KEY("cache", KEY_TRISTATE, struct virtual_key_settings, cache,
        .doc = "Absent: as the route says; false: no response cache; true: cached on every route."),
};
const struct section schema_virtual_keys =
    SECTION_LINES("virtual_keys", virtual_keys_keys, "Clients' keys. Without any, everybody is served.",
                  struct virtual_key_settings);

static const struct key_spec model_prices_keys[] = {
    KEY("model", KEY_STRING, struct model_price_settings, model, .flags = KEYF_REQUIRED,
        .doc = "Upstream model or public name."),
    KEY("input_per_mtok", KEY_FLOAT, struct model_price_settings, input_per_mtok, .flags = KEYF_REQUIRED,
        .unit = "per million tokens", .doc = "Price of prompt tokens."),
    KEY("output_per_mtok", KEY_FLOAT, struct model_price_settings, output_per_mtok, .flags = KEYF_REQUIRED,
        .unit = "per million tokens", .doc = "Price of completion tokens."),
    KEY("cached_input_per_mtok", KEY_FLOAT, struct model_price_settings, cached_input_per_mtok,
        .flags = KEYF_NEGATIVE_IS_ABSENT, .unit = "per million tokens",
        .doc = "Price of prompt tokens that the upstream had cached; absent: as the others."),
    KEY("currency", KEY_STRING, struct model_price_settings, currency, .preset = "\"USD\"",
        .doc = "Currency of the three; the base or one with a rate."),
};
const struct section schema_model_prices =
    SECTION_ITEMS("model_prices", model_prices_keys, "Prices for the rows' cost and for `cheapest`.",
                  struct model_price_settings);

static const struct key_spec currency_keys[] = {
    KEY("base", KEY_STRING, struct currency_settings, base, .preset = "\"USD\"",
        .doc = "Currency of the rows' cost."),
    KEY("rates", KEY_FREE, struct currency_settings, rates, .items = FREE_POSITIVE, .preset = "{}",
        .doc = "Units of another currency for one unit of the base."),
};
const struct section schema_currency = SECTION("currency", currency_keys, "Exchange rates.");
