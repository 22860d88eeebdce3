/* SPDX-License-Identifier: Apache-2.0
 *
 * What a strategy is, for the files of this folder only: a table of functions, and helpers over the
 * candidates of one pick. The dispatch (balance.c) has settled before who is a candidate, that there are at
 * least two, and what happens when nothing is eligible; a strategy only chooses.
 */
#ifndef ROLTER_BALANCE_STRATEGY_H
#define ROLTER_BALANCE_STRATEGY_H

#include <stdatomic.h>

#include "balance/balance.h"
#include "base/check.h"

enum { BALANCER_MAGIC = 0x62616c6e };

struct balancer {
    unsigned magic;
    atomic_uint refs;
    const struct strategy *strategy;
    enum strategy_id id;
    struct strategy_settings settings;
    unsigned n;
    struct pool_target *targets;
    struct provider **providers; /* of the targets: loads are read often */
    /* What was learnt about prompts and sessions, shared with the balancers before and after in this place,
     * also with those of another strategy that keeps the same; NULL for strategies that keep none. */
    struct prefix_index *prompts;
    struct session_map *sessions;
    void *state; /* the strategy's own, or NULL */
    /* Written at every pick, so it has a cache line of its own. */
    _Alignas(64) _Atomic uint64_t ticket;
};

/* Words of two sets, both of which a candidate is in. Bits past n are 0. */
struct candidates {
    const uint64_t *a, *b;
    unsigned n;     /* targets */
    unsigned words; /* of a and b */
    unsigned count; /* candidates */
};

static inline unsigned load_of(const struct balancer *b, unsigned i, uint64_t now_ms)
{
    return provider_load(b->providers[i], now_ms);
}

/* Bits set. The builtin is a call into libgcc unless one builds for newer machines only. */
static inline unsigned bits_count(uint64_t x)
{
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (unsigned)(x * 0x0101010101010101u >> 56);
}

struct choice {
    int index;
    enum pick_reason reason;
};

struct strategy {
    const char *name;
    bool reads_prompt;
    bool reads_tokens;
    bool reads_blocks;
    bool keeps_prompts, keeps_sessions; /* b->prompts, b->sessions are there */
    /* Sets b->state and b->ticket, from <previous> (same strategy, or NULL) by identity. May be NULL. */
    void (*start)(struct balancer *b, struct balancer *previous);
    void (*stop)(struct balancer *b);
    /* <set> has at least two candidates. <p> is for why and receipt. */
    struct choice (*choose)(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p);
    /* A pick without a choice, as there was one candidate only. May be NULL. */
    void (*only)(struct balancer *b, const struct pick_context *c, unsigned index, struct pick *p);
    /* May be NULL, when picks record themselves or nothing is recorded. */
    void (*record)(struct balancer *b, const struct prompt_blocks *blocks, struct pick_receipt *receipt);
    /* May be NULL, when nothing is ever recorded. */
    void (*withdraw)(struct balancer *b, const struct pick_receipt *receipt);
    /* May be NULL, when nothing is put out for a record. */
    unsigned (*settle)(struct balancer *b, const struct pick_receipt *receipt);
    /* May be NULL, when prompts are not charged; when nothing is learnt; when there is nothing to tend. */
    void (*first_token)(struct balancer *b, struct pick_receipt *receipt, uint64_t now_us, bool is_timed);
    double (*learn)(struct balancer *b, struct pick_receipt *receipt, const struct prompt_usage *u);
    void (*tend)(struct balancer *b);
    /* May be NULL, when there are no mirrors. */
    unsigned (*take_resets)(struct balancer *b, unsigned i, enum mirror_reset why, bool *ret_is_news);
    void (*set_sink)(struct balancer *b, const struct placement_sink *sink);
    enum place_result (*place)(struct balancer *b, const struct placement *p);
    /* May be NULL, when no prompts are kept. */
    void (*prefix_stats)(const struct balancer *b, unsigned i, struct prefix_stats *ret);
    bool (*mirror_stats)(const struct balancer *b, unsigned i, struct mirror_stats *ret);
};

extern const struct strategy strategy_round_robin, strategy_random, strategy_weighted, strategy_two_choices,
    strategy_least_load, strategy_hash_ring, strategy_cache_aware, strategy_pipeline, strategy_cheapest,
    strategy_fastest, strategy_predicted_latency, strategy_precise, strategy_lmcache, strategy_least_prefill;

static inline bool candidates_has(const struct candidates *s, unsigned i)
{
    return (s->a[i / 64] & s->b[i / 64]) >> (i % 64) & 1;
}

/* Position of the <k>th candidate, k < count. */
unsigned candidates_nth(const struct candidates *s, unsigned k);
/* First candidate at or after <from>, wrapping. There is one. */
unsigned candidates_from(const struct candidates *s, unsigned from);

/* Loop over all candidates, lowest first. */
#define CANDIDATES_EACH(i, set)                                                                              \
    for (unsigned i##_word = 0; i##_word < (set)->words; i##_word++)                                         \
        for (uint64_t i##_left = (set)->a[i##_word] & (set)->b[i##_word], i = 0;                             \
             i##_left && (i = i##_word * 64 + (unsigned)__builtin_ctzll(i##_left), true);                    \
             i##_left &= i##_left - 1)

/* Uniform in 0 .. n-1; the bias of under 2^-32 is far below what anyone could measure, the division is saved.
 */
static inline unsigned below(struct rng *r, unsigned n)
{
    return (unsigned)((rng_u64(r) >> 32) * n >> 32);
}

/* Whose turn it is: ticket modulo n; a ticket whose target is no candidate is spent and the next one taken,
 * so that candidates share the turns evenly, exactly so over all threads. */
unsigned rotation_next(struct balancer *b, const struct candidates *set);
/* Turns by who had the last one: for strategies that choose by rank and let equals take turns. One stamp per
 * target: the ticket of its last pick, 0 = never. A rotation that keeps working when candidates come and go,
 * and that gives a newcomer one turn, not all of them until its total has caught up. */
typedef _Atomic uint64_t turn_stamp;
/* For `start`; <before>: the stamps of <previous>, both may be NULL. Sets b->ticket. */
turn_stamp *turns_new(struct balancer *b, struct balancer *previous, const turn_stamp *before);
struct turn {
    uint64_t stamp;
    uint64_t served; /* of those that never had a turn in this pool: less to do for other pools comes first */
};
static inline struct turn turn_look(const struct balancer *b, const turn_stamp *stamps, unsigned i)
{
    struct turn t = {.stamp = atomic_load_explicit(&stamps[i], memory_order_relaxed)};
    t.served = t.stamp == 0 ? target_served(b->targets[i].target) : 0;
    return t;
}
static inline bool turn_is_before(const struct turn *x, const struct turn *y)
{
    return x->stamp != y->stamp ? x->stamp < y->stamp : x->served < y->served;
}
/* Takes the turn of <i>, which was found with this stamp. False when another thread has taken it since: look
 * again, so that two requests at once do not share a turn. */
bool turn_take(struct balancer *b, turn_stamp *stamps, unsigned i, uint64_t stamp);

/* Position in <b> of a target with this identity, or -1. O(n). */
int balancer_find(const struct balancer *b, uint64_t identity);
/* For `start`: the rotation goes on with the target whose turn it was. */
void rotation_continue(struct balancer *b, struct balancer *previous);

#endif
