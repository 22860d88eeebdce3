/* SPDX-License-Identifier: Apache-2.0
 *
 * Providers: load, health, generation, engine metrics, upstream keys; and the registry.
 */
#include "unit.h"

#include <math.h>
#include <pthread.h>

#include "fleet/fleet.h"

static const struct reliability RULES = {0};

static struct engine_metrics engine(double running, double waiting)
{
    return (struct engine_metrics){.running = running,
                                   .waiting = waiting,
                                   .kv_usage = NAN,
                                   .start_time_secs = NAN,
                                   .cache_blocks = -1,
                                   .block_tokens = -1,
                                   .generation_tokens_per_sec = -1};
}

static void test_load(void **state)
{
    struct fleet *f = fleet_new(0);
    struct target *t = fleet_target_get(f, "p", "http://a", "m");
    struct provider *p = target_provider(t);
    provider_configure(p, &(struct provider_settings){.engine_fresh_ms = 1000});
    struct engine_metrics m = engine(3, 2), read;
    assert_false(provider_engine(p, 10, &read));
    assert_int_equal(provider_load(p, 10), 0);
    provider_set_engine(p, &m, 1000);
    assert_int_equal(provider_load(p, 1999), 5);
    assert_int_equal(provider_load(p, 999), 5); /* a clock a little behind the scrape */
    assert_int_equal(provider_load(p, 2000), 0);
    assert_false(provider_engine(p, 2000, &read));
    assert_true(provider_engine(p, 1500, &read));
    assert_true(read.running == 3 && read.waiting == 2 && isnan(read.kv_usage) && read.cache_blocks == -1);

    struct lease l[7];
    for (int i = 0; i < 7; i++)
        assert_true(target_lease_begin(t, &RULES, 0, false, &l[i]));
    assert_int_equal(provider_load(p, 1500), 7); /* the larger of both, not the sum */
    for (int i = 0; i < 7; i++)
        target_lease_end(&l[i]);

    m = engine(-1, 4);
    provider_set_engine(p, &m, 3000);
    assert_int_equal(provider_load(p, 3000), 4);
    m = engine(NAN, -1);
    provider_set_engine(p, &m, 3000);
    assert_int_equal(provider_load(p, 3000), 0);
    m = engine(1e30, INFINITY);
    provider_set_engine(p, &m, 3000);
    assert_int_equal(provider_load(p, 3000), 1000000000);
    fleet_free(f);
}

static void test_health(void **state)
{
    struct fleet *f = fleet_new(0);
    struct provider *p = fleet_provider_get(f, "p");
    struct provider_settings s = {.health_failures_down = 3, .health_successes_up = 2};
    provider_configure(p, &s);
    assert_true(provider_is_healthy(p)); /* unknown */
    assert_false(provider_report_probe(p, false));
    assert_false(provider_report_probe(p, false));
    assert_false(provider_report_probe(p, true)); /* in a row */
    assert_false(provider_report_probe(p, false));
    assert_false(provider_report_probe(p, false));
    assert_true(provider_is_healthy(p));
    assert_true(provider_report_probe(p, false));
    assert_false(provider_is_healthy(p));
    assert_false(provider_report_probe(p, false));
    unsigned generation = provider_generation(p);
    assert_false(provider_report_probe(p, true));
    assert_false(provider_report_probe(p, false));
    assert_false(provider_report_probe(p, true));
    assert_true(provider_report_probe(p, true));
    assert_true(provider_is_healthy(p));
    assert_true(provider_generation(p) > generation);

    for (int i = 0; i < 3; i++)
        provider_report_probe(p, false);
    assert_false(provider_is_healthy(p));
    provider_configure(p, &s); /* the same again changes nothing */
    assert_false(provider_is_healthy(p));
    s.health_failures_down = 0; /* probing is switched off: nobody could bring it back */
    provider_configure(p, &s);
    assert_true(provider_is_healthy(p));
    for (int i = 0; i < 10; i++)
        assert_false(provider_report_probe(p, false));
    assert_true(provider_is_healthy(p));
    fleet_free(f);
}

static void test_generation_by_start_time(void **state)
{
    struct fleet *f = fleet_new(0);
    struct provider *p = fleet_provider_get(f, "p");
    static const struct {
        double start;
        bool raises;
    } steps[] = {{NAN, false},  {1000, false}, {1000, false}, {NAN, false}, {-1, false},
                 {1000, false}, {1001, true},  {1001, false}, {NAN, false}, {2000, true}};
    for (unsigned i = 0; i < ARRAY_LEN(steps); i++) {
        struct engine_metrics m = engine(0, 0);
        m.start_time_secs = steps[i].start;
        unsigned before = provider_generation(p);
        provider_set_engine(p, &m, i);
        assert_int_equal(provider_generation(p) > before, steps[i].raises);
        assert_int_equal(provider_generation(p) == before, !steps[i].raises);
    }
    /* Who was forgotten and comes back is later than it was. */
    unsigned last = provider_generation(p);
    fleet_free(f);
    f = fleet_new(0);
    assert_true(provider_generation(fleet_provider_get(f, "p")) > last);
    fleet_free(f);
}

struct publishing {
    struct provider *p;
    atomic_bool done;
};

static void *publish(void *arg)
{
    struct publishing *s = arg;
    for (double v = 1; v <= 3000000; v++) {
        struct engine_metrics m = {v, v, v, v, v, v, v};
        provider_set_engine(s->p, &m, 1);
    }
    atomic_store(&s->done, true);
    return NULL;
}

static void test_engine_is_never_torn(void **state)
{
    struct fleet *f = fleet_new(0);
    struct publishing s = {.p = fleet_provider_get(f, "p")};
    provider_configure(s.p, &(struct provider_settings){.engine_fresh_ms = 1000});
    provider_set_engine(s.p, &(struct engine_metrics){0}, 1);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, publish, &s), 0);
    unsigned torn = 0, missed = 0;
    double last = 0;
    while (!atomic_load(&s.done)) {
        struct engine_metrics m;
        if (!provider_engine(s.p, 1, &m)) {
            missed++;
            continue;
        }
        torn += m.running != m.generation_tokens_per_sec || m.waiting != m.cache_blocks || m.running < last;
        last = m.running;
    }
    pthread_join(writer, NULL);
    assert_int_equal(torn, 0);
    assert_int_equal(missed, 0);
    fleet_free(f);
}

static void test_refused_keys(void **state)
{
    (void)state;
    struct fleet *f = fleet_new(0);
    struct provider *p = fleet_provider_get(f, "a");
    provider_configure(p, &(struct provider_settings){.n_keys = 2});
    assert_false(provider_key_judged(p, 0, false, 1000));
    assert_true(provider_key_judged(p, 0, true, 1000));
    assert_false(provider_key_judged(p, 0, true, 2000));
    assert_true(provider_key_judged(p, 1, true, 2000)); /* each for itself */
    assert_false(provider_key_judged(p, 1, false, 2001));
    assert_false(provider_key_judged(p, 1, true, 3000)); /* it was in doubt all the time */
    assert_false(provider_key_judged(p, 0, false, 3000 + KEY_DOUBT_MS - 1));
    assert_true(provider_key_judged(p, 0, false, 3000 + KEY_DOUBT_MS));
    assert_false(provider_key_judged(p, 0, false, 3000 + KEY_DOUBT_MS));
    assert_true(provider_key_judged(p, 0, true, 20000));
    /* What a reload takes away is forgotten, what stays is not. */
    provider_configure(p, &(struct provider_settings){.n_keys = 1});
    assert_false(provider_key_judged(p, 0, true, 20001));
    provider_configure(p, &(struct provider_settings){.n_keys = 2});
    assert_true(provider_key_judged(p, 1, true, 20002));
    provider_configure(p, &(struct provider_settings){.n_keys = 0});
    assert_false(provider_key_judged(p, -1, true, 20003));
    assert_true(provider_key_judged(p, -1, false, 20003 + KEY_DOUBT_MS));
    fleet_free(f);
}

static void test_keys(void **state)
{
    struct fleet *f = fleet_new(0);
    struct provider *p = fleet_provider_get(f, "p");
    assert_int_equal(provider_key_take(p, 0), -1);
    assert_false(provider_has_free_key(p, 0));
    provider_configure(p, &(struct provider_settings){.n_keys = 1});
    assert_int_equal(provider_key_take(p, 0), 0);
    provider_key_park(p, 0, 100);
    assert_false(provider_has_free_key(p, 99));
    assert_true(provider_has_free_key(p, 100));
    assert_int_equal(provider_key_take(p, 50), 0); /* the only one there is */

    const unsigned weights[] = {3, 1, 2};
    provider_configure(p, &(struct provider_settings){.n_keys = 3, .key_weights = weights});
    unsigned taken[3] = {0};
    for (int i = 0; i < 600; i++)
        taken[provider_key_take(p, 1000)]++;
    assert_int_equal(taken[0], 300);
    assert_int_equal(taken[1], 100);
    assert_int_equal(taken[2], 200);

    /* The others keep their ratio while one is parked. */
    provider_key_park(p, 0, 5000);
    provider_key_park(p, 0, 4000); /* never shortened */
    memset(taken, 0, sizeof taken);
    for (int i = 0; i < 300; i++)
        taken[provider_key_take(p, 4999)]++;
    assert_int_equal(taken[0], 0);
    assert_in_range(taken[1], 99, 101);
    assert_in_range(taken[2], 199, 201);
    provider_key_park(p, 1, 6000);
    provider_key_park(p, 2, 5500);
    assert_false(provider_has_free_key(p, 4999));
    assert_int_equal(provider_key_take(p, 4999), 0); /* comes back first */
    assert_true(provider_has_free_key(p, 5000));

    /* Parking stays over a reload; a key that is gone is none. */
    provider_configure(p, &(struct provider_settings){.n_keys = 2, .key_weights = weights});
    for (int i = 0; i < 20; i++)
        assert_int_equal(provider_key_take(p, 5000), 0);
    provider_key_park(p, 2, 9000);
    provider_key_park(p, -1, 9000);
    assert_int_equal(provider_key_take(p, 5000), 0);
    fleet_free(f);
}

static void count_provider(struct provider *p, void *arg)
{
    ++*(unsigned *)arg;
}

static void count_target(struct target *t, void *arg)
{
    ++*(unsigned *)arg;
}

static void assert_known(struct fleet *f, unsigned providers, unsigned targets)
{
    unsigned p = 0, t = 0;
    fleet_each_provider(f, count_provider, &p);
    fleet_each_target(f, count_target, &t);
    assert_int_equal(p, providers);
    assert_int_equal(t, targets);
}

static void test_registry_finds(void **state)
{
    struct fleet *f = fleet_new(1000);
    struct provider *p = fleet_provider_get(f, "p");
    struct target *t = fleet_target_get(f, "p", "http://a", "m");
    assert_ptr_equal(fleet_provider_get(f, "p"), p);
    assert_ptr_equal(fleet_target_get(f, "p", "http://a", "m"), t);
    assert_ptr_equal(target_provider(t), p);
    assert_ptr_not_equal(fleet_target_get(f, "p", "http://a/v1", "m"), t);
    assert_known(f, 1, 2);
    fleet_free(f);
}

static void test_registry_keeps_and_sweeps(void **state)
{
    struct fleet *f = fleet_new(1000);
    struct target *t = fleet_target_get(f, "p", "http://a", "m");
    target_observe_latency(t, 50);
    assert_ptr_equal(fleet_target_get(f, "p", "http://a", "m"), t);
    fleet_target_put(f, t, 100);
    fleet_sweep(f, 100000); /* one reference is left */
    assert_known(f, 1, 1);
    fleet_target_put(f, t, 100000);
    fleet_sweep(f, 101000); /* not longer than keep */
    assert_known(f, 1, 1);
    /* Taken away and brought back by reloads: still warm. */
    t = fleet_target_get(f, "p", "http://a", "m");
    assert_true(target_latency_ms(t) == 50);
    fleet_sweep(f, 200000);
    assert_known(f, 1, 1);

    struct lease l;
    assert_true(target_lease_begin(t, &RULES, 0, false, &l));
    fleet_target_put(f, t, 200000);
    fleet_sweep(f, 300000); /* a request still holds it */
    assert_known(f, 1, 1);
    target_lease_end(&l);
    fleet_sweep(f, 300000);
    assert_known(f, 0, 0);
    t = fleet_target_get(f, "p", "http://a", "m");
    assert_true(target_latency_ms(t) == 0); /* a cold one */
    fleet_free(f);
}

static void test_registry_provider_outlives_targets(void **state)
{
    struct fleet *f = fleet_new(1000);
    struct provider *p = fleet_provider_get(f, "p");
    struct target *t = fleet_target_get(f, "p", "http://a", "m");
    fleet_provider_put(f, p, 0);
    fleet_sweep(f, 50000); /* its target is in use */
    assert_known(f, 1, 1);
    p = fleet_provider_get(f, "p");
    fleet_target_put(f, t, 50000);
    fleet_sweep(f, 60000);
    assert_known(f, 1, 0);
    struct gate_waiter w = {0};
    assert_int_equal(provider_gate_enter(p, &w, false), GATE_GRANTED);
    fleet_provider_put(f, p, 60000);
    fleet_sweep(f, 70000); /* a slot is out */
    assert_known(f, 1, 0);
    provider_gate_leave(p);
    fleet_sweep(f, 70000);
    assert_known(f, 0, 0);
    fleet_provider_put(f, NULL, 0);
    fleet_target_put(f, NULL, 0);
    fleet_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_health),
        cmocka_unit_test(test_generation_by_start_time),
        cmocka_unit_test(test_engine_is_never_torn),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_refused_keys),
        cmocka_unit_test(test_registry_finds),
        cmocka_unit_test(test_registry_keeps_and_sweeps),
        cmocka_unit_test(test_registry_provider_outlives_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
