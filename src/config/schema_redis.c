/* SPDX-License-Identifier: Apache-2.0
 * Keys of Redis.
 */
#include "config/schema.h"
#include "gateway/settings.h"

static const struct key_spec redis_keys[] = {
    KEY("url", KEY_STRING, struct redis_settings, url, .flags = KEYF_SECRET | KEYF_RESTART,
        .doc =
            "`redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]`, `rediss://` for TLS (roots of the system and of "
            "`[tls]`), or `unix://[[USER]:PASSWORD@]/PATH[?db=DB]`; `ROLTER_REDIS_URL` wins. Without "
            "either nothing is shared."),
    KEY("cluster", KEY_BOOL, struct redis_settings, cluster, .preset = "false", .flags = KEYF_RESTART,
        .doc = "The URL names a node of a cluster; its slots and redirects are followed."),
    KEY("budget_ms", KEY_UINT, struct redis_settings, budget_ms, .preset = "50", .min = 1, .max = 60000,
        .unit = "milliseconds", .flags = KEYF_RESTART,
        .doc =
            "What one request waits for Redis at most, all its lookups together; a server that takes longer "
            "counts as away."),
};
const struct section schema_redis =
    SECTION("redis", redis_keys, "Redis or Valkey: the response cache's shared store.");
