/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/strategy.h"
#include "base/mem.h"

turn_stamp *turns_new(struct balancer *b, struct balancer *previous, const turn_stamp *before)
{
    turn_stamp *stamps = mem_array(b->n, sizeof *stamps);
    if (!previous)
        return stamps;
    for (unsigned i = 0; i < b->n; i++) {
        int at = balancer_find(previous, target_identity(b->targets[i].target));
        if (at >= 0)
            atomic_init(&stamps[i], atomic_load_explicit(&before[at], memory_order_relaxed));
    }
    atomic_init(&b->ticket, atomic_load_explicit(&previous->ticket, memory_order_relaxed));
    return stamps;
}

bool turn_take(struct balancer *b, turn_stamp *stamps, unsigned i, uint64_t stamp)
{
    /* A ticket drawn before the look might be old by now and give the target another turn. */
    uint64_t ticket = atomic_fetch_add_explicit(&b->ticket, 1, memory_order_relaxed) + 1;
    return atomic_compare_exchange_strong_explicit(&stamps[i], &stamp, ticket, memory_order_relaxed,
                                                   memory_order_relaxed);
}
