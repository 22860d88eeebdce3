/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <stdlib.h>

#include "base/mem.h"
#include "dialect/dialect.h"
#include "exchange.h"
#include "fleet/fleet.h"

/* Nothing fails in the model, so none of these ever matters. */
static const struct reliability RULES = {.cooldown_base_ms = 5000, .cooldown_max_ms = 60000};

struct rig {
    struct rig_options o;
    struct fleet **fleets;     /* one, or one of each gateway */
    struct pool_target *pools; /* n_targets of each fleet */
    unsigned n_fleets;
    struct balancer **balancers;
    struct exchange_of_placements *exchange; /* NULL: the gateways do not talk */
    struct lease *leases;                    /* of each request */
    unsigned *loads;                         /* that it met at its target */
    struct pick_receipt *receipts;
    uint8_t *gateways;   /* that each request went through */
    unsigned by_use[64]; /* targets, the one that was used last at the end */
    struct rng rng;
    char *text;    /* PROMPT_TEXT_MAX bytes */
    uint32_t *ids; /* of the longest prompt, where the strategy reads token ids */
};

static size_t longest_prompt(const struct trace *t)
{
    size_t most = 0;
    for (size_t i = 0; i < t->n; i++)
        most = t->requests[i].input > most ? t->requests[i].input : most;
    return most;
}

static struct pool_target *pool_of(const struct rig *g, unsigned gateway)
{
    return &g->pools[(g->n_fleets > 1 ? gateway : 0) * g->o.n_targets];
}

struct rig *rig_new(const struct rig_options *o)
{
    CHECK(o->n_targets > 0 && o->n_targets <= 64 && o->gateways > 0);
    struct rig *g = MEM_NEW(struct rig);
    g->o = *o;
    g->n_fleets = o->own_loads ? o->gateways : 1;
    g->fleets = mem_array(g->n_fleets, sizeof *g->fleets);
    g->pools = mem_array((size_t)g->n_fleets * o->n_targets, sizeof *g->pools);
    for (unsigned i = 0; i < o->n_targets; i++)
        g->by_use[i] = i;
    for (unsigned k = 0; k < g->n_fleets; k++) {
        g->fleets[k] = fleet_new(0);
        for (unsigned i = 0; i < o->n_targets; i++) {
            const struct rig_target *t = &o->targets[i];
            g->pools[k * o->n_targets + i] =
                (struct pool_target){.target = fleet_target_get(g->fleets[k], t->name, t->api_base, t->model),
                                     .weight = 1,
                                     .cache_tokens = o->cache_tokens,
                                     .kv = o->sources ? o->sources[i] : NULL};
        }
    }
    g->balancers = mem_array(o->gateways, sizeof *g->balancers);
    for (unsigned i = 0; i < o->gateways; i++)
        g->balancers[i] = balancer_new(o->strategy, pool_of(g, i), o->n_targets, &o->settings, NULL);
    if (o->talks)
        g->exchange = placements_share(g->balancers, o->gateways, o->sync_lag_us);
    g->leases = mem_array(o->text->trace->n + 1, sizeof *g->leases);
    g->loads = mem_array(o->text->trace->n + 1, sizeof *g->loads);
    g->receipts = mem_array(o->text->trace->n + 1, sizeof *g->receipts);
    g->gateways = mem_array(o->text->trace->n + 1, sizeof *g->gateways);
    g->text = mem_alloc(PROMPT_TEXT_MAX);
    if (strategy_reads_tokens(o->strategy))
        g->ids = mem_array(longest_prompt(o->text->trace) + 1, sizeof *g->ids);
    rng_seed(&g->rng, o->seed);
    return g;
}

void rig_free(struct rig *g)
{
    if (!g)
        return;
    placements_free(g->exchange);
    for (unsigned i = 0; i < g->o.gateways; i++)
        balancer_unref(g->balancers[i]);
    for (unsigned i = 0; i < g->n_fleets; i++)
        fleet_free(g->fleets[i]);
    free(g->fleets);
    free(g->balancers);
    free(g->pools);
    free(g->leases);
    free(g->loads);
    free(g->receipts);
    free(g->gateways);
    free(g->text);
    free(g->ids);
    free(g);
}

static struct pick_context empty_context(struct rig *g, uint64_t now_us)
{
    return (struct pick_context){.now_ms = now_us / 1000, .now_us = now_us, .rng = &g->rng};
}

static void fill_context(struct rig *g, size_t i, uint64_t now_us, struct pick_context *c)
{
    const struct trace_request *r = &g->o.text->trace->requests[i];
    *c = empty_context(g, now_us);
    if (strategy_reads_prompt(g->o.strategy)) {
        c->prompt = span_of(g->text, prompt_turn_write(g->o.text, r, g->text, PROMPT_TEXT_MAX));
        c->prompt_len = prompt_turn_bytes(g->o.text, r);
        c->prompt_digest = g->o.digests[i];
    }
    if (strategy_reads_blocks(g->o.strategy)) {
        const struct rig_blocks *b = g->o.blocks;
        c->blocks = (struct prompt_blocks){.key = b->keys + b->at[i],
                                           .n = (uint32_t)(b->at[i + 1] - b->at[i]),
                                           .bytes = prompt_turn_bytes(g->o.text, r),
                                           .home = b->home[i]};
    }
    if (g->ids)
        c->tokens = (struct token_ids){.id = g->ids, .n = block_events_ids(g->o.text->trace, r, g->ids)};
    target_set_init(&c->allowed, g->o.n_targets, NULL);
    target_set_init(&c->eligible, g->o.n_targets, NULL);
}

static struct pick pick(struct rig *g, unsigned gateway, struct pick_context *c)
{
    balance_fill_eligible(g->balancers[gateway], &RULES, c);
    struct pick p = balance_pick(g->balancers[gateway], c);
    CHECK(p.index >= 0);
    balance_record(g->balancers[gateway], &c->blocks, &p.receipt);
    return p;
}

struct pick rig_pick(struct rig *g, unsigned gateway, size_t i, uint64_t now_us)
{
    struct pick_context c;
    if (g->exchange)
        placements_apply(g->exchange, now_us);
    fill_context(g, i, now_us, &c);
    for (unsigned t = 0; t < g->o.n_targets; t++)
        target_set_add(&c.allowed, t);
    g->gateways[i] = (uint8_t)gateway;
    return pick(g, gateway, &c);
}

/* Asked with one target a strategy has nothing to choose and does not learn whose turn it was. So there is a
 * second one that carries more load than the first. False when it was chosen all the same. */
static bool pick_beside_decoy(struct rig *g, unsigned gateway, struct pick_context *c, unsigned target,
                              struct pick *ret)
{
    enum { LEASES_MAX = 2048 };
    unsigned decoy = target == 0, n = 0;
    *ret = (struct pick){.index = -1};
    unsigned wanted = 4 * (provider_in_flight(target_provider(pool_of(g, gateway)[target].target)) + 2);
    if (g->o.n_targets < 2 || wanted > LEASES_MAX)
        return false;
    struct lease leases[LEASES_MAX];
    while (n < wanted)
        CHECK(target_lease_begin(pool_of(g, gateway)[decoy].target, &RULES, c->now_ms, false, &leases[n++]));
    target_set_add(&c->allowed, target);
    target_set_add(&c->allowed, decoy);
    *ret = pick(g, gateway, c);
    while (n > 0)
        target_lease_end(&leases[--n]);
    return ret->index == (int)target;
}

/* A wrong pick among equal loads has changed whose turn it is, and would make the next ones wrong too. Picks
 * without a prompt, in the order in which the targets really were used last, put that right. */
static void restore_turns(struct rig *g, unsigned gateway, uint64_t now_us)
{
    for (unsigned k = 0; k < g->o.n_targets; k++) {
        struct pick_context c = empty_context(g, now_us);
        struct pick p;
        target_set_init(&c.allowed, g->o.n_targets, NULL);
        target_set_init(&c.eligible, g->o.n_targets, NULL);
        pick_beside_decoy(g, gateway, &c, g->by_use[k], &p);
    }
}

void rig_pick_undo(struct rig *g, unsigned gateway, const struct pick *p, uint64_t now_us)
{
    struct pick_receipt receipt = p->receipt;
    balance_first_token(g->balancers[gateway], &receipt, now_us, false);
    balance_withdraw(g->balancers[gateway], &receipt);
    if (p->reason == PICK_LEAST_LOAD)
        restore_turns(g, gateway, now_us);
}

struct pick rig_pick_forced(struct rig *g, unsigned gateway, size_t i, unsigned target, bool by_load,
                            uint64_t now_us)
{
    struct pick_context c;
    struct pick p;
    fill_context(g, i, now_us, &c);
    if (by_load && pick_beside_decoy(g, gateway, &c, target, &p))
        return p;
    if (by_load)
        rig_pick_undo(g, gateway, &p, now_us);
    fill_context(g, i, now_us, &c);
    target_set_add(&c.allowed, target);
    return pick(g, gateway, &c);
}

static void note_use(struct rig *g, unsigned target)
{
    unsigned k = 0;
    while (g->by_use[k] != target)
        k++;
    memmove(g->by_use + k, g->by_use + k + 1, (g->o.n_targets - k - 1) * sizeof *g->by_use);
    g->by_use[g->o.n_targets - 1] = target;
}

void rig_charge(struct rig *g, size_t i, const struct pick *p, uint64_t now_us)
{
    CHECK(!g->leases[i].target);
    struct target *t = pool_of(g, g->gateways[i])[p->index].target;
    note_use(g, (unsigned)p->index);
    g->receipts[i] = p->receipt;
    g->loads[i] = provider_load(target_provider(t), now_us / 1000);
    CHECK(target_lease_begin(t, &RULES, now_us / 1000, p->fail_open, &g->leases[i]));
}

void rig_first_token(struct rig *g, size_t i, uint64_t now_us)
{
    target_report(&g->leases[i], &RULES, OUTCOME_OK, 0, now_us / 1000);
    balance_first_token(g->balancers[g->gateways[i]], &g->receipts[i], now_us, true);
}

void rig_tend(struct rig *g)
{
    for (unsigned i = 0; i < g->o.gateways; i++)
        balance_tend(g->balancers[i]);
}

void rig_end(struct rig *g, size_t i, double took_ms, int64_t hit, uint64_t now_us)
{
    struct target *t = g->leases[i].target;
    struct prompt_usage u = {.tokens = g->o.text->trace->requests[i].input,
                             .cached_known = hit >= 0,
                             .cached = hit >= 0 ? (uint64_t)hit : 0};
    balance_first_token(g->balancers[g->gateways[i]], &g->receipts[i], now_us, false);
    balance_learn(g->balancers[g->gateways[i]], &g->receipts[i], &u);
    target_observe_latency(t, took_ms);
    if (strategy_reads_prompt(g->o.strategy)) {
        uint64_t bytes = prompt_turn_bytes(g->o.text, &g->o.text->trace->requests[i]);
        target_observe_duration(t, took_ms, g->loads[i], bytes / BYTES_PER_TOKEN);
    }
    target_lease_end(&g->leases[i]);
    g->leases[i].target = NULL;
}
