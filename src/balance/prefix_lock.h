/* SPDX-License-Identifier: Apache-2.0
 *
 * A mutex of four bytes for nodes of the prefix index: they are many and small. Held for tens of nanoseconds;
 * a waiter tries a little, then sleeps in the kernel. Not recursive.
 */
#ifndef ROLTER_BALANCE_PREFIX_LOCK_H
#define ROLTER_BALANCE_PREFIX_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct prefix_lock {
    _Atomic uint32_t word; /* 0 free, 1 held, 2 held and someone sleeps */
};

void prefix_lock_wait(struct prefix_lock *l);
void prefix_lock_wake(struct prefix_lock *l);

static inline bool prefix_lock_try(struct prefix_lock *l)
{
    uint32_t unheld = 0;
    return atomic_compare_exchange_strong_explicit(&l->word, &unheld, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void prefix_lock_acquire(struct prefix_lock *l)
{
    if (!prefix_lock_try(l))
        prefix_lock_wait(l);
}

static inline void prefix_lock_release(struct prefix_lock *l)
{
    if (atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2)
        prefix_lock_wake(l);
}

#endif
