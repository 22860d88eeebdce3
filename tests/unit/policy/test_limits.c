/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets and rate limits: windows, periods, several rules at once, what reloads keep, what gateways share;
 * and requests per minute beside a list of their times.
 */
#include "unit.h"

#include "base/check.h"
#include "base/rng.h"
#include "policy/limits.h"

/* 2026-12-01T00:00:00Z, the beginning of a minute, a day and a month. */
#define T0 1796083200000u

static struct limit_set rate(struct limits *l, const char *id, unsigned rpm, unsigned tpm)
{
    struct limit_set s;
    limit_set_init(&s, l, LIMIT_KEY, id, NULL, 0, &(struct rate_limit_settings){LIMIT_KEY, id, rpm, tpm}, 1);
    return s;
}

static struct limit_set budget(struct limits *l, const char *id, double usd, unsigned period)
{
    struct limit_set s;
    limit_set_init(&s, l, LIMIT_KEY, id, &(struct budget_settings){LIMIT_KEY, id, usd, period}, 1, NULL, 0);
    return s;
}

static enum limit_verdict admit(const struct limit_set *s, uint64_t at, unsigned *ret_secs)
{
    unsigned scope, secs = 0;
    enum limit_verdict v = limits_admit(&s, 1, at, &secs, &scope);
    if (ret_secs)
        *ret_secs = secs;
    return v;
}

static void test_requests_per_minute(void **state)
{
    struct limits *l = limits_new();
    struct limit_set s = rate(l, "k", 3, 0);
    unsigned secs;
    for (int i = 0; i < 3; i++)
        assert_int_equal(admit(&s, T0 + 10000, &secs), LIMIT_OK);
    assert_int_equal(admit(&s, T0 + 10000, &secs), LIMIT_REQUESTS);
    /* 50 s to the end of the minute, and a third of the next one until one of the three has gone. */
    assert_int_equal(secs, 50 + 20);
    assert_int_equal(admit(&s, T0 + 59999, NULL), LIMIT_REQUESTS);
    assert_int_equal(admit(&s, T0 + 79999, NULL), LIMIT_REQUESTS);
    assert_int_equal(admit(&s, T0 + 80000, NULL), LIMIT_OK);
    assert_int_equal(admit(&s, T0 + 80001, &secs), LIMIT_REQUESTS);
    assert_int_equal(secs, 20);
    assert_int_equal(admit(&s, T0 + 100000, NULL), LIMIT_OK);
    /* After two minutes of silence everything is there again. */
    for (int i = 0; i < 3; i++)
        assert_int_equal(admit(&s, T0 + 300000, NULL), LIMIT_OK);
    assert_int_equal(admit(&s, T0 + 300000, NULL), LIMIT_REQUESTS);
    /* A clock that goes back gives nobody more. */
    assert_int_equal(admit(&s, T0 + 299000, NULL), LIMIT_REQUESTS);
    limit_set_fini(&s);
    limits_unref(l);
}

static void test_tokens_per_minute(void **state)
{
    struct limits *l = limits_new();
    struct limit_set s = rate(l, "k", 0, 1000);
    unsigned secs;
    assert_int_equal(admit(&s, T0, NULL), LIMIT_OK);
    assert_int_equal(admit(&s, T0, NULL), LIMIT_OK); /* nothing is known of the first one yet */
    limits_charge(&s, 0, 999, T0 + 1000);
    assert_int_equal(admit(&s, T0 + 1000, NULL), LIMIT_OK);
    limits_charge(&s, 0, 1001, T0 + 2000);
    assert_int_equal(admit(&s, T0 + 2000, &secs), LIMIT_TOKENS);
    /* 2,000 in this minute: half a minute into the next one 1,000 are left of them. */
    assert_in_range(secs, 58 + 30, 58 + 31);
    assert_int_equal(admit(&s, T0 + 60000 + 30000, NULL), LIMIT_TOKENS);
    assert_int_equal(admit(&s, T0 + 60000 + 30100, NULL), LIMIT_OK);
    limit_set_fini(&s);
    limits_unref(l);
}

static void test_budgets(void **state)
{
    static const struct {
        unsigned period;
        uint64_t still_ms, again_ms; /* after T0 */
    } cases[] = {
        {BUDGET_DAILY, 86400000 - 1, 86400000},
        {BUDGET_MONTHLY, 31 * 86400000ull - 1, 31 * 86400000ull},
        {BUDGET_TOTAL, 366 * 86400000ull, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct limits *l = limits_new();
        struct limit_set s = budget(l, "k", 0.5, cases[i].period);
        assert_int_equal(admit(&s, T0, NULL), LIMIT_OK);
        limits_charge(&s, 0.499999999, 0, T0);
        assert_int_equal(admit(&s, T0, NULL), LIMIT_OK);
        limits_charge(&s, 0.000000001, 0, T0);
        assert_int_equal(admit(&s, T0, NULL), LIMIT_BUDGET);
        assert_int_equal(admit(&s, T0 + cases[i].still_ms, NULL), LIMIT_BUDGET);
        if (cases[i].again_ms)
            assert_int_equal(admit(&s, T0 + cases[i].again_ms, NULL), LIMIT_OK);
        limits_charge(&s, -1, 0, T0);
        limits_charge(&s, 1e300, 0, T0 + cases[i].again_ms);
        limits_charge(&s, 1e300, 0, T0 + cases[i].again_ms);
        assert_int_equal(admit(&s, T0 + cases[i].again_ms, NULL), LIMIT_BUDGET);
        limit_set_fini(&s);
        limits_unref(l);
    }
}

/* Who is refused by one rule has used nothing of the others. */
static void test_all_or_nothing(void **state)
{
    struct limits *l = limits_new();
    struct limit_set wide = rate(l, "wide", 5, 0), narrow = rate(l, "narrow", 1, 0);
    const struct limit_set *both[] = {&wide, &narrow};
    unsigned secs, scope = 9;
    assert_int_equal(limits_admit(both, 2, T0, &secs, &scope), LIMIT_OK);
    for (int i = 0; i < 20; i++)
        assert_int_equal(limits_admit(both, 2, T0, &secs, &scope), LIMIT_REQUESTS);
    assert_int_equal(scope, LIMIT_KEY);
    for (int i = 0; i < 4; i++)
        assert_int_equal(admit(&wide, T0, NULL), LIMIT_OK);
    assert_int_equal(admit(&wide, T0, NULL), LIMIT_REQUESTS);
    limit_set_fini(&wide);
    limit_set_fini(&narrow);
    limits_unref(l);
}

/* A set that is made anew, with other limits or split over tables, goes on with what was used. */
static void test_reload(void **state)
{
    struct limits *l = limits_new();
    struct limit_set s = rate(l, "k", 2, 0);
    assert_int_equal(admit(&s, T0, NULL), LIMIT_OK);
    assert_int_equal(admit(&s, T0, NULL), LIMIT_OK);
    limit_set_fini(&s);
    const struct rate_limit_settings rates[] = {
        {LIMIT_KEY, "k", 9, 0}, {LIMIT_ROUTE, "k", 1, 0}, {LIMIT_KEY, "k", 3, 0}, {LIMIT_KEY, "k", 0, 100}};
    limit_set_init(&s, l, LIMIT_KEY, "k", NULL, 0, rates, 4);
    assert_int_equal(admit(&s, T0, NULL), LIMIT_OK);
    assert_int_equal(admit(&s, T0, NULL), LIMIT_REQUESTS);
    limits_charge(&s, 0, 100, T0);
    limit_set_fini(&s);
    limit_set_init(&s, l, LIMIT_KEY, "k", NULL, 0, &rates[3], 1);
    assert_int_equal(admit(&s, T0, NULL), LIMIT_TOKENS);
    limit_set_fini(&s);
    limits_unref(l);
}

/* Beside a list of times: a window that slides by shares is never more than twice off, and within one minute
 * exact. */
static void test_twin(void **state)
{
    enum { RPM = 50, STEPS = 20000 };
    struct limits *l = limits_new();
    struct limit_set s = rate(l, "k", RPM, 0);
    static uint64_t at[STEPS];
    unsigned n = 0, refused = 0;
    uint64_t now = T0;
    struct rng rng;
    rng_seed(&rng, 7);
    for (int i = 0; i < STEPS; i++) {
        now += rng_below(&rng, i % 1000 < 500 ? 300 : 2500);
        unsigned secs, this_minute = 0;
        for (unsigned k = n; k-- > 0 && at[k] / 60000 == now / 60000;)
            this_minute++;
        enum limit_verdict v = admit(&s, now, &secs);
        if (v == LIMIT_OK) {
            assert_true(this_minute < RPM);
            at[n++] = now;
        } else {
            refused++;
            assert_in_range(secs, 1, 120);
            /* It tells the truth: more than a second earlier it is no use, then it is. */
            if (secs > 1)
                assert_int_equal(admit(&s, now + (secs - 1) * 1000u - 1, NULL), LIMIT_REQUESTS);
            now += secs * 1000u;
            assert_int_equal(admit(&s, now, NULL), LIMIT_OK);
            at[n++] = now;
        }
        unsigned window = 0;
        for (unsigned k = n; k-- > 0 && at[k] + 60000 > now;)
            window++;
        assert_true(window <= 2 * RPM);
    }
    assert_true(refused > 1000 && n > 1000);
    limit_set_fini(&s);
    limits_unref(l);
}

/* Two gateways and what they would have in common. */
static void exchange(struct limits *l, uint64_t at, const char *const *names, uint64_t *totals, unsigned n,
                     bool works)
{
    struct limit_delta d[8];
    size_t cursor = 0;
    do {
        unsigned got = limits_collect(l, at, d, 8, &cursor);
        for (unsigned i = 0; i < got; i++)
            for (unsigned k = 0; k < n; k++)
                if (strncmp(d[i].name, names[k], strlen(names[k])) == 0) {
                    totals[k] += works ? d[i].amount : 0;
                    limits_settle(&d[i], works ? &totals[k] : NULL);
                }
    } while (cursor != 0);
}

static void test_sharing(void **state)
{
    static const char *const names[] = {"usd:key:", "requests:key:", "tokens:key:"};
    uint64_t totals[3] = {0};
    struct limits *a = limits_new(), *b = limits_new();
    struct limit_set ra = rate(a, "k", 4, 0), rb = rate(b, "k", 4, 0), ba = budget(a, "k", 1, BUDGET_DAILY),
                     bb = budget(b, "k", 1, BUDGET_DAILY);
    assert_int_equal(admit(&ra, T0, NULL), LIMIT_OK);
    assert_int_equal(admit(&ra, T0, NULL), LIMIT_OK);
    assert_int_equal(admit(&rb, T0, NULL), LIMIT_OK);
    assert_int_equal(admit(&bb, T0, NULL), LIMIT_OK);
    limits_charge(&ba, 0.7, 0, T0);
    exchange(a, T0, names, totals, 3, false); /* away: nothing is lost */
    exchange(a, T0, names, totals, 3, true);
    exchange(b, T0, names, totals, 3, true);
    exchange(a, T0, names, totals, 3, true);
    assert_int_equal(totals[0], 700000000);
    assert_int_equal(totals[1], 3);
    limits_charge(&bb, 0.3, 0, T0);
    assert_int_equal(admit(&bb, T0, NULL), LIMIT_BUDGET);
    assert_int_equal(admit(&ba, T0, NULL), LIMIT_OK); /* has not heard of it yet */
    exchange(b, T0, names, totals, 3, true);
    exchange(a, T0, names, totals, 3, true);
    assert_int_equal(admit(&ba, T0, NULL), LIMIT_BUDGET);
    assert_int_equal(admit(&ra, T0, NULL), LIMIT_OK);
    assert_int_equal(admit(&ra, T0, NULL), LIMIT_REQUESTS);
    exchange(a, T0, names, totals, 3, true);
    exchange(b, T0, names, totals, 3, true);
    assert_int_equal(admit(&rb, T0, NULL), LIMIT_REQUESTS);
    struct limit_set *all[] = {&ra, &rb, &ba, &bb};
    for (unsigned i = 0; i < 4; i++)
        limit_set_fini(all[i]);
    limits_unref(a);
    limits_unref(b);
}

static void test_what_is_used(void **state)
{
    struct limits *l = limits_new();
    struct limit_set s = rate(l, "k", 30, 2000), m = budget(l, "k", 5, BUDGET_DAILY);
    struct limit_use u;
    for (int i = 0; i < 3; i++)
        assert_int_equal(admit(&s, T0 + 10000, NULL), LIMIT_OK);
    limits_charge(&s, 0, 800, T0 + 10000);
    limits_charge(&m, 1.25, 800, T0 + 10000);
    limit_set_use(&s, 0, T0 + 10000, &u);
    assert_false(u.is_budget);
    assert_int_equal(u.rpm, 30);
    assert_int_equal(u.requests, 3);
    assert_int_equal(u.tpm, 2000);
    assert_int_equal(u.tokens, 800);
    /* A quarter of the minute before still counts. */
    limit_set_use(&s, 0, T0 + 105000, &u);
    assert_int_equal(u.requests, 1);
    assert_int_equal(u.tokens, 200);
    limit_set_use(&m, 0, T0 + 105000, &u);
    assert_true(u.is_budget && u.period == BUDGET_DAILY);
    assert_true(u.limit_usd == 5 && u.used_usd == 1.25);
    /* The next day, without anybody having asked. */
    limit_set_use(&m, 0, T0 + 86400000, &u);
    assert_true(u.used_usd == 0);
    limit_set_fini(&s);
    limit_set_fini(&m);
    limits_unref(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_used),
        cmocka_unit_test(test_requests_per_minute),
        cmocka_unit_test(test_tokens_per_minute),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_all_or_nothing),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_twin),
        cmocka_unit_test(test_sharing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
