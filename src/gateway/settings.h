/* SPDX-License-Identifier: Apache-2.0
 *
 * The configuration as plain data, exactly as the file (and the environment) says it, defaults filled in. The
 * config module reads a file into it through one table of keys; plan.h turns it into what requests use.
 * Names, defaults and units of the keys are in that table (src/config) and in docs/configuration.md.
 *
 * Memory: everything hangs on one arena, freed by settings_free. Strings are NUL-terminated; an absent
 * optional string is NULL. Immutable after loading. Times: the key's own unit is in the name.
 */
#ifndef ROLTER_GATEWAY_SETTINGS_H
#define ROLTER_GATEWAY_SETTINGS_H

#include "balance/balance.h"
#include "base/arena.h"
#include "base/strings.h"
#include "cache/semantic_settings.h"
#include "policy/limits.h"
#include "policy/settings.h"
#include "signals/affinity_sync.h"
#include "signals/kv_feed.h"
#include "signals/lmcache.h"

/* Seconds of a key in milliseconds; what does not fit (49 days) is the most that does. */
static inline unsigned secs_to_ms(unsigned secs)
{
    return secs <= UINT32_MAX / 1000 ? secs * 1000 : UINT32_MAX;
}

enum tristate { TRI_UNSET, TRI_FALSE, TRI_TRUE };

/* A table of free-form keys (routes.params): values as JSON text. */
struct json_member {
    struct span name;
    struct span value; /* JSON text */
};
struct json_members {
    struct json_member *item;
    unsigned n;
};

struct server_settings {
    const char *host;
    unsigned port;
    const char *unix_path;
    unsigned workers; /* 0 = one per core */
    const char *metrics_path;
    const char *key_pepper;
    uint64_t max_body_bytes, max_head_bytes;
    enum tristate require_auth;
    const char *tls_cert, *tls_key;
    unsigned drain_secs;
};

struct timeout_settings {
    unsigned connect_secs, request_secs; /* to the reply's head; 0 = none */
    unsigned head_secs, body_secs, idle_secs, stream_idle_secs;
};

struct retry_settings {
    unsigned max_retries, base_backoff_ms, max_backoff_ms;
};

struct cooldown_settings {
    unsigned base_secs, max_secs;
};

struct breaker_settings {
    bool enabled;
    unsigned failure_threshold, open_secs;
};

enum backpressure { BACKPRESSURE_ERROR, BACKPRESSURE_BLOCK, BACKPRESSURE_DROP };
struct queue_settings {
    bool enabled;
    unsigned capacity, workers;
    enum backpressure backpressure;
    unsigned block_timeout_ms;
};

struct health_settings {
    bool enabled;
    unsigned interval_secs, timeout_secs;
    const char *path;
    unsigned probe_concurrency, consecutive_failure_threshold, recovery_success_threshold;
};

struct scrape_settings {
    bool enabled;
    unsigned interval_secs, timeout_secs;
    const char *path;
};

struct egress_settings {
    bool block_link_local, block_loopback, block_private;
    struct strings allow_hosts;
};

struct client_settings {
    struct strings forwarded_headers;
    struct json_members injected_headers; /* values are JSON strings */
    const char *request_id_header;
};

struct compatibility_settings {
    const char *anthropic_version;
};

struct logging_settings {
    const char *file; /* "-" = stdout; NULL = no rows */
    const char *clickhouse_url;
    unsigned batch_max, flush_ms, queue_capacity;
    double sample_rate;
};

struct admin_settings {
    bool present;
    const char *host;
    unsigned port;
    const char *token_env;
};

enum provider_kind {
    KIND_OPENAI,
    KIND_ANTHROPIC,
    KIND_OPENAI_COMPATIBLE,
    KIND_OLLAMA,
    KIND_LLAMA_CPP,
    KIND_TEI,
    KIND_AZURE_OPENAI,
    KIND_OPENROUTER,
    KIND_HOSTED, /* another hosted API of OpenAI's shape (mistral, groq, xai, gemini, ollama_cloud...) */
};

struct api_key_settings {
    const char *key; /* NULL when it comes from the environment */
    const char *env;
    unsigned weight;
};

struct provider_settings_file {
    const char *name, *slug; /* slug defaults to the name */
    const char *kind_name;
    enum provider_kind kind;
    const char *api_base;
    const char *api_key, *api_key_env;
    struct api_key_settings *api_keys;
    unsigned n_api_keys;
    struct strings ca_bundles; /* replaces [tls] ca_bundles when not empty */
    bool insecure_tls;         /* verification off */
    uint64_t cache_tokens;     /* 0 = learn it */
    struct kv_events_settings kv_events;
    struct lmcache_settings lmcache;
    unsigned line; /* where it stands in the file, for faults found later */
};

struct target_settings {
    const char *provider;
    const char *model; /* NULL = the route's public name */
    unsigned weight;
    unsigned line;
};

struct variant_settings {
    const char *name;
    unsigned weight;
    struct target_settings *targets;
    unsigned n_targets;
    struct json_members params;
};

struct param_policy_settings {
    bool deny_mode; /* mode = "deny": only what `allow` names may come from the caller */
    struct strings allow, deny;
};

enum cache_sharing { CACHE_SCOPE_KEY, CACHE_SCOPE_ROUTE };

/* [cache] */
struct redis_settings {
    const char *url; /* NULL = none */
    bool cluster;
    bool url_is_env; /* from ROLTER_REDIS_URL */
    unsigned budget_ms;
};

struct cache_settings {
    bool enabled;
    unsigned default_ttl_secs;
    const char *name_space;
    uint64_t max_entry_bytes; /* 0 = as large as entries can be */
    uint64_t memory_bytes;
};

/* [routes.cache] */
struct route_cache_settings {
    bool present; /* the table was there */
    bool enabled;
    unsigned ttl_secs; /* 0 = the default */
    enum tristate per_key;
    enum cache_sharing scope; /* per_key is in it after loading */
    bool store_truncated, coalesce;
    unsigned stale_while_revalidate_secs, stale_if_error_secs;
    struct semantic_settings semantic;
};

struct route_settings {
    const char *model;
    const char *strategy_text;
    enum strategy_id strategy;
    struct strategy_settings affinity;
    struct target_settings *targets;
    unsigned n_targets;
    struct variant_settings *variants;
    unsigned n_variants;
    struct json_members params;
    struct param_policy_settings param_policy;
    struct route_rule_settings rules;
    struct route_cache_settings cache;
    bool tokenize_by_engine; /* tokenize = "engine": ids from an engine when the client sends none */
    unsigned tokenize_timeout_ms;
    unsigned line;
};

struct virtual_key_settings {
    const char *key;
    const char *name;
    struct strings models, providers; /* empty = all */
    bool disabled;
    bool explain; /* may ask why a target was picked */
    const char *expires_at_text;
    int64_t expires_at_ms; /* wall clock; INT64_MAX = never */
    enum tristate cache;
    unsigned line;
};

struct model_price_settings {
    const char *model;
    double input_per_mtok, output_per_mtok, cached_input_per_mtok; /* cached: negative = same as input */
    const char *currency;
};

struct currency_settings {
    const char *base;
    struct json_members rates; /* currency -> units of it for one unit of base, JSON numbers */
};

struct settings {
    struct arena arena;
    const char *path; /* of the file; NULL when there was none */
    struct server_settings server;
    struct strings ca_bundles; /* [tls] */
    struct timeout_settings timeouts;
    struct retry_settings retry;
    struct cooldown_settings cooldown;
    struct breaker_settings breaker;
    struct queue_settings queue;
    struct health_settings health;
    struct scrape_settings metrics_scrape;
    struct egress_settings egress;
    struct client_settings client;
    struct compatibility_settings compatibility;
    struct logging_settings logging;
    struct admin_settings admin;
    struct currency_settings currency;
    struct policy_settings policy;
    struct redis_settings redis;
    struct cache_settings cache;
    struct affinity_sync_settings affinity_sync;
    struct provider_settings_file *providers;
    unsigned n_providers;
    struct route_settings *routes;
    unsigned n_routes;
    struct virtual_key_settings *virtual_keys;
    unsigned n_virtual_keys;
    struct model_price_settings *model_prices;
    unsigned n_model_prices;
    struct budget_settings *budgets;
    unsigned n_budgets;
    struct rate_limit_settings *rate_limits;
    unsigned n_rate_limits;
};

/* Frees the arena and all that hangs on it. */
void settings_free(struct settings *s);

#endif
