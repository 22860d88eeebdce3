/* SPDX-License-Identifier: Apache-2.0
 *
 * What `least_prefill` has learnt in one place of the configuration: the mirror, a closed loop for each of
 * its lanes, and the bytes of a token. The balancers that stand there one after the other share it. Inside of
 * balance/.
 */
#ifndef ROLTER_BALANCE_PREFILL_MEMORY_H
#define ROLTER_BALANCE_PREFILL_MEMORY_H

#include "balance/block_chain.h"
#include "balance/mirror.h"
#include "balance/prefill_claims.h"
#include "balance/prefix_loop.h"
#include "balance/strategy.h"

/* A replica's cache when nobody knows it. */
#define CACHE_TOKENS_DEFAULT 1000000u

struct prefill_memory {
    atomic_uint refs;
    struct mirror *mirror;
    _Atomic(struct prefix_loop *) loops[MIRROR_LANES_MAX];
    _Atomic uint32_t seen[MIRROR_LANES_MAX]; /* generation of the lane's provider, + 1; 0 = not asked yet */
    uint64_t owner[MIRROR_LANES_MAX];        /* target whose replies the loop has learnt from; of reloads */
    struct prefix_lock lock;                 /* the sums */
    double bytes, tokens;                    /* fading */
    _Atomic uint64_t token_bytes;            /* a double */
    struct placement_sink sink;
    struct prefill_claims claims;
};

struct prefill_memory *prefill_memory_new(void);
struct prefill_memory *prefill_memory_ref(struct prefill_memory *m);
void prefill_memory_unref(struct prefill_memory *m);

/* Loops of lanes that are in use. */
static inline struct prefix_loop *prefill_loop(const struct prefill_memory *m, uint32_t lane)
{
    return atomic_load_explicit(&m->loops[lane], memory_order_acquire);
}
/* For the target of this identity: a lane that was another one's has learnt nothing. Reloads only. */
void prefill_loop_make(struct prefill_memory *m, uint32_t lane, uint64_t identity);

/* Bytes of a prompt for each of its tokens, as the engines count them. */
double prefill_token_bytes(const struct prefill_memory *m);
void prefill_learn_tokens(struct prefill_memory *m, uint64_t bytes, uint64_t tokens);

/* Blocks that the mirror of this target should hold. */
uint32_t prefill_blocks(const struct prefill_memory *m, const struct pool_target *t, double scale);

/* The state of one balancer. */
struct prefill_state {
    struct prefill_memory *memory;
    uint32_t *lane;               /* by target */
    struct mirror_lane_set lanes; /* all of them */
    uint64_t *name;               /* hash of the provider's name: owners are told apart by it (R14) */
    _Atomic uint64_t generations; /* sum of all providers' when they were looked at last */
};

static inline double block_bytes(uint32_t blocks)
{
    return (double)(int32_t)blocks * BLOCK_BYTES; /* processors convert signed numbers by one instruction */
}

/* prefill_learn.c: of struct strategy. */
void prefill_first_token(struct balancer *b, struct pick_receipt *receipt, uint64_t now_us, bool is_timed);
double prefill_learn(struct balancer *b, struct pick_receipt *receipt, const struct prompt_usage *u);
void prefill_tend(struct balancer *b);
unsigned prefill_take_resets(struct balancer *b, unsigned i, enum mirror_reset why, bool *ret_is_news);
bool prefill_mirror_stats(const struct balancer *b, unsigned i, struct mirror_stats *ret);

#endif
