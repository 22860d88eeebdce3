/* SPDX-License-Identifier: Apache-2.0
 *
 * The offline replay over the conversation trace beside known figures, which come from another program with
 * the same engine model; and that it repeats itself and recognises its own picks.
 */
#include "unit.h"

#include <math.h>

#include <unistd.h>

#include "offline.h"
#include "record.h"
#include "balance/balance.h"
#include "rules.h"

#define TRACE ROLTER_TEST_DATA "/mooncake_conversation_trace.jsonl.gz"

struct scene {
    struct options o;
    struct trace t;
    struct offline *f;
};

/* Whole traces take a sanitizer minutes, for nothing on one thread that the short runs would not show. */
static void skip_if_sanitized(void)
{
    if (UNIT_SANITIZED)
        skip();
}

static void no_fault(void *arg, const char *text)
{
    fail_msg("%s", text);
}

static void scene_open(struct scene *s, const char *limit, const char *gateways)
{
    char error[OPTIONS_ERROR_BYTES];
    const char *argv[] = {"rolter-replay", "offline", TRACE, "--limit", limit, "--gateways", gateways};
    assert_int_equal(options_read(&s->o, 7, (char **)argv, error), OPTIONS_OK);
    trace_init(&s->t, (uint32_t)s->o.block_tokens);
    assert_true(trace_read_file(&s->t, s->o.trace, s->o.limit, no_fault, NULL));
    s->f = offline_new(&s->o, &s->t);
}

static void scene_close(struct scene *s)
{
    offline_free(s->f);
    trace_fini(&s->t);
    options_fini(&s->o);
}

static struct offline_item item_named(const char *name)
{
    struct offline_item item;
    unsigned n;
    char unknown[64];
    assert_true(offline_items(name, &item, &n, unknown, sizeof unknown));
    assert_int_equal(n, 1);
    return item;
}

static void run_named(struct scene *s, const char *name, uint32_t blocks, struct run *ret)
{
    struct offline_item item = item_named(name);
    offline_run(s->f, &item, blocks, ret);
}

/* Percent of hits and mean time to first token in seconds, 8 replicas of 2,000 blocks. Tolerances: what
 * chance does to these rules from seed to seed. A strategy of ours has no chance in it where the tolerance is
 * small. */
static void test_known_figures(void **state)
{
    skip_if_sanitized();
    static const struct {
        const char *name;
        double hits, hits_off, mean, mean_off, busiest, busiest_off;
    } known[] = {
        {"round_robin", 8.1, 0.06, 3.25, 0.01, 1.05, 0.006},
        {"random", 7.7, 0.6, 4.67, 0.3, 1.03, 0.1},
        {"least_load", 7.8, 0.5, 3.33, 0.25, 1.05, 0.05},
        {"least_prefill", 25.2, 0.6, 1.37, 0.06, 1.08, 0.06},
        {"cache_aware", 22.9, 1.5, 2.80, 0.2, 1.07, 0.15},
        {"sglang", 25.5, 0.6, 2.76, 0.12, 1.03, 0.1},
        {"lmetric", 21.2, 1.1, 1.50, 0.06, 1.14, 0.1},
        {"llmd", 25.9, 0.6, 1.86, 0.08, 1.04, 0.05},
    };
    struct scene s;
    struct run r;
    scene_open(&s, "0", "1");
    assert_int_equal(s.t.n, 12031);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        run_named(&s, known[i].name, 2000, &r);
        print_message("%s: %.2f %% hits, %.3f s, busiest %.3f\n", known[i].name, 100 * r.hit_share,
                      r.ttft_mean_ms / 1000, r.busiest);
        assert_true(r.errors == 0 && r.ok == s.t.n);
        assert_true(100 * r.hit_share > known[i].hits - known[i].hits_off);
        assert_true(100 * r.hit_share < known[i].hits + known[i].hits_off);
        assert_true(r.ttft_mean_ms / 1000 > known[i].mean - known[i].mean_off);
        assert_true(r.ttft_mean_ms / 1000 < known[i].mean + known[i].mean_off);
        assert_true(r.busiest > known[i].busiest - known[i].busiest_off);
        assert_true(r.busiest < known[i].busiest + known[i].busiest_off);
        run_fini(&r);
    }
    run_named(&s, "ceiling", 2000, &r);
    assert_int_equal(r.hit, 54098411);
    run_fini(&r);
    run_named(&s, "pooled_lru", 2000, &r);
    assert_true(100 * r.hit_share > 26.7 && 100 * r.hit_share < 26.9);
    run_fini(&r);
    scene_close(&s);
}

static void test_it_repeats_itself(void **state)
{
    struct scene s;
    struct run a, b;
    for (const char *const *gateways = (const char *const[]){"1", "3", NULL}; *gateways; gateways++) {
        scene_open(&s, UNIT_SANITIZED ? "300" : "1500", *gateways);
        for (unsigned i = 0; offline_name(i); i++) {
            run_named(&s, offline_name(i), 500, &a);
            run_named(&s, offline_name(i), 500, &b);
            assert_true(a.hit == b.hit);
            for (size_t k = 0; a.rows && k < a.n; k++) {
                assert_int_equal(a.rows[k].replica, b.rows[k].replica);
                assert_true(a.rows[k].first_us == b.rows[k].first_us);
            }
            run_fini(&a);
            run_fini(&b);
        }
        scene_close(&s);
    }
}

/* Several gateways know less. */
static void test_gateways(void **state)
{
    skip_if_sanitized();
    struct scene s;
    struct run one, four;
    scene_open(&s, "4000", "1");
    run_named(&s, "sglang", 2000, &one);
    scene_close(&s);
    scene_open(&s, "4000", "4");
    run_named(&s, "sglang", 2000, &four);
    scene_close(&s);
    assert_true(four.hit_share < 0.8 * one.hit_share);
    run_fini(&one);
    run_fini(&four);
}

/* Unless they tell each other where prompts went. */
static void test_gateways_that_share(void **state)
{
    skip_if_sanitized();
    struct scene s;
    struct run one, apart, sharing;
    scene_open(&s, "3000", "1");
    run_named(&s, "least_prefill", 2000, &one);
    scene_close(&s);
    scene_open(&s, "3000", "8");
    run_named(&s, "least_prefill", 2000, &apart);
    s.o.sync_lag_ms = 100;
    run_named(&s, "least_prefill", 2000, &sharing);
    scene_close(&s);
    assert_true(apart.hit_share < 0.75 * one.hit_share);
    assert_true(sharing.hit_share > 0.95 * one.hit_share);
    run_fini(&one);
    run_fini(&apart);
    run_fini(&sharing);
}

/* Recordings */

static void own_targets(struct options *o)
{
    char name[32];
    for (unsigned i = 0; i < o->replicas; i++) {
        struct target_option *t = &o->targets[o->n_targets++];
        snprintf(name, sizeof name, "r%u", i);
        t->name = strdup(name);
        snprintf(name, sizeof name, "http://r%u", i);
        t->api_base = strdup(name);
        t->model = strdup("replay");
    }
}

static void follow(struct scene *s, const char *name, const char *path, struct run *ret)
{
    char error[OPTIONS_ERROR_BYTES] = "";
    struct offline_item item = item_named(name);
    if (!offline_follow(s->f, &item, path, ret, error))
        fail_msg("%s", error);
}

static void record(struct scene *s, const char *name, const char *path)
{
    struct run r;
    FILE *f = fopen(path, "w");
    run_named(s, name, 500, &r);
    assert_true(record_write(f, &r));
    fclose(f);
    run_fini(&r);
}

static void test_follow(void **state)
{
    char path[] = "/tmp/rolter-record-XXXXXX";
    close(mkstemp(path));
    struct scene s;
    struct run r;
    scene_open(&s, "1000", "1");
    own_targets(&s.o);
    s.o.blocks[0] = 500; /* as in the recordings: least_prefill keeps as much */
    offline_free(s.f);
    s.f = offline_new(&s.o, &s.t);
    struct offline_item items[OFFLINE_ITEMS_MAX];
    unsigned n;
    char unknown[64];
    assert_true(offline_items("ours", items, &n, unknown, sizeof unknown));
    for (unsigned i = 0; i < n; i++) {
        if (strategy_reads_tokens((enum strategy_id)items[i].id))
            continue; /* a recording does not say what the engines told */
        record(&s, items[i].name, path);
        follow(&s, items[i].name, path, &r);
        print_message("%s: %zu of %zu\n", items[i].name, r.agreed, r.compared);
        assert_int_equal(r.compared, 1000);
        assert_int_equal(r.agreed, 1000);
        assert_int_equal(r.agreed_at_once, 1000);
        run_fini(&r);
    }
    /* Another strategy's recording is told apart. */
    record(&s, "consistent_hash", path);
    follow(&s, "least_load", path, &r);
    assert_true(r.agreed < 500);
    assert_int_equal(r.errors, r.compared - r.agreed);
    run_fini(&r);
    scene_close(&s);
    unlink(path);
}

static void test_bad_recordings(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{}\n", ":1: no recording: request, at_us and end_us are whole numbers"},
        {"{\"request\":5,\"at_us\":1,\"end_us\":2}\n", ":1: the trace has no such request"},
        {"{\"request\":0,\"at_us\":1,\"end_us\":2}\n{\"request\":0,\"at_us\":1,\"end_us\":2}\n",
         ":2: this request is there twice"},
        {"{\"request\":0,\"at_us\":1,\"end_us\":2,\"target\":\"x\"}\n", ":1: the target is none of --target"},
        {"{\"request\":0,\"at_us\":3,\"end_us\":2}\n", ":1: it ends before it begins"},
        {"\n", ":1: "},
    };
    char path[] = "/tmp/rolter-record-XXXXXX";
    close(mkstemp(path));
    const char *const names[] = {"a"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct recorded rows[2] = {0};
        char error[256] = "";
        FILE *f = fopen(path, "w");
        fputs(cases[i].text, f);
        fclose(f);
        assert_false(record_read(path, 2, names, 1, rows, error, sizeof error));
        assert_non_null(strstr(error, cases[i].error));
    }
    unlink(path);
}

static void test_what_cannot_follow(void **state)
{
    struct scene s;
    struct run r;
    char error[OPTIONS_ERROR_BYTES] = "";
    scene_open(&s, "10", "1");
    struct offline_item item = item_named("precise_cache_aware");
    assert_false(offline_follow(s.f, &item, "/dev/null", &r, error));
    assert_non_null(strstr(error, "precise_cache_aware"));
    scene_close(&s);
}

/* Events on: what the index of the gateway knows is worth what the caches themselves would be. */
static void test_events_are_as_good_as_the_caches(void **state)
{
    skip_if_sanitized();
    static const char *const gateways[] = {"1", "8"};
    static const double lags_ms[] = {0, 100};
    static const uint32_t sizes[] = {500, 2000, 5000};
    for (size_t g = 0; g < 2; g++)
        for (size_t l = 0; l < 2; l++)
            for (size_t k = 0; k < 3; k++) {
                struct scene s;
                struct run exact, precise;
                scene_open(&s, "0", gateways[g]);
                s.o.event_lag_ms = lags_ms[l];
                run_named(&s, "exact", sizes[k], &exact);
                run_named(&s, "precise_cache_aware", sizes[k], &precise);
                print_message("%u blocks, %s gateways, %.0f ms: %.2f %%, the caches themselves %.2f %%\n",
                              sizes[k], gateways[g], lags_ms[l], 100 * precise.hit_share,
                              100 * exact.hit_share);
                assert_true(fabs(precise.hit_share - exact.hit_share) < 0.005);
                run_fini(&exact);
                run_fini(&precise);
                scene_close(&s);
            }
}

static void test_names(void **state)
{
    struct offline_item items[OFFLINE_ITEMS_MAX];
    unsigned n;
    char unknown[64] = "";
    assert_true(offline_items("all", items, &n, unknown, sizeof unknown));
    assert_int_equal(n, STRATEGY_COUNT + RULE_COUNT + 2);
    assert_true(offline_items("least_load,ceiling,llmd", items, &n, unknown, sizeof unknown));
    assert_int_equal(n, 3);
    assert_string_equal(items[0].name, "least_load");
    assert_int_equal(items[1].kind, RUN_BOUND);
    assert_int_equal(items[2].kind, RUN_RULE);
    assert_false(offline_items("least_load,best", items, &n, unknown, sizeof unknown));
    assert_string_equal(unknown, "best");
    assert_false(offline_items("", items, &n, unknown, sizeof unknown));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_figures),
        cmocka_unit_test(test_it_repeats_itself),
        cmocka_unit_test(test_gateways),
        cmocka_unit_test(test_gateways_that_share),
        cmocka_unit_test(test_follow),
        cmocka_unit_test(test_bad_recordings),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_what_cannot_follow),
        cmocka_unit_test(test_events_are_as_good_as_the_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
