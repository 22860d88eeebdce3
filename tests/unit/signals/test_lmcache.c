/* SPDX-License-Identifier: Apache-2.0
 *
 * What an LMCache endpoint may answer, and what counts.
 */
#include "unit.h"

#include <math.h>

#include "signals/engine_metrics.h"
#include "signals/lmcache.h"

static const char *read_json(const char *text, struct lmcache_answer *ret)
{
    struct arena a;
    arena_init(&a, NULL);
    const char *why = lmcache_parse_json(span_str(text), &a, ret);
    arena_reset(&a);
    return why;
}

static void json_answers(void **state)
{
    static const struct {
        const char *text;
        double occupancy, score;
        bool available;
    } good[] = {
        {"{\"occupancy\": 0.42, \"cache_available\": true}", 0.42, 0.58, true},
        {"{\"occupancy\": 0}", 0, 1, true},
        {" {\"x\":[1,{}],\"occupancy\":1e-1}\n", 0.1, 0.9, true},
        {"{\"occupancy\": 0.25, \"cache_available\": false}", 0.25, 0, false},
        {"{\"occupancy\": 7}", 7, 0, true},
        {"{\"occupancy\": -3.5}", -3.5, 1, true},
        {"{\"occupancy\": 0.2, \"occupancy\": 0.5}", 0.5, 0.5, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct lmcache_answer a;
        assert_null(read_json(good[i].text, &a));
        assert_true(a.occupancy == good[i].occupancy && a.available == good[i].available);
        assert_true(fabs(lmcache_score(&a) - good[i].score) < 1e-9);
    }
    static const char *const bad[] = {"",
                                      "0.5",
                                      "[0.5]",
                                      "{",
                                      "{}",
                                      "{\"occupancy\": \"0.5\"}",
                                      "{\"occupancy\": 1e999}",
                                      "{\"occupancy\": null}",
                                      "{\"occupancy\": true}",
                                      "{\"occupancy\": NaN}",
                                      "{\"occupancy\": 1e999}",
                                      "{\"Occupancy\": 0.5}",
                                      "{\"occupancy\": 0.5, \"cache_available\": 1}",
                                      "{\"occupancy\": 0.5, \"cache_available\": \"true\"}",
                                      "{\"occupancy\": 0.5, \"cache_available\": null}",
                                      "{\"occupancy\": 0.5} x"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct lmcache_answer a = {.occupancy = 9};
        assert_non_null(read_json(bad[i], &a));
        assert_true(a.occupancy == 9);
    }
}

static void metric_answers(void **state)
{
    static const char name[] = "lmcache_mp_l1_usage_ratio";
    static const struct {
        const char *text;
        double occupancy; /* NaN: no answer */
    } cases[] = {
        {"lmcache_mp_l1_usage_ratio 0.83\n", 0.83},
        {"# TYPE lmcache_mp_l1_usage_ratio gauge\nlmcache_mp_l1_usage_ratio{pid=\"1\"} 0.5 1700000000\n",
         0.5},
        {"lmcache_mp_l1_usage_ratio{a=\"}\"} 0.1\nother 3\nlmcache_mp_l1_usage_ratio{a=\"2\"} 0.4\n", 0.4},
        {"lmcache_mp_l1_usage_ratio 0\n", 0},
        {"lmcache_mp_l1_usage_ratio -1", -1},
        {"lmcache_mp_l1_usage_ratio NaN\n", NAN},
        {"lmcache_mp_l1_usage_ratio +Inf\n", NAN},
        {"lmcache_mp_l1_usage_ratio_max 0.5\n", NAN},
        {"lmcache_mp_l1_usage_ratio x\n", NAN},
        {"lmcache_mp_l1_usage_ratio{a=\"1\" 0.5\n", NAN},
        {"# lmcache_mp_l1_usage_ratio 0.5\n", NAN},
        {"", NAN},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct lmcache_answer a = {.occupancy = 9};
        bool ok = lmcache_parse_metric(span_str(cases[i].text), name, &a) == NULL;
        assert_int_equal(ok, !isnan(cases[i].occupancy));
        assert_true(ok ? a.available && a.occupancy == cases[i].occupancy : a.occupancy == 9);
    }
}

/* The same reader serves the engines' metrics: what it skips there. */
static void engine_metrics_skip_what_is_no_number(void **state)
{
    struct engine_metrics m;
    assert_true(engine_metrics_parse(
        SPAN("vllm:num_requests_waiting{engine=\"0\"} 2\nvllm:num_requests_waiting{engine=\"1\"} 3\n"
             "vllm:num_requests_running NaN\nvllm:kv_cache_usage_perc{a=\"0\"} 0.5\n"
             "vllm:kv_cache_usage_perc{a=\"1\"} 0.25\n"
             "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"x\"} 1\n"),
        &m));
    assert_true(m.waiting == 5 && isnan(m.running) && m.kv_usage == 0.5 && m.block_tokens == 16 &&
                isnan(m.cache_blocks));
    assert_false(engine_metrics_parse(SPAN("vllm:num_requests_waiting\n"), &m));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_answers),
        cmocka_unit_test(metric_answers),
        cmocka_unit_test(engine_metrics_skip_what_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
