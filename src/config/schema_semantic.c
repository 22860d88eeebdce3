/* SPDX-License-Identifier: Apache-2.0
 * Keys of the semantic cache.
 */
#include "cache/semantic_settings.h"
#include "config/schema.h"

/* In the order of enum semantic_guard and enum semantic_order. */
static const char *const guard_words[] = {"none", "lexical", NULL};
static const char *const lookup_words[] = {"wait", "race", NULL};
static const struct key_spec semantic_keys[] = {
    KEY("provider", KEY_STRING, struct semantic_settings, provider, .flags = KEYF_REQUIRED,
        .doc = "Name of the provider that is asked for embeddings (`POST /v1/embeddings`)."),
    KEY("model", KEY_STRING, struct semantic_settings, model, .flags = KEYF_REQUIRED,
        .doc = "Embedding model. Another one starts a new index."),
    KEY("threshold", KEY_FLOAT, struct semantic_settings, threshold, .preset = "0.92", .max = 1,
        .doc = "Least cosine of a hit, above 0. What it is worth depends on the model: `rolter "
               "semantic-calibrate`."),
    KEY("max_candidates", KEY_UINT, struct semantic_settings, max_candidates, .preset = "256", .min = 1,
        .max = 1000000, .doc = "Newest entries that a request is compared with."),
    KEY("guard", KEY_ENUM, struct semantic_settings, guard, .preset = "\"none\"", .words = guard_words,
        .doc = "Second test of a hit. `lexical`: numbers, units, negations, names, code and directions must "
               "agree."),
    KEY("lookup", KEY_ENUM, struct semantic_settings, lookup, .preset = "\"wait\"", .words = lookup_words,
        .doc = "`wait`: nothing is sent before the embedding has come or its time is over. `race`: the "
               "upstream is "
               "called at once, and a hit that comes before its reply ends that call."),
    KEY("embedding_timeout_ms", KEY_UINT, struct semantic_settings, embedding_timeout_ms, .preset = "2000",
        .min = 1, .max = 600000, .unit = "milliseconds", .doc = "For one embedding."),
    KEY("shadow_ratio", KEY_FLOAT, struct semantic_settings, shadow_ratio, .preset = "0.0", .max = 1,
        .doc = "Share of hits that are not served but compared with the fresh reply, to measure precision."),
};
const struct section schema_semantic =
    SECTION_AS("routes.cache.semantic", semantic_keys, "Hits by meaning after an exact miss.", 0,
               offsetof(struct semantic_settings, present), NO_FIELD);
