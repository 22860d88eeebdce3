/* SPDX-License-Identifier: Apache-2.0
 *
 * The partition of a request that is looked up by meaning: SHA-256 over everything about it but the text that
 * is embedded (cache/semantic_text.h) and the root members user and metadata. Only entries of one partition
 * are ever compared, so what stands in it is matched exactly: dialect, model, tools, sampling and length
 * parameters, response format, stream, instructions with their places, the roles of the other turns, members
 * that nobody here knows; headers, query, route and what it makes of requests; who shares entries; and where
 * vectors come from.
 *
 * Equalities are those of the exact key (cache/canon.h). Cost: one pass over the body's index. Thread: any.
 */
#ifndef ROLTER_CACHE_SEMANTIC_PARTITION_H
#define ROLTER_CACHE_SEMANTIC_PARTITION_H

#include "cache/key.h"

/* The layout of all that semantic lookups keep: goes up whenever rules of the partition, of the text, of
 * signatures (LEXICAL_VERSION) or the form in Redis change. Entries of other layouts are never read and
 * expire. The number stands in the keys: <namespace>:semantic:v5. Versions 1 and 2 are other programs'. */
enum { SEMANTIC_LAYOUT_VERSION = 5 };

struct semantic_source {
    struct span provider, api_base, model; /* of embeddings */
};

/* For a request that semantic_text and key_refuses let pass. */
void semantic_partition(const struct key_input *in, const struct semantic_source *source, struct arena *a,
                        struct cache_digest *ret);

#endif
