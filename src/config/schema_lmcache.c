/* SPDX-License-Identifier: Apache-2.0
 * Keys of [providers.lmcache].
 */
#include "config/schema.h"
#include "signals/lmcache.h"

/* The index is the field's bool: reads_metric. */
static const char *const signal_words[] = {"json", "lmcache_metrics", NULL};
static const struct key_spec lmcache_keys[] = {
    KEY("endpoint", KEY_STRING, struct lmcache_settings, endpoint, .flags = KEYF_REQUIRED,
        .doc = "http or https URL that is polled."),
    KEY("refresh_secs", KEY_UINT, struct lmcache_settings, refresh_secs, .preset = "2", .min = 1,
        .max = 86400, .unit = "seconds", .doc = "Between two polls."),
    KEY("stale_secs", KEY_UINT, struct lmcache_settings, stale_secs, .preset = "10", .min = 1, .max = 86400,
        .unit = "seconds", .doc = "An older answer is not used."),
    KEY("timeout_ms", KEY_UINT, struct lmcache_settings, timeout_ms, .preset = "1000", .min = 1,
        .max = 600000, .unit = "milliseconds", .doc = "For one poll."),
    KEY("api_key_env", KEY_STRING, struct lmcache_settings, api_key_env,
        .doc = "Environment variable with a bearer token."),
    KEY("signal", KEY_ENUM, struct lmcache_settings, reads_metric, .preset = "\"json\"",
        .words = signal_words, .doc = "What the endpoint answers with: a JSON object, or Prometheus' text."),
    KEY("metric", KEY_STRING, struct lmcache_settings, metric, .preset = "\"lmcache_mp_l1_usage_ratio\"",
        .doc = "Metric read as occupancy, 0 to 1."),
};
const struct section schema_lmcache =
    SECTION_AS("providers.lmcache", lmcache_keys, "How full the provider's LMCache is, for `lmcache_aware`.",
               0, offsetof(struct lmcache_settings, present), NO_FIELD);
