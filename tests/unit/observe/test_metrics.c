/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <math.h>
#include <pthread.h>

#include "base/buf.h"
#include "base/check.h"
#include "observe/metrics.h"

static struct buf text;

static const char *render(void)
{
    buf_clear(&text);
    metrics_render(&text);
    buf_add_char(&text, 0);
    assert_false(text.full);
    return text.p;
}

/* <line> stands in the text as a whole line. */
static void assert_line(const char *all, const char *line)
{
    char *whole = NULL;
    assert_true(asprintf(&whole, "\n%s\n", line) > 0);
    if (!strstr(all, whole))
        fail_msg("no line %s in\n%s", line, all);
    free(whole);
}

static void starts_at_zero_in_table_order(void **state)
{
    (void)state;
    const char *all = render();
    assert_true(
        strncmp(all,
                "# HELP rolter_requests_total Requests whose head could be read, health and metrics "
                "excepted.\n# TYPE rolter_requests_total counter\nrolter_requests_total 0\n# HELP "
                "rolter_responses_total Replies by model and status class.\n# TYPE rolter_responses_total "
                "counter\n# HELP ",
                245) == 0);
    assert_line(all, "rolter_auth_failures_total 0");
    assert_line(all, "rolter_inflight_requests 0");
    assert_line(all, "# TYPE rolter_request_latency_ms histogram");
    assert_line(all, "# TYPE rolter_config_version gauge");
    assert_null(strstr(all, "\nrolter_target_requests_total{"));
}

static void same_values_same_series(void **state)
{
    (void)state;
    metric_series_t a = metric_series(M_TARGET_REQUESTS, "p", "t", "ok");
    assert_int_not_equal(a, 0);
    assert_int_equal(a, metric_series(M_TARGET_REQUESTS, "p", "t", "ok"));
    assert_int_not_equal(a, metric_series(M_TARGET_REQUESTS, "p", "to", "k"));
    assert_int_not_equal(a, metric_series(M_TARGET_REQUESTS, "p", "t", "error"));
    assert_int_equal(metric_plain(M_RETRIES), metric_series(M_RETRIES, NULL, NULL, NULL));
    metric_add(a, 3);
    metric_add(a, 4);
    metric_add(0, 100); /* no series: nothing happens */
    metric_observe(0, 1);
    metric_set(0, 1);
    metric_gauge_add(0, 1);
    metric_set_function(0, NULL, NULL);
    assert_int_equal(metric_value(a), 7);
    assert_int_equal(metric_value(0), 0);
    const char *all = render();
    assert_line(all, "rolter_target_requests_total{provider=\"p\",target=\"t\",outcome=\"ok\"} 7");
    assert_line(all, "rolter_target_requests_total{provider=\"p\",target=\"to\",outcome=\"k\"} 0");
}

static void labels_are_escaped(void **state)
{
    (void)state;
    metric_add(metric_series(M_VARIANT_REQUESTS, "a\"b\\c\nd", "\xc3\xa9}", NULL), 1);
    assert_line(render(), "rolter_variant_requests_total{model=\"a\\\"b\\\\c\\nd\",variant=\"\xc3\xa9}\"} 1");
}

static void histogram_is_cumulative(void **state)
{
    (void)state;
    metric_series_t s = metric_series(M_LATENCY, "m", NULL, NULL);
    const double seen[] = {0, 1, 1.0001, 5, 26.5, 10000, 10000.5, -3, NAN};
    for (size_t i = 0; i < ARRAY_LEN(seen); i++)
        metric_observe(s, seen[i]);
    const char *all = render();
    const char *lines[] = {"bucket{model=\"m\",le=\"1\"} 4",     "bucket{model=\"m\",le=\"2\"} 5",
                           "bucket{model=\"m\",le=\"5\"} 6",     "bucket{model=\"m\",le=\"10\"} 6",
                           "bucket{model=\"m\",le=\"25\"} 6",    "bucket{model=\"m\",le=\"50\"} 7",
                           "bucket{model=\"m\",le=\"100\"} 7",   "bucket{model=\"m\",le=\"250\"} 7",
                           "bucket{model=\"m\",le=\"500\"} 7",   "bucket{model=\"m\",le=\"1000\"} 7",
                           "bucket{model=\"m\",le=\"2500\"} 7",  "bucket{model=\"m\",le=\"5000\"} 7",
                           "bucket{model=\"m\",le=\"10000\"} 8", "bucket{model=\"m\",le=\"+Inf\"} 9",
                           "sum{model=\"m\"} 20034.0001",        "count{model=\"m\"} 9"};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        char line[120];
        snprintf(line, sizeof line, "rolter_request_latency_ms_%s", lines[i]);
        assert_line(all, line);
    }
}

static void ratios_have_their_own_bounds(void **state)
{
    (void)state;
    metric_series_t s = metric_series(M_PREDICTION_ERROR, "p", NULL, NULL);
    metric_observe(s, 0.25);
    metric_observe(s, 0.3);
    const char *all = render();
    assert_line(all, "rolter_prefix_prediction_error_ratio_bucket{provider=\"p\",le=\"0.25\"} 1");
    assert_line(all, "rolter_prefix_prediction_error_ratio_bucket{provider=\"p\",le=\"0.3\"} 2");
    assert_line(all, "rolter_prefix_prediction_error_ratio_bucket{provider=\"p\",le=\"+Inf\"} 2");
    assert_line(all, "rolter_prefix_prediction_error_ratio_sum{provider=\"p\"} 0.55");
}

static double from_arg(void *arg)
{
    return *(double *)arg + (double)metric_value(metric_plain(M_COOLDOWNS));
}

static void gauges(void **state)
{
    (void)state;
    metric_series_t g = metric_series(M_UPSTREAM_KV, "p", NULL, NULL);
    metric_set(g, 0.25);
    metric_gauge_add(g, 0.5);
    assert_line(render(), "rolter_upstream_kv_cache_utilization{provider=\"p\"} 0.75");
    metric_set(g, -1e300);
    assert_line(render(), "rolter_upstream_kv_cache_utilization{provider=\"p\"} -1e+300");
    metric_set(g, 0.1);
    assert_line(render(), "rolter_upstream_kv_cache_utilization{provider=\"p\"} 0.1");
    metric_set(g, NAN);
    assert_line(render(), "rolter_upstream_kv_cache_utilization{provider=\"p\"} NaN");
    metric_set(g, INFINITY);
    assert_line(render(), "rolter_upstream_kv_cache_utilization{provider=\"p\"} +Inf");

    double v = 3;
    metric_set_function(g, from_arg, &v);
    assert_line(render(), "rolter_upstream_kv_cache_utilization{provider=\"p\"} 3");
    v = 4.5;
    assert_line(render(), "rolter_upstream_kv_cache_utilization{provider=\"p\"} 4.5");
    metric_set_function(g, NULL, NULL);
    v = 9;
    assert_line(render(), "rolter_upstream_kv_cache_utilization{provider=\"p\"} 4.5");
}

enum { THREADS = 4, ROUNDS = 3, COUNTS = 20000, MODELS = 700 };

static void *count(void *arg)
{
    metric_series_t own = metric_series(M_QUEUE_WAIT, "threads", NULL, NULL);
    metric_series_t *many = arg;
    for (int i = 0; i < COUNTS; i++) {
        metric_add(metric_plain(M_KEY_COOLDOWNS), 1);
        metric_add(many[i % MODELS], 2);
        metric_observe(own, i % 3);
        metric_gauge_add(metric_plain(M_CLIENT_CONNECTIONS), i % 2 ? -1 : 1);
    }
    return NULL;
}

/* Counts survive their threads, and scrapes that run at the same time see only growing sums. */
static void threads_add_up(void **state)
{
    (void)state;
    static metric_series_t many[MODELS]; /* more than one page of cells */
    for (int i = 0; i < MODELS; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        many[i] = metric_series(M_RESPONSES, name, "2xx", NULL);
    }
    uint64_t before = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        pthread_t t[THREADS];
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&t[i], NULL, count, many), 0);
        for (int i = 0; i < 20; i++) {
            uint64_t now = metric_value(metric_plain(M_KEY_COOLDOWNS));
            assert_true(now >= before && now <= (uint64_t)round * THREADS * COUNTS);
            before = now;
            render();
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(t[i], NULL);
        assert_int_equal(metric_value(metric_plain(M_KEY_COOLDOWNS)), round * THREADS * COUNTS);
    }
    uint64_t sum = 0;
    for (int i = 0; i < MODELS; i++)
        sum += metric_value(many[i]);
    assert_int_equal(sum, 2 * ROUNDS * THREADS * COUNTS);
    const char *all = render();
    assert_line(all, "rolter_provider_queue_wait_ms_count{provider=\"threads\"} 240000");
    assert_line(all, "rolter_provider_queue_wait_ms_bucket{provider=\"threads\",le=\"1\"} 160008");
    assert_line(all, "rolter_client_connections 0");
}

static void document_lists_every_family(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    metrics_document(&b);
    size_t lines = 0;
    for (size_t i = 0; i < b.n; i++)
        lines += b.p[i] == '\n';
    assert_int_equal(lines, METRIC_COUNT + 2);
    buf_add_char(&b, 0);
    assert_line(
        b.p, "| `rolter_tokens_total` | counter | `model`, `kind` | Tokens as upstreams report them (prompt, "
             "completion, cache_read, cache_write). |");
    assert_line(b.p, "| `rolter_retries_total` | counter | | Attempts after the first one. |");
    buf_fini(&b);
}

struct visited {
    unsigned n;
    uint64_t sum;
};

static void visit(void *arg, const char *const value[METRIC_LABELS_MAX], uint64_t n)
{
    struct visited *v = arg;
    if (strcmp(value[0], "visited") != 0)
        return;
    assert_string_equal(value[1], v->n == 0 ? "first" : "second");
    assert_null(value[2]);
    v->n++;
    v->sum += n;
}

static void add_plain(void *arg, const char *const value[METRIC_LABELS_MAX], uint64_t n)
{
    assert_null(value[0]);
    *(uint64_t *)arg += n;
}

static void series_of_a_family_are_visited(void **state)
{
    (void)state;
    struct visited v = {0};
    uint64_t sum = 0;
    metric_add(metric_series(M_VARIANT_REQUESTS, "visited", "first", NULL), 3);
    metric_add(metric_series(M_VARIANT_REQUESTS, "visited", "second", NULL), 4);
    metric_visit(M_VARIANT_REQUESTS, visit, &v);
    assert_int_equal(v.n, 2);
    assert_int_equal(v.sum, 7);
    metric_add(metric_plain(M_HEALTH_RECOVERED), 42);
    metric_visit(M_HEALTH_RECOVERED, add_plain, &sum);
    assert_int_equal(sum, 42);
}

static void totals_of_a_histogram(void **state)
{
    (void)state;
    uint64_t n = 9;
    double sum = 9;
    metric_totals(0, &n, &sum);
    assert_int_equal(n, 0);
    assert_true(sum == 0);
    metric_series_t s = metric_series(M_TTFT, "totals", NULL, NULL);
    metric_observe(s, 0.5);
    metric_observe(s, 250);
    metric_observe(s, 1e7); /* above every bound */
    metric_totals(s, &n, &sum);
    assert_int_equal(n, 3);
    assert_true(sum == 10000250.5);
    s = metric_series(M_PREDICTION_ERROR, "totals", NULL, NULL);
    metric_observe(s, 0.25);
    metric_totals(s, &n, &sum);
    assert_int_equal(n, 1);
    assert_true(sum == 0.25);
}

int main(void)
{
    buf_init(&text, 8 << 20);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_at_zero_in_table_order),
        cmocka_unit_test(same_values_same_series),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(histogram_is_cumulative),
        cmocka_unit_test(ratios_have_their_own_bounds),
        cmocka_unit_test(gauges),
        cmocka_unit_test(threads_add_up),
        cmocka_unit_test(document_lists_every_family),
        cmocka_unit_test(series_of_a_family_are_visited),
        cmocka_unit_test(totals_of_a_histogram),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    buf_fini(&text);
    return rc;
}
