/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/strategy.h"

unsigned rotation_next(struct balancer *b, const struct candidates *set)
{
    uint64_t ticket = atomic_fetch_add_explicit(&b->ticket, 1, memory_order_relaxed);
    unsigned turn = (unsigned)(ticket % b->n);
    if (candidates_has(set, turn))
        return turn;
    /* That one is spent. Skip all turns up to the next candidate's in one step; other threads take theirs
     * from the same counter, so no turn of a candidate is lost or given twice. */
    uint64_t seen = atomic_load_explicit(&b->ticket, memory_order_relaxed), after;
    do {
        unsigned from = (unsigned)(seen % b->n);
        turn = candidates_from(set, from);
        after = seen + (turn >= from ? turn - from : turn + b->n - from) + 1;
    } while (!atomic_compare_exchange_weak_explicit(&b->ticket, &seen, after, memory_order_relaxed,
                                                    memory_order_relaxed));
    return turn;
}

void rotation_continue(struct balancer *b, struct balancer *previous)
{
    if (!previous)
        return;
    uint64_t ticket = atomic_load_explicit(&previous->ticket, memory_order_relaxed);
    for (unsigned i = 0; i < previous->n; i++) {
        const struct target *next = previous->targets[(ticket + i) % previous->n].target;
        int at = balancer_find(b, target_identity(next));
        if (at >= 0) {
            atomic_init(&b->ticket, (uint64_t)at);
            return;
        }
    }
}

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    return (struct choice){(int)rotation_next(b, set), PICK_ROTATION};
}

const struct strategy strategy_round_robin = {
    .name = "round_robin",
    .start = rotation_continue,
    .choose = choose,
};
