/* SPDX-License-Identifier: Apache-2.0
 *
 * What every strategy owes: eligibility, fail open, exact or even shares, ties, and what a reload takes over.
 */
#include "balance/pool.h"

#include <math.h>
#include <pthread.h>

static const unsigned SIZES[] = {1, 2, 3, 63, 64, 65, 130};

static void test_names(void **state)
{
    for (int i = 0; i < STRATEGY_COUNT; i++) {
        enum strategy_id id;
        assert_true(strategy_by_name(span_str(strategy_name((enum strategy_id)i)), &id));
        assert_int_equal(id, i);
    }
    enum strategy_id id = STRATEGY_WEIGHTED;
    assert_false(strategy_by_name(SPAN("round"), &id));
    assert_false(strategy_by_name(SPAN_NONE, &id));
    assert_int_equal(id, STRATEGY_WEIGHTED);
    for (int i = 0; i < PICK_REASON_COUNT; i++)
        assert_true(strlen(pick_reason_name((enum pick_reason)i)) > 0);
}

/* Random sets and keys. Bits of eligible outside allowed are there to be ignored. */
static void randomize(struct request *r, struct pool *p, char *session)
{
    request_init(r, p);
    uint64_t of = 1 + rng_below(&p->rng, 6);
    for (unsigned i = 0; i < p->n; i++) {
        if (rng_below(&p->rng, 4) == 0)
            set_remove(&r->c.allowed, i);
        if (rng_below(&p->rng, of) > 0)
            set_remove(&r->c.eligible, i);
    }
    if (rng_below(&p->rng, 3) == 0)
        r->c.session = span_of(session, (size_t)sprintf(session, "s%u", (unsigned)rng_below(&p->rng, 1000)));
    if (rng_below(&p->rng, 2) == 0) {
        r->c.prompt_digest = rng_u64(&p->rng);
        r->c.prompt_len = 100;
    }
}

static void check_pick(struct pool *p, const struct request *r, struct pick pick)
{
    unsigned allowed = 0, eligible = 0;
    for (unsigned i = 0; i < p->n; i++) {
        bool a = target_set_has(&r->c.allowed, i);
        allowed += a;
        eligible += a && target_set_has(&r->c.eligible, i);
    }
    assert_int_equal(pick.fail_open, eligible == 0 && allowed > 0);
    if (allowed == 0) {
        assert_int_equal(pick.index, -1);
        assert_int_equal(pick.reason, PICK_NONE);
        return;
    }
    assert_in_range(pick.index, 0, p->n - 1);
    assert_true(target_set_has(&r->c.allowed, (unsigned)pick.index));
    if (eligible > 0)
        assert_true(target_set_has(&r->c.eligible, (unsigned)pick.index));
    assert_int_equal(pick.reason == PICK_ONLY, (eligible ? eligible : allowed) == 1);
}

static void test_eligibility(void **state)
{
    for (int id = 0; id < STRATEGY_COUNT; id++)
        for (unsigned s = 0; s < ARRAY_LEN(SIZES); s++) {
            unsigned weights[POOL_MAX];
            for (unsigned i = 0; i < POOL_MAX; i++)
                weights[i] = 1 + i * 7 % 5;
            struct pool p;
            pool_init(&p, (enum strategy_id)id, SIZES[s], weights);
            for (int round = 0; round < 400; round++) {
                struct request r;
                char session[16];
                randomize(&r, &p, session);
                check_pick(&p, &r, balance_pick(p.balancer, &r.c));
            }
            pool_fini(&p);
        }
}

static void test_empty_pool(void **state)
{
    for (int id = 0; id < STRATEGY_COUNT; id++) {
        struct pool p;
        pool_init(&p, (enum strategy_id)id, 0, NULL);
        struct request r;
        request_init(&r, &p);
        struct pick pick = balance_pick(p.balancer, &r.c);
        assert_int_equal(pick.index, -1);
        assert_false(pick.fail_open);
        struct balancer *next = balancer_new((enum strategy_id)id, NULL, 0, NULL, p.balancer);
        balancer_unref(next);
        pool_fini(&p);
    }
}

static void test_fill_eligible(void **state)
{
    for (unsigned s = 2; s < ARRAY_LEN(SIZES); s++) {
        struct pool p;
        pool_init(&p, STRATEGY_RANDOM, SIZES[s], NULL);
        struct request r;
        request_init(&r, &p);
        unsigned last = p.n - 1;
        struct lease l;
        charge(&p, last, 1, &l);
        target_report(&l, &POOL_RULES, OUTCOME_BACKPRESSURE, 0, 0);
        target_lease_end(&l);
        set_remove(&r.c.allowed, 1);
        r.c.now_ms = 4999;
        assert_true(balance_fill_eligible(p.balancer, &POOL_RULES, &r.c));
        for (unsigned i = 0; i < p.n; i++)
            assert_int_equal(target_set_has(&r.c.eligible, i), i != 1 && i != last);
        r.c.now_ms = 5000;
        assert_true(balance_fill_eligible(p.balancer, &POOL_RULES, &r.c));
        assert_true(target_set_has(&r.c.eligible, last));
        for (unsigned i = 0; i < last; i++)
            set_remove(&r.c.allowed, i);
        r.c.now_ms = 4999;
        assert_false(balance_fill_eligible(p.balancer, &POOL_RULES, &r.c));
        assert_true(target_set_empty(&r.c.eligible));
        struct pick pick = balance_pick(p.balancer, &r.c);
        assert_int_equal(pick.index, last);
        assert_true(pick.fail_open);
        pool_fini(&p);
    }
}

static void expect_sequence(struct pool *p, const struct request *r, const int *expected, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(balance_pick(p->balancer, &r->c).index, expected[i]);
}

static void test_weighted_sequence(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_WEIGHTED, 2, (unsigned[]){3, 1});
    request_init(&r, &p);
    expect_sequence(&p, &r, (int[]){0, 0, 1, 0, 0, 0, 1, 0}, 8);
    pool_fini(&p);
    pool_init(&p, STRATEGY_WEIGHTED, 3, (unsigned[]){50, 10, 10}); /* 5:1:1 */
    request_init(&r, &p);
    expect_sequence(&p, &r, (int[]){0, 0, 1, 0, 2, 0, 0, 0, 0, 1}, 10);
    pool_fini(&p);
    pool_init(&p, STRATEGY_WEIGHTED, 2, (unsigned[]){4000000000u, 4000000000u});
    request_init(&r, &p);
    expect_sequence(&p, &r, (int[]){0, 1, 0, 1}, 4);
    pool_fini(&p);
}

/* Weights too large for a table are scaled; with the heavy one out the rest still share by weight. */
static void test_weighted_large(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_WEIGHTED, 3, (unsigned[]){4000000000u, 30011, 10007});
    request_init(&r, &p);
    unsigned got[3] = {0};
    for (int i = 0; i < 1000; i++)
        got[balance_pick(p.balancer, &r.c).index]++;
    assert_true(got[0] > 990);
    set_remove(&r.c.eligible, 0);
    for (int i = 0; i < 4000; i++)
        got[balance_pick(p.balancer, &r.c).index]++;
    assert_true(got[0] <= 1000);
    assert_true(got[1] > 0 && got[2] > 0);
    pool_fini(&p);
}

/* Exactness over threads */

enum { PICKERS = 4, PICKS = 6000 };

struct picker {
    struct pool *pool;
    unsigned got[POOL_MAX];
    int out; /* not eligible; -1 = none */
    uint64_t seed;
    bool hold; /* with charges */
};

static void *pick_many(void *arg)
{
    struct picker *s = arg;
    struct rng rng;
    rng_seed(&rng, s->seed);
    struct request r;
    request_init(&r, s->pool);
    r.c.rng = &rng;
    if (s->out >= 0)
        set_remove(&r.c.eligible, (unsigned)s->out);
    for (int i = 0; i < PICKS; i++) {
        struct pick pick = balance_pick(s->pool->balancer, &r.c);
        s->got[pick.index]++;
        struct lease l;
        if (s->hold && target_lease_begin(s->pool->targets[pick.index].target, &POOL_RULES, 1, false, &l))
            target_lease_end(&l);
    }
    return NULL;
}

static void run_pickers(struct pool *p, int out, bool hold, unsigned *ret_got)
{
    static struct picker pickers[PICKERS];
    pthread_t threads[PICKERS];
    for (unsigned i = 0; i < PICKERS; i++) {
        pickers[i] = (struct picker){.pool = p, .out = out, .seed = i, .hold = hold};
        assert_int_equal(pthread_create(&threads[i], NULL, pick_many, &pickers[i]), 0);
    }
    memset(ret_got, 0, p->n * sizeof *ret_got);
    for (unsigned i = 0; i < PICKERS; i++) {
        pthread_join(threads[i], NULL);
        for (unsigned k = 0; k < p->n; k++)
            ret_got[k] += pickers[i].got[k];
    }
}

static void test_round_robin_exact(void **state)
{
    struct pool p;
    unsigned got[POOL_MAX];
    pool_init(&p, STRATEGY_ROUND_ROBIN, 6, NULL);
    run_pickers(&p, -1, false, got);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(got[i], PICKERS * PICKS / 6);
    run_pickers(&p, 2, false, got);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(got[i], i == 2 ? 0 : PICKERS * PICKS / 5);
    pool_fini(&p);
    pool_init(&p, STRATEGY_ROUND_ROBIN, 121, NULL);
    run_pickers(&p, 100, false, got);
    for (unsigned i = 0; i < 121; i++)
        assert_int_equal(got[i], i == 100 ? 0 : PICKERS * PICKS / 120);
    pool_fini(&p);
}

static void test_weighted_exact(void **state)
{
    struct pool p;
    unsigned got[POOL_MAX];
    pool_init(&p, STRATEGY_WEIGHTED, 3, (unsigned[]){50, 30, 40});
    run_pickers(&p, -1, false, got);
    assert_int_equal(got[0], PICKERS * PICKS / 12 * 5);
    assert_int_equal(got[1], PICKERS * PICKS / 12 * 3);
    assert_int_equal(got[2], PICKERS * PICKS / 12 * 4);
    run_pickers(&p, 2, false, got); /* 5:3 among those left */
    assert_int_equal(got[0], PICKERS * PICKS / 8 * 5);
    assert_int_equal(got[1], PICKERS * PICKS / 8 * 3);
    assert_int_equal(got[2], 0);
    pool_fini(&p);
}

/* An idle pool is shared evenly, also by threads that ask at the same time. Not to the last one: the number
 * of looks is bounded. */
static void test_least_load_even_under_threads(void **state)
{
    struct pool p;
    unsigned got[POOL_MAX];
    pool_init(&p, STRATEGY_LEAST_LOAD, 3, NULL);
    run_pickers(&p, -1, false, got);
    for (unsigned i = 0; i < 3; i++)
        assert_in_range(got[i], PICKERS * PICKS / 3 * 95 / 100, PICKERS * PICKS / 3 * 105 / 100);
    pool_fini(&p);
    pool_init(&p, STRATEGY_LEAST_LOAD, 5, NULL);
    run_pickers(&p, 4, true, got);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(got[i] > 0, i != 4);
    pool_fini(&p);
}

/* Distributions; the seed is fixed, so these are not a matter of luck. */

static double chi_square(const unsigned *got, unsigned n, double expected)
{
    double sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum += (got[i] - expected) * (got[i] - expected) / expected;
    return sum;
}

static void test_random_is_uniform(void **state)
{
    static const enum strategy_id ids[] = {STRATEGY_RANDOM, STRATEGY_POWER_OF_TWO}; /* equal loads */
    for (unsigned k = 0; k < ARRAY_LEN(ids); k++)
        for (unsigned s = 1; s < ARRAY_LEN(SIZES); s++) {
            struct pool p;
            struct request r;
            unsigned got[POOL_MAX] = {0}, n = SIZES[s];
            pool_init(&p, ids[k], n, NULL);
            request_init(&r, &p);
            bool one_is_out = n > 2;
            if (one_is_out)
                set_remove(&r.c.eligible, 0);
            unsigned left = n - one_is_out, picks = left * 1000;
            for (unsigned i = 0; i < picks; i++)
                got[balance_pick(p.balancer, &r.c).index]++;
            /* Five standard deviations of the distribution above its mean. */
            assert_true(chi_square(got + one_is_out, left, 1000) < left - 1 + 5 * sqrt(2.0 * left));
            pool_fini(&p);
        }
}

static void test_two_choices_by_load(void **state)
{
    static const unsigned loads[2][3] = {{0, 1, 2}, {2, 1, 0}};
    for (unsigned k = 0; k < ARRAY_LEN(loads); k++) {
        struct pool p;
        struct request r;
        struct lease l[3];
        unsigned got[3] = {0}, n = 0;
        pool_init(&p, STRATEGY_POWER_OF_TWO, 3, NULL);
        request_init(&r, &p);
        for (unsigned i = 0; i < 3; n += loads[k][i], i++)
            charge(&p, i, loads[k][i], l + n);
        for (int i = 0; i < 30000; i++) {
            struct pick pick = balance_pick(p.balancer, &r.c);
            assert_int_equal(pick.reason, PICK_TWO_CHOICES);
            got[loads[k][pick.index]]++;
        }
        assert_in_range(got[0], 19500, 20500); /* two pairs of three */
        assert_in_range(got[1], 9500, 10500);
        assert_int_equal(got[2], 0); /* the two drawn are always different */
        while (n > 0)
            target_lease_end(&l[--n]);
        pool_fini(&p);
    }
}

static void test_least_load_by_load(void **state)
{
    struct pool p;
    struct request r;
    struct lease l[8];
    pool_init(&p, STRATEGY_LEAST_LOAD, 3, NULL);
    request_init(&r, &p);
    charge(&p, 0, 3, l);
    charge(&p, 1, 1, l + 3);
    charge(&p, 2, 4, l + 4);
    for (int i = 0; i < 5; i++)
        assert_int_equal(balance_pick(p.balancer, &r.c).index, 1);
    set_remove(&r.c.eligible, 1);
    assert_int_equal(balance_pick(p.balancer, &r.c).index, 0);
    /* Fail open weighs loads, too. */
    set_remove(&r.c.eligible, 0);
    set_remove(&r.c.eligible, 2);
    struct pick pick = balance_pick(p.balancer, &r.c);
    assert_true(pick.fail_open);
    assert_int_equal(pick.index, 1);
    for (int i = 0; i < 8; i++)
        target_lease_end(&l[i]);
    /* What the engine says counts. */
    request_init(&r, &p);
    for (unsigned i = 0; i < 3; i++) {
        struct provider *pr = target_provider(p.targets[i].target);
        provider_configure(pr, &(struct provider_settings){.engine_fresh_ms = 1000});
        provider_set_engine(pr, &(struct engine_metrics){.running = 5 - i, .waiting = 1}, 1);
    }
    for (int i = 0; i < 5; i++)
        assert_int_equal(balance_pick(p.balancer, &r.c).index, 2);
    pool_fini(&p);
}

/* 24 cold requests on an idle pool of three end 8/8/8, whether they overlap or not; and a target that joins
 * by a reload gets its turns, not all turns. */
static void test_least_load_ties(void **state)
{
    for (int hold = 0; hold < 2; hold++) {
        struct pool p;
        struct request r;
        struct lease l[24];
        unsigned got[4] = {0};
        pool_init(&p, STRATEGY_LEAST_LOAD, 4, NULL);
        struct balancer *three = balancer_new(STRATEGY_LEAST_LOAD, p.targets, 3, NULL, NULL);
        p.n = 3;
        request_init(&r, &p);
        for (int i = 0; i < 24; i++) {
            int k = balance_pick(three, &r.c).index;
            got[k]++;
            charge(&p, (unsigned)k, 1, &l[i]);
            if (!hold)
                target_lease_end(&l[i]);
        }
        for (int i = 0; i < 3; i++)
            assert_int_equal(got[i], 8);
        for (int i = 0; i < 24; i++)
            target_lease_end(&l[i]);
        struct balancer *four = balancer_new(STRATEGY_LEAST_LOAD, p.targets, 4, NULL, three);
        p.n = 4;
        request_init(&r, &p);
        memset(got, 0, sizeof got);
        assert_int_equal(balance_pick(four, &r.c).index, 3);
        for (int i = 0; i < 24; i++)
            got[balance_pick(four, &r.c).index]++;
        for (int i = 0; i < 4; i++)
            assert_int_equal(got[i], 6);
        balancer_unref(three);
        balancer_unref(four);
        pool_fini(&p);
    }
}

/* Many small pools over the same targets do not all begin with the first. */
static void test_least_load_fresh_pools(void **state)
{
    struct pool p;
    struct request r;
    unsigned got[3] = {0};
    pool_init(&p, STRATEGY_LEAST_LOAD, 3, NULL);
    request_init(&r, &p);
    for (int i = 0; i < 24; i++) {
        struct balancer *b = balancer_new(STRATEGY_LEAST_LOAD, p.targets, 3, NULL, NULL);
        struct pick pick = balance_pick(b, &r.c);
        got[pick.index]++;
        struct lease l;
        charge(&p, (unsigned)pick.index, 1, &l);
        target_lease_end(&l);
        balancer_unref(b);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(got[i], 8);
    pool_fini(&p);
}

/* A reload goes on with the target whose turn it was, wherever it stands now. */
static void test_reload_continues(void **state)
{
    struct pool p;
    struct request r;
    static const enum strategy_id ids[] = {STRATEGY_ROUND_ROBIN, STRATEGY_WEIGHTED, STRATEGY_LEAST_LOAD,
                                           STRATEGY_CONSISTENT_HASH};
    for (unsigned k = 0; k < ARRAY_LEN(ids); k++) {
        pool_init(&p, ids[k], 5, NULL);
        request_init(&r, &p);
        expect_sequence(&p, &r, (int[]){0, 1, 2, 3, 4, 0, 1}, 7);
        struct pool_target turned[5];
        for (int i = 0; i < 5; i++)
            turned[i] = p.targets[4 - i];
        struct balancer *b = balancer_new(ids[k], turned, 5, NULL, p.balancer);
        assert_ptr_equal(balancer_target(b, (unsigned)balance_pick(b, &r.c).index), p.targets[2].target);
        balancer_unref(b);
        /* Target 2 is gone: 3 is next. */
        struct pool_target fewer[4] = {p.targets[0], p.targets[1], p.targets[4], p.targets[3]};
        b = balancer_new(ids[k], fewer, 4, NULL, p.balancer);
        p.n = 4;
        request_init(&r, &p);
        assert_ptr_equal(balancer_target(b, (unsigned)balance_pick(b, &r.c).index), p.targets[3].target);
        balancer_unref(b);
        pool_fini(&p);
    }
    /* The same weighted pool goes on in the middle of its sequence. */
    pool_init(&p, STRATEGY_WEIGHTED, 2, (unsigned[]){3, 1});
    request_init(&r, &p);
    expect_sequence(&p, &r, (int[]){0}, 1);
    struct balancer *old = p.balancer;
    p.balancer = balancer_new(STRATEGY_WEIGHTED, p.targets, 2, NULL, old);
    balancer_unref(old);
    expect_sequence(&p, &r, (int[]){0, 1, 0, 0, 0, 1}, 6);
    /* Another strategy's state is of no use and is left alone. */
    old = p.balancer;
    p.balancer = balancer_new(STRATEGY_CONSISTENT_HASH, p.targets, 2, NULL, old);
    balancer_unref(old);
    assert_in_range(balance_pick(p.balancer, &r.c).index, 0, 1);
    pool_fini(&p);
}

/* Threads go on with the old balancer for a while after a reload that changes nothing of the pool: no turn is
 * given twice, or to nobody. */
static void test_reload_shares_turns(void **state)
{
    struct pool p;
    struct request r;
    for (int id = 0; id < STRATEGY_COUNT; id++) {
        pool_init(&p, (enum strategy_id)id, 4, (unsigned[]){3, 1, 2, 1});
        request_init(&r, &p);
        struct balancer *next = balancer_new((enum strategy_id)id, p.targets, 4, NULL, p.balancer);
        if (id == STRATEGY_ROUND_ROBIN || id == STRATEGY_WEIGHTED) {
            unsigned got[4] = {0};
            for (unsigned i = 0; i < 28; i++)
                got[balance_pick(i % 3 ? p.balancer : next, &r.c).index]++;
            for (unsigned i = 0; i < 4; i++)
                assert_int_equal(got[i], id == STRATEGY_WEIGHTED ? 4 * p.targets[i].weight : 7);
        }
        /* What differs has a state of its own. */
        struct pool_target changed[4];
        memcpy(changed, p.targets, sizeof changed);
        changed[3].weight++;
        struct balancer *other = balancer_new((enum strategy_id)id, changed, 4, NULL, next);
        assert_ptr_not_equal(other, next);
        changed[3] = (struct pool_target){.target = p.targets[3].target, 1, .cost_known = true, .cost = 2};
        struct balancer *priced = balancer_new((enum strategy_id)id, changed, 4, NULL, next);
        assert_ptr_not_equal(priced, next);
        struct strategy_settings settings = STRATEGY_SETTINGS_DEFAULT;
        settings.balance_abs++;
        struct balancer *tuned = balancer_new((enum strategy_id)id, p.targets, 4, &settings, next);
        assert_ptr_not_equal(tuned, next);
        balancer_unref(tuned);
        balancer_unref(priced);
        balancer_unref(other);
        balancer_unref(next);
        pool_fini(&p);
    }
}

/* Allocations: jemalloc counts them per thread. Without it (sanitizers bring their own malloc) there is no
 * count. */
extern int mallctl(const char *name, void *old, size_t *old_n, void *new, size_t new_n) __attribute__((weak));

static uint64_t allocated_bytes(void)
{
    uint64_t v = 0;
    size_t n = sizeof v;
    assert_int_equal(mallctl("thread.allocated", &v, &n, NULL, 0), 0);
    return v;
}

static void test_no_allocation(void **state)
{
    if (!mallctl)
        skip();
    uint64_t before = allocated_bytes();
    void *volatile some = malloc(1000);
    assert_true(allocated_bytes() >= before + 1000); /* the count works */
    free(some);
    for (int id = 0; id < STRATEGY_COUNT; id++)
        for (unsigned s = 0; s < ARRAY_LEN(SIZES); s++) {
            struct pool p;
            pool_init(&p, (enum strategy_id)id, SIZES[s], NULL);
            before = allocated_bytes();
            for (int i = 0; i < 100; i++) {
                struct request r;
                char session[16];
                randomize(&r, &p, session);
                balance_fill_eligible(p.balancer, &POOL_RULES, &r.c);
                struct pick pick = balance_pick(p.balancer, &r.c);
                struct lease l;
                if (pick.index >= 0 &&
                    target_lease_begin(p.targets[pick.index].target, &POOL_RULES, 1, pick.fail_open, &l))
                    target_lease_end(&l);
            }
            assert_int_equal(allocated_bytes(), before);
            pool_fini(&p);
        }
}

/* A13 with a prompt: 4 KiB of conversation that every target has. Matching and refreshing take nothing from
 * the heap. */
static void test_no_allocation_when_resident(void **state)
{
    static const enum strategy_id ids[] = {STRATEGY_CACHE_AWARE, STRATEGY_PIPELINE};
    if (!mallctl)
        skip();
    char text[4096];
    memset(text, 'p', sizeof text);
    for (unsigned k = 0; k < ARRAY_LEN(ids); k++)
        for (unsigned s = 0; s < ARRAY_LEN(SIZES); s++) {
            struct pool p;
            struct request r;
            pool_init(&p, ids[k], SIZES[s], NULL);
            for (unsigned i = 0; i < p.n; i++) {
                request_init(&r, &p);
                for (unsigned other = 0; other < p.n; other++)
                    if (other != i)
                        set_remove(&r.c.eligible, other);
                r.c.prompt = span_of(text, sizeof text);
                balance_pick(p.balancer, &r.c);
            }
            request_init(&r, &p);
            r.c.prompt = span_of(text, sizeof text);
            r.c.session = SPAN("a session");
            uint64_t before = allocated_bytes();
            for (unsigned i = 0; i < 1000; i++) {
                balance_fill_eligible(p.balancer, &POOL_RULES, &r.c);
                struct pick got = balance_pick(p.balancer, &r.c);
                assert_true(got.why.has_share && got.why.share == 1);
            }
            assert_int_equal(allocated_bytes(), before);
            pool_fini(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_eligibility),
        cmocka_unit_test(test_empty_pool),
        cmocka_unit_test(test_fill_eligible),
        cmocka_unit_test(test_weighted_sequence),
        cmocka_unit_test(test_weighted_large),
        cmocka_unit_test(test_round_robin_exact),
        cmocka_unit_test(test_weighted_exact),
        cmocka_unit_test(test_least_load_even_under_threads),
        cmocka_unit_test(test_random_is_uniform),
        cmocka_unit_test(test_two_choices_by_load),
        cmocka_unit_test(test_least_load_by_load),
        cmocka_unit_test(test_least_load_ties),
        cmocka_unit_test(test_least_load_fresh_pools),
        cmocka_unit_test(test_reload_continues),
        cmocka_unit_test(test_reload_shares_turns),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_no_allocation_when_resident),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
