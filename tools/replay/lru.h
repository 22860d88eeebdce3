/* SPDX-License-Identifier: Apache-2.0
 *
 * A replica's block cache as the replay models it: at most <cap> block numbers, the least recently used one
 * out. A prompt's blocks are used tail first, as engines free them, so that shared beginnings live longest.
 * (rolter-sim's blocks.h models the engine in more detail: pinned blocks, leases. Here nothing is reserved
 * for what runs.)
 *
 * Complexity: O(1) a block. Memory: about 20 bytes a block of <cap>. Thread: one owner.
 */
#ifndef ROLTER_REPLAY_LRU_H
#define ROLTER_REPLAY_LRU_H

#include <stdbool.h>
#include <stdint.h>

struct lru;

/* <cap> 1 .. 2^30 */
struct lru *lru_new(uint32_t cap);
/* Told of each block that is put out, from inside lru_use. */
void lru_watch(struct lru *l, void (*evicted)(void *arg, uint32_t block), void *arg);
void lru_free(struct lru *l);
bool lru_has(const struct lru *l, uint32_t block);
/* How many of the leading blocks are there. Changes nothing. */
uint32_t lru_match(const struct lru *l, const uint32_t *blocks, uint32_t n);
/* All of them are there afterwards, the first one most recently used; of a prompt longer than the cache its
 * beginning.
 */
void lru_use(struct lru *l, const uint32_t *blocks, uint32_t n);
uint32_t lru_count(const struct lru *l);

#endif
