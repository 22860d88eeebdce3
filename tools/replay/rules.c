/* SPDX-License-Identifier: Apache-2.0 */
#include "rules.h"

#include <stdlib.h>

#include "base/mem.h"
#include "lru.h"

struct rule_history {
    const struct trace *trace;
    uint64_t all;      /* a bit for each replica */
    uint64_t *holders; /* of each block */
};

struct rule_history *rule_history_new(const struct trace *t, unsigned replicas)
{
    CHECK(replicas > 0 && replicas <= RULES_REPLICAS_MAX);
    struct rule_history *h = MEM_NEW(struct rule_history);
    h->trace = t;
    h->all = UINT64_MAX >> (64 - replicas);
    h->holders = mem_array(t->n_ids > 0 ? t->n_ids : 1, sizeof *h->holders);
    return h;
}

void rule_history_free(struct rule_history *h)
{
    if (!h)
        return;
    free(h->holders);
    free(h);
}

/* Marks where the run of each replica in <gone> ends. */
static void set_matched(uint32_t *ret, uint64_t gone, uint32_t tokens)
{
    for (; gone; gone &= gone - 1)
        ret[__builtin_ctzll(gone)] = tokens;
}

void rule_history_match(const struct rule_history *h, const struct trace_request *r, uint32_t *ret)
{
    const uint32_t *blocks = trace_blocks(h->trace, r);
    uint64_t alive = h->all;
    uint32_t i = 0;
    for (; i < r->n && alive; i++) {
        uint64_t gone = alive & ~h->holders[blocks[i]];
        set_matched(ret, gone, trace_tokens(h->trace, r, i));
        alive &= ~gone;
    }
    set_matched(ret, alive, trace_tokens(h->trace, r, i));
}

void rule_history_add(struct rule_history *h, const struct trace_request *r, unsigned replica)
{
    const uint32_t *blocks = trace_blocks(h->trace, r);
    for (uint32_t i = 0; i < r->n; i++)
        h->holders[blocks[i]] |= (uint64_t)1 << replica;
}

void rule_history_set(struct rule_history *h, unsigned replica, uint32_t block, bool held)
{
    uint64_t bit = (uint64_t)1 << replica;
    h->holders[block] = held ? h->holders[block] | bit : h->holders[block] & ~bit;
}

bool rule_history_has(const struct rule_history *h, unsigned replica, uint32_t block)
{
    return h->holders[block] >> replica & 1;
}

/* The smallest cost; ties by chance. */
struct best {
    double cost;
    unsigned index, ties;
};

static void consider(struct best *b, unsigned i, double cost, struct rng *rng)
{
    if (b->ties > 0 && cost > b->cost)
        return;
    if (b->ties == 0 || cost < b->cost) {
        *b = (struct best){cost, i, 1};
        return;
    }
    if (rng_below(rng, ++b->ties) == 0)
        b->index = i;
}

static unsigned least_in_flight(const struct rule_view *v)
{
    struct best b = {0};
    for (unsigned i = 0; i < v->replicas; i++)
        consider(&b, i, model_in_flight(v->model, i), v->rng);
    return b.index;
}

static unsigned pick_sglang(const struct rule_view *v)
{
    enum { SPREAD = 32 };
    const double threshold = 0.5, times = 1.1;
    unsigned least = UINT32_MAX, most = 0;
    struct best b = {0};
    for (unsigned i = 0; i < v->replicas; i++) {
        unsigned load = model_in_flight(v->model, i);
        least = load < least ? load : least;
        most = load > most ? load : most;
        consider(&b, i, -(double)v->matched[i], v->rng);
    }
    if (most - least > SPREAD && most > times * least)
        return least_in_flight(v);
    return -b.cost > threshold * v->request->input ? b.index : least_in_flight(v);
}

static unsigned pick_lmetric(const struct rule_view *v)
{
    struct best b = {0};
    for (unsigned i = 0; i < v->replicas; i++) {
        double tokens = model_backlog(v->model, i, v->now_us) + (v->request->input - v->matched[i]);
        consider(&b, i, tokens * (model_in_flight(v->model, i) + 1), v->rng);
    }
    return b.index;
}

static unsigned pick_llmd(const struct rule_view *v)
{
    unsigned least = UINT32_MAX, most = 0;
    for (unsigned i = 0; i < v->replicas; i++) {
        unsigned q = model_waiting(v->model, i);
        least = q < least ? q : least;
        most = q > most ? q : most;
    }
    struct best b = {0};
    for (unsigned i = 0; i < v->replicas; i++) {
        double share = v->request->input ? (double)v->matched[i] / v->request->input : 0;
        double queue = most > least ? (double)(most - model_waiting(v->model, i)) / (most - least) : 1;
        double used = (double)model_busy_blocks(v->model, i) / v->cache_blocks;
        consider(&b, i, -(3 * share + 2 * queue + 2 * (1 - (used < 1 ? used : 1))), v->rng);
    }
    return b.index;
}

static unsigned pick_exact(const struct rule_view *v)
{
    unsigned most = 0;
    for (unsigned i = 0; i < v->replicas; i++)
        most = model_in_flight(v->model, i) > most ? model_in_flight(v->model, i) : most;
    struct best b = {0};
    for (unsigned i = 0; i < v->replicas; i++) {
        double share = v->request->input ? (double)v->matched[i] / v->request->input : 0;
        double idle = most ? 1 - (double)model_in_flight(v->model, i) / most : 1;
        consider(&b, i, -(share + 0.25 * idle), v->rng);
    }
    return b.index;
}

static const struct {
    const char *name;
    unsigned (*pick)(const struct rule_view *v);
} rules[RULE_COUNT] = {
    [RULE_SGLANG] = {"sglang", pick_sglang},
    [RULE_LMETRIC] = {"lmetric", pick_lmetric},
    [RULE_LLMD] = {"llmd", pick_llmd},
    [RULE_EXACT] = {"exact", pick_exact},
};

const char *rule_name(enum rule_id id)
{
    CHECK((unsigned)id < RULE_COUNT);
    return rules[id].name;
}

unsigned rule_pick(enum rule_id id, const struct rule_view *v)
{
    CHECK((unsigned)id < RULE_COUNT);
    return rules[id].pick(v);
}

uint64_t rule_pooled_hits(const struct trace *t, uint64_t blocks)
{
    struct lru *l = lru_new(blocks < t->n_ids ? (uint32_t)blocks : t->n_ids > 0 ? t->n_ids : 1);
    uint64_t hits = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_request *r = &t->requests[i];
        hits += trace_tokens(t, r, lru_match(l, trace_blocks(t, r), r->n));
        lru_use(l, trace_blocks(t, r), r->n);
    }
    lru_free(l);
    return hits;
}
