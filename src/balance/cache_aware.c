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
    unsigned least; /* load of a candidate */
    uint32_t most;  /* matched bytes */
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
    const uint32_t *slots = a->slot, at_least = affinity_least(c->prompt.n);
    if (set->count < b->n) {
        for (unsigned i = 0; i < b->n; i++)
            t->slot[i] = PREFIX_NO_SLOT;
        CANDIDATES_EACH(i, set)
        t->slot[i] = a->slot[i];
        slots = t->slot;
    }
    CANDIDATES_EACH(i, set)
    affinity_look(a, b, (unsigned)i);
    prefix_match(a->index, c->prompt, slots, b->n, t->hit);
    t->least = UINT32_MAX;
    t->most = 0;
    CANDIDATES_EACH(i, set)
    {
        uint32_t matched = t->hit[i].bytes;
        if (matched < at_least)
            matched = 0;
        unsigned load = load_of(b, (unsigned)i, c->now_ms);
        t->view[i] = (struct view){matched, load, affinity_warmth(a, b, (unsigned)i)};
        t->least = load < t->least ? load : t->least;
        t->most = matched > t->most ? matched : t->most;
    }
}

/* Place of a candidate in an order; the lowest comes first. By warm part: most bytes of the prompt, then
 * least load; by load the other way round; then always the least warmth. */
enum order { BY_WARM_PART, BY_LOAD };
struct rank {
    uint64_t major, minor;
};

static inline struct rank rank_of(const struct view *v, enum order order)
{
    uint64_t cold = UINT32_MAX - v->matched, load = v->load;
    return (struct rank){order == BY_LOAD ? load << 32 | cold : cold << 32 | load, v->warmth};
}

static inline bool is_equal(struct rank x, struct rank y)
{
    return x.major == y.major && x.minor == y.minor;
}

static inline bool is_before(struct rank x, struct rank y)
{
    return x.major < y.major || (x.major == y.major && x.minor < y.minor);
}

/* The first candidate in this order, who would be next, and how many are equal to the first. */
struct ranking {
    unsigned best, equal;
    int next; /* -1: nobody */
};

static struct ranking rank_all(const struct candidates *set, const struct view *view, enum order order)
{
    struct ranking r = {.next = -1};
    struct rank first = {UINT64_MAX, UINT64_MAX}, second = first;
    CANDIDATES_EACH(i, set)
    {
        struct rank x = rank_of(&view[i], order);
        if (is_before(x, first)) {
            r.next = r.equal ? (int)r.best : -1;
            second = first;
            first = x;
            r.best = (unsigned)i;
            r.equal = 1;
        } else {
            r.equal += is_equal(x, first);
            if (is_before(x, second)) {
                second = x;
                r.next = (int)i;
            }
        }
    }
    return r;
}

/* Whose turn it is of those equal to the best. Once per pick: with two turns taken by every pick, half of an
 * even number of equals would never have one. */
static void take_turn(struct balancer *b, const struct candidates *set, const struct view *view,
                      enum order order, struct ranking *r)
{
    if (r->equal == 1)
        return;
    uint64_t turn = atomic_fetch_add_explicit(&b->ticket, 1, memory_order_relaxed) % r->equal;
    if (turn == 0)
        return;
    struct rank first = rank_of(&view[r->best], order);
    CANDIDATES_EACH(i, set)
    {
        if (!is_equal(rank_of(&view[i], order), first) || turn-- > 0)
            continue;
        r->next = (int)r->best;
        r->best = (unsigned)i;
        return;
    }
    UNREACHABLE();
}

/* A10: ahead by more than the absolute margin and above the relative one. */
static bool is_overloaded(const struct strategy_settings *s, unsigned load, unsigned least)
{
    return load > (uint64_t)least + s->balance_abs && (double)load > s->balance_rel * (double)least;
}

static struct choice decide(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            const struct table *t, struct pick_why *why)
{
    const struct strategy_settings *s = &b->settings;
    why->least = t->least;
    if (t->most > 0 && affinity_share(t->most, c->prompt.n) >= s->threshold) {
        struct ranking warm = rank_all(set, t->view, BY_WARM_PART);
        if (!is_overloaded(s, t->view[warm.best].load, t->least)) {
            why->guard = GUARD_OK;
            take_turn(b, set, t->view, BY_WARM_PART, &warm);
            why->runner_up = warm.next;
            return (struct choice){(int)warm.best, PICK_AFFINITY};
        }
        why->guard = GUARD_OVERLOADED;
        why->runner_up = (int)warm.best;
    }
    struct ranking least = rank_all(set, t->view, BY_LOAD);
    take_turn(b, set, t->view, BY_LOAD, &least);
    if (why->guard == GUARD_OVERLOADED)
        return (struct choice){(int)least.best, PICK_GUARD};
    why->runner_up = least.next;
    return (struct choice){(int)least.best, PICK_LEAST_LOAD};
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
    struct choice choice = decide(b, c, set, &t, &p->why);
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

static void tend(struct balancer *b)
{
    affinity_tend(b->state, b);
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
    .tend = tend,
    .prefix_stats = stats,
};
