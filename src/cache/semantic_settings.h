/* SPDX-License-Identifier: Apache-2.0
 *
 * [routes.cache.semantic] as plain data; names, defaults and units stand in src/config/schema_semantic.c.
 */
#ifndef ROLTER_CACHE_SEMANTIC_SETTINGS_H
#define ROLTER_CACHE_SEMANTIC_SETTINGS_H

#include <stdbool.h>

enum semantic_guard { SEMANTIC_GUARD_NONE, SEMANTIC_GUARD_LEXICAL };
enum semantic_order { SEMANTIC_WAIT, SEMANTIC_RACE };

struct semantic_settings {
    bool present;
    const char *provider, *model; /* of embeddings */
    double threshold;             /* above 0, at most 1 */
    unsigned max_candidates;
    enum semantic_guard guard;
    enum semantic_order lookup;
    unsigned embedding_timeout_ms;
    double shadow_ratio; /* 0 to 1 */
};

#endif
