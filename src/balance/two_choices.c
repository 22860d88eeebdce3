/* SPDX-License-Identifier: Apache-2.0
 *
 * Power of two choices: of two different candidates the one with less load. Nearly as even as asking
 * everyone, and a burst that sees the same loads does not run to the same target.
 */
#include "balance/strategy.h"

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    unsigned first = below(c->rng, set->count), second = below(c->rng, set->count - 1);
    second += second >= first;
    unsigned i = candidates_nth(set, first), j = candidates_nth(set, second);
    unsigned load_i = load_of(b, i, c->now_ms);
    unsigned load_j = load_of(b, j, c->now_ms);
    /* Which of the two was drawn first is chance, so a tie is settled by chance. */
    bool second_wins = load_j < load_i;
    p->why.has_load = true;
    p->why.load = second_wins ? load_j : load_i;
    p->why.least = p->why.load;
    p->why.runner_up = (int)(second_wins ? i : j);
    return (struct choice){(int)(second_wins ? j : i), PICK_TWO_CHOICES};
}

const struct strategy strategy_two_choices = {
    .name = "power_of_two",
    .choose = choose,
};
