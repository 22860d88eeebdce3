/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/strategy.h"

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    return (struct choice){(int)candidates_nth(set, below(c->rng, set->count)), PICK_RANDOM};
}

const struct strategy strategy_random = {
    .name = "random",
    .choose = choose,
};
