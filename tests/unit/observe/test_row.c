/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/rng.h"
#include "observe/row.h"

static json_t *parse_line(const struct buf *b)
{
    assert_true(b->n > 0 && b->p[b->n - 1] == '\n');
    assert_null(memchr(b->p, '\n', b->n - 1));
    json_error_t err;
    json_t *j = json_loadb(b->p, b->n, JSON_REJECT_DUPLICATES, &err);
    if (!j)
        fail_msg("%s in %.*s", err.text, (int)b->n, b->p);
    return j;
}

static void exact_line(void **state)
{
    (void)state;
    struct row r = {
        .ts_ms = 1796101446123u,
        .request_id = SPAN("r-1"),
        .path = SPAN("/v1/chat/completions"),
        .model = SPAN("m\"x"),
        .status = 200,
        .stream = true,
        .prompt_tokens = 10,
        .total_tokens = UINT64_MAX,
        .cost_usd = 0.000012345,
        .saved_cost_usd = 12,
        .latency_ms = 77,
        .attempts = 2,
        .pick_reason = SPAN("affinity"),
        .pick_detail = SPAN("share=0.83"),
    };
    struct buf b;
    buf_init(&b, 1 << 16);
    row_format(&b, &r);
    const char *want =
        "{\"ts\":\"2026-12-01T05:04:06.123Z\",\"request_id\":\"r-1\",\"trace_id\":\"\",\"virtual_key\":\"\","
        "\"virtual_key_id\":\"\",\"path\":\"/v1/chat/completions\",\"model\":\"m\\\"x\",\"provider\":\"\","
        "\"target\":\"\",\"variant\":\"\",\"upstream_request_id\":\"\",\"status\":200,\"stream\":1,\"cache_"
        "hit\":0,"
        "\"withheld\":0,\"usage_unknown\":0,\"prompt_tokens\":10,\"completion_tokens\":0,"
        "\"total_tokens\":18446744073709551615,\"cache_read_tokens\":0,\"cache_write_tokens\":0,"
        "\"cost_usd\":0.000012345,\"saved_tokens\":0,\"saved_cost_usd\":12,\"latency_ms\":77,\"ttft_ms\":0,"
        "\"queue_ms\":0,\"attempts\":2,\"pick_reason\":\"affinity\",\"pick_detail\":\"share=0.83\",\"cache_"
        "reason\":\"\",\"cache_scope\":\"\",\"error\":\"\",\"annotations\":\"\"}\n";
    buf_add_char(&b, 0);
    assert_string_equal(b.p, want);
    buf_fini(&b);
}

/* Naive twin of the string rule: what is not UTF-8 turns into U+FFFD, byte by byte. */
static void bytes_that_clients_send(void **state)
{
    (void)state;
    static const struct {
        struct span in, out;
    } cases[] = {
        {SPAN("tab\there\r\n"), SPAN("tab\there\r\n")},
        {SPAN("\x01\x1f\x7f"), SPAN("\x01\x1f\x7f")},
        {SPAN("\\\"/"), SPAN("\\\"/")},
        {SPAN("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), SPAN("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")},
        {SPAN("\xff"), SPAN("\xef\xbf\xbd")},
        {SPAN("\xc3"), SPAN("\xef\xbf\xbd")},
        {SPAN("\xc0\x80"), SPAN("\xef\xbf\xbd\xef\xbf\xbd")},
        {SPAN("\xed\xa0\x80"), SPAN("\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd")},
        {SPAN("\xf4\x90\x80\x80"), SPAN("\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd")},
        {SPAN("\xe2\x82x"), SPAN("\xef\xbf\xbd\xef\xbf\xbdx")},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b;
        buf_init(&b, 1 << 16);
        row_format(&b, &(struct row){.path = cases[i].in});
        json_t *j = parse_line(&b), *path = json_object_get(j, "path");
        assert_int_equal(json_string_length(path), cases[i].out.n);
        assert_memory_equal(json_string_value(path), cases[i].out.p, cases[i].out.n);
        json_decref(j);
        buf_fini(&b);
    }
}

/* Eight bytes are looked at at once, and the last ones together with those before them: one that needs more
 * than to be copied, at each place of strings of each length. */
static void each_place_of_short_strings(void **state)
{
    (void)state;
    enum { LEN_MAX = 34 };
    static const char odd[] = {'x', '"', '\\', '\n', 0x1f, 0x7f};
    for (size_t n = 1; n < LEN_MAX; n++)
        for (size_t at = 0; at < n * sizeof odd; at++) {
            char raw[LEN_MAX];
            for (size_t i = 0; i < n; i++)
                raw[i] = (char)('a' + i % 26);
            raw[at / sizeof odd] = odd[at % sizeof odd];
            struct buf b;
            buf_init(&b, 1 << 16);
            row_format(&b, &(struct row){.path = span_of(raw, n)});
            json_t *j = parse_line(&b), *path = json_object_get(j, "path");
            assert_int_equal(json_string_length(path), n);
            assert_memory_equal(json_string_value(path), raw, n);
            json_decref(j);
            buf_fini(&b);
        }
}

static void random_bytes_stay_json(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 5);
    for (int round = 0; round < 3000; round++) {
        char raw[300];
        for (size_t i = 0; i < sizeof raw; i++) {
            uint64_t v = rng_u64(&rng);
            raw[i] = (char)(v % 3 ? 0x20 + v / 3 % 0x60 : 1 + v / 3 % 255);
        }
        struct buf b;
        buf_init(&b, 1 << 16);
        row_format(
            &b, &(struct row){.path = span_of(raw, rng_below(&rng, sizeof raw)), .error = span_of(raw, 9)});
        json_t *j = parse_line(&b);
        assert_int_equal(json_object_size(j), 34);
        json_decref(j);
        buf_fini(&b);
    }
}

static void money_reads_back(void **state)
{
    (void)state;
    const double values[] = {0, 1e-12, 2e-8, 0.1, 1.5, 123.456789, 999999.999999, 1e6, 1e22, -0.5};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct buf b;
        buf_init(&b, 1 << 16);
        row_format(&b, &(struct row){.cost_usd = values[i]});
        json_t *j = parse_line(&b);
        double got = json_number_value(json_object_get(j, "cost_usd"));
        assert_true(fabs(got - values[i]) <= fabs(values[i]) * 1e-12);
        json_decref(j);
        buf_fini(&b);
    }
    struct buf b;
    buf_init(&b, 1 << 16);
    row_format(&b, &(struct row){.cost_usd = NAN, .saved_cost_usd = INFINITY});
    json_decref(parse_line(&b));
    buf_fini(&b);
}

/* A string whose worst case would pass the maximum is written all the same when it fits as it is. */
static void maximum_of_the_buf(void **state)
{
    (void)state;
    char path[3000];
    memset(path, 'a', sizeof path);
    struct row r = {.path = span_of(path, sizeof path)};
    struct buf b;
    buf_init(&b, 6000);
    row_format(&b, &r);
    assert_false(b.full);
    json_decref(parse_line(&b));
    size_t n = b.n;
    row_format(&b, &r);
    assert_true(b.full);
    assert_int_equal(b.n, n);
    buf_fini(&b);
}

/* Twin: a list of lines. */
static void ring_against_naive_twin(void **state)
{
    (void)state;
    enum { LINES = 4096 };
    struct rng rng;
    rng_seed(&rng, 11);
    struct row_ring *ring = row_ring_new(256);
    char *wait[LINES];
    size_t len[LINES], first = 0, last = 0, used = 0;
    struct buf out, want;
    buf_init(&out, 1 << 20);
    buf_init(&want, 1 << 20);
    for (int step = 0; step < 60000; step++) {
        if (rng_below(&rng, 3)) {
            size_t n = rng_below(&rng, 90);
            char line[90];
            for (size_t i = 0; i < n; i++)
                line[i] = (char)rng_u64(&rng);
            bool fits = used + n + 4 <= 256;
            assert_int_equal(row_ring_put(ring, span_of(line, n)), fits);
            if (fits) {
                size_t slot = last++ % LINES;
                wait[slot] = memcpy(malloc(n + 1), line, n);
                len[slot] = n;
                used += n + 4;
            }
        } else {
            size_t max = rng_below(&rng, 200), lines = 0, bytes = 0;
            buf_clear(&out);
            buf_clear(&want);
            while (first != last && (!lines || bytes + len[first % LINES] <= max)) {
                size_t slot = first++ % LINES;
                buf_add(&want, wait[slot], len[slot]);
                bytes += len[slot];
                used -= len[slot] + 4;
                free(wait[slot]);
                lines++;
            }
            assert_int_equal(row_ring_take(ring, &out, max), lines);
            assert_true(span_eq(buf_view(&out), buf_view(&want)));
        }
        assert_int_equal(row_ring_used(ring), used);
    }
    while (first != last)
        free(wait[first++ % LINES]);
    char big[300] = {0};
    assert_false(row_ring_put(ring, span_of(big, 253)));
    buf_fini(&out);
    buf_fini(&want);
    row_ring_free(ring);
    row_ring_free(NULL);
}

static void full_target_keeps_lines(void **state)
{
    (void)state;
    struct row_ring *ring = row_ring_new(64);
    assert_true(row_ring_put(ring, SPAN("12345678\n")) && row_ring_put(ring, SPAN("abc\n")));
    struct buf small, out;
    buf_init(&small, 8);
    buf_init(&out, 100);
    assert_int_equal(row_ring_take(ring, &small, 100), 0);
    assert_int_equal(row_ring_take(ring, &out, 1), 1);
    assert_int_equal(row_ring_take(ring, &out, 100), 1);
    assert_true(span_eq(buf_view(&out), SPAN("12345678\nabc\n")));
    buf_fini(&small);
    buf_fini(&out);
    row_ring_free(ring);
}

enum { SENT = 200000 };

static void *produce(void *arg)
{
    for (unsigned i = 0; i < SENT;) {
        char line[40];
        int n = snprintf(line, sizeof line, "%u%.*s\n", i, (int)(i % 20), "xxxxxxxxxxxxxxxxxxxx");
        if (row_ring_put(arg, span_of(line, (size_t)n)))
            i++;
        else
            sched_yield();
    }
    return NULL;
}

static void two_threads(void **state)
{
    (void)state;
    struct row_ring *ring = row_ring_new(1024);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, produce, ring), 0);
    struct buf out;
    buf_init(&out, 1 << 16);
    for (unsigned next = 0; next < SENT;) {
        buf_clear(&out);
        size_t lines = row_ring_take(ring, &out, 300);
        if (!lines)
            sched_yield();
        struct span rest = buf_view(&out), line;
        for (; rest.n && span_split(&rest, '\n', &line); next++, lines--) {
            char want[40];
            int n = snprintf(want, sizeof want, "%u%.*s", next, (int)(next % 20), "xxxxxxxxxxxxxxxxxxxx");
            assert_true(span_eq(line, span_of(want, (size_t)n)));
        }
        assert_int_equal(lines, 0);
    }
    pthread_join(t, NULL);
    assert_int_equal(row_ring_used(ring), 0);
    buf_fini(&out);
    row_ring_free(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_line),
        cmocka_unit_test(bytes_that_clients_send),
        cmocka_unit_test(each_place_of_short_strings),
        cmocka_unit_test(random_bytes_stay_json),
        cmocka_unit_test(money_reads_back),
        cmocka_unit_test(maximum_of_the_buf),
        cmocka_unit_test(ring_against_naive_twin),
        cmocka_unit_test(full_target_keeps_lines),
        cmocka_unit_test(two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
