/* SPDX-License-Identifier: Apache-2.0
 *
 * The candidate with the least load. Equal loads (an idle pool, a burst) go to the one that this pool has
 * picked least recently: a rotation that keeps working when candidates come and go, and that gives a newcomer
 * one turn, not all of them until its total has caught up. Among those never picked: the one that has served
 * least (for other pools), then whoever comes next.
 */
#include <stdlib.h>

#include "balance/strategy.h"
#include "base/mem.h"

/* One per target: the ticket of its last pick, 0 = never. */
typedef _Atomic uint64_t stamp;

/* Each failed try is another thread's pick done. Only threads that do nothing but pick get near the bound;
 * then a turn is shared, which the loads will show. */
enum { TRIES_MAX = 16 };

struct rank {
    unsigned load;
    uint64_t stamp, served;
};

static bool is_better(const struct rank *x, const struct rank *y)
{
    if (x->load != y->load)
        return x->load < y->load;
    if (x->stamp != y->stamp)
        return x->stamp < y->stamp;
    return x->served < y->served;
}

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    stamp *stamps = b->state;
    unsigned best = 0;
    p->why.has_load = true;
    for (int tries = TRIES_MAX; tries > 0; tries--) {
        struct rank least = {.load = UINT32_MAX, .stamp = UINT64_MAX, .served = UINT64_MAX};
        bool found = false;
        CANDIDATES_EACH(i, set)
        {
            struct rank r = {.load = load_of(b, (unsigned)i, c->now_ms)};
            if (r.load > least.load)
                continue;
            r.stamp = atomic_load_explicit(&stamps[i], memory_order_relaxed);
            r.served = r.stamp == 0 ? target_served(b->targets[i].target) : 0;
            if (!found || is_better(&r, &least)) {
                least = r;
                best = (unsigned)i;
                found = true;
            }
        }
        p->why.load = p->why.least = least.load;
        /* Another thread that chose the same one a moment ago has changed its stamp: look again, so that two
         * requests at once do not share a turn. A ticket drawn before the look might be old by now and give
         * the target another turn. */
        uint64_t ticket = atomic_fetch_add_explicit(&b->ticket, 1, memory_order_relaxed) + 1;
        if (atomic_compare_exchange_strong_explicit(&stamps[best], &least.stamp, ticket, memory_order_relaxed,
                                                    memory_order_relaxed))
            break;
    }
    return (struct choice){(int)best, PICK_LEAST_LOAD};
}

static void start(struct balancer *b, struct balancer *previous)
{
    stamp *stamps = mem_array(b->n, sizeof *stamps);
    b->state = stamps;
    if (!previous)
        return;
    stamp *before = previous->state;
    for (unsigned i = 0; i < b->n; i++) {
        int at = balancer_find(previous, target_identity(b->targets[i].target));
        if (at >= 0)
            atomic_init(&stamps[i], atomic_load_explicit(&before[at], memory_order_relaxed));
    }
    atomic_init(&b->ticket, atomic_load_explicit(&previous->ticket, memory_order_relaxed));
}

static void stop(struct balancer *b)
{
    free(b->state);
}

const struct strategy strategy_least_load = {
    .name = "least_load",
    .start = start,
    .stop = stop,
    .choose = choose,
};
