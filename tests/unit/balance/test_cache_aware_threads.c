/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_aware while everything around it moves: threads pick, settle, withdraw or forget their attempts,
 * while the pool is reloaded with targets gone, back and in another order, replicas restart, and what was
 * reset is tidied. When all is quiet the index is in order and within its caps.
 */
#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>

#include "balance/epoch.h"
#include "balance/strategy.h"
#include "base/check.h"

enum { THREADS = 3, PICKS = 1500, RELOADS = 150, MAX_NODES = 40, DRAWN_OUT = 900, LETTERS = 12 };

struct bed {
    struct fleet *fleet;
    struct target *all[POOL_MAX];
    unsigned n;
    enum strategy_id id;
    pthread_mutex_t lock; /* of the balancer in use */
    struct balancer *now;
    atomic_uint running;
};

static struct balancer *in_use(struct bed *b)
{
    pthread_mutex_lock(&b->lock);
    struct balancer *x = balancer_ref(b->now);
    pthread_mutex_unlock(&b->lock);
    return x;
}

/* Some of the targets, beginning anywhere. */
static void reload(struct bed *b, struct rng *rng)
{
    struct pool_target targets[POOL_MAX];
    struct strategy_settings s = STRATEGY_SETTINGS_DEFAULT;
    unsigned n = 0, first = (unsigned)rng_below(rng, b->n);
    for (unsigned i = 0; i < b->n; i++)
        if (n == 0 || rng_below(rng, 10) > 0)
            targets[n++] = (struct pool_target){.target = b->all[(first + i) % b->n], .weight = 1};
    s.limits = (struct prefix_limits){.max_nodes = MAX_NODES, .max_bytes = 1 << 20};
    struct balancer *next = balancer_new(b->id, targets, n, &s, b->now), *before = b->now;
    pthread_mutex_lock(&b->lock);
    b->now = next;
    pthread_mutex_unlock(&b->lock);
    balancer_unref(before);
}

static struct span any_prompt(struct rng *rng, char *text)
{
    size_t n = 0;
    for (uint64_t letters = 1 + rng_below(rng, LETTERS); letters > 0; letters--) {
        size_t run = rng_below(rng, 3) ? 1 : DRAWN_OUT;
        char c = (char)('a' + rng_below(rng, 2));
        for (size_t k = 0; k < run; k++, n++)
            text[n] = (char)(c + (k ? n % 23 : 0));
    }
    return span_of(text, n);
}

struct picked {
    struct balancer *from;
    struct pick_receipt receipt;
};

static void end(struct picked *p, struct rng *rng)
{
    uint64_t how = rng_below(rng, 10);
    if (!p->from)
        return;
    if (how < 5)
        balance_settle(p->from, &p->receipt);
    else if (how < 9)
        balance_withdraw(p->from, &p->receipt);
    balancer_unref(p->from);
    p->from = NULL;
}

static void pick_once(struct bed *b, struct rng *rng, struct picked *ret)
{
    char text[LETTERS * DRAWN_OUT], session[8];
    uint64_t allowed[POOL_WORDS], eligible[POOL_WORDS];
    struct balancer *x = in_use(b);
    unsigned n = balancer_size(x);
    struct pick_context c = {.rng = rng, .now_ms = 1, .settles = true};
    c.prompt = any_prompt(rng, text);
    c.prompt_len = c.prompt.n;
    c.session =
        span_of(session, (size_t)snprintf(session, sizeof session, "s%u", (unsigned)rng_below(rng, 9)));
    target_set_init(&c.allowed, n, allowed);
    target_set_init(&c.eligible, n, eligible);
    for (unsigned i = 0; i < n; i++) {
        target_set_add(&c.allowed, i);
        if (rng_below(rng, 4))
            target_set_add(&c.eligible, i);
    }
    struct pick p = balance_pick(x, &c);
    CHECK(p.index >= 0 && (unsigned)p.index < n);
    CHECK(p.fail_open || target_set_has(&c.eligible, (unsigned)p.index));
    *ret = (struct picked){x, p.receipt};
}

struct worker {
    pthread_t thread;
    struct bed *bed;
    struct rng rng;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct picked open[8] = {0};
    for (unsigned i = 0; i < PICKS; i++) {
        struct picked *p = &open[rng_below(&w->rng, ARRAY_LEN(open))];
        end(p, &w->rng);
        pick_once(w->bed, &w->rng, p);
    }
    for (unsigned i = 0; i < ARRAY_LEN(open); i++)
        end(&open[i], &w->rng);
    atomic_fetch_sub(&w->bed->running, 1);
    return NULL;
}

/* The caps hold once each slot has been recorded for again. */
static void check_quiet(struct bed *b)
{
    struct balancer *x = b->now;
    prefix_check(x->prompts);
    for (unsigned i = 0; i < balancer_size(x); i++) {
        struct prefix_stats s;
        uint32_t slot = prefix_slot_get(x->prompts, target_identity(balancer_target(x, i)));
        prefix_record(x->prompts, slot, SPAN("quiet"), NULL);
        prefix_stats(x->prompts, slot, &s);
        assert_true(s.nodes <= MAX_NODES || s.prompts == 1);
        prefix_slot_put(x->prompts, slot);
    }
    while (!prefix_tidy(x->prompts, 100))
        ;
    prefix_check(x->prompts);
}

static void run(enum strategy_id id, unsigned n)
{
    struct bed b = {.fleet = fleet_new(0), .n = n, .id = id, .running = THREADS};
    struct worker w[THREADS];
    struct rng rng;
    rng_seed(&rng, n);
    pthread_mutex_init(&b.lock, NULL);
    for (unsigned i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%u", i);
        b.all[i] = fleet_target_get(b.fleet, name, "http://h", "m");
    }
    reload(&b, &rng);
    for (unsigned i = 0; i < THREADS; i++) {
        w[i].bed = &b;
        rng_seed(&w[i].rng, 100 + i);
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < RELOADS || atomic_load(&b.running) > 0; i++) {
        if (i < RELOADS)
            reload(&b, &rng);
        if (rng_below(&rng, 3) == 0)
            provider_raise_generation(target_provider(b.all[rng_below(&rng, n)]));
        balance_tend(b.now);
        sched_yield();
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(w[i].thread, NULL);
    check_quiet(&b);
    balancer_unref(b.now);
    fleet_free(b.fleet);
    pthread_mutex_destroy(&b.lock);
    epoch_drain();
}

static void test_reloads_and_restarts(void **state)
{
    static const unsigned sizes[] = {2, 64, 65, 130, 400};
    for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
        run(STRATEGY_CACHE_AWARE, sizes[i]);
        run(STRATEGY_PIPELINE, sizes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reloads_and_restarts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
