/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/prefill_memory.h"

#include <stdlib.h>
#include <string.h>

#include "balance/block_chain.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/mem.h"
#include "fleet/prefill.h"

#define FADE 0.99

struct prefill_memory *prefill_memory_new(void)
{
    struct prefill_memory *m = aligned_alloc(_Alignof(struct prefill_memory), sizeof *m);
    CHECK_MSG(m != NULL, "out of memory");
    memset(m, 0, sizeof *m);
    atomic_init(&m->refs, 1);
    m->mirror = mirror_new();
    atomic_init(&m->token_bytes, double_to_bits(BYTES_PER_TOKEN));
    return m;
}

struct prefill_memory *prefill_memory_ref(struct prefill_memory *m)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void prefill_memory_unref(struct prefill_memory *m)
{
    if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned i = 0; i < MIRROR_LANES_MAX; i++)
        free(atomic_load(&m->loops[i]));
    mirror_unref(m->mirror);
    free(m);
}

void prefill_loop_make(struct prefill_memory *m, uint32_t lane, uint64_t identity)
{
    struct prefix_loop *l = prefill_loop(m, lane);
    if (l && m->owner[lane] == identity)
        return;
    m->owner[lane] = identity;
    atomic_store_explicit(&m->seen[lane], 0, memory_order_relaxed);
    if (l) { /* the one before has gone, with all who used it */
        prefix_loop_init(l);
        return;
    }
    l = MEM_NEW(struct prefix_loop);
    prefix_loop_init(l);
    atomic_store_explicit(&m->loops[lane], l, memory_order_release);
}

double prefill_token_bytes(const struct prefill_memory *m)
{
    return bits_to_double(atomic_load_explicit(&m->token_bytes, memory_order_relaxed));
}

/* Prompts of media alone, or of a shape that nobody knows, would teach nonsense. */
void prefill_learn_tokens(struct prefill_memory *m, uint64_t bytes, uint64_t tokens)
{
    enum { LEAST = 16 };
    if (tokens < LEAST || bytes < LEAST || bytes > tokens * 64 || tokens > bytes * 4)
        return;
    prefix_lock_acquire(&m->lock);
    m->bytes = m->bytes * FADE + (double)bytes;
    m->tokens = m->tokens * FADE + (double)tokens;
    atomic_store_explicit(&m->token_bytes, double_to_bits(m->bytes / m->tokens), memory_order_relaxed);
    prefix_lock_release(&m->lock);
}

static double cache_tokens(const struct pool_target *t)
{
    if (t->cache_tokens)
        return (double)t->cache_tokens;
    double known = provider_cache_tokens(target_provider(t->target));
    return known > 0 ? known : CACHE_TOKENS_DEFAULT;
}

uint32_t prefill_blocks(const struct prefill_memory *m, const struct pool_target *t, double scale)
{
    double blocks = cache_tokens(t) * prefill_token_bytes(m) / BLOCK_BYTES * scale;
    return blocks < 1 ? 1 : blocks < MIRROR_BLOCKS_MAX ? (uint32_t)blocks : MIRROR_BLOCKS_MAX;
}
