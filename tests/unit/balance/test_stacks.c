/* SPDX-License-Identifier: Apache-2.0
 *
 * Strategies that add up scores: worked cases, unknown and flat signals, sessions, ties, what they say about
 * themselves.
 */
#include "balance/pool.h"

#include <pthread.h>

#include "base/buf.h"

static const unsigned SIZES[] = {2, 3, 63, 64, 65, 130};

/* Targets with these prices; a negative one is unknown. */
static void pool_init_costs(struct pool *p, unsigned n, const double *costs)
{
    pool_init(p, STRATEGY_CHEAPEST, n, NULL);
    balancer_unref(p->balancer);
    for (unsigned i = 0; i < n; i++) {
        p->targets[i].cost_known = costs[i] >= 0;
        p->targets[i].cost = costs[i];
    }
    p->balancer = balancer_new(STRATEGY_CHEAPEST, p->targets, n, NULL, NULL);
}

static struct pick pick(struct pool *p)
{
    struct request r;
    request_init(&r, p);
    return balance_pick(p->balancer, &r.c);
}

static void expect_score(const struct pick *p, int index, double score)
{
    assert_int_equal(p->index, index);
    assert_int_equal(p->reason, PICK_SCORE);
    assert_true(p->why.has_score);
    assert_true(p->why.score > score - 1e-5 && p->why.score < score + 1e-5);
}

static void expect_runner_up(const struct pick *p, int index, double score)
{
    assert_int_equal(p->why.runner_up, index);
    assert_true(p->why.runner_up_score > score - 1e-5 && p->why.runner_up_score < score + 1e-5);
}

static void release(struct lease *l, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        target_lease_end(&l[i]);
}

static void test_cheapest(void **state)
{
    struct pool p;
    pool_init_costs(&p, 3, (double[]){10, 2, 6});
    struct pick idle = pick(&p);
    expect_score(&idle, 1, 1.25);
    expect_runner_up(&idle, 2, 0.75);
    /* Loads 0, 4, 0: 0 + .25, 1 + 0, .5 + .25. The price is worth four times the load. */
    struct lease l[4];
    charge(&p, 1, 4, l);
    struct pick busy = pick(&p);
    expect_score(&busy, 1, 1);
    expect_runner_up(&busy, 2, 0.75);
    assert_true(busy.why.has_load);
    assert_int_equal(busy.why.load, 4);
    assert_int_equal(busy.why.least, 0);
    release(l, 4);
    pool_fini(&p);
    /* Near in price: 1.0 + 0 loses against 0.9 + 0.25. Unloaded the cheaper one wins. */
    pool_init_costs(&p, 3, (double[]){2, 2.8, 10});
    assert_int_equal(pick(&p).index, 0);
    charge(&p, 0, 1, l);
    struct pick spill = pick(&p);
    expect_score(&spill, 1, 1.15);
    expect_runner_up(&spill, 0, 1);
    release(l, 1);
    pool_fini(&p);
    /* Unknown is in the middle; no price at all is a price. */
    pool_init_costs(&p, 3, (double[]){0, -1, 8});
    struct pick known = pick(&p);
    expect_score(&known, 0, 1.25);
    expect_runner_up(&known, 1, 0.75);
    pool_fini(&p);
}

/* With fewer than two different known values a signal tells nobody from the others. */
static void test_flat(void **state)
{
    const double flat[][3] = {{-1, -1, -1}, {5, 5, 5}, {5, -1, -1}, {-1, 5, 5}};
    for (size_t k = 0; k < ARRAY_LEN(flat); k++) {
        struct pool p;
        pool_init_costs(&p, 3, flat[k]);
        struct lease l[3];
        charge(&p, 0, 2, l);
        charge(&p, 1, 1, l + 2);
        struct pick least = pick(&p);
        expect_score(&least, 2, 1.25);
        expect_runner_up(&least, 1, 1.125);
        release(l, 3);
        unsigned got[3] = {0};
        for (int i = 0; i < 30; i++)
            got[pick(&p).index]++;
        for (int i = 0; i < 3; i++)
            assert_int_equal(got[i], 10);
        pool_fini(&p);
    }
}

static void test_fastest(void **state)
{
    struct pool p;
    pool_init(&p, STRATEGY_FASTEST, 3, NULL);
    target_observe_latency(p.targets[0].target, 300);
    target_observe_latency(p.targets[1].target, 100);
    struct pick first = pick(&p);
    expect_score(&first, 1, 1.25);
    expect_runner_up(&first, 2, 0.75); /* unknown: 0.5 */
    target_observe_latency(p.targets[2].target, 50);
    struct pick second = pick(&p);
    expect_score(&second, 2, 1.25);
    expect_runner_up(&second, 1, 0.8 + 0.25);
    /* Bounds are those of the candidates: without the slow one, 100 is the worst. */
    struct request r;
    request_init(&r, &p);
    set_remove(&r.c.eligible, 0);
    struct pick two = balance_pick(p.balancer, &r.c);
    expect_score(&two, 2, 1.25);
    expect_runner_up(&two, 1, 0.25);
    pool_fini(&p);
}

/* Who has no figure scores below the best one, and without requests it would never have one: one pick in
 * sixteen goes there while it is idle, until it has. */
static void test_newcomers_are_asked(void **state)
{
    struct pool p;
    struct lease l;
    pool_init(&p, STRATEGY_FASTEST, 4, NULL);
    target_observe_latency(p.targets[0].target, 300);
    target_observe_latency(p.targets[1].target, 100);
    unsigned got[4] = {0};
    for (int i = 0; i < 64; i++) {
        struct pick k = pick(&p);
        got[k.index]++;
        assert_int_equal(k.reason, k.index >= 2 ? PICK_EXPLORE : PICK_SCORE);
        if (k.index < 2)
            continue;
        assert_true(k.why.score == 0.75f);
        expect_runner_up(&k, 1, 1.25);
    }
    assert_int_equal(got[1], 60);
    assert_int_equal(got[2], 2); /* by turns */
    assert_int_equal(got[3], 2);
    /* One request at a time. */
    charge(&p, 2, 1, &l);
    target_observe_latency(p.targets[3].target, 200);
    for (int i = 0; i < 64; i++)
        assert_int_equal(pick(&p).index, 1);
    target_lease_end(&l);
    target_observe_latency(p.targets[2].target, 50);
    for (int i = 0; i < 64; i++)
        assert_int_equal(pick(&p).index, 2);
    pool_fini(&p);

    pool_init(&p, STRATEGY_PREDICTED_LATENCY, 3, NULL);
    unsigned asked = 0;
    for (int i = 0; i < 8; i++) {
        target_observe_duration(p.targets[0].target, 100, 0, 0);
        target_observe_duration(p.targets[1].target, 900, 0, 0);
    }
    for (int i = 0; i < 16 * 8; i++)
        if (pick(&p).index == 2) {
            target_observe_duration(p.targets[2].target, 10, 0, 0);
            asked++;
        }
    assert_int_equal(asked, 8); /* so many samples make a prediction */
    for (int i = 0; i < 32; i++)
        assert_int_equal(pick(&p).index, 2);
    pool_fini(&p);

    /* A price is not learnt by asking. */
    pool_init(&p, STRATEGY_CHEAPEST, 3, NULL);
    balancer_unref(p.balancer);
    for (unsigned i = 0; i < 2; i++) {
        p.targets[i].cost_known = true;
        p.targets[i].cost = 1 + i;
    }
    p.balancer = balancer_new(STRATEGY_CHEAPEST, p.targets, 3, NULL, NULL);
    for (int i = 0; i < 64; i++)
        assert_int_equal(pick(&p).index, 0);
    pool_fini(&p);
}

static void test_predicted(void **state)
{
    struct pool p;
    pool_init(&p, STRATEGY_PREDICTED_LATENCY, 2, NULL);
    struct request r;
    request_init(&r, &p);
    /* Target 0: quick to begin, slow to read. Target 1: the other way round. */
    for (int i = 0; i < 4000; i++) {
        uint64_t tokens = rng_below(&p.rng, 8000);
        target_observe_duration(p.targets[0].target, 100 + 500 * (double)tokens / 1000, 0, tokens);
        target_observe_duration(p.targets[1].target, 1100 + 100 * (double)tokens / 1000, 0, tokens);
    }
    r.c.prompt_len = 400; /* 100 tokens */
    assert_int_equal(balance_pick(p.balancer, &r.c).index, 0);
    r.c.prompt_len = 40000; /* 10,000 tokens, past any cut of the text */
    assert_int_equal(balance_pick(p.balancer, &r.c).index, 1);
    r.c.prompt_len = 0;
    assert_int_equal(balance_pick(p.balancer, &r.c).index, 0);
    pool_fini(&p);
    /* Seven samples are none. */
    pool_init(&p, STRATEGY_PREDICTED_LATENCY, 2, NULL);
    for (int i = 0; i < 7; i++)
        target_observe_duration(p.targets[0].target, 900, 0, 0);
    for (int i = 0; i < 8; i++)
        target_observe_duration(p.targets[1].target, 10, 0, 0);
    int got[2] = {0};
    for (int i = 0; i < 10; i++)
        got[pick(&p).index]++;
    assert_int_equal(got[0], 5);
    target_observe_duration(p.targets[0].target, 900, 0, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(pick(&p).index, 1);
    pool_fini(&p);
}

static void test_pipeline_weights_and_loads(void **state)
{
    struct pool p;
    pool_init(&p, STRATEGY_PIPELINE, 3, (unsigned[]){4, 2, 1});
    struct pick idle = pick(&p);
    expect_score(&idle, 0, 2);
    expect_runner_up(&idle, 1, 1.5);
    struct lease l[4];
    charge(&p, 0, 4, l); /* 1 + 0, .5 + 1, .25 + 1 */
    struct pick busy = pick(&p);
    expect_score(&busy, 1, 1.5);
    expect_runner_up(&busy, 2, 1.25);
    /* The largest weight is the candidates'. */
    struct request r;
    request_init(&r, &p);
    set_remove(&r.c.eligible, 0);
    struct pick two = balance_pick(p.balancer, &r.c);
    expect_score(&two, 1, 2);
    release(l, 4);
    pool_fini(&p);
}

static void test_pipeline_session(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(SIZES); s++) {
        struct pool p;
        pool_init(&p, STRATEGY_PIPELINE, SIZES[s], NULL);
        struct request r;
        request_init(&r, &p);
        r.c.session = SPAN("conversation");
        int home = balance_pick(p.balancer, &r.c).index;
        for (int i = 0; i < 20; i++) {
            pick(&p); /* others come by */
            assert_int_equal(balance_pick(p.balancer, &r.c).index, home);
        }
        /* Session 1 + load 0 against load 1: a tie, and it is not the home's turn. Busy homes are left. */
        struct lease l[3];
        charge(&p, (unsigned)home, 3, l);
        struct pick away = balance_pick(p.balancer, &r.c);
        assert_int_not_equal(away.index, home);
        release(l, 3);
        /* The session is where it was served last. Cannot be used: elsewhere. */
        assert_int_equal(balance_pick(p.balancer, &r.c).index, away.index);
        set_remove(&r.c.eligible, (unsigned)away.index);
        struct pick moved = balance_pick(p.balancer, &r.c);
        assert_int_not_equal(moved.index, away.index);
        /* That attempt failed: back to where it was. */
        balance_withdraw(p.balancer, &moved.receipt);
        target_set_add(&r.c.eligible, (unsigned)away.index);
        assert_int_equal(balance_pick(p.balancer, &r.c).index, away.index);
        pool_fini(&p);
    }
}

static void test_pipeline_session_time(void **state)
{
    struct pool p;
    pool_init(&p, STRATEGY_PIPELINE, 2, NULL);
    struct request r;
    request_init(&r, &p);
    r.c.session = SPAN("s");
    int home = balance_pick(p.balancer, &r.c).index;
    r.c.now_ms += 300000;
    assert_int_equal(balance_pick(p.balancer, &r.c).index, home);
    r.c.now_ms += 300001;
    assert_int_not_equal(balance_pick(p.balancer, &r.c).index, home); /* the other one's turn */
    pool_fini(&p);
}

/* Scores with equal weights and no load: 1 + 1 + the share. */
static void test_pipeline_prefix(void **state)
{
    for (size_t s = 0; s < ARRAY_LEN(SIZES); s++) {
        struct pool p;
        pool_init(&p, STRATEGY_PIPELINE, SIZES[s], NULL);
        struct request r;
        request_init(&r, &p);
        r.c.prompt = SPAN("0123456789");
        struct pick cold = balance_pick(p.balancer, &r.c);
        expect_score(&cold, cold.index, 2);
        assert_true(cold.why.has_share && cold.why.share == 0);
        struct pick warm = balance_pick(p.balancer, &r.c);
        expect_score(&warm, cold.index, 3);
        r.c.prompt = SPAN("01234-----");
        struct pick half = balance_pick(p.balancer, &r.c);
        expect_score(&half, cold.index, 2.5);
        assert_true(half.why.share == 0.5f);
        /* A tenth is a match, less is not: then everybody is equal, and the least-warmed comes first. */
        r.c.prompt = SPAN("0---------");
        struct pick tenth = balance_pick(p.balancer, &r.c);
        expect_score(&tenth, cold.index, 2.1);
        balance_withdraw(p.balancer, &tenth.receipt);
        r.c.prompt = SPAN("0----------");
        struct pick less = balance_pick(p.balancer, &r.c);
        assert_int_not_equal(less.index, cold.index);
        expect_score(&less, less.index, 2);
        /* One request there costs more than half a prompt is worth. */
        struct lease l;
        charge(&p, (unsigned)cold.index, 1, &l);
        r.c.prompt = SPAN("01234=====");
        struct pick busy = balance_pick(p.balancer, &r.c);
        assert_int_not_equal(busy.index, cold.index);
        /* It failed there: nothing of it stays. */
        balance_withdraw(p.balancer, &busy.receipt);
        target_lease_end(&l);
        assert_int_equal(balance_pick(p.balancer, &r.c).index, cold.index);
        pool_fini(&p);
    }
}

/* Cold prompts of an idle pool are shared out, exactly (A3). */
static void test_pipeline_cold_prompts(void **state)
{
    struct pool p;
    pool_init(&p, STRATEGY_PIPELINE, 3, NULL);
    unsigned got[3] = {0};
    for (int i = 0; i < 24; i++) {
        struct request r;
        char text[32];
        request_init(&r, &p);
        r.c.prompt = span_of(text, (size_t)sprintf(text, "%c: something of its own", 'a' + i));
        got[balance_pick(p.balancer, &r.c).index]++;
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(got[i], 8);
    pool_fini(&p);
}

/* Among equals the one that has served fewest prompts, until it has caught up (R1). */
static void test_pipeline_least_warmed(void **state)
{
    struct pool p;
    pool_init(&p, STRATEGY_PIPELINE, 2, NULL);
    int got[2] = {0};
    for (int i = 0; i < 9; i++) {
        struct request r;
        char text[32];
        request_init(&r, &p);
        r.c.prompt = span_of(text, (size_t)sprintf(text, "%c: something of its own", 'a' + i));
        if (i < 4)
            set_remove(&r.c.eligible, 1);
        got[balance_pick(p.balancer, &r.c).index]++;
        if (i >= 4 && i < 8)
            assert_int_equal(got[1], i - 3);
    }
    assert_int_equal(got[0] + got[1], 9);
    pool_fini(&p);
}

/* Also a pick without a choice tells where the session is. */
static void test_pipeline_session_of_the_only_one(void **state)
{
    struct pool p;
    pool_init(&p, STRATEGY_PIPELINE, 3, NULL);
    struct request r;
    request_init(&r, &p);
    r.c.session = SPAN("s");
    set_remove(&r.c.eligible, 0);
    set_remove(&r.c.eligible, 1);
    struct pick only = balance_pick(p.balancer, &r.c);
    assert_int_equal(only.index, 2);
    assert_int_equal(only.reason, PICK_ONLY);
    target_set_add(&r.c.eligible, 0);
    target_set_add(&r.c.eligible, 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(balance_pick(p.balancer, &r.c).index, 2);
    pool_fini(&p);
}

static void test_session_survives_a_reload(void **state)
{
    struct pool p;
    pool_init(&p, STRATEGY_PIPELINE, 4, NULL);
    struct request r;
    request_init(&r, &p);
    r.c.session = SPAN("s");
    const struct target *home = p.targets[balance_pick(p.balancer, &r.c).index].target;
    struct pool_target turned[] = {p.targets[3], p.targets[2], p.targets[1], p.targets[0]};
    struct balancer *next = balancer_new(STRATEGY_PIPELINE, turned, 4, NULL, p.balancer);
    balancer_unref(p.balancer);
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(balancer_target(next, (unsigned)balance_pick(next, &r.c).index), home);
    p.balancer = next;
    pool_fini(&p);
}

/* Equal scores: each one gets as many, whatever its position. */
static void test_ties(void **state)
{
    const enum strategy_id ids[] = {STRATEGY_PIPELINE, STRATEGY_CHEAPEST, STRATEGY_FASTEST,
                                    STRATEGY_PREDICTED_LATENCY};
    for (size_t k = 0; k < ARRAY_LEN(ids); k++)
        for (size_t s = 0; s < ARRAY_LEN(SIZES); s++) {
            struct pool p;
            pool_init(&p, ids[k], SIZES[s], NULL);
            unsigned got[POOL_MAX] = {0};
            for (unsigned i = 0; i < 3 * p.n; i++)
                got[pick(&p).index]++;
            for (unsigned i = 0; i < p.n; i++)
                assert_int_equal(got[i], 3);
            /* Among those that are left, too. */
            struct request r;
            request_init(&r, &p);
            for (unsigned i = 0; i < p.n; i += 3)
                set_remove(&r.c.eligible, i);
            unsigned left = p.n - (p.n + 2) / 3;
            if (left < 2) {
                pool_fini(&p);
                continue;
            }
            for (unsigned i = 0; i < 2 * left; i++)
                got[balance_pick(p.balancer, &r.c).index]++;
            for (unsigned i = 0; i < p.n; i++)
                assert_int_equal(got[i], i % 3 ? 5 : 3);
            pool_fini(&p);
        }
}

enum { THREADS = 4, EACH = 20000 };

struct picker {
    struct pool *pool;
    unsigned number, got[3];
    bool is_wrong;
};

/* Picks, learns and takes back, all at once with others; a session must be where this thread served it last.
 */
static void *run_picker(void *arg)
{
    struct picker *t = arg;
    struct rng rng;
    rng_seed(&rng, t->number);
    for (unsigned i = 0; i < EACH; i++) {
        struct request r;
        char name[32], text[64];
        request_init(&r, t->pool);
        r.c.rng = &rng;
        r.c.session = span_of(name, (size_t)sprintf(name, "thread %u, %u", t->number, i / 4));
        r.c.prompt = span_of(text, (size_t)sprintf(text, "%u: what all begin with, %u", i / 4, t->number));
        r.c.prompt_len = r.c.prompt.n;
        struct pick k = balance_pick(t->pool->balancer, &r.c);
        t->got[k.index]++;
        struct target *target = t->pool->targets[k.index].target;
        target_observe_latency(target, 1 + i % 7);
        target_observe_duration(target, 1 + i % 7, i % 3, i % 1000);
        struct pick again = balance_pick(t->pool->balancer, &r.c);
        t->is_wrong |= balancer_strategy(t->pool->balancer) == STRATEGY_PIPELINE && again.index != k.index;
        if (i % 3 == 0)
            balance_withdraw(t->pool->balancer, &again.receipt);
    }
    return NULL;
}

static void test_threads(void **state)
{
    const enum strategy_id ids[] = {STRATEGY_PIPELINE, STRATEGY_FASTEST, STRATEGY_PREDICTED_LATENCY};
    for (size_t k = 0; k < ARRAY_LEN(ids); k++) {
        struct pool p;
        pool_init(&p, ids[k], 3, NULL);
        pthread_t threads[THREADS];
        struct picker pickers[THREADS];
        for (unsigned i = 0; i < THREADS; i++) {
            pickers[i] = (struct picker){.pool = &p, .number = i};
            assert_int_equal(pthread_create(&threads[i], NULL, run_picker, &pickers[i]), 0);
        }
        unsigned got[3] = {0};
        for (unsigned i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_false(pickers[i].is_wrong);
            for (unsigned j = 0; j < 3; j++)
                got[j] += pickers[i].got[j];
        }
        assert_int_equal(got[0] + got[1] + got[2], THREADS * EACH);
        if (ids[k] == STRATEGY_PIPELINE) /* nobody is favoured */
            for (unsigned j = 0; j < 3; j++)
                assert_in_range(got[j], THREADS * EACH / 3 * 8 / 10, THREADS * EACH / 3 * 12 / 10);
        pool_fini(&p);
    }
}

static void expect_text(struct pool *p, const struct pick *k, const char *text)
{
    struct buf b;
    buf_init(&b, 4096);
    balance_explain(p->balancer, k, &b);
    buf_add(&b, "", 1);
    assert_string_equal(b.p, text);
    buf_fini(&b);
}

static void test_explained(void **state)
{
    struct pool p;
    pool_init_costs(&p, 3, (double[]){10, 2, 6});
    struct lease l[5];
    charge(&p, 1, 4, l);
    charge(&p, 2, 1, l + 4);
    struct pick k = pick(&p);
    expect_text(&p, &k, "load=4 least=0 score=1.000 runner_up=p2/m runner_up_score=0.688");
    release(l, 5);
    k.why = (struct pick_why){.has_share = true,
                              .has_load = true,
                              .share = 0.829f,
                              .load = 2,
                              .least = 1,
                              .guard = GUARD_OK,
                              .runner_up = 0};
    expect_text(&p, &k, "share=0.83 load=2 least=1 guard=ok runner_up=p0/m");
    k.why = (struct pick_why){.has_share = true,
                              .share = 0.049f,
                              .guard = GUARD_OVERLOADED,
                              .has_score = true,
                              .score = 2.0041f,
                              .runner_up = -1};
    expect_text(&p, &k, "share=0.05 guard=overloaded score=2.004");
    k.why = (struct pick_why){.runner_up = -1};
    expect_text(&p, &k, "");
    pool_fini(&p);
    pool_init(&p, STRATEGY_ROUND_ROBIN, 3, NULL);
    k = pick(&p);
    expect_text(&p, &k, "");
    pool_fini(&p);
    pool_init(&p, STRATEGY_LEAST_LOAD, 2, NULL);
    charge(&p, 0, 1, l);
    k = pick(&p);
    expect_text(&p, &k, "load=0 least=0");
    release(l, 1);
    pool_fini(&p);
}

static void expect_lmcache(struct pool *p, uint64_t now_ms, int index, double score, bool decides)
{
    struct request r;
    request_init(&r, p);
    r.c.now_ms = now_ms;
    struct pick k = balance_pick(p->balancer, &r.c);
    if (index >= 0)
        assert_int_equal(k.index, index);
    assert_int_equal(k.reason, decides ? PICK_SCORE : PICK_LEAST_LOAD);
    assert_true(k.why.asks_lmcache);
    assert_int_equal(k.why.lmcache_decides, decides);
    assert_true(k.why.score > score - 1e-5 && k.why.score < score + 1e-5);
}

static void test_lmcache(void **state)
{
    struct pool p;
    pool_init(&p, STRATEGY_LMCACHE_AWARE, 3, NULL);
    struct provider *x[3];
    for (unsigned i = 0; i < 3; i++)
        x[i] = target_provider(p.targets[i].target);
    /* Nobody says anything: all equal, by turns. */
    unsigned got[3] = {0};
    for (int i = 0; i < 6; i++)
        got[pick(&p).index]++;
    assert_int_equal(got[0] == 2 && got[1] == 2 && got[2] == 2, 1);
    expect_lmcache(&p, 1, -1, 0.25, false);
    /* The emptiest cache; who says nothing scores 0 and the others keep their scores (R10). */
    provider_set_lmcache(x[0], 0.2, 10, 100);
    provider_set_lmcache(x[1], 0.6, 10, 50);
    expect_lmcache(&p, 20, 1, 0.85, true);
    /* What one says expires by itself, what the other says still counts. */
    expect_lmcache(&p, 50, 0, 0.45, true);
    expect_lmcache(&p, 100, -1, 0.25, false);
    /* A failed poll takes it back at once. */
    provider_set_lmcache(x[1], 0.6, 100, 200);
    provider_forget_lmcache(x[1]);
    expect_lmcache(&p, 101, -1, 0.25, false);
    /* Load is a quarter: 0.6 - full load against 0.5 - idle. */
    provider_set_lmcache(x[0], 0.6, 100, 200);
    provider_set_lmcache(x[1], 0.5, 100, 200);
    struct lease l[2];
    charge(&p, 0, 2, l);
    expect_lmcache(&p, 150, 1, 0.75, true);
    release(l, 2);
    expect_lmcache(&p, 150, 0, 0.85, true);
    struct pick k = {.index = 0,
                     .why = {.asks_lmcache = true, .has_lmcache = true, .lmcache = 0.6f, .runner_up = -1}};
    expect_text(&p, &k, "lmcache=0.60");
    k.why.has_lmcache = false;
    expect_text(&p, &k, "lmcache=unknown");
    pool_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cheapest),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_fastest),
        cmocka_unit_test(test_newcomers_are_asked),
        cmocka_unit_test(test_predicted),
        cmocka_unit_test(test_pipeline_weights_and_loads),
        cmocka_unit_test(test_pipeline_session),
        cmocka_unit_test(test_pipeline_session_time),
        cmocka_unit_test(test_pipeline_prefix),
        cmocka_unit_test(test_pipeline_cold_prompts),
        cmocka_unit_test(test_pipeline_least_warmed),
        cmocka_unit_test(test_pipeline_session_of_the_only_one),
        cmocka_unit_test(test_session_survives_a_reload),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_explained),
        cmocka_unit_test(test_lmcache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
