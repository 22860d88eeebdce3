/* SPDX-License-Identifier: Apache-2.0
 *
 * The latency predictor: silence, convergence, what it tells apart, bounds, bad samples, threads.
 */
#include "unit.h"

#include <math.h>
#include <pthread.h>

#include "base/rng.h"
#include "fleet/fleet.h"
#include "fleet/predictor.h"

static double ask(const struct predictor *p, unsigned depth, uint64_t tokens)
{
    double ms = -1;
    assert_true(predictor_ask(p, depth, tokens, &ms));
    assert_true(ms >= 0);
    return ms;
}

static bool is_near(double x, double y, double share)
{
    return fabs(x - y) <= share * y;
}

/* <n> requests of a target that takes base + per_depth * depth + per_kilotoken * kilotokens. */
static void teach(struct predictor *p, struct rng *rng, int n, double base, double per_depth,
                  double per_kilotoken)
{
    for (int i = 0; i < n; i++) {
        unsigned depth = (unsigned)rng_below(rng, 8);
        uint64_t tokens = rng_below(rng, 6000);
        predictor_learn(p, base + per_depth * depth + per_kilotoken * (double)tokens / 1000, depth, tokens);
    }
}

static void test_silent_below_8(void **state)
{
    struct predictor p;
    predictor_init(&p);
    double ms = -1;
    for (int i = 0; i < 7; i++) {
        assert_false(predictor_ask(&p, 0, 0, &ms));
        predictor_learn(&p, 100, 0, 0);
    }
    assert_false(predictor_ask(&p, 0, 0, &ms));
    assert_true(ms == -1);
    predictor_learn(&p, 100, 0, 0);
    assert_true(predictor_ask(&p, 0, 0, &ms));
    assert_true(ms > 50 && ms <= 100);
    predictor_fini(&p);
}

static void test_one_step(void **state)
{
    struct predictor p;
    predictor_init(&p);
    predictor_learn(&p, 600, 1, 1000); /* x = (1, 1, 1): each gets 0.15 * 600 / 3.001 */
    struct predictor_weights w = predictor_weights(&p);
    assert_true(is_near(w.base_ms, 0.15 * 600 / 3.001, 1e-9));
    assert_true(w.per_depth_ms == w.base_ms && w.per_kilotoken_ms == w.base_ms);
    assert_int_equal(w.samples, 1);
    predictor_fini(&p);
}

static void test_tells_queue_from_prompt(void **state)
{
    struct predictor p;
    struct rng rng;
    predictor_init(&p);
    rng_seed(&rng, 1);
    teach(&p, &rng, 3000, 200, 50, 300);
    struct predictor_weights w = predictor_weights(&p);
    assert_true(is_near(w.base_ms, 200, 0.02));
    assert_true(is_near(w.per_depth_ms, 50, 0.02));
    assert_true(is_near(w.per_kilotoken_ms, 300, 0.02));
    assert_true(is_near(ask(&p, 4, 2000), 1000, 0.02));
    assert_true(is_near(ask(&p, 0, 0), 200, 0.02));
    assert_true(is_near(ask(&p, 20, 10000), 200 + 1000 + 3000, 0.02)); /* beyond what it has seen */
    predictor_fini(&p);
}

static void test_follows_a_shift(void **state)
{
    struct predictor p;
    struct rng rng;
    predictor_init(&p);
    rng_seed(&rng, 2);
    teach(&p, &rng, 1000, 100, 20, 100);
    assert_true(is_near(ask(&p, 2, 1000), 240, 0.05));
    teach(&p, &rng, 60, 400, 80, 400); /* four times as slow */
    double soon = ask(&p, 2, 1000);
    assert_true(soon > 500);
    teach(&p, &rng, 2000, 400, 80, 400);
    assert_true(is_near(ask(&p, 2, 1000), 960, 0.02));
    predictor_fini(&p);
}

static void test_never_negative(void **state)
{
    struct predictor p;
    predictor_init(&p);
    /* Short when many wait, long when nobody does: the line falls below zero soon. */
    for (int i = 0; i < 500; i++)
        predictor_learn(&p, i % 2 ? 0 : 1000, i % 2 ? 4 : 0, 0);
    struct predictor_weights w = predictor_weights(&p);
    assert_true(w.per_depth_ms < 0);
    assert_true(w.base_ms + 100 * w.per_depth_ms < 0);
    assert_true(ask(&p, 100, 0) == 0);
    predictor_fini(&p);
}

static void test_bad_samples(void **state)
{
    struct predictor p;
    predictor_init(&p);
    for (int i = 0; i < 50; i++)
        predictor_learn(&p, 100, 1, 1000);
    struct predictor_weights before = predictor_weights(&p);
    const double bad[] = {NAN, INFINITY, -INFINITY, -1, -1e-300};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        predictor_learn(&p, bad[i], 1, 1000);
    struct predictor_weights after = predictor_weights(&p);
    assert_memory_equal(&before, &after, sizeof before);
    predictor_fini(&p);
}

static void test_clamp(void **state)
{
    struct predictor p;
    predictor_init(&p);
    const uint64_t extreme = UINT64_MAX;
    for (int i = 0; i < 100; i++) {
        predictor_learn(&p, 1e300, 0, 0);
        predictor_learn(&p, 1e300, UINT32_MAX, extreme);
        predictor_learn(&p, 0, UINT32_MAX, 0);
    }
    struct predictor_weights w = predictor_weights(&p);
    const double all[] = {w.base_ms, w.per_depth_ms, w.per_kilotoken_ms};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        assert_true(isfinite(all[i]) && fabs(all[i]) <= 600000);
    assert_true(w.base_ms > 599999);
    assert_true(isfinite(ask(&p, UINT32_MAX, extreme)));
    predictor_fini(&p);
}

/* A target keeps it over its whole life. */
static void test_on_a_target(void **state)
{
    struct fleet *f = fleet_new(1000);
    struct target *t = fleet_target_get(f, "p", "http://a", "m");
    double ms;
    for (int i = 0; i < 8; i++) {
        assert_false(target_predict_ms(t, 0, 0, &ms));
        target_observe_duration(t, 40, 0, 0);
    }
    assert_true(target_predict_ms(t, 0, 0, &ms));
    fleet_target_put(f, t, 0);
    t = fleet_target_get(f, "p", "http://a", "m");
    assert_true(target_predict_ms(t, 0, 0, &ms));
    struct target *other = fleet_target_get(f, "p", "http://a", "n");
    assert_false(target_predict_ms(other, 0, 0, &ms));
    fleet_free(f);
}

enum { LEARNERS = 3, EACH = 20000 };

static void *learner(void *arg)
{
    /* All three coefficients stay equal, so a torn reading would show. */
    for (int i = 0; i < EACH; i++)
        predictor_learn(arg, 10 + i % 90, 1, 1000);
    return NULL;
}

static void test_threads(void **state)
{
    struct predictor p;
    predictor_init(&p);
    pthread_t threads[LEARNERS];
    for (int i = 0; i < LEARNERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, learner, &p), 0);
    struct predictor_weights w;
    uint64_t last = 0;
    do {
        w = predictor_weights(&p);
        assert_true(w.base_ms == w.per_depth_ms && w.base_ms == w.per_kilotoken_ms);
        assert_true(w.samples >= last);
        last = w.samples;
    } while (w.samples < LEARNERS * EACH);
    for (int i = 0; i < LEARNERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(predictor_weights(&p).samples, LEARNERS * EACH);
    predictor_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent_below_8),
        cmocka_unit_test(test_one_step),
        cmocka_unit_test(test_tells_queue_from_prompt),
        cmocka_unit_test(test_follows_a_shift),
        cmocka_unit_test(test_never_negative),
        cmocka_unit_test(test_bad_samples),
        cmocka_unit_test(test_clamp),
        cmocka_unit_test(test_on_a_target),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
