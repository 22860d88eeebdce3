/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocks of one engine cache by the engine's own names for them (hashes), as its events tell them: how
 * many copies there are, what stands before each, and which is to go first. What it holds shows in a slot of
 * a kv_map. Part of the KV block index (kv_source.h); one thread, for the files of balance/ only.
 *
 * A block whose predecessor is not known waits: it is nobody's prompt until its predecessor is announced. A
 * block that went but has others behind it is remembered for them, without being held. Both are bounded.
 *
 * Memory: 32 bytes a block, 2.7 to 4 for finding it; 24 more for each that waits or is remembered.
 */
#ifndef ROLTER_BALANCE_KV_BLOCKS_H
#define ROLTER_BALANCE_KV_BLOCKS_H

#include "balance/kv_map.h"

struct kv_blocks;

enum kv_tier { KV_TIER_GPU, KV_TIER_LOWER };
/* Copies that are counted; more are taken for as many. */
enum { KV_COPIES_MAX = 7 };

/* <map> stays; <slot> of it is this cache's alone. */
struct kv_blocks *kv_blocks_new(struct kv_map *map, unsigned slot);
/* Empties the slot and frees, at most <most> blocks in one call; false when there are more. */
bool kv_blocks_free(struct kv_blocks *b, size_t most);

struct kv_store {
    uint64_t hash;   /* the engine's */
    bool is_first;   /* of its prompt: <root> counts, else <before> */
    uint64_t before; /* the engine's hash of the block before */
    uint64_t root;   /* kv_root */
    uint64_t digest; /* kv_digest of the tokens */
    uint16_t tag; /* tells blocks of equal hash apart that do not share (salts that are not in the hash); 0 =
                     none */
    enum kv_tier tier;
};
/* One copy more. A hash with other tokens than before is another block from now on. False when the block
 * cannot be kept: it names itself as its predecessor, or one whose tag is another. O(1), but for blocks that
 * have waited for this one. */
bool kv_blocks_store(struct kv_blocks *b, const struct kv_store *s);
/* One copy more of a block whose tokens are known; else nothing. */
void kv_blocks_store_known(struct kv_blocks *b, uint64_t hash, enum kv_tier tier);
/* One copy less; nothing when there is none. */
void kv_blocks_remove(struct kv_blocks *b, uint64_t hash, enum kv_tier tier);
bool kv_blocks_knows(const struct kv_blocks *b, uint64_t hash);

/* Puts out one held block: of those that wait, else of all, the one that was stored longest ago and has
 * nothing behind it. False when there is none. O(1) amortised. */
bool kv_blocks_evict(struct kv_blocks *b);

size_t kv_blocks_held(const struct kv_blocks *b);
size_t kv_blocks_all(const struct kv_blocks *b); /* with remembered ones */
size_t kv_blocks_bytes(const struct kv_blocks *b);

/* Checks that counts, links and the map agree; for tests. O(blocks). */
void kv_blocks_check(const struct kv_blocks *b);

#endif
