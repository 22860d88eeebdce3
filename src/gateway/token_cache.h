/* SPDX-License-Identifier: Apache-2.0
 *
 * Token ids of conversations that an engine has tokenized, so that it is not asked again. Sharded; bounded by
 * bytes; least recently used out. Keys are digests that begin with token_cache_seed, a random number of this
 * process, so that nobody outside can aim at another's entry.
 *
 * Threads: any; one short lock a call (a leaf), for a look-up and one copy. It knows no requests and no HTTP.
 */
#ifndef ROLTER_GATEWAY_TOKEN_CACHE_H
#define ROLTER_GATEWAY_TOKEN_CACHE_H

#include "balance/balance.h"
#include "base/arena.h"

struct token_cache;

struct token_cache *token_cache_new(size_t max_bytes);
void token_cache_free(struct token_cache *c);
uint64_t token_cache_seed(const struct token_cache *c);

/* The ids of <key>, copied into <a>. O(ids). */
bool token_cache_get(struct token_cache *c, uint64_t key, struct arena *a, struct token_ids *ret);
/* Keeps a copy, unless it alone is larger than a sixteenth of the whole. O(ids + what goes out). */
void token_cache_put(struct token_cache *c, uint64_t key, const struct token_ids *ids);
/* Bytes in use, bookkeeping included. */
size_t token_cache_bytes(struct token_cache *c);

#endif
