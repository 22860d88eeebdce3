/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <stdlib.h>

#include "base/mem.h"
#include "dialect/dialect.h"
#include "fleet/fleet.h"

/* Nothing fails in the model, so none of these ever matters. */
static const struct reliability RULES = {.cooldown_base_ms = 5000, .cooldown_max_ms = 60000};

struct rig {
    struct rig_options o;
    struct fleet *fleet;
    struct pool_target *pool;
    struct balancer **balancers;
    struct lease *leases; /* of each request */
    unsigned *loads;      /* that it met at its target */
    struct rng rng;
    char *text; /* PROMPT_TEXT_MAX bytes */
};

struct rig *rig_new(const struct rig_options *o)
{
    CHECK(o->n_targets > 0 && o->n_targets <= 64 && o->gateways > 0);
    struct rig *g = MEM_NEW(struct rig);
    g->o = *o;
    g->fleet = fleet_new(0);
    g->pool = mem_array(o->n_targets, sizeof *g->pool);
    for (unsigned i = 0; i < o->n_targets; i++) {
        const struct rig_target *t = &o->targets[i];
        g->pool[i] = (struct pool_target){fleet_target_get(g->fleet, t->name, t->api_base, t->model), 1};
    }
    g->balancers = mem_array(o->gateways, sizeof *g->balancers);
    for (unsigned i = 0; i < o->gateways; i++)
        g->balancers[i] = balancer_new(o->strategy, g->pool, o->n_targets, &o->settings, NULL);
    g->leases = mem_array(o->text->trace->n + 1, sizeof *g->leases);
    g->loads = mem_array(o->text->trace->n + 1, sizeof *g->loads);
    g->text = mem_alloc(PROMPT_TEXT_MAX);
    rng_seed(&g->rng, o->seed);
    return g;
}

void rig_free(struct rig *g)
{
    if (!g)
        return;
    for (unsigned i = 0; i < g->o.gateways; i++)
        balancer_unref(g->balancers[i]);
    fleet_free(g->fleet);
    free(g->balancers);
    free(g->pool);
    free(g->leases);
    free(g->loads);
    free(g->text);
    free(g);
}

static void fill_context(struct rig *g, size_t i, uint64_t now_ms, struct pick_context *c)
{
    const struct trace_request *r = &g->o.text->trace->requests[i];
    *c = (struct pick_context){.now_ms = now_ms, .rng = &g->rng};
    if (strategy_reads_prompt(g->o.strategy)) {
        c->prompt = span_of(g->text, prompt_turn_write(g->o.text, r, g->text, PROMPT_TEXT_MAX));
        c->prompt_len = prompt_turn_bytes(g->o.text, r);
        c->prompt_digest = g->o.digests[i];
    }
    target_set_init(&c->allowed, g->o.n_targets, NULL);
    target_set_init(&c->eligible, g->o.n_targets, NULL);
}

static struct pick pick(struct rig *g, unsigned gateway, struct pick_context *c)
{
    balance_fill_eligible(g->balancers[gateway], &RULES, c);
    struct pick p = balance_pick(g->balancers[gateway], c);
    CHECK(p.index >= 0);
    return p;
}

struct pick rig_pick(struct rig *g, unsigned gateway, size_t i, uint64_t now_ms)
{
    struct pick_context c;
    fill_context(g, i, now_ms, &c);
    for (unsigned t = 0; t < g->o.n_targets; t++)
        target_set_add(&c.allowed, t);
    return pick(g, gateway, &c);
}

/* Asked with one target a strategy has nothing to choose and learns nothing (whose turn it is), so there is a
 * second one that carries more load than any guard lets pass. */
static bool pick_beside_decoy(struct rig *g, unsigned gateway, struct pick_context *c, unsigned target,
                              struct pick *ret)
{
    enum { LEASES_MAX = 2048 };
    unsigned decoy = target == 0, n = 0;
    unsigned wanted = 4 * (provider_in_flight(target_provider(g->pool[target].target)) + 2);
    if (g->o.n_targets < 2 || wanted > LEASES_MAX)
        return false;
    struct lease leases[LEASES_MAX];
    while (n < wanted)
        CHECK(target_lease_begin(g->pool[decoy].target, &RULES, c->now_ms, false, &leases[n++]));
    target_set_add(&c->allowed, decoy);
    *ret = pick(g, gateway, c);
    while (n > 0)
        target_lease_end(&leases[--n]);
    return ret->index == (int)target;
}

void rig_pick_instead(struct rig *g, unsigned gateway, size_t i, struct pick *io, unsigned target,
                      uint64_t now_ms)
{
    struct balancer *b = g->balancers[gateway];
    struct pick_context c;
    balance_withdraw(b, &io->receipt);
    *io = (struct pick){.index = -1};
    fill_context(g, i, now_ms, &c);
    target_set_add(&c.allowed, target);
    if (pick_beside_decoy(g, gateway, &c, target, io))
        return;
    balance_withdraw(b, &io->receipt);
    fill_context(g, i, now_ms, &c);
    target_set_add(&c.allowed, target);
    *io = pick(g, gateway, &c);
}

void rig_charge(struct rig *g, size_t i, const struct pick *p, uint64_t now_ms)
{
    CHECK(!g->leases[i].target);
    struct target *t = g->pool[p->index].target;
    g->loads[i] = provider_load(target_provider(t), now_ms);
    CHECK(target_lease_begin(t, &RULES, now_ms, p->fail_open, &g->leases[i]));
}

void rig_first_token(struct rig *g, size_t i, uint64_t now_ms)
{
    target_report(&g->leases[i], &RULES, OUTCOME_OK, 0, now_ms);
}

void rig_end(struct rig *g, size_t i, double took_ms)
{
    struct target *t = g->leases[i].target;
    target_observe_latency(t, took_ms);
    if (strategy_reads_prompt(g->o.strategy)) {
        uint64_t bytes = prompt_turn_bytes(g->o.text, &g->o.text->trace->requests[i]);
        target_observe_duration(t, took_ms, g->loads[i], bytes / BYTES_PER_TOKEN);
    }
    target_lease_end(&g->leases[i]);
    g->leases[i].target = NULL;
}
