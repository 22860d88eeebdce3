/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <time.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/fmt.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/span.h"

static void spans(void **state)
{
    (void)state;
    struct span rest = SPAN("a,,b"), part;
    assert_true(span_split(&rest, ',', &part) && span_eq(part, SPAN("a")));
    assert_true(span_split(&rest, ',', &part) && part.n == 0);
    assert_true(span_split(&rest, ',', &part) && span_eq(part, SPAN("b")));
    assert_false(span_split(&rest, ',', &part));
    assert_true(span_eq_nocase(SPAN("Content-Length"), SPAN("content-length")));
    assert_false(span_eq_nocase(SPAN("a["), SPAN("a{")));
    assert_true(span_eq(span_trim(SPAN(" \t x y\t")), SPAN("x y")));
    uint64_t v = 7;
    assert_true(span_to_u64(SPAN("18446744073709551615"), &v) && v == UINT64_MAX);
    assert_false(span_to_u64(SPAN("18446744073709551616"), &v));
    assert_false(span_to_u64(SPAN("+1"), &v) || span_to_u64(SPAN(""), &v) || span_to_u64(SPAN("1 "), &v));
    assert_true(v == UINT64_MAX); /* untouched on failure */
    assert_int_equal(span_find(SPAN("hello"), SPAN("lo")), 3);
    assert_int_equal(span_find(SPAN("hello"), SPAN("x")), -1);
}

static void arena_reuses_chunks(void **state)
{
    (void)state;
    struct arena_pool pool;
    arena_pool_init(&pool, 4);
    struct arena a;
    arena_init(&a, &pool);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2000; i++) {
            char *p = arena_alloc(&a, (size_t)(i % 61));
            assert_int_equal((uintptr_t)p % 16, 0);
            memset(p, 0xaa, (size_t)(i % 61));
        }
        memset(arena_alloc(&a, 100000), 1, 100000);
        assert_string_equal(arena_printf(&a, "%d-%s", 5, "x"), "5-x");
        arena_reset(&a);
        assert_int_equal(pool.n_free, 4);
    }
    arena_pool_fini(&pool);
}

static void buf_keeps_its_maximum(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10);
    assert_true(BUF_LIT(&b, "12345") && buf_add_u64(&b, 6789));
    assert_false(BUF_LIT(&b, "xy"));
    assert_true(b.full && span_eq(buf_view(&b), SPAN("123456789")));
    buf_consume(&b, 4);
    assert_true(span_eq(buf_view(&b), SPAN("56789")));
    buf_fini(&b);
}

static void numbers_and_times(void **state)
{
    (void)state;
    char out[64];
    assert_int_equal(fmt_u64(out, UINT64_MAX), 20);
    assert_memory_equal(out, "18446744073709551615", 20);
    assert_int_equal(fmt_hex(out, 0x1fa0), 4);
    assert_memory_equal(out, "1fa0", 4);
    assert_int_equal(fmt_time(out, 1796101446123), 24);
    int64_t back;
    assert_true(fmt_parse_time(span_of(out, 24), &back) && back == 1796101446123);
    assert_true(fmt_parse_time(SPAN("1970-01-01T02:00:00+02:00"), &back) && back == 0);
    assert_false(fmt_parse_time(SPAN("2026-02-30T00:00:00Z"), &back));
    assert_false(fmt_parse_time(SPAN("2026-02-20"), &back));
}

/* Against the C library, over all years that the form can show. */
static void time_like_the_c_library(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 3);
    for (int i = 0; i < 200000; i++) {
        uint64_t ms = i < 150000 ? (uint64_t)i * 86400000u : rng_below(&r, 253402300800000u);
        time_t secs = (time_t)(ms / 1000);
        struct tm tm;
        gmtime_r(&secs, &tm);
        char want[40], got[FMT_TIME_MAX];
        size_t n = strftime(want, sizeof want, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(want + n, sizeof want - n, ".%03uZ", (unsigned)(ms % 1000));
        assert_int_equal(fmt_time(got, ms), FMT_TIME_MAX);
        assert_memory_equal(got, want, FMT_TIME_MAX);
    }
    char got[FMT_TIME_MAX];
    fmt_time(got, UINT64_MAX);
    assert_memory_equal(got, "9999-12-31T23:59:59.999Z", FMT_TIME_MAX);
}

static void hash_does_not_depend_on_cuts(void **state)
{
    (void)state;
    char text[3000];
    struct rng r;
    rng_seed(&r, 1);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)rng_u64(&r);
    for (int round = 0; round < 200; round++) {
        struct hash_stream h;
        hash_begin(&h);
        size_t at = 0;
        while (at < sizeof text) {
            size_t n = rng_below(&r, 400);
            if (n > sizeof text - at)
                n = sizeof text - at;
            hash_update(&h, text + at, n);
            at += n;
        }
        assert_true(hash_end(&h) == hash_bytes(text, sizeof text));
    }
}

static void map_against_array(void **state)
{
    (void)state;
    struct map m;
    map_init(&m);
    static char keys[500][8];
    for (size_t i = 0; i < 500; i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        assert_null(map_put(&m, span_str(keys[i]), keys[i]));
    }
    for (size_t i = 0; i < 500; i++)
        assert_ptr_equal(map_get(&m, span_str(keys[i])), keys[i]);
    assert_null(map_get(&m, SPAN("k500")));
    assert_ptr_equal(map_put(&m, SPAN("k7"), keys[8]), keys[7]);
    assert_int_equal(m.n, 500);
    map_fini(&m);
}

static void rng_is_fair(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 42);
    int seen[3] = {0};
    for (int i = 0; i < 30000; i++)
        seen[rng_below(&r, 3)]++;
    for (int i = 0; i < 3; i++)
        assert_in_range(seen[i], 9600, 10400);
}

static void free_looks_once(void **state)
{
    (void)state;
    char *list[3] = {mem_strdup("a"), mem_strdup("b"), NULL};
    unsigned n = 2;
    while (n)
        MEM_FREE(list[--n]);
    assert_null(list[0]);
    assert_null(list[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans),
        cmocka_unit_test(free_looks_once),
        cmocka_unit_test(arena_reuses_chunks),
        cmocka_unit_test(buf_keeps_its_maximum),
        cmocka_unit_test(numbers_and_times),
        cmocka_unit_test(time_like_the_c_library),
        cmocka_unit_test(hash_does_not_depend_on_cuts),
        cmocka_unit_test(map_against_array),
        cmocka_unit_test(rng_is_fair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
