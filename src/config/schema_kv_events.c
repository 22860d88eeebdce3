/* SPDX-License-Identifier: Apache-2.0
 * Keys of [providers.kv_events].
 */
#include "config/schema.h"
#include "signals/kv_feed.h"

/* The index is the field's bool: resume. */
static const char *const on_gap_words[] = {"wait_for_clear", "resume", NULL};
static const struct key_spec kv_events_keys[] = {
    KEY("endpoint", KEY_STRING, struct kv_events_settings, endpoint, .flags = KEYF_REQUIRED,
        .doc = "`tcp://` or `ipc://` address of the engine's publisher; of rank 0."),
    KEY("topic", KEY_STRING, struct kv_events_settings, topic, .preset = "\"kv-events\"",
        .flags = KEYF_MAY_BE_EMPTY,
        .doc = "What topics begin with; the engine's own default is empty, which `\"\"` takes."),
    KEY("max_blocks", KEY_UINT, struct kv_events_settings, max_blocks, .preset = "1000000", .min = 1,
        .max = 1e9, .unit = "blocks", .doc = "Blocks kept at most, of all ranks; about 64 bytes each."),
    KEY("stale_secs", KEY_UINT, struct kv_events_settings, stale_secs, .preset = "30", .min = 1, .max = 86400,
        .unit = "seconds", .doc = "Without a sign of life for so long what was learnt is not used."),
    KEY("replay_endpoint", KEY_STRING, struct kv_events_settings, replay_endpoint,
        .doc = "Address of the engine's replay socket, from which lost events are fetched; of rank 0."),
    KEY("bind", KEY_BOOL, struct kv_events_settings, bind, .preset = "false",
        .doc = "`endpoint` is an address to listen on; the engine connects."),
    KEY("dp_ranks", KEY_UINT, struct kv_events_settings, dp_ranks, .preset = "1", .min = 1,
        .max = KV_RANKS_MAX, .doc = "Data-parallel ranks: each has the next port, replay ports too."),
    KEY("on_gap", KEY_ENUM, struct kv_events_settings, resume, .preset = "\"wait_for_clear\"",
        .words = on_gap_words,
        .doc = "When events are lost for good: silent until the engine clears its cache, or from empty on at "
               "once."),
};
const struct section schema_kv_events =
    SECTION_AS("providers.kv_events", kv_events_keys,
               "What the engine holds in its KV cache, for `precise_cache_aware`.", 0,
               offsetof(struct kv_events_settings, present), NO_FIELD);
