/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool for tests: n targets, each of a provider of its own, and one pick at a time from it.
 */
#ifndef ROLTER_TESTS_POOL_H
#define ROLTER_TESTS_POOL_H

#include "unit.h"

#include "balance/balance.h"
#include "fleet/fleet.h"

enum { POOL_MAX = 448, POOL_WORDS = POOL_MAX / 64 };

static const struct reliability POOL_RULES = {.cooldown_base_ms = 5000,
                                              .cooldown_max_ms = 60000,
                                              .breaker_enabled = true,
                                              .breaker_failures = 1,
                                              .breaker_open_ms = 30000};

struct pool {
    struct fleet *fleet;
    struct balancer *balancer;
    struct pool_target targets[POOL_MAX];
    unsigned n;
    struct rng rng;
};

/* Target <i> is of provider "p<first + i>"; its weight is weights[i], or 1. */
static inline void pool_init(struct pool *p, enum strategy_id id, unsigned n, const unsigned *weights)
{
    *p = (struct pool){.fleet = fleet_new(0), .n = n};
    rng_seed(&p->rng, 4711);
    for (unsigned i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "p%u", i);
        p->targets[i].target = fleet_target_get(p->fleet, name, "http://h", "m");
        p->targets[i].weight = weights ? weights[i] : 1;
    }
    p->balancer = balancer_new(id, p->targets, n, NULL, NULL);
}

static inline void pool_fini(struct pool *p)
{
    balancer_unref(p->balancer);
    fleet_free(p->fleet);
}

/* A request of its own, with the sets' words. */
struct request {
    struct pick_context c;
    uint64_t allowed[POOL_WORDS], eligible[POOL_WORDS];
};

/* All targets allowed and eligible. */
static inline void request_init(struct request *r, struct pool *p)
{
    *r = (struct request){.c = {.rng = &p->rng, .now_ms = 1}};
    target_set_init(&r->c.allowed, p->n, r->allowed);
    target_set_init(&r->c.eligible, p->n, r->eligible);
    for (unsigned i = 0; i < p->n; i++) {
        target_set_add(&r->c.allowed, i);
        target_set_add(&r->c.eligible, i);
    }
}

static inline void set_remove(struct target_set *s, unsigned i)
{
    if (s->many)
        s->many[i / 64] &= ~((uint64_t)1 << (i % 64));
    else
        s->one &= ~((uint64_t)1 << i);
}

/* Charges target <i> with <n> requests; the leases go to <ret>. */
static inline void charge(struct pool *p, unsigned i, unsigned n, struct lease *ret)
{
    for (unsigned k = 0; k < n; k++)
        assert_true(target_lease_begin(p->targets[i].target, &POOL_RULES, 1, true, &ret[k]));
}

#endif
