/* SPDX-License-Identifier: Apache-2.0
 *
 * What engines say they hold in their KV caches (P3 to P6): one source per provider, with a stream for each
 * data-parallel rank. The signals thread tells what the engine's events say; picks ask how much of a prompt
 * each of their targets has.
 *
 * Neither sockets nor encodings are known here (signals/kv_*.h). Sources are found by name, so that they
 * outlive reloads.
 *
 * Threads: one writer, the signals thread, for what is marked so; everything else from any thread. Picks take
 * no lock and never wait for the writer.
 */
#ifndef ROLTER_BALANCE_KV_SOURCE_H
#define ROLTER_BALANCE_KV_SOURCE_H

#include "balance/balance.h"
#include "balance/kv_blocks.h"

enum { KV_RANKS_MAX = 1024, KV_BLOCK_TOKENS_MAX = 65536 };

struct kv_source;

/* Finds or makes; with a reference. Another number of ranks is another source. */
struct kv_source *kv_source_get(const char *name, unsigned ranks);
struct kv_source *kv_source_ref(struct kv_source *s);
/* The writer has called kv_source_stop before it gives its own reference back. */
void kv_source_unref(struct kv_source *s);
const char *kv_source_name(const struct kv_source *s);
unsigned kv_source_ranks(const struct kv_source *s);

/* Writer */

/* <max_blocks>: held by all ranks together (R7); <stale_ms>: how long a stream counts without a sign of life.
 */
void kv_source_configure(struct kv_source *s, size_t max_blocks, uint64_t stale_ms);
/* A stream that is not trusted counts as if it were not there (R10). New ones are not trusted. */
void kv_source_trust(struct kv_source *s, unsigned rank, bool trusted);
/* The stream is alive: an event, or a heartbeat. */
void kv_source_alive(struct kv_source *s, unsigned rank, uint64_t now_ms);
/* The same from a connection that stands: it was alive at <ms>, perhaps later. */
void kv_source_alive_since(struct kv_source *s, unsigned rank, uint64_t ms);
/* Everything that the rank held is gone, at once for picks; memory follows with kv_sources_sweep. */
void kv_source_clear(struct kv_source *s, unsigned rank);
/* The engine serves an adapter of this name (R5). */
void kv_source_adapter(struct kv_source *s, struct span name);

enum kv_kept {
    KV_KEPT,
    KV_FULL,   /* put out again at once: what comes behind it need not be told */
    KV_REFUSED /* kv_blocks_store says why */
};
/* A block of <tokens> tokens; <overlap> more of the next block were part of its digest. When that is more
 * than max_blocks, others go (kv_blocks_evict), of the rank that holds most. */
enum kv_kept kv_source_store(struct kv_source *s, unsigned rank, const struct kv_store *store,
                             unsigned tokens, unsigned overlap);
void kv_source_store_known(struct kv_source *s, unsigned rank, uint64_t hash, enum kv_tier tier);
void kv_source_remove(struct kv_source *s, unsigned rank, uint64_t hash, enum kv_tier tier);
bool kv_source_knows(const struct kv_source *s, unsigned rank, uint64_t hash);
/* Nobody tells any more: not trusted, empty. */
void kv_source_stop(struct kv_source *s);
/* Goes on giving memory of cleared streams back, about <blocks> of them; false when nothing is left to do. */
bool kv_sources_sweep(size_t blocks);
/* Blocks held over all ranks (any thread), and the memory for them without the part that sources share. */
size_t kv_source_blocks(const struct kv_source *s);
size_t kv_source_bytes(const struct kv_source *s);
/* Of the part that they share. */
size_t kv_sources_shared_bytes(void);

/* Readers */

/* Milliseconds since the last sign of life, of the rank that has been silent longest; UINT64_MAX = never. */
uint64_t kv_source_age_ms(const struct kv_source *s, uint64_t now_ms);
/* Some rank is trusted and has been heard of lately. */
bool kv_source_is_fresh(const struct kv_source *s, uint64_t now_ms);

/* One target's question and its answer. */
struct kv_ask {
    const struct kv_source *source; /* may be NULL */
    const char *model;              /* upstream model */
};
struct kv_share {
    bool trusted; /* the source can say */
    float share;  /* of the prompt's tokens: leading blocks that are there, lower tiers at KV_LOWER_SHARE */
    uint32_t tokens; /* of these blocks, whatever their tier */
};
#define KV_LOWER_SHARE 0.8
/* Asks for up to 64 targets at once, in one walk over the prompt as long as their caches have the same block
 * size (and 32 at a time). False when none can say; then <ret> is all 0. The best rank counts (R6).
 * O(tokens). */
bool kv_match(const struct token_ids *tokens, struct span salt, uint64_t now_ms, const struct kv_ask *ask,
              unsigned n, struct kv_share *ret);

#endif
