/* SPDX-License-Identifier: Apache-2.0
 *
 * What a block of KV cache is called here: a number made of the tokens in it and of all before it (P3), so
 * that replicas that name their blocks in different ways can be compared. Keyed anew in each process: nobody
 * outside can aim at a collision.
 */
#ifndef ROLTER_BALANCE_KV_IDS_H
#define ROLTER_BALANCE_KV_IDS_H

#include "base/span.h"

/* Makes the key; before anything else here, by whoever makes something that these names go into. Once; any
 * thread. Names that were made without it are not those that are made later. */
void kv_ids_init(void);
/* What the first block of a prompt hangs on. Base model: <adapter> empty. Never 0. */
uint64_t kv_root(struct span adapter, struct span salt);
/* Of the tokens of one block alone. */
uint64_t kv_digest(const uint32_t *token, size_t n);
/* The block with this digest behind the block <before>. Never 0. */
uint64_t kv_behind(uint64_t before, uint64_t digest);

#endif
