/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the conversation's KV cache is (A1-A3, A10-A12). Each target is asked how much of the prompt's
 * beginning it has served; the one with most of it gets the request if that is at least the threshold and its
 * load is not out of balance with the least loaded one's. Otherwise the least loaded one gets it.
 *
 * All comparisons are over the candidates only: a target that takes no traffic drains to no load, and would
 * make every other look overloaded.
 *
 * Ties, always: warmest beginning (where loads are equal), least-warmed target (fewest prompts served, R1),
 * then by turns; never by index.
 */
#include <stdlib.h>

#include "balance/affinity.h"
#include "base/mem.h"

enum { ON_STACK = 512 };

/* One target as a pick sees it. */
struct view {
    uint32_t matched; /* bytes; 0 when the share is too small */
    unsigned load;
    uint64_t warmth;
};

/* Room for all targets of a pool; larger pools than ON_STACK take it from the heap. */
struct table {
    struct prefix_hit *hit;
    uint32_t *slot;
    struct view *view;
    struct prefix_hit hits[ON_STACK];
    uint32_t slots[ON_STACK];
    struct view views[ON_STACK];
};

static void table_init(struct table *t, unsigned n)
{
    bool large = n > ON_STACK;
    t->hit = large ? mem_array(n, sizeof *t->hit) : t->hits;
    t->slot = large ? mem_array(n, sizeof *t->slot) : t->slots;
    t->view = large ? mem_array(n, sizeof *t->view) : t->views;
}

static void table_fini(struct table *t, unsigned n)
{
    if (n <= ON_STACK)
        return;
    free(t->hit);
    free(t->slot);
    free(t->view);
}

static void look(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                 struct table *t)
{
    const struct affinity *a = b->state;
    for (unsigned i = 0; i < b->n; i++)
        t->slot[i] = PREFIX_NO_SLOT;
    CANDIDATES_EACH(i, set)
    {
        t->slot[i] = a->slot[i];
        affinity_look(a, b, (unsigned)i);
    }
    prefix_match(a->index, c->prompt, t->slot, b->n, t->hit);
    CANDIDATES_EACH(i, set)
    {
        uint32_t matched = t->hit[i].bytes;
        t->view[i] = (struct view){
            .matched = affinity_share(matched, c->prompt.n) < AFFINITY_SHARE_MIN ? 0 : matched,
            .load = load_of(b, (unsigned)i, c->now_ms),
            .warmth = affinity_warmth(a, b, (unsigned)i),
        };
    }
}

/* Negative: <x> comes first. */
static int by_number(uint64_t x, uint64_t y)
{
    return (x > y) - (x < y);
}

static int by_warm_part(const struct view *x, const struct view *y)
{
    int d = by_number(y->matched, x->matched);
    d = d ? d : by_number(x->load, y->load);
    return d ? d : by_number(x->warmth, y->warmth);
}

static int by_load(const struct view *x, const struct view *y)
{
    int d = by_number(x->load, y->load);
    d = d ? d : by_number(y->matched, x->matched);
    return d ? d : by_number(x->warmth, y->warmth);
}

typedef int (*view_order)(const struct view *, const struct view *);

/* The first candidate in this order, and how many are equal to it. */
static unsigned best_by(const struct candidates *set, const struct view *view, view_order order,
                        unsigned *ret_equal)
{
    unsigned best = candidates_nth(set, 0), equal = 0;
    CANDIDATES_EACH(i, set)
    {
        int d = order(&view[i], &view[best]);
        equal = d < 0 ? 1 : equal + (d == 0);
        best = d < 0 ? (unsigned)i : best;
    }
    *ret_equal = equal;
    return best;
}

/* Whose turn it is of those equal to <best>. Once per pick: with two turns taken by every pick, half of an
 * even number of equals would never have one. */
static unsigned turn_among(struct balancer *b, const struct candidates *set, const struct view *view,
                           view_order order, unsigned best, unsigned equal)
{
    if (equal == 1)
        return best;
    uint64_t turn = atomic_fetch_add_explicit(&b->ticket, 1, memory_order_relaxed) % equal;
    CANDIDATES_EACH(i, set)
    {
        if (order(&view[i], &view[best]) == 0 && turn-- == 0)
            return (unsigned)i;
    }
    UNREACHABLE();
}

/* A10: ahead by more than the absolute margin and above the relative one. */
static bool is_overloaded(const struct strategy_settings *s, unsigned load, unsigned least)
{
    return load > (uint64_t)least + s->balance_abs && (double)load > s->balance_rel * (double)least;
}

/* The least load, and the most bytes of the prompt. */
static unsigned least_and_most(const struct candidates *set, const struct view *view, uint32_t *ret_matched)
{
    unsigned least = UINT32_MAX;
    uint32_t most = 0;
    CANDIDATES_EACH(i, set)
    {
        least = view[i].load < least ? view[i].load : least;
        most = view[i].matched > most ? view[i].matched : most;
    }
    *ret_matched = most;
    return least;
}

static struct choice decide(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            const struct view *view, struct pick_why *why)
{
    const struct strategy_settings *s = &b->settings;
    uint32_t matched;
    unsigned equal;
    why->least = least_and_most(set, view, &matched);
    if (matched > 0 && affinity_share(matched, c->prompt.n) >= s->threshold) {
        unsigned warm = best_by(set, view, by_warm_part, &equal);
        if (!is_overloaded(s, view[warm].load, why->least)) {
            why->guard = GUARD_OK;
            warm = turn_among(b, set, view, by_warm_part, warm, equal);
            return (struct choice){(int)warm, PICK_AFFINITY};
        }
        why->guard = GUARD_OVERLOADED;
        why->runner_up = (int)warm;
    }
    unsigned least = best_by(set, view, by_load, &equal);
    least = turn_among(b, set, view, by_load, least, equal);
    return (struct choice){(int)least, why->guard == GUARD_OVERLOADED ? PICK_GUARD : PICK_LEAST_LOAD};
}

/* Who would have been next: the first of the others. */
static int runner_up(const struct candidates *set, const struct view *view, int chosen,
                     enum pick_reason reason)
{
    int next = -1;
    CANDIDATES_EACH(i, set)
    {
        if ((int)i != chosen &&
            (next < 0 || (reason == PICK_AFFINITY ? by_warm_part : by_load)(&view[i], &view[next]) < 0))
            next = (int)i;
    }
    return next;
}

/* The pick's end: the prompt is the chosen target's from now on. */
static void settle(struct balancer *b, const struct pick_context *c, const struct table *t, int index,
                   struct pick *p)
{
    const struct affinity *a = b->state;
    p->why.has_load = true;
    p->why.load = t->view[index].load;
    p->why.has_share = c->prompt.n > 0;
    p->why.share = (float)affinity_share(t->hit[index].bytes, c->prompt.n);
    p->receipt.prefix = affinity_record(a, c, (unsigned)index, &t->hit[index]);
}

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    struct table t;
    table_init(&t, b->n);
    prefix_section_begin();
    look(b, c, set, &t);
    struct choice choice = decide(b, c, set, t.view, &p->why);
    if (p->why.runner_up < 0)
        p->why.runner_up = runner_up(set, t.view, choice.index, choice.reason);
    settle(b, c, &t, choice.index, p);
    prefix_section_end();
    table_fini(&t, b->n);
    return choice;
}

/* One candidate only: it learns the prompt all the same. */
static void only(struct balancer *b, const struct pick_context *c, unsigned index, struct pick *p)
{
    const struct affinity *a = b->state;
    struct prefix_hit hit;
    prefix_section_begin();
    affinity_look(a, b, index);
    prefix_match(a->index, c->prompt, &a->slot[index], 1, &hit);
    p->why.has_load = true;
    p->why.load = p->why.least = load_of(b, index, c->now_ms);
    p->why.has_share = c->prompt.n > 0;
    p->why.share = (float)affinity_share(hit.bytes, c->prompt.n);
    p->receipt.prefix = affinity_record(a, c, index, &hit);
    prefix_section_end();
}

static void withdraw(struct balancer *b, const struct pick_receipt *receipt)
{
    const struct affinity *a = b->state;
    prefix_withdraw(a->index, receipt->prefix);
}

static unsigned settle_receipt(struct balancer *b, const struct pick_receipt *receipt)
{
    const struct affinity *a = b->state;
    return prefix_settle(a->index, receipt->prefix);
}

static void stats(const struct balancer *b, unsigned i, struct prefix_stats *ret)
{
    const struct affinity *a = b->state;
    prefix_stats(a->index, a->slot[i], ret);
}

static void start(struct balancer *b, struct balancer *previous)
{
    struct affinity *a = MEM_NEW(struct affinity);
    affinity_init(a, b);
    b->state = a;
    if (previous)
        atomic_init(&b->ticket, atomic_load_explicit(&previous->ticket, memory_order_relaxed));
}

static void stop(struct balancer *b)
{
    struct affinity *a = b->state;
    if (!a)
        return;
    affinity_fini(a, b);
    free(a);
}

const struct strategy strategy_cache_aware = {
    .name = "cache_aware",
    .reads_prompt = true,
    .keeps_prompts = true,
    .start = start,
    .stop = stop,
    .choose = choose,
    .only = only,
    .withdraw = withdraw,
    .settle = settle_receipt,
    .prefix_stats = stats,
};
