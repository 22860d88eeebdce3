/* SPDX-License-Identifier: Apache-2.0
 *
 * Smooth weighted round robin (3:1 gives 0, 0, 1, 0), worked out in advance: the sequence repeats after the
 * sum of the weights, so one counter over a table gives it to all threads, exactly.
 *
 * Built for weights like 1..100. Weights that have a common divisor are divided by it; if the table would
 * still have more than TURNS_MAX entries, the weights are scaled down to it and the ratio is as exact as that
 * allows.
 */
#include <stdlib.h>

#include "balance/strategy.h"
#include "base/mem.h"

enum { TURNS_MAX = 65536 };
/* How many turns of others a pick skips before it draws by weight instead: only pools whose heavy target is
 * out and whose candidates have next to no weight get there. */
enum { SKIP_MAX = 1024 };

struct schedule {
    uint32_t n;
    uint32_t turns[];
};

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Divides by the common divisor; gives the sum. */
static uint64_t reduce(uint64_t *weights, unsigned n)
{
    uint64_t divisor = 0, sum = 0;
    for (unsigned i = 0; i < n; i++)
        divisor = gcd(divisor, weights[i]);
    for (unsigned i = 0; i < n; i++)
        sum += weights[i] /= divisor;
    return sum;
}

static uint64_t scale(uint64_t *weights, unsigned n, uint64_t sum)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t w = weights[i] * TURNS_MAX / sum; /* a weight has 32 bits */
        weights[i] = w ? w : 1;
    }
    return reduce(weights, n);
}

static struct schedule *build(const struct balancer *b)
{
    uint64_t *weights = mem_array(b->n, sizeof *weights);
    for (unsigned i = 0; i < b->n; i++)
        weights[i] = b->targets[i].weight;
    uint64_t sum = reduce(weights, b->n);
    if (sum > TURNS_MAX)
        sum = scale(weights, b->n, sum);
    struct schedule *s = mem_zalloc(sizeof *s + sum * sizeof s->turns[0]);
    s->n = (uint32_t)sum;
    int64_t *current = mem_array(b->n, sizeof *current);
    for (uint64_t turn = 0; turn < sum; turn++) {
        unsigned best = 0;
        for (unsigned i = 0; i < b->n; i++) {
            current[i] += (int64_t)weights[i];
            if (current[i] > current[best])
                best = i;
        }
        current[best] -= (int64_t)sum;
        s->turns[turn] = best;
    }
    free(current);
    free(weights);
    return s;
}

static bool is_same_pool(const struct balancer *x, const struct balancer *y)
{
    if (x->n != y->n)
        return false;
    for (unsigned i = 0; i < x->n; i++)
        if (x->targets[i].weight != y->targets[i].weight ||
            target_identity(x->targets[i].target) != target_identity(y->targets[i].target))
            return false;
    return true;
}

/* First turn of target <i>. */
static uint32_t turn_of(const struct schedule *s, unsigned i)
{
    for (uint32_t turn = 0; turn < s->n; turn++)
        if (s->turns[turn] == i)
            return turn;
    UNREACHABLE();
}

/* The same pool goes on where it was; a changed one begins with the target whose turn it was. */
static uint64_t first_turn(const struct balancer *b, struct balancer *previous)
{
    const struct schedule *before = previous->state;
    uint64_t ticket = atomic_load_explicit(&previous->ticket, memory_order_relaxed) % before->n;
    if (is_same_pool(b, previous))
        return ticket;
    for (uint32_t k = 0; k < before->n; k++) {
        uint32_t turn = before->turns[(ticket + k) % before->n];
        int at = balancer_find(b, target_identity(previous->targets[turn].target));
        if (at >= 0)
            return turn_of(b->state, (unsigned)at);
    }
    return 0;
}

static void start(struct balancer *b, struct balancer *previous)
{
    b->state = build(b);
    if (previous)
        atomic_init(&b->ticket, first_turn(b, previous));
}

static void stop(struct balancer *b)
{
    free(b->state);
}

static unsigned draw_by_weight(const struct balancer *b, struct rng *rng, const struct candidates *set)
{
    uint64_t sum = 0;
    CANDIDATES_EACH(i, set)
    {
        sum += b->targets[i].weight;
    }
    uint64_t at = rng_below(rng, sum);
    CANDIDATES_EACH(j, set)
    {
        if (at < b->targets[j].weight)
            return (unsigned)j;
        at -= b->targets[j].weight;
    }
    UNREACHABLE();
}

static unsigned next_turn(struct balancer *b, struct rng *rng, const struct candidates *set)
{
    const struct schedule *s = b->state;
    uint64_t ticket = atomic_fetch_add_explicit(&b->ticket, 1, memory_order_relaxed);
    unsigned turn = s->turns[ticket % s->n];
    if (candidates_has(set, turn))
        return turn;
    /* Spent; on to the next turn of a candidate, as in rotation_next. */
    uint64_t seen = atomic_load_explicit(&b->ticket, memory_order_relaxed), after;
    do {
        uint32_t at = (uint32_t)(seen % s->n), skipped = 0;
        while (turn = s->turns[at], !candidates_has(set, turn)) {
            if (++skipped > SKIP_MAX)
                return draw_by_weight(b, rng, set);
            at = at + 1 < s->n ? at + 1 : 0;
        }
        after = seen + skipped + 1;
    } while (!atomic_compare_exchange_weak_explicit(&b->ticket, &seen, after, memory_order_relaxed,
                                                    memory_order_relaxed));
    return turn;
}

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    return (struct choice){(int)next_turn(b, c->rng, set), PICK_WEIGHT};
}

const struct strategy strategy_weighted = {
    .name = "weighted",
    .start = start,
    .stop = stop,
    .choose = choose,
};
