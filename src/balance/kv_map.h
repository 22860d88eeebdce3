/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of up to 32 caches hold a block: a hash table from the block's id to two bits for each cache. One
 * thread writes; any number read at the same time, without locks, and nobody ever waits. Part of the KV
 * block index (kv_source.h), for the files of balance/ only.
 *
 * Readers stand in an epoch section (epoch.h) from kv_map_view on. What a reader finds was true at some time
 * during its call. It may miss a block that is being added or removed meanwhile, never take one for another.
 *
 * Memory: 16 bytes for each block, and 9.1 to 11.4 for finding it. It does not shrink: the room of blocks
 * that went is used again.
 */
#ifndef ROLTER_BALANCE_KV_MAP_H
#define ROLTER_BALANCE_KV_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KV_SLOTS = 32 };
/* Where a cache has a block: the bits of a slot. */
enum kv_held { KV_HELD_GPU = 1, KV_HELD_LOWER = 2 };
#define KV_ALL_GPU UINT64_C(0x5555555555555555)

struct kv_map;

struct kv_map *kv_map_new(void);
void kv_map_free(struct kv_map *m); /* no readers, no writer */

/* For the writer. A node is a place in the map, never 0. */

/* The block's node, made when there was none. A node that nobody holds is given back by kv_map_set only, so
 * this is followed by that. O(1). */
uint32_t kv_map_node(struct kv_map *m, uint64_t id);
uint64_t kv_map_id(const struct kv_map *m, uint32_t node);
/* enum kv_held of <slot>, or-ed. */
unsigned kv_map_get(const struct kv_map *m, uint32_t node, unsigned slot);
/* The node ends when its last bit goes. */
void kv_map_set(struct kv_map *m, uint32_t node, unsigned slot, unsigned held);
size_t kv_map_blocks(const struct kv_map *m);
size_t kv_map_bytes(const struct kv_map *m);

/* For readers. */

/* What a walk finds of one slot. */
struct kv_run {
    uint32_t blocks; /* leading ones that are there */
    uint32_t lower;  /* of these: in a lower tier only */
};
/* Along the blocks with these digests behind <root>, as long as a slot of <slots> (two bits for each) holds
 * them. ret[slot] is set for slots of <slots>. In a section. O(the longest run). */
void kv_map_walk(const struct kv_map *m, uint64_t root, uint64_t (*digest)(void *arg, size_t block),
                 void *arg, size_t n_blocks, uint64_t slots, struct kv_run ret[KV_SLOTS]);

#endif
