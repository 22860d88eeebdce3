/* SPDX-License-Identifier: Apache-2.0
 * Keys of [affinity_sync].
 */
#include "config/schema.h"
#include "gateway/settings.h"

static const struct key_spec affinity_sync_keys[] = {
    KEY("enabled", KEY_BOOL, struct affinity_sync_settings, enabled, .preset = "false", .flags = KEYF_RESTART,
        .doc = "Tells other gateways where prompts go, and hears it of them. Needs `[redis]`."),
    KEY("stream", KEY_STRING, struct affinity_sync_settings, stream, .preset = "\"rolter:affinity\"",
        .flags = KEYF_RESTART, .doc = "Key of the stream in Redis; gateways with the same one share."),
    KEY("max_len", KEY_UINT, struct affinity_sync_settings, max_len, .preset = "4096", .min = 16,
        .max = 1000000, .unit = "batches", .flags = KEYF_RESTART,
        .doc =
            "What Redis keeps of the stream, about; each gateway adds up to 20 in a second, usually of some "
            "hundred bytes."),
};
const struct section schema_affinity_sync =
    SECTION("affinity_sync", affinity_sync_keys,
            "Shares the placements of `least_prefill` between gateways in front of the same replicas.");
