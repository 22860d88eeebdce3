/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing a target. A balancer belongs to a pool (the targets of a route or of a variant), holds the
 * strategy's shared state, and is asked once per attempt. It knows no sockets and no JSON, so the same code
 * picks in the gateway, in unit tests and in an offline replay.
 *
 * Eligibility (A12, A13): the caller says once per pick which targets may be used: not tried by this request,
 * not cooling, healthy, breaker not open, allowed to the caller's key. Every strategy compares eligible
 * targets only; when there is none, balance_pick weighs all that the key may use and that were not tried
 * (fail open).
 *
 * Threads: balance_pick is safe from many threads at a time; strategies use atomics, no lock across a wait.
 * Cost: no allocation up to 64 targets; O(targets).
 */
#ifndef ROLTER_BALANCE_BALANCE_H
#define ROLTER_BALANCE_BALANCE_H

#include "base/rng.h"
#include "fleet/target.h"

enum strategy_id {
    STRATEGY_ROUND_ROBIN,
    STRATEGY_RANDOM,
    STRATEGY_WEIGHTED,
    STRATEGY_POWER_OF_TWO,
    STRATEGY_LEAST_LOAD,
    STRATEGY_CONSISTENT_HASH,
    STRATEGY_COUNT
};

struct pool_target {
    struct target *target;
    unsigned weight; /* >= 1 */
};

struct balancer;

/* The name in configurations, rows and metrics. */
const char *strategy_name(enum strategy_id id);
bool strategy_by_name(struct span name, enum strategy_id *ret);

/* <targets> is copied; the targets themselves are borrowed: the plan that makes the balancer has references.
 * <previous> (may be NULL) is the balancer that stood in the same place before a reload: what it has learnt
 * is taken over by target identity, not by position. Reference counted, made with one reference. */
struct balancer *balancer_new(enum strategy_id id, const struct pool_target *targets, unsigned n,
                              struct balancer *previous);
struct balancer *balancer_ref(struct balancer *b);
void balancer_unref(struct balancer *b);
unsigned balancer_size(const struct balancer *b);
struct target *balancer_target(const struct balancer *b, unsigned i);

/* One bit per target. Up to 64 targets live in `one`; larger pools in `many` (the caller's memory). */
struct target_set {
    uint64_t one;
    uint64_t *many; /* NULL up to 64 targets */
    unsigned n;
};
void target_set_init(struct target_set *s, unsigned n, uint64_t *many_words);
static inline bool target_set_has(const struct target_set *s, unsigned i)
{
    return (s->many ? s->many[i / 64] >> (i % 64) : s->one >> i) & 1;
}
static inline void target_set_add(struct target_set *s, unsigned i)
{
    if (s->many)
        s->many[i / 64] |= (uint64_t)1 << (i % 64);
    else
        s->one |= (uint64_t)1 << i;
}
bool target_set_empty(const struct target_set *s);

/* What a strategy sees of a request (A9). */
struct pick_context {
    struct target_set allowed;  /* the key may use it and this request has not tried it */
    struct target_set eligible; /* of those: usable now */
    struct span session;        /* x-session-id, or empty */
    struct span prompt;         /* bounded text of the conversation */
    uint64_t prompt_len;        /* of the whole prompt, bytes */
    uint64_t prompt_digest;     /* XXH3 of the whole prompt; 0 and prompt_len 0 = no prompt */
    uint64_t now_ms;
    struct rng *rng;
};

enum pick_reason {
    PICK_NONE, /* no target left */
    PICK_ONLY, /* one eligible target */
    PICK_ROTATION,
    PICK_RANDOM,
    PICK_WEIGHT,
    PICK_LEAST_LOAD,
    PICK_TWO_CHOICES,
    PICK_HASH,      /* owner on the ring */
    PICK_HASH_NEXT, /* the owner cannot be used; the next on the ring */
    PICK_FAIL_OPEN, /* none was eligible; the strategy chose among all that are left. Rows say so; struct pick
                       does not, it has a flag of its own. */
    PICK_REASON_COUNT
};
const char *pick_reason_name(enum pick_reason r);

struct pick {
    int index; /* -1 when nothing is left */
    enum pick_reason reason;
    bool fail_open; /* nothing was eligible; all allowed ones were weighed */
};

struct pick balance_pick(struct balancer *b, const struct pick_context *c);

/* Fills `eligible` from `allowed` by asking each target once; returns whether it has any. */
bool balance_fill_eligible(const struct balancer *b, const struct reliability *r, struct pick_context *c);

#endif
