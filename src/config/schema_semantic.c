/* SPDX-License-Identifier: Apache-2.0
 * Keys of the semantic cache.
 */
#include "config/schema.h"

static const char *const guard_words[] = {"none", "lexical", NULL};
static const char *const lookup_words[] = {"wait", "race", NULL};
static const struct key_spec semantic_keys[] = {
    LATER("provider", KEY_STRING, .flags = KEYF_REQUIRED, .doc = "Provider of embeddings."),
    LATER("model", KEY_STRING, .flags = KEYF_REQUIRED, .doc = "Embedding model."),
    LATER("threshold", KEY_FLOAT, .preset = "0.92", .max = 1, .doc = "Least cosine of a hit, above 0."),
    LATER("max_candidates", KEY_UINT, .preset = "256", .min = 1, .max = 1000000,
          .doc = "Entries compared at most."),
    LATER("guard", KEY_ENUM, .preset = "\"none\"", .words = guard_words, .doc = "Second test of a hit."),
    LATER("lookup", KEY_ENUM, .preset = "\"wait\"", .words = lookup_words,
          .doc = "Whether the upstream call waits for the lookup."),
    LATER("embedding_timeout_ms", KEY_UINT, .preset = "2000", .min = 1, .unit = "milliseconds",
          .doc = "For one embedding."),
    LATER("shadow_ratio", KEY_FLOAT, .preset = "0.0", .max = 1,
          .doc = "Share of hits that are only measured."),
};
const struct section schema_semantic =
    SECTION("routes.cache.semantic", semantic_keys, "Hits by meaning after an exact miss.");
