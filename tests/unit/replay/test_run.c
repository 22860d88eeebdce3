/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "run.h"

static void test_quantiles(void **state)
{
    const double one[] = {5}, four[] = {1, 2, 3, 4};
    assert_true(sorted_quantile(one, 1, 0) == 5 && sorted_quantile(one, 1, 1) == 5);
    assert_true(sorted_quantile(four, 4, 0) == 1);
    assert_true(sorted_quantile(four, 4, 0.25) == 1);
    assert_true(sorted_quantile(four, 4, 0.26) == 2);
    assert_true(sorted_quantile(four, 4, 0.5) == 2);
    assert_true(sorted_quantile(four, 4, 0.99) == 4);
    double hundred[100];
    for (int i = 0; i < 100; i++)
        hundred[i] = i + 1;
    for (int q = 1; q <= 100; q++)
        assert_true(sorted_quantile(hundred, 100, q / 100.0) == q);
    for (unsigned i = 1; i < RUN_POINTS; i++)
        assert_true(run_point_quantile(i) > run_point_quantile(i - 1));
    assert_true(run_point_quantile(0) == 0 && run_point_quantile(RUN_POINTS - 1) == 1);
}

static void test_bins(void **state)
{
    /* Beside a count of small steps. */
    enum { BINS = 10, STEPS = 1000 };
    struct rng r;
    float bins[BINS] = {0};
    double twin[BINS] = {0};
    rng_seed(&r, 3);
    for (int k = 0; k < 200; k++) {
        int a = (int)rng_below(&r, 1300) - 100, b = a + (int)rng_below(&r, 400);
        bins_add_interval(bins, BINS, 1, a / 100.0, b / 100.0);
        for (int s = a; s < b; s++)
            if (s >= 0 && s < STEPS)
                twin[s / 100] += 0.01;
    }
    for (int i = 0; i < BINS; i++)
        assert_true(fabs(bins[i] - twin[i]) < 1e-2);
    bins_add_interval(bins, BINS, 1, 3, 3);
    bins_add_interval(bins, BINS, 1, 4, 3);
    bins_add_interval(bins, BINS, 1, NAN, 3);
    assert_true(fabs(bins[3] - twin[3]) < 1e-2);
}

static void test_summary(void **state)
{
    static const struct run_row rows[] = {
        {.at_us = 1000, .first_us = 3000, .end_us = 11000, .input = 100, .hit = 40, .replica = 0},
        {.at_us = 2000, .first_us = 8000, .end_us = 9000, .input = 300, .hit = 0, .replica = 1},
        {.at_us = 2000, .end_us = 9000, .input = 999, .replica = 1, .error = "status 503"},
        {.at_us = 2000, .end_us = 9000, .input = 999, .replica = -1, .error = "connect"},
        {.at_us = 2000, .end_us = 9000, .input = 999, .replica = -1, .error = "connect"},
        {.at_us = 4000, .first_us = 5000, .end_us = 5000, .input = 100, .hit = 100, .replica = -1},
    };
    struct run r;
    run_init(&r, "x", RUN_LIVE, 0);
    assert_int_equal(run_replica_named(&r, SPAN("a")), 0);
    assert_int_equal(run_replica_named(&r, SPAN("b")), 1);
    assert_int_equal(run_replica_named(&r, SPAN("a")), 0);
    r.n = sizeof rows / sizeof *rows;
    r.rows = mem_array(r.n, sizeof *rows);
    memcpy(r.rows, rows, sizeof rows);
    run_summarize(&r);
    assert_int_equal(r.ok, 3);
    assert_int_equal(r.errors, 3);
    assert_int_equal(r.n_error_kinds, 2);
    assert_string_equal(r.error_kinds[1].what, "connect");
    assert_int_equal(r.error_kinds[1].n, 2);
    assert_int_equal(r.input, 500);
    assert_int_equal(r.hit, 140);
    assert_true(fabs(r.hit_share - 0.28) < 1e-9);
    assert_true(fabs(r.ttft_mean_ms - 3) < 1e-9 && r.ttft_p50_ms == 2 && r.ttft_max_ms == 6);
    assert_int_equal(r.replicas[0].work, 60);
    assert_int_equal(r.replicas[1].work, 300);
    assert_int_equal(r.replicas[1].requests, 1);
    assert_true(fabs(r.busiest - 300 / 180.0) < 1e-9);
    assert_true(fabs(r.span_ms - 10) < 1e-9);
    double sum = 0;
    for (int i = 0; i < RUN_BINS; i++)
        sum += r.load[i] * r.bin_ms;
    assert_true(fabs(sum - 10) < 1e-3); /* a's one request */
    run_fini(&r);
}

static void test_nothing(void **state)
{
    struct run r;
    run_init(&r, "x", RUN_LIVE, 0);
    run_summarize(&r);
    assert_true(isnan(r.ttft_mean_ms) && isnan(r.busiest) && r.hit_share == 0);
    run_fini(&r);
}

static void test_many_kinds_of_errors(void **state)
{
    static char words[RUN_ERROR_KINDS + 10][24];
    struct run r;
    run_init(&r, "x", RUN_LIVE, 0);
    r.n = RUN_ERROR_KINDS + 10;
    r.rows = mem_array(r.n, sizeof *r.rows);
    for (size_t i = 0; i < r.n; i++) {
        snprintf(words[i], sizeof words[i], "e%zu", i);
        r.rows[i] = (struct run_row){.replica = -1, .error = words[i]};
    }
    run_summarize(&r);
    size_t sum = 0;
    for (unsigned i = 0; i < r.n_error_kinds; i++)
        sum += r.error_kinds[i].n;
    assert_int_equal(sum, r.n);
    assert_int_equal(r.errors, r.n);
    run_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_bins),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_many_kinds_of_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
