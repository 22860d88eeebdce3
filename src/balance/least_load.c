/* SPDX-License-Identifier: Apache-2.0
 *
 * The candidate with the least load. Equal loads (an idle pool, a burst) go to the one that this pool has
 * picked least recently: a rotation that keeps working when candidates come and go, and that gives a newcomer
 * one turn, not all of them until its total has caught up. Among those never picked: the one that has served
 * least (for other pools), then whoever comes next.
 */
#include <stdlib.h>

#include "balance/strategy.h"

/* Each failed try is another thread's pick done. Only threads that do nothing but pick get near the bound;
 * then a turn is shared, which the loads will show. */
enum { TRIES_MAX = 16 };

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    turn_stamp *stamps = b->state;
    unsigned best = 0;
    p->why.has_load = true;
    for (int tries = TRIES_MAX; tries > 0; tries--) {
        unsigned least = UINT32_MAX;
        struct turn first = {.stamp = UINT64_MAX, .served = UINT64_MAX};
        CANDIDATES_EACH(i, set)
        {
            unsigned load = load_of(b, (unsigned)i, c->now_ms);
            if (load > least)
                continue;
            struct turn t = turn_look(b, stamps, (unsigned)i);
            if (load < least || turn_is_before(&t, &first)) {
                least = load;
                first = t;
                best = (unsigned)i;
            }
        }
        p->why.load = p->why.least = least;
        if (turn_take(b, stamps, best, first.stamp))
            break;
    }
    return (struct choice){(int)best, PICK_LEAST_LOAD};
}

static void start(struct balancer *b, struct balancer *previous)
{
    b->state = turns_new(b, previous, previous ? previous->state : NULL);
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
