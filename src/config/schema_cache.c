/* SPDX-License-Identifier: Apache-2.0
 * Keys of the response cache.
 */
#include "config/schema.h"
#include "gateway/settings.h"

enum { TEN_YEARS_SECS = 315360000 };

static const struct key_spec cache_keys[] = {
    KEY("enabled", KEY_BOOL, struct cache_settings, enabled, .preset = "false",
        .doc = "Switches the response cache on, for the routes (and keys) that ask for it."),
    KEY("default_ttl_secs", KEY_UINT, struct cache_settings, default_ttl_secs, .preset = "60", .min = 1,
        .max = TEN_YEARS_SECS, .unit = "seconds", .doc = "Life of an entry where its route names none."),
    KEY("namespace", KEY_STRING, struct cache_settings, name_space, .preset = "\"rolter:cache\"",
        .flags = KEYF_RESTART, .doc = "Prefix of the keys in Redis."),
    KEY("max_entry_bytes", KEY_UINT, struct cache_settings, max_entry_bytes, .preset = "1048576",
        .max = 1073741824, .unit = "bytes",
        .doc = "Largest body that is stored; 0 is 1 GiB. A larger one is delivered all the same."),
    KEY("memory_bytes", KEY_UINT, struct cache_settings, memory_bytes, .preset = "268435456",
        .flags = KEYF_RESTART, .max = 1e15, .unit = "bytes",
        .doc = "Memory for entries, all that they occupy; 0 keeps none in memory."),
};
const struct section schema_cache = SECTION("cache", cache_keys, "Response cache.");

/* In the order of enum cache_sharing. */
static const char *const scope_words[] = {"key", "route", NULL};
static const struct key_spec route_cache_keys[] = {
    KEY("enabled", KEY_BOOL, struct route_cache_settings, enabled, .preset = "true",
        .doc = "Caches this route; a key's `cache` wins."),
    KEY("ttl_secs", KEY_UINT, struct route_cache_settings, ttl_secs, .min = 1, .max = TEN_YEARS_SECS,
        .unit = "seconds", .doc = "Life of an entry; without it `cache.default_ttl_secs`."),
    KEY("per_key", KEY_TRISTATE, struct route_cache_settings, per_key,
        .doc = "true is `scope = \"key\"`, false is `scope = \"route\"`."),
    KEY("scope", KEY_ENUM, struct route_cache_settings, scope, .preset = "\"key\"", .words = scope_words,
        .doc = "Who shares entries: the callers with the same virtual key, or all of the route."),
    KEY("store_truncated", KEY_BOOL, struct route_cache_settings, store_truncated, .preset = "false",
        .doc = "Stores replies that were cut by their length limit, too."),
    KEY("coalesce", KEY_BOOL, struct route_cache_settings, coalesce, .preset = "true",
        .doc = "Identical requests at the same time make one upstream call."),
    KEY("stale_while_revalidate_secs", KEY_UINT, struct route_cache_settings, stale_while_revalidate_secs,
        .preset = "0", .max = TEN_YEARS_SECS, .unit = "seconds",
        .doc = "For so long after its life an entry is served while it is renewed."),
    KEY("stale_if_error_secs", KEY_UINT, struct route_cache_settings, stale_if_error_secs, .preset = "0",
        .max = TEN_YEARS_SECS, .unit = "seconds",
        .doc = "For so long after its life an entry is served when the upstream fails."),
    KEY_SUB("semantic", struct route_cache_settings, semantic, &schema_semantic, .doc = "Hits by meaning."),
};
const struct section schema_route_cache =
    SECTION_AS("routes.cache", route_cache_keys, "Response cache of a route.", 0,
               offsetof(struct route_cache_settings, present), NO_FIELD);
