/* SPDX-License-Identifier: Apache-2.0
 *
 * What choosing a target costs: bench-pick [milliseconds per figure, default 50]. Prints nanoseconds per
 * pick for pools of several sizes; the best of many short runs, since the machine's other work only adds.
 *
 * - pick: the strategy alone, all targets eligible
 * - holes: the same with every third target out
 * - all: as the gateway does it: asking for eligibility, pick, lease begun, reported and ended
 * - all/2: the same with a second thread at the same pool, the median; says little on a busy machine
 *
 * A tenth of the providers is loaded; each request has a new session.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "balance/balance.h"
#include "base/check.h"
#include "fleet/fleet.h"

enum { TARGETS_MAX = 64, BATCH = 200, BATCHES_MAX = 100000 };

static const struct reliability RULES = {.cooldown_base_ms = 5000,
                                         .cooldown_max_ms = 60000,
                                         .breaker_enabled = true,
                                         .breaker_failures = 5,
                                         .breaker_open_ms = 30000};

struct pool {
    struct balancer *balancer;
    unsigned n;
};

enum work { PICK, HOLES, ALL };

struct session {
    char text[16];
    uint64_t number;
};

/* Sixteen new bytes per request cost next to nothing. */
static struct span next_session(struct session *s)
{
    s->number += 0x9e3779b97f4a7c15u;
    memcpy(s->text, &s->number, sizeof s->number);
    return span_of(s->text, sizeof s->text);
}

static void context_init(struct pick_context *c, unsigned n, enum work work, struct rng *rng)
{
    *c = (struct pick_context){.rng = rng, .now_ms = 1};
    target_set_init(&c->allowed, n, NULL);
    target_set_init(&c->eligible, n, NULL);
    for (unsigned i = 0; i < n; i++) {
        target_set_add(&c->allowed, i);
        if (work != HOLES || i % 3 != 1)
            target_set_add(&c->eligible, i);
    }
}

static void run_batch(struct pool *p, struct pick_context *c, struct session *s, enum work work)
{
    for (int i = 0; i < BATCH; i++) {
        c->session = next_session(s);
        if (work == ALL)
            balance_fill_eligible(p->balancer, &RULES, c);
        struct pick pick = balance_pick(p->balancer, c);
        CHECK(pick.index >= 0);
        struct lease l;
        if (work == ALL && target_lease_begin(balancer_target(p->balancer, (unsigned)pick.index), &RULES,
                                              c->now_ms, pick.fail_open, &l)) {
            target_report(&l, &RULES, OUTCOME_OK, 0, c->now_ms);
            target_lease_end(&l);
        }
    }
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Of many short batches the one at <rank>: 0 = the fastest, 0.5 = the median. */
static double measure(struct pool *p, enum work work, uint64_t ms, double rank)
{
    static double ns[BATCHES_MAX];
    struct rng rng;
    struct pick_context c;
    struct session s = {.number = 1};
    rng_seed(&rng, 1);
    context_init(&c, p->n, work, &rng);
    run_batch(p, &c, &s, work);
    size_t n = 0;
    for (uint64_t begin = now_ns(), at = begin; n < BATCHES_MAX && at - begin < ms * 1000000;) {
        run_batch(p, &c, &s, work);
        uint64_t end = now_ns();
        ns[n++] = (double)(end - at) / BATCH;
        at = end;
    }
    qsort(ns, n, sizeof ns[0], by_size);
    return ns[(size_t)(rank * (double)n)];
}

struct rival {
    struct pool *pool;
    atomic_bool stop;
};

static void *rival_main(void *arg)
{
    struct rival *r = arg;
    struct rng rng;
    struct pick_context c;
    struct session s = {.number = 2};
    rng_seed(&rng, 2);
    context_init(&c, r->pool->n, ALL, &rng);
    while (!atomic_load(&r->stop))
        run_batch(r->pool, &c, &s, ALL);
    return NULL;
}

static double measure_with_rival(struct pool *p, uint64_t ms)
{
    struct rival r = {.pool = p};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, rival_main, &r) == 0);
    double ns = measure(p, ALL, ms, 0.5);
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    return ns;
}

static void bench(enum strategy_id id, unsigned n, uint64_t ms)
{
    struct fleet *f = fleet_new(0);
    struct pool_target targets[TARGETS_MAX];
    struct lease load[TARGETS_MAX];
    unsigned n_load = 0;
    for (unsigned i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%u", i);
        targets[i] = (struct pool_target){fleet_target_get(f, name, "http://h", "m"), 1 + i % 3};
        if (i % 10 == 0)
            CHECK(target_lease_begin(targets[i].target, &RULES, 1, true, &load[n_load++]));
    }
    struct pool p = {.balancer = balancer_new(id, targets, n, NULL, NULL), .n = n};
    printf("%-16s %3u  %7.1f  %7.1f  %7.1f  %7.1f\n", strategy_name(id), n, measure(&p, PICK, ms, 0),
           measure(&p, HOLES, ms, 0), measure(&p, ALL, ms, 0), measure_with_rival(&p, ms));
    for (unsigned i = 0; i < n_load; i++)
        target_lease_end(&load[i]);
    balancer_unref(p.balancer);
    fleet_free(f);
}

int main(int argc, char **argv)
{
    static const unsigned sizes[] = {3, 8, 24, 64};
    uint64_t ms = argc > 1 ? strtoul(argv[1], NULL, 10) : 50;
    printf("%-16s %3s  %7s  %7s  %7s  %7s\n", "ns per pick", "n", "pick", "holes", "all", "all/2");
    for (int id = 0; id < STRATEGY_COUNT; id++)
        for (unsigned i = 0; i < ARRAY_LEN(sizes); i++)
            bench((enum strategy_id)id, sizes[i], ms);
    return 0;
}
