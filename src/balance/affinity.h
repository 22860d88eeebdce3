/* SPDX-License-Identifier: Apache-2.0
 *
 * What a strategy that looks for the prompt's cache has in hand: the index of prompts served and each
 * target's slot in it. Inside of balance/.
 */
#ifndef ROLTER_BALANCE_AFFINITY_H
#define ROLTER_BALANCE_AFFINITY_H

#include "balance/strategy.h"

/* A share below this is no match (A11): a role word or a greeting must not draw cold prompts together. */
#define AFFINITY_SHARE_MIN 0.1

struct affinity {
    struct prefix_index *index; /* the balancer's */
    uint32_t *slot;             /* by target */
};

/* Slots go by identity, so a target that moved in the list, or was away for a reload, finds its own again. */
void affinity_init(struct affinity *a, const struct balancer *b);
void affinity_fini(struct affinity *a, const struct balancer *b);

/* Frees what was known of replicas that lost their cache, also when no requests come that would; for `tend`.
 */
void affinity_tend(const struct affinity *a, const struct balancer *b);

/* Before a match: a replica that was restarted or came back from the dead has lost its cache (A18). */
static inline void affinity_look(const struct affinity *a, const struct balancer *b, unsigned i)
{
    prefix_slot_generation(a->index, a->slot[i], provider_generation(b->providers[i]));
}

/* The prompt is <i>'s from now on. */
static inline struct prefix_receipt affinity_record(const struct affinity *a, const struct pick_context *c,
                                                    unsigned i, const struct prefix_hit *hit)
{
    return (c->settles ? prefix_record_pending : prefix_record)(a->index, a->slot[i], c->prompt, hit);
}

/* How warm a target is (R1). One for which the index has no slot stays cold; so that it does not win every
 * tie, what it was given by all routes counts. */
static inline uint64_t affinity_warmth(const struct affinity *a, const struct balancer *b, unsigned i)
{
    return a->slot[i] == PREFIX_NO_SLOT ? target_served(b->targets[i].target)
                                        : prefix_warmth(a->index, a->slot[i]);
}

/* Shares are divided out, not multiplied, so that 55 of 100 bytes are what "0.55" in a configuration says. */
static inline double affinity_share(uint32_t matched, size_t of)
{
    return of ? (double)matched / (double)of : 0;
}

/* The fewest matched bytes of <of> that are a match: two divisions for a pick, not one for each target. */
static inline uint32_t affinity_least(size_t of)
{
    uint32_t n = (uint32_t)(AFFINITY_SHARE_MIN * (double)of);
    while (n > 0 && affinity_share(n - 1, of) >= AFFINITY_SHARE_MIN)
        n--;
    while (n < of && affinity_share(n, of) < AFFINITY_SHARE_MIN)
        n++;
    return n;
}

#endif
