/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets: identity, leases, cooldown, breaker, latency, all with the time given.
 */
#include "unit.h"

#include <math.h>
#include <pthread.h>

#include "fleet/fleet.h"

static const struct reliability RULES = {.cooldown_base_ms = 5000,
                                         .cooldown_max_ms = 300000,
                                         .breaker_enabled = true,
                                         .breaker_failures = 3,
                                         .breaker_open_ms = 30000};
static const struct reliability NO_COOLDOWN = {
    .breaker_enabled = true, .breaker_failures = 3, .breaker_open_ms = 30000};

struct world {
    struct fleet *fleet;
    struct target *t;
};

static int setup(void **state)
{
    static struct world w;
    w.fleet = fleet_new(0);
    w.t = fleet_target_get(w.fleet, "p", "http://a", "m");
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    assert_int_equal(provider_in_flight(target_provider(w->t)), 0);
    fleet_free(w->fleet);
    return 0;
}

/* One attempt from pick to end. */
static struct target_change attempt(struct target *t, const struct reliability *r, enum outcome o,
                                    uint64_t retry_after_ms, uint64_t now_ms)
{
    struct lease l;
    assert_true(target_lease_begin(t, r, now_ms, true, &l));
    struct target_change c = target_report(&l, r, o, retry_after_ms, now_ms);
    target_lease_end(&l);
    return c;
}

static void fail_until_open(struct target *t, uint64_t now_ms)
{
    for (unsigned i = 1; i <= NO_COOLDOWN.breaker_failures; i++) {
        struct target_change c = attempt(t, &NO_COOLDOWN, OUTCOME_SERVER_FAULT, 0, now_ms);
        assert_int_equal(c.breaker_opened, i == NO_COOLDOWN.breaker_failures);
    }
    assert_int_equal(target_state(t, &NO_COOLDOWN, now_ms), TARGET_BREAKER_OPEN);
}

static void test_names(void **state)
{
    struct world *w = *state;
    assert_string_equal(target_name(w->t), "p/m");
    assert_string_equal(target_model(w->t), "m");
    assert_string_equal(provider_name(target_provider(w->t)), "p");
    struct target *others[] = {
        fleet_target_get(w->fleet, "p2", "http://a", "m"), fleet_target_get(w->fleet, "p", "http://b", "m"),
        fleet_target_get(w->fleet, "p", "http://a", "m2"), fleet_target_get(w->fleet, "ph", "ttp://a", "m")};
    for (unsigned i = 0; i < ARRAY_LEN(others); i++)
        assert_true(target_identity(others[i]) != target_identity(w->t));
    /* Two models of one provider are two targets with one load. */
    assert_ptr_equal(target_provider(others[2]), target_provider(w->t));
    for (int s = TARGET_USABLE; s <= TARGET_BREAKER_PROBING; s++)
        assert_true(strlen(target_state_name((enum target_state)s)) > 0);
}

static void test_lease_charges(void **state)
{
    struct world *w = *state;
    struct provider *p = target_provider(w->t);
    struct lease a, b;
    assert_true(target_lease_begin(w->t, &RULES, 1, false, &a));
    assert_true(target_lease_begin(w->t, &RULES, 1, false, &b));
    assert_int_equal(provider_in_flight(p), 2);
    assert_int_equal(provider_load(p, 1), 2);
    assert_int_equal(target_in_flight(w->t), 2);
    target_lease_end(&a);
    assert_null(a.target);
    target_lease_end(&a); /* again: nothing */
    assert_int_equal(provider_in_flight(p), 1);
    target_lease_end(&b);
    assert_int_equal(provider_in_flight(p), 0);
    assert_int_equal(target_served(w->t), 2);
}

static void test_cooldown_base(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    static const enum outcome transient[] = {OUTCOME_BACKPRESSURE, OUTCOME_TIMEOUT, OUTCOME_SERVER_FAULT,
                                             OUTCOME_TRANSPORT};
    uint64_t now = 1000;
    for (unsigned i = 0; i < ARRAY_LEN(transient); i++) {
        assert_int_equal(target_state(t, &RULES, now), TARGET_USABLE);
        assert_true(attempt(t, &RULES, transient[i], 0, now).cooled);
        assert_int_equal(target_state(t, &RULES, now + 4999), TARGET_COOLING);
        assert_int_equal(target_state(t, &RULES, now + 5000), TARGET_USABLE);
        attempt(t, &RULES, OUTCOME_OK, 0, now + 5000); /* no breaker here */
        now += 10000;
    }
    static const enum outcome harmless[] = {OUTCOME_OK, OUTCOME_CLIENT_FAULT, OUTCOME_ABANDONED};
    for (unsigned i = 0; i < ARRAY_LEN(harmless); i++) {
        assert_false(attempt(t, &RULES, harmless[i], 60000, now).cooled);
        assert_int_equal(target_state(t, &RULES, now), TARGET_USABLE);
    }
}

static void test_cooldown_retry_after(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    attempt(t, &RULES, OUTCOME_BACKPRESSURE, 20000, 0);
    assert_int_equal(target_state(t, &RULES, 19999), TARGET_COOLING);
    assert_int_equal(target_state(t, &RULES, 20000), TARGET_USABLE);
    /* Below the base counts the base, above the maximum the maximum. */
    attempt(t, &RULES, OUTCOME_BACKPRESSURE, 1, 100000);
    assert_int_equal(target_state(t, &RULES, 104999), TARGET_COOLING);
    assert_int_equal(target_state(t, &RULES, 105000), TARGET_USABLE);
    attempt(t, &RULES, OUTCOME_BACKPRESSURE, 10000000, 200000);
    assert_int_equal(target_state(t, &RULES, 499999), TARGET_COOLING);
    assert_int_equal(target_state(t, &RULES, 500000), TARGET_USABLE);
}

static void test_cooldown_extends_only(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    assert_true(attempt(t, &RULES, OUTCOME_BACKPRESSURE, 60000, 0).cooled);
    assert_false(attempt(t, &RULES, OUTCOME_BACKPRESSURE, 0, 1000).cooled);
    assert_int_equal(target_state(t, &RULES, 59999), TARGET_COOLING);
    assert_false(attempt(t, &RULES, OUTCOME_BACKPRESSURE, 60000, 1000).cooled); /* longer, not new */
    assert_int_equal(target_state(t, &RULES, 60999), TARGET_COOLING);
    assert_int_equal(target_state(t, &RULES, 61000), TARGET_USABLE);
}

static void test_cooldown_off(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    assert_false(attempt(t, &NO_COOLDOWN, OUTCOME_BACKPRESSURE, 60000, 0).cooled);
    assert_int_equal(target_state(t, &RULES, 1), TARGET_USABLE);
    /* Switched off by a reload while cooling. */
    attempt(t, &RULES, OUTCOME_BACKPRESSURE, 60000, 0);
    assert_int_equal(target_state(t, &RULES, 1), TARGET_COOLING);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 1), TARGET_USABLE);
}

static void test_breaker_counts(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    attempt(t, &NO_COOLDOWN, OUTCOME_TIMEOUT, 0, 1);
    attempt(t, &NO_COOLDOWN, OUTCOME_TRANSPORT, 0, 1);
    /* These say nothing: neither a failure nor a reset. */
    attempt(t, &NO_COOLDOWN, OUTCOME_BACKPRESSURE, 0, 1);
    attempt(t, &NO_COOLDOWN, OUTCOME_CLIENT_FAULT, 0, 1);
    attempt(t, &NO_COOLDOWN, OUTCOME_ABANDONED, 0, 1);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 1), TARGET_USABLE);
    assert_false(attempt(t, &NO_COOLDOWN, OUTCOME_OK, 0, 1).breaker_closed); /* was not open */
    attempt(t, &NO_COOLDOWN, OUTCOME_SERVER_FAULT, 0, 1);
    attempt(t, &NO_COOLDOWN, OUTCOME_SERVER_FAULT, 0, 1);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 1), TARGET_USABLE);
    assert_true(attempt(t, &NO_COOLDOWN, OUTCOME_SERVER_FAULT, 0, 1).breaker_opened);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 30000), TARGET_BREAKER_OPEN);
}

static void test_breaker_disabled(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    static const struct reliability off[] = {{.breaker_failures = 3, .breaker_open_ms = 30000},
                                             {.breaker_enabled = true, .breaker_open_ms = 30000}};
    for (unsigned k = 0; k < ARRAY_LEN(off); k++)
        for (int i = 0; i < 20; i++) {
            assert_false(attempt(t, &off[k], OUTCOME_SERVER_FAULT, 0, 1).breaker_opened);
            assert_int_equal(target_state(t, &off[k], 1), TARGET_USABLE);
        }
    assert_int_equal(target_state(t, &NO_COOLDOWN, 1), TARGET_USABLE);
}

static void test_breaker_single_probe(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    fail_until_open(t, 1000);
    struct lease probe, other;
    assert_false(target_lease_begin(t, &NO_COOLDOWN, 30999, false, &other));
    /* Asking changes nothing, however often. */
    for (int i = 0; i < 10; i++)
        assert_int_equal(target_state(t, &NO_COOLDOWN, 31000), TARGET_USABLE);
    assert_true(target_lease_begin(t, &NO_COOLDOWN, 31000, false, &probe));
    assert_true(probe.probe);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 31000), TARGET_BREAKER_PROBING);
    assert_false(target_lease_begin(t, &NO_COOLDOWN, 31000, false, &other));
    assert_int_equal(target_in_flight(t), 1); /* a refused lease charges nothing */
    /* Fail open needs no probe and takes none. */
    assert_true(target_lease_begin(t, &NO_COOLDOWN, 31000, true, &other));
    assert_false(other.probe);
    target_lease_end(&other);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 31000), TARGET_BREAKER_PROBING);

    struct target_change c = target_report(&probe, &NO_COOLDOWN, OUTCOME_OK, 0, 31001);
    assert_true(c.breaker_closed);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 31001), TARGET_USABLE);
    assert_true(target_lease_begin(t, &NO_COOLDOWN, 31001, false, &other));
    assert_false(other.probe);
    target_lease_end(&other);
    target_lease_end(&probe);
}

static void test_breaker_probe_fails(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    fail_until_open(t, 1000);
    struct lease probe;
    assert_true(target_lease_begin(t, &NO_COOLDOWN, 31000, false, &probe));
    assert_true(target_report(&probe, &NO_COOLDOWN, OUTCOME_TRANSPORT, 0, 32000).breaker_opened);
    target_lease_end(&probe);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 61999), TARGET_BREAKER_OPEN);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 62000), TARGET_USABLE);
    /* Closed again, it takes the full number of failures. */
    attempt(t, &NO_COOLDOWN, OUTCOME_OK, 0, 62000);
    assert_false(attempt(t, &NO_COOLDOWN, OUTCOME_TRANSPORT, 0, 62000).breaker_opened);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 62000), TARGET_USABLE);
}

static void test_breaker_probe_without_verdict(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    fail_until_open(t, 0);
    struct lease probe;
    static const enum outcome silent[] = {OUTCOME_ABANDONED, OUTCOME_CLIENT_FAULT, OUTCOME_BACKPRESSURE};
    for (unsigned i = 0; i < ARRAY_LEN(silent); i++) {
        assert_true(target_lease_begin(t, &NO_COOLDOWN, 30000, false, &probe));
        target_report(&probe, &NO_COOLDOWN, silent[i], 0, 30000);
        assert_int_equal(target_state(t, &NO_COOLDOWN, 30000), TARGET_USABLE); /* half-open, free */
        target_lease_end(&probe);
    }
    assert_true(target_lease_begin(t, &NO_COOLDOWN, 30000, false, &probe));
    target_lease_end(&probe); /* never reported */
    assert_true(target_lease_begin(t, &NO_COOLDOWN, 30000, false, &probe));
    assert_true(probe.probe);
    target_lease_end(&probe);
}

/* Requests from before the opening come back late. */
static void test_breaker_stragglers(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    struct lease late[3], probe, next;
    for (int i = 0; i < 3; i++)
        assert_true(target_lease_begin(t, &NO_COOLDOWN, 0, false, &late[i]));
    fail_until_open(t, 0);
    /* A failure neither extends the time nor takes the probe's place. */
    assert_false(target_report(&late[0], &NO_COOLDOWN, OUTCOME_TIMEOUT, 0, 29000).breaker_opened);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 30000), TARGET_USABLE);
    assert_true(target_lease_begin(t, &NO_COOLDOWN, 30000, false, &probe));
    assert_false(target_report(&late[1], &NO_COOLDOWN, OUTCOME_TIMEOUT, 0, 30000).breaker_opened);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 30000), TARGET_BREAKER_PROBING);
    /* A success closes it, whoever brings it. */
    assert_true(target_report(&late[2], &NO_COOLDOWN, OUTCOME_OK, 0, 30000).breaker_closed);
    /* Opened anew, with a new probe: the old probe's end leaves that one alone. */
    fail_until_open(t, 30000);
    assert_true(target_lease_begin(t, &NO_COOLDOWN, 60000, false, &next));
    target_lease_end(&probe);
    assert_int_equal(target_state(t, &NO_COOLDOWN, 60000), TARGET_BREAKER_PROBING);
    assert_true(target_report(&next, &NO_COOLDOWN, OUTCOME_OK, 0, 60000).breaker_closed);
    target_lease_end(&next);
    for (int i = 0; i < 3; i++)
        target_lease_end(&late[i]);
}

enum { PROBERS = 8, ROUNDS = 300 };
struct probers {
    struct target *t;
    pthread_barrier_t start, asked, done;
    atomic_uint begun, probes;
    unsigned wrong_rounds;
};

static void *prober(void *arg)
{
    struct probers *s = arg;
    for (int round = 0; round < ROUNDS; round++) {
        struct lease l = {0};
        pthread_barrier_wait(&s->start);
        if (target_lease_begin(s->t, &NO_COOLDOWN, 30000, false, &l)) {
            atomic_fetch_add(&s->begun, 1);
            atomic_fetch_add(&s->probes, l.probe);
        }
        pthread_barrier_wait(&s->asked);
        target_lease_end(&l); /* no report: half-open stays */
        pthread_barrier_wait(&s->done);
    }
    return NULL;
}

static void test_breaker_single_probe_threads(void **state)
{
    struct probers s = {.t = ((struct world *)*state)->t};
    fail_until_open(s.t, 0);
    pthread_barrier_init(&s.start, NULL, PROBERS + 1);
    pthread_barrier_init(&s.asked, NULL, PROBERS + 1);
    pthread_barrier_init(&s.done, NULL, PROBERS + 1);
    pthread_t threads[PROBERS];
    for (int i = 0; i < PROBERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, prober, &s), 0);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&s.start);
        pthread_barrier_wait(&s.asked);
        if (atomic_load(&s.begun) != 1 || atomic_load(&s.probes) != 1)
            s.wrong_rounds++;
        atomic_store(&s.begun, 0);
        atomic_store(&s.probes, 0);
        pthread_barrier_wait(&s.done);
    }
    for (int i = 0; i < PROBERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(s.wrong_rounds, 0);
}

enum { CHURNERS = 4, CHURNS = 20000 };

static void *churn(void *arg)
{
    struct target *t = arg;
    for (unsigned i = 0; i < CHURNS; i++) {
        struct lease l;
        if (!target_lease_begin(t, &NO_COOLDOWN, i, false, &l))
            continue;
        if (i % 7)
            target_report(&l, &NO_COOLDOWN, i % 3 ? OUTCOME_SERVER_FAULT : OUTCOME_OK, 0, i);
        target_observe_latency(t, i % 100);
        target_lease_end(&l);
    }
    return NULL;
}

static void test_charges_balance_under_threads(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    pthread_t threads[CHURNERS];
    for (int i = 0; i < CHURNERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, t), 0);
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(target_in_flight(t), 0);
    assert_int_equal(provider_in_flight(target_provider(t)), 0);
    /* No probe is left over either. */
    uint64_t later = CHURNS + 60000;
    assert_int_equal(target_state(t, &NO_COOLDOWN, later), TARGET_USABLE);
}

static void test_latency(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    assert_true(target_latency_ms(t) == 0);
    target_observe_latency(t, -1);
    target_observe_latency(t, NAN);
    target_observe_latency(t, INFINITY);
    assert_true(target_latency_ms(t) == 0);
    target_observe_latency(t, 100);
    assert_true(target_latency_ms(t) == 100);
    target_observe_latency(t, 200);
    assert_true(fabs(target_latency_ms(t) - 130) < 1e-9);
    for (int i = 0; i < 100; i++)
        target_observe_latency(t, 0);
    assert_true(target_latency_ms(t) > 0); /* known */
}

static void test_unhealthy(void **state)
{
    struct target *t = ((struct world *)*state)->t;
    provider_configure(target_provider(t),
                       &(struct provider_settings){.health_failures_down = 1, .health_successes_up = 1});
    assert_true(provider_report_probe(target_provider(t), false));
    assert_int_equal(target_state(t, &RULES, 1), TARGET_UNHEALTHY);
    assert_true(provider_report_probe(target_provider(t), true));
    assert_int_equal(target_state(t, &RULES, 1), TARGET_USABLE);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_names),
        T(test_lease_charges),
        T(test_cooldown_base),
        T(test_cooldown_retry_after),
        T(test_cooldown_extends_only),
        T(test_cooldown_off),
        T(test_breaker_counts),
        T(test_breaker_disabled),
        T(test_breaker_single_probe),
        T(test_breaker_probe_fails),
        T(test_breaker_probe_without_verdict),
        T(test_breaker_stragglers),
        T(test_breaker_single_probe_threads),
        T(test_charges_balance_under_threads),
        T(test_latency),
        T(test_unhealthy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
