/* SPDX-License-Identifier: Apache-2.0
 *
 * Strategies that add up scores. Each scorer gives every candidate a number from 0 to 1, a stack weighs the
 * scorers, and the highest sum is chosen; equal sums take turns.
 *
 * Nothing is stored per candidate: the first look finds the bounds that scores are relative to, the second
 * one scores. Loads and signals may move between the two; scores stay within 0 and 1 all the same.
 */
#include <stdlib.h>

#include "balance/affinity.h"
#include "balance/kv_source.h"
#include "balance/session_map.h"
#include "balance/strategy.h"
#include "base/hash.h"
#include "base/mem.h"

/* Sums that differ by less are equal. */
#define SCORE_EPSILON 1e-6
/* A signal that says nothing about a target is in the middle. */
#define SCORE_UNKNOWN 0.5

/* A target without a figure scores below the best one, for good: who is never asked never gets a figure.
 * Where requests teach the signal, one pick in so many goes to such a target, if it has nothing to do. */
enum { EXPLORE_EACH = 16 };

/* As in least_load; a look is dearer here. */
enum { TRIES_MAX = 4 };

/* Of which less is better. */
enum signal { SIGNAL_NONE, SIGNAL_COST, SIGNAL_LATENCY, SIGNAL_PREDICTION };

struct stack {
    double session; /* 1 for the target that served the session last */
    double weight;  /* the target's weight by the largest one */
    double prefix;  /* share of the prompt that the target has served already */
    double load;    /* 1 when idle, 0 for the highest load */
    double signal;  /* 1 for the lowest value, 0 for the highest */
    double lmcache; /* 1 when the LMCache is empty; 0 when full, unavailable or unknown (R10) */
    enum signal which;
    double resident; /* share of the prompt that its engine says it holds */
};

/* By strategy_id. */
static const struct stack stacks[STRATEGY_COUNT] = {
    [STRATEGY_PIPELINE] = {.session = 1, .weight = 1, .prefix = 1, .load = 1},
    [STRATEGY_CHEAPEST] = {.signal = 1, .which = SIGNAL_COST, .load = 0.25},
    [STRATEGY_FASTEST] = {.signal = 1, .which = SIGNAL_LATENCY, .load = 0.25},
    [STRATEGY_PREDICTED_LATENCY] = {.signal = 1, .which = SIGNAL_PREDICTION, .load = 0.25},
    [STRATEGY_LMCACHE_AWARE] = {.lmcache = 1, .load = 0.25},
    [STRATEGY_PRECISE_CACHE_AWARE] = {.resident = 1, .load = 0.25},
};

struct stack_state {
    turn_stamp *turns;
    struct session_map *sessions; /* the balancer's; NULL when the stack does not score them */
    struct affinity affinity;     /* likewise, its index */
};

/* What the scores of this pick are relative to. */
struct bounds {
    unsigned load_max, load_min, weight_max;
    double low, high;   /* known values of the signal; low > high: there are none */
    uint64_t session;   /* identity of the session's target */
    bool lmcache_known; /* of some candidate */
};

static bool signal_of(const struct balancer *b, const struct pick_context *c, enum signal which, unsigned i,
                      unsigned load, double *ret)
{
    const struct pool_target *t = &b->targets[i];
    switch (which) {
    case SIGNAL_COST:
        *ret = t->cost;
        return t->cost_known;
    case SIGNAL_LATENCY:
        *ret = target_latency_ms(t->target);
        return *ret > 0;
    case SIGNAL_PREDICTION:
        return target_predict_ms(t->target, load, c->prompt_len / BYTES_PER_TOKEN, ret) && *ret > 0;
    case SIGNAL_NONE:
        break;
    }
    return false;
}

/* Whether requests tell what the signal of a target is. */
static bool is_learnt(enum signal which)
{
    return which == SIGNAL_LATENCY || which == SIGNAL_PREDICTION;
}

static struct bounds look(const struct balancer *b, const struct pick_context *c,
                          const struct candidates *set)
{
    const struct stack *stack = &stacks[b->id];
    struct bounds m = {.load_min = UINT32_MAX, .low = 1, .high = 0};
    bool any = false;
    CANDIDATES_EACH(i, set)
    {
        unsigned load = load_of(b, (unsigned)i, c->now_ms), weight = b->targets[i].weight;
        m.load_max = load > m.load_max ? load : m.load_max;
        m.load_min = load < m.load_min ? load : m.load_min;
        m.weight_max = weight > m.weight_max ? weight : m.weight_max;
        double v;
        if (stack->lmcache > 0 && provider_lmcache(b->providers[i], c->now_ms, &v))
            m.lmcache_known = true;
        if (!signal_of(b, c, stack->which, (unsigned)i, load, &v))
            continue;
        m.low = !any || v < m.low ? v : m.low;
        m.high = !any || v > m.high ? v : m.high;
        any = true;
    }
    return m;
}

static double score_load(const struct bounds *m, unsigned load)
{
    if (m->load_max == 0)
        return 1;
    return load < m->load_max ? 1 - (double)load / m->load_max : 0;
}

static double score_signal(const struct bounds *m, bool known, double v)
{
    if (!(m->low < m->high)) /* fewer than two different values tell nobody from the others */
        return 1;
    if (!known)
        return SCORE_UNKNOWN;
    double s = (m->high - v) / (m->high - m->low);
    return s < 0 ? 0 : s > 1 ? 1 : s;
}

/* Of the prompt's bytes; a share that is too small is none (A11). */
static double score_prefix(double share)
{
    return share < AFFINITY_SHARE_MIN ? 0 : share;
}

static double score(const struct balancer *b, const struct pick_context *c, const struct bounds *m,
                    unsigned i, unsigned load, double share, bool *ret_known)
{
    const struct stack *stack = &stacks[b->id];
    double sum = stack->load * score_load(m, load);
    if (stack->which != SIGNAL_NONE) {
        double v = 0;
        *ret_known = signal_of(b, c, stack->which, i, load, &v);
        sum += stack->signal * score_signal(m, *ret_known, v);
    }
    if (stack->weight > 0)
        sum += stack->weight * b->targets[i].weight / m->weight_max;
    double emptiness;
    if (stack->lmcache > 0 && provider_lmcache(b->providers[i], c->now_ms, &emptiness))
        sum += stack->lmcache * emptiness;
    if (m->session && target_identity(b->targets[i].target) == m->session)
        sum += stack->session;
    return sum + stack->prefix * score_prefix(share);
}

/* A candidate with its score, and who comes first among equals (R1). */
struct scored {
    int index;  /* -1: nobody */
    bool known; /* its signal is */
    double score;
    unsigned load;
    uint64_t warmth;
    struct turn turn;
    struct prefix_hit hit;
    struct kv_share resident;
};

struct ranking {
    struct scored best;
    int second;
    double second_score;
    bool resident_known;    /* some candidate's engine says what it holds */
    struct scored unlearnt; /* the best of those that are idle and have no figure */
};

static bool is_before(const struct scored *x, const struct scored *y)
{
    if (y->index < 0 || x->score > y->score + SCORE_EPSILON)
        return true;
    if (x->score < y->score - SCORE_EPSILON)
        return false;
    return x->warmth != y->warmth ? x->warmth < y->warmth : turn_is_before(&x->turn, &y->turn);
}

static void rank(struct ranking *r, const struct scored *x)
{
    if (is_before(x, &r->best)) {
        r->second = r->best.index;
        r->second_score = r->best.score;
        r->best = *x;
    } else if (r->second < 0 || x->score > r->second_score) {
        r->second = x->index;
        r->second_score = x->score;
    }
}

static bool reads_prefix(const struct stack_state *s, const struct pick_context *c)
{
    return s->affinity.index && c->prompt.n > 0;
}

enum { WORD = 64 };

/* What the targets of one word of the set have of the prompt. */
static void match_word(const struct balancer *b, const struct pick_context *c, unsigned first,
                       uint64_t candidates, struct prefix_hit *ret)
{
    const struct stack_state *s = b->state;
    for (uint64_t left = candidates; left; left &= left - 1)
        affinity_look(&s->affinity, b, first + (unsigned)__builtin_ctzll(left));
    unsigned n = b->n - first < WORD ? b->n - first : WORD;
    prefix_match(s->affinity.index, c->prompt, s->affinity.slot + first, n, ret);
}

/* What the engines behind the targets of one word say that they have of the prompt. */
static bool ask_word(const struct balancer *b, const struct pick_context *c, unsigned first,
                     uint64_t candidates, struct kv_share *ret)
{
    struct kv_ask ask[WORD] = {0};
    for (uint64_t left = candidates; left; left &= left - 1) {
        unsigned bit = (unsigned)__builtin_ctzll(left);
        const struct pool_target *t = &b->targets[first + bit];
        ask[bit] = (struct kv_ask){t->kv, target_model(t->target)};
    }
    unsigned n = b->n - first < WORD ? b->n - first : WORD;
    return kv_match(&c->tokens, c->cache_salt, c->now_ms, ask, n, ret);
}

static struct ranking rank_all(const struct balancer *b, const struct pick_context *c,
                               const struct candidates *set, const struct bounds *m)
{
    const struct stack_state *s = b->state;
    bool prefix = reads_prefix(s, c);
    bool resident = stacks[b->id].resident > 0;
    struct prefix_hit hits[WORD];
    struct kv_share shares[WORD];
    bool explores = is_learnt(stacks[b->id].which) && m->low < m->high;
    struct ranking r = {.best.index = -1, .second = -1, .unlearnt.index = -1};
    for (unsigned w = 0; w < set->words; w++) {
        uint64_t left = set->a[w] & set->b[w];
        if (left && prefix)
            match_word(b, c, w * WORD, left, hits);
        if (left && resident)
            r.resident_known |= ask_word(b, c, w * WORD, left, shares);
        for (; left; left &= left - 1) {
            unsigned bit = (unsigned)__builtin_ctzll(left), i = w * WORD + bit;
            struct scored x = {.index = (int)i, .load = load_of(b, i, c->now_ms)};
            if (prefix) {
                x.hit = hits[bit];
                x.warmth = affinity_warmth(&s->affinity, b, i);
            }
            x.turn = turn_look(b, s->turns, i);
            x.score = score(b, c, m, i, x.load, affinity_share(x.hit.bytes, c->prompt.n), &x.known);
            if (resident) {
                x.resident = shares[bit];
                x.score += stacks[b->id].resident * (double)x.resident.share;
            }
            rank(&r, &x);
            if (explores && !x.known && x.load == 0 && is_before(&x, &r.unlearnt))
                r.unlearnt = x;
        }
    }
    return r;
}

/* Every so many picks the best candidate without a figure, who is idle, takes the place of the best. */
static bool explore(const struct balancer *b, struct ranking *r)
{
    uint64_t picks = atomic_load_explicit(&b->ticket, memory_order_relaxed);
    if (r->unlearnt.index < 0 || r->unlearnt.index == r->best.index || (picks + 1) % EXPLORE_EACH != 0)
        return false;
    r->second = r->best.index;
    r->second_score = r->best.score;
    r->best = r->unlearnt;
    return true;
}

static void explain(const struct ranking *r, const struct bounds *m, struct pick_why *ret)
{
    ret->has_score = ret->has_load = true;
    ret->score = (float)r->best.score;
    ret->load = r->best.load;
    ret->least = m->load_min < r->best.load ? m->load_min : r->best.load;
    ret->runner_up = r->second;
    ret->runner_up_score = (float)r->second_score;
}

static void explain_lmcache(const struct balancer *b, const struct pick_context *c, unsigned i, bool known,
                            struct pick_why *ret)
{
    double v = 0;
    ret->asks_lmcache = true;
    ret->lmcache_decides = known;
    ret->has_lmcache = provider_lmcache(b->providers[i], c->now_ms, &v);
    ret->lmcache = (float)v;
}

/* What the engines said about the chosen one, or why they had no part in it. */
static void explain_resident(const struct pick_context *c, const struct ranking *r, struct pick_why *ret)
{
    if (r->resident_known) {
        ret->has_resident = true;
        ret->resident = r->best.resident.share;
    } else {
        ret->not_resident = c->tokens.n > 0 ? "no_index" : c->tokens.why ? c->tokens.why : "no_ids";
    }
}

static uint64_t session_key(const struct pick_context *c)
{
    return hash_bytes(c->session.p, c->session.n);
}

/* What later picks shall know of this one. In a section, for the hint's sake. */
static void record(struct balancer *b, const struct pick_context *c, unsigned i, const struct prefix_hit *hit,
                   struct pick *p)
{
    struct stack_state *s = b->state;
    if (s->sessions && c->session.n > 0)
        p->receipt.session =
            session_map_record(s->sessions, session_key(c), target_identity(b->targets[i].target), c->now_ms);
    if (!reads_prefix(s, c))
        return;
    p->why.has_share = true;
    p->why.share = (float)affinity_share(hit->bytes, c->prompt.n);
    p->receipt.prefix = affinity_record(&s->affinity, c, i, hit);
}

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    struct stack_state *s = b->state;
    uint64_t session =
        s->sessions && c->session.n > 0 ? session_map_find(s->sessions, session_key(c), c->now_ms) : 0;
    struct ranking r;
    bool says_something = true, explored;
    prefix_section_begin();
    for (int tries = TRIES_MAX; tries > 0; tries--) {
        struct bounds m = look(b, c, set);
        m.session = session;
        r = rank_all(b, c, set, &m);
        explored = explore(b, &r);
        explain(&r, &m, &p->why);
        if (stacks[b->id].lmcache > 0) {
            says_something = m.lmcache_known;
            explain_lmcache(b, c, (unsigned)r.best.index, says_something, &p->why);
        }
        if (turn_take(b, s->turns, (unsigned)r.best.index, r.best.turn.stamp))
            break;
    }
    record(b, c, (unsigned)r.best.index, &r.best.hit, p);
    prefix_section_end();
    if (stacks[b->id].resident > 0) {
        explain_resident(c, &r, &p->why);
        says_something = r.resident_known;
    }
    if (explored)
        return (struct choice){r.best.index, PICK_EXPLORE};
    return (struct choice){r.best.index, says_something ? PICK_SCORE : PICK_LEAST_LOAD};
}

/* One candidate only: it learns all the same. */
static void only(struct balancer *b, const struct pick_context *c, unsigned i, struct pick *p)
{
    const struct stack_state *s = b->state;
    struct prefix_hit hit = {0};
    prefix_section_begin();
    if (reads_prefix(s, c)) {
        affinity_look(&s->affinity, b, i);
        prefix_match(s->affinity.index, c->prompt, &s->affinity.slot[i], 1, &hit);
    }
    record(b, c, i, &hit, p);
    prefix_section_end();
}

static void withdraw(struct balancer *b, const struct pick_receipt *receipt)
{
    struct stack_state *s = b->state;
    if (s->sessions)
        session_map_withdraw(s->sessions, &receipt->session);
    if (s->affinity.index)
        prefix_withdraw(s->affinity.index, receipt->prefix);
}

static unsigned settle(struct balancer *b, const struct pick_receipt *receipt)
{
    struct stack_state *s = b->state;
    return s->affinity.index ? prefix_settle(s->affinity.index, receipt->prefix) : 0;
}

static void stats(const struct balancer *b, unsigned i, struct prefix_stats *ret)
{
    const struct stack_state *s = b->state;
    prefix_stats(s->affinity.index, s->affinity.slot[i], ret);
}

static void tend(struct balancer *b)
{
    const struct stack_state *s = b->state;
    affinity_tend(&s->affinity, b);
}

static void start(struct balancer *b, struct balancer *previous)
{
    struct stack_state *s = MEM_NEW(struct stack_state), *before = previous ? previous->state : NULL;
    s->turns = turns_new(b, previous, before ? before->turns : NULL);
    s->sessions = b->sessions;
    if (b->prompts)
        affinity_init(&s->affinity, b);
    b->state = s;
}

static void stop(struct balancer *b)
{
    struct stack_state *s = b->state;
    if (!s)
        return;
    free(s->turns);
    if (s->affinity.index)
        affinity_fini(&s->affinity, b);
    free(s);
}

#define STACK(c_name, text, ...)                                                                             \
    const struct strategy strategy_##c_name = {                                                              \
        .name = text, .start = start, .stop = stop, .choose = choose, __VA_ARGS__}

STACK(pipeline, "pipeline", .reads_prompt = true, .keeps_prompts = true, .keeps_sessions = true, .only = only,
      .withdraw = withdraw, .settle = settle, .tend = tend, .prefix_stats = stats);
STACK(cheapest, "cheapest", .only = NULL);
STACK(fastest, "fastest", .only = NULL);
STACK(predicted_latency, "predicted_latency", .reads_prompt = true);
STACK(lmcache, "lmcache_aware", .only = NULL);
STACK(precise, "precise_cache_aware", .reads_tokens = true);
