/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan: a configuration made ready for requests. Immutable after plan_build; each request holds a
 * reference from admission to its end, so it keeps the configuration that it started with (G8). What is
 * learnt (loads, health, breakers, balancer state) hangs on the fleet and on balancers that the next plan
 * takes over by identity.
 *
 * Threads: plans are read by all workers; references are atomic; plan_build and the last plan_unref may
 * happen on any thread.
 */
#ifndef ROLTER_GATEWAY_PLAN_H
#define ROLTER_GATEWAY_PLAN_H

#include <stdatomic.h>

#include "balance/balance.h"
#include "base/map.h"
#include "cache/key.h"
#include "fleet/fleet.h"
#include "gateway/settings.h"
#include "net/exchange.h"
#include "net/origin.h"
#include "observe/metrics.h"

struct policy;
struct plan_semantic;

enum auth_style { AUTH_BEARER, AUTH_X_API_KEY, AUTH_API_KEY };

struct plan_provider {
    const struct provider_settings_file *settings;
    struct provider *state;
    struct kv_source *kv; /* what its engine says it holds; NULL: it is not listened to */
    struct net_origin origin;
    unsigned index; /* position in plan->providers, the bit of a key's provider set */
    enum auth_style auth;
    bool strip_v1; /* the base path already carries the version */
    unsigned n_keys;
    const char **key_names; /* for people: the variable that holds it */
    char **auth_lines; /* one for each resolved upstream key, may be none: "authorization: Bearer ...\r\n" */
    struct span base_path, name;
    struct span
        head_middle; /* of an upstream request, behind the target: version, Host, Content-Length's name */
    struct span
        reply_field; /* x-rolter-provider with its CR LF; empty when the name may not stand in a field */
    struct plan_pool *direct; /* the pool of "provider/model" requests: one target, any model */
    metric_series_t m_queue_wait, m_in_flight, m_queued, m_healthy, m_lmcache_age, m_kv_age, m_kv_blocks,
        m_kv_trusted;
    metric_series_t
        m_errors[EXCHANGE_FAIL_COUNT + 1]; /* by reason; the last one: a status of 5xx, 408, 429 */
};

/* What an upstream's status says about the key that was sent (an index, or -1): one line on stderr when that
 * is news. */
void plan_key_judged(const struct plan_provider *p, int key, int status, uint64_t now_ms);

struct plan_target {
    struct plan_provider *provider;
    struct target *state;
    const char
        *model; /* upstream model; NULL in a direct pool: what the client asked for behind "provider/" */
    struct span model_json; /* the same as JSON text with quotes */
    struct span model_span; /* the same as a span */
    struct span
        reply_fields; /* x-rolter-provider and x-rolter-target; without the latter when there is no <model> */
    metric_series_t m_ok, m_error;
    metric_series_t m_evictions; /* none when the strategy keeps no prompts */
    metric_series_t m_prediction_error, m_resets[MIRROR_RESET_COUNT]; /* none when it predicts nothing */
    metric_series_t m_prefix_tokens[3]; /* prompt, cached, predicted; not the last when it predicts nothing */
};

struct plan_pool {
    struct balancer *balancer;
    struct plan_target *targets;
    unsigned n;
};

struct plan_variant {
    const char *name;
    unsigned weight;
    struct plan_pool pool;
    struct json_members params; /* the route's, overridden by the variant's (R25) */
    metric_series_t m_requests;
};

/* How a route caches, defaults filled in; also for keys that want the cache on a route that does not. */
struct plan_cache {
    bool opted; /* the route asks for it */
    bool coalesce, store_truncated;
    bool per_route; /* scope */
    uint64_t ttl_ms, revalidate_ms, if_error_ms;
    struct cache_digest targets; /* what the route makes of a request */
    struct cache_scope scope;    /* of all its callers */
    uint64_t purge_id;
    struct span *overridden; /* body members that the route sets whatever the caller says */
    unsigned n_overridden;
    struct span *defaulted; /* those that it sets when the caller does not say anything: not even null */
    unsigned n_defaulted;
    struct plan_semantic *semantic;   /* NULL: no lookups by meaning (gateway/semantic.h) */
    metric_series_t m_requests[4][3]; /* by enum cache_kind, enum cache_result */
};

/* State of a route that outlives a reload, found by the route's name. */
struct route_state {
    _Atomic uint64_t variant_ticket;
    _Atomic unsigned refs;
};

struct plan_route {
    const char *model;
    const struct route_settings *settings; /* NULL for direct pools */
    struct route_state *state;
    struct plan_pool pool; /* unused when there are variants */
    struct plan_variant *variants;
    unsigned n_variants;
    unsigned *variant_order; /* schedule of variant indexes by weight */
    unsigned n_variant_order;
    struct json_members params;
    struct plan_cache cache;
    metric_series_t m_latency, m_ttft, m_responses[6] /* by status class */, m_picks[PICK_REASON_COUNT];
    metric_series_t m_tokens[4];
    struct limit_set limits; /* budgets and rate limits of the route */
};

struct plan_key {
    uint8_t digest[32]; /* SHA-256 of pepper, 0x1F, key (reference 1.5) */
    char id[17];        /* first 16 hexadecimal digits of the digest */
    const char *name;
    struct span name_span;
    struct map models; /* allowed public names; empty = all */
    bool all_models, all_providers;
    uint64_t *providers; /* bit set over plan->providers */
    bool disabled;
    bool explain; /* may ask why a target was picked */
    enum tristate cache;
    struct cache_scope scope;
    uint64_t purge_id;
    int64_t expires_at_ms;
    struct limit_set limits; /* budgets and rate limits of the key */
};

/* How a request came to its token ids where an engine may be asked, or did not. */
enum tokenize_outcome {
    TOKENIZE_CACHED,
    TOKENIZE_BEGINNING, /* those of an earlier turn */
    TOKENIZE_ENGINE,
    TOKENIZE_TIMEOUT,
    TOKENIZE_FAILED,
    TOKENIZE_UNAVAILABLE,
    TOKENIZE_UNSUPPORTED,
    TOKENIZE_OUTCOME_COUNT
};

struct plan {
    _Atomic unsigned refs;
    uint64_t version;
    struct settings *settings; /* owned */
    struct fleet *fleet;
    struct plan_provider *providers;
    unsigned n_providers;
    struct map provider_by_slug;
    struct plan_route *routes;
    unsigned n_routes;
    struct map route_by_model;
    struct plan_route *direct_routes; /* one a provider: names and metrics of "provider/model" requests */
    struct plan_key *keys;
    unsigned n_keys;
    struct map key_by_digest;
    bool open; /* no key is asked for */
    struct reliability reliability;
    struct net_egress egress;
    struct map forwarded;      /* extra request headers that go up, lower case */
    struct span injected;      /* header lines that are added to every upstream request */
    struct map injected_names; /* of these, lower case: the client's fields of the same name stay behind */
    struct span id_header;     /* another name that the request id has beside x-request-id; usually none */
    struct policy *policy;     /* what replies go through; NULL when nothing is configured */
    struct map price_by_model; /* struct model_price_settings */
    struct limits *limits;     /* what was used of budgets and rate limits; goes on from plan to plan */
    metric_series_t m_tokenize[TOKENIZE_OUTCOME_COUNT];
};

/* Whether the caller's own value of a body member stands against what the route sets. */
bool plan_caller_wins(const struct plan_route *route, struct span name);

/* Sets the gauges of providers (in flight, queued, healthy) from their present state, before a scrape. */
void plan_refresh_gauges(const struct plan *p);

/* Every second or so, on the signals thread: what the strategies have to do beside their picks, and to tell.
 */
void plan_tend(const struct plan *p);

/* Takes <settings> over (also on failure). <previous> may be NULL. Never fails on what config_load accepted.
 */
struct plan *plan_build(struct settings *settings, struct fleet *fleet, struct plan *previous,
                        uint64_t now_ms);
struct plan *plan_ref(struct plan *p);
void plan_unref(struct plan *p);

/* Digest of a presented key: SHA-256 over pepper, 0x1F, key. */
void plan_key_digest(const char *pepper, struct span key, uint8_t ret[32]);
/* NULL when unknown. Whether it is disabled or expired is the caller's question. */
const struct plan_key *plan_find_key(const struct plan *p, struct span key);
bool plan_key_is_valid(const struct plan_key *k, int64_t wall_ms);
/* <key> NULL (open gateway) may use everything. */
bool plan_key_allows_model(const struct plan_key *k, struct span model);
bool plan_key_allows_provider(const struct plan_key *k, const struct plan_provider *p);

/* Route by exact public name, else "slug/model": then *ret_upstream_model is the part behind the slash. */
struct plan_route *plan_find_route(const struct plan *p, struct span model, struct span *ret_upstream_model);

/* Price of a million prompt tokens and a million completion tokens together, in the base currency; false when
 * the model has none. */
bool plan_price(const struct plan *p, const char *upstream_model, const char *public_model, double *ret);
/* Cost in the base currency; false when the model has no price. <prompt>: all of it, <cached> included. */
bool plan_cost(const struct plan *p, const char *upstream_model, const char *public_model, uint64_t prompt,
               uint64_t cached, uint64_t completion, double *ret);

#endif
