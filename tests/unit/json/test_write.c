/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "json/write.h"
#include "oracle.h"

static void expect(struct buf *b, const char *want)
{
    if (!span_eq(buf_view(b), span_str(want)))
        fail_msg("got %.*s, not %s", SPAN_FMT(buf_view(b)), want);
    buf_fini(b);
}

static void commas_are_put(void **state)
{
    struct buf b;
    struct json_out o;
    buf_init(&b, 4096);
    json_out_init(&o, &b);
    json_out_object(&o);
    json_out_member_str(&o, "a", "x");
    json_out_member_str(&o, "none", NULL);
    json_out_member_u64(&o, "n", UINT64_MAX);
    json_out_member_double(&o, "d", 0.1);
    json_out_member_bool(&o, "t", true);
    json_out_member_span(&o, "s", SPAN("\"\n"));
    json_out_name_span(&o, SPAN("list\\"));
    json_out_array(&o);
    json_out_i64(&o, INT64_MIN);
    json_out_i64(&o, 7);
    json_out_array(&o);
    json_out_array_end(&o);
    json_out_object(&o);
    json_out_object_end(&o);
    json_out_null(&o);
    json_out_bool(&o, false);
    json_out_raw(&o, SPAN("{ }"));
    json_out_array_end(&o);
    json_out_name(&o, "in");
    json_out_object(&o);
    json_out_member_u64(&o, "z", 0);
    json_out_object_end(&o);
    json_out_member_u64(&o, "last", 1);
    json_out_object_end(&o);
    expect(&b, "{\"a\":\"x\",\"none\":null,\"n\":18446744073709551615,\"d\":0.1,\"t\":true,\"s\":\"\\\"\\n\","
               "\"list\\\\\":[-9223372036854775808,7,[],{},null,false,{ }],\"in\":{\"z\":0},\"last\":1}");
}

static void control_characters_are_escaped(void **state)
{
    struct buf b;
    buf_init(&b, 4096);
    json_escape(&b, SPAN("\x01\b\t\n\x0b\f\r\x1f \"\\/\x7f"));
    expect(&b, "\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \\\"\\\\/\x7f");
}

static void escape_to(const char *in, size_t n, const char *want)
{
    struct buf b;
    buf_init(&b, 4096);
    json_escape(&b, span_of(in, n));
    expect(&b, want);
}
#define ESCAPES_TO(in, want) escape_to(in, sizeof(in) - 1, want)
#define BAD                  "\xef\xbf\xbd"

static void invalid_utf8_becomes_the_replacement_character(void **state)
{
    ESCAPES_TO("", "");
    ESCAPES_TO("é世😀", "é世😀");
    ESCAPES_TO("\x80", BAD);
    ESCAPES_TO("a\xff\xfe\"", "a" BAD BAD "\\\"");
    ESCAPES_TO("\xc0\xaf", BAD BAD);
    ESCAPES_TO("\xe0\x80\x80", BAD BAD BAD);
    ESCAPES_TO("\xed\xa0\x80", BAD BAD BAD);
    ESCAPES_TO("\xe4\xb8", BAD);
    ESCAPES_TO("\xe4\xb8x", BAD "x");
    ESCAPES_TO("\xf0\x9f\x98", BAD);
    ESCAPES_TO("\xf0\x9f\x98\n\xf0\x9f", BAD "\\n" BAD);
    ESCAPES_TO("\xf4\x90\x80\x80", BAD BAD BAD BAD);
    ESCAPES_TO("\xe4\xe4\xb8\x96", BAD "世");
}

/* Whatever the bytes, reading gives them back, with U+FFFD for what was no UTF-8. */
static void random_bytes_come_back(void **state)
{
    struct rng r;
    rng_seed(&r, 5);
    for (int round = 0; round < 3000; round++) {
        char in[3000];
        size_t n = rng_below(&r, round % 10 == 0 ? sizeof(in) : 100);
        bool ascii = rng_below(&r, 2);
        for (size_t i = 0; i < n; i++)
            in[i] = (char)(rng_below(&r, 3) ? 'a' + rng_below(&r, 26) : rng_below(&r, ascii ? 128 : 256));
        struct buf b;
        struct json_out o;
        struct arena a;
        struct json_doc d;
        struct json_fault fault;
        buf_init(&b, 1 << 20);
        json_out_init(&o, &b);
        json_out_string(&o, span_of(in, n));
        arena_init(&a, NULL);
        assert_true(json_parse(&a, buf_view(&b), NULL, &d, &fault));
        if (ascii)
            assert_true(json_string_eq(&d, 0, span_of(in, n)));
        arena_reset(&a);
        buf_fini(&b);
    }
}

static void check_double(double v)
{
    struct buf b;
    struct json_out o;
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    double back;
    char shorter[64];
    buf_init(&b, 100);
    json_out_init(&o, &b);
    json_out_double(&o, v);
    assert_false(b.full);
    arena_init(&a, NULL);
    assert_true(json_parse(&a, buf_view(&b), NULL, &d, &fault));
    assert_int_equal(d.node[0].type, JSON_NUMBER);
    assert_true(json_double(&d, 0, &back));
    assert_memory_equal(&v, &back, sizeof(v));
    /* No more digits than needed: with one less it would be another number. Whole ones are written out. */
    int digits = 0;
    bool seen = false;
    for (size_t i = 0; i < b.n && b.p[i] != 'e'; i++) {
        seen |= b.p[i] >= '1' && b.p[i] <= '9';
        digits += seen && b.p[i] != '.';
    }
    bool whole = !memchr(b.p, '.', b.n) && !memchr(b.p, 'e', b.n);
    if (digits > 1 && !whole) {
        snprintf(shorter, sizeof(shorter), "%.*e", digits - 2, v);
        assert_true(strtod(shorter, NULL) != v);
    }
    arena_reset(&a);
    buf_fini(&b);
}

static void doubles_read_back(void **state)
{
    static const double some[] = {0.0,
                                  -0.0,
                                  1.0,
                                  -1.5,
                                  0.1,
                                  0.7,
                                  1e15,
                                  1e16,
                                  1e21,
                                  1e22,
                                  1e23,
                                  5e-324,
                                  DBL_MIN,
                                  DBL_MAX,
                                  -DBL_MAX,
                                  1e-7,
                                  123456789012345678.0,
                                  2.0 / 3,
                                  1e100,
                                  4.35,
                                  100000.0,
                                  1e-5,
                                  9007199254740993.0};
    for (size_t i = 0; i < ARRAY_LEN(some); i++)
        check_double(some[i]);
    struct rng r;
    rng_seed(&r, 6);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = rng_u64(&r);
        double v;
        memcpy(&v, &bits, sizeof(v));
        if (isfinite(v))
            check_double(v);
        check_double(rng_unit(&r));
    }
}

static void whole_doubles_look_like_integers(void **state)
{
    struct buf b;
    struct json_out o;
    buf_init(&b, 4096);
    json_out_init(&o, &b);
    json_out_array(&o);
    json_out_double(&o, 100000);
    json_out_double(&o, -3);
    json_out_double(&o, 0.25);
    json_out_double(&o, NAN);
    json_out_double(&o, -INFINITY);
    json_out_array_end(&o);
    expect(&b, "[100000,-3,0.25,null,null]");
}

static void a_full_buffer_stays_full(void **state)
{
    struct buf b;
    struct json_out o;
    buf_init(&b, 16);
    json_out_init(&o, &b);
    json_out_string(&o, SPAN("0123456789012"));
    assert_false(b.full);
    json_out_string(&o, SPAN("01234567890123456789"));
    assert_true(b.full);
    json_out_u64(&o, 1);
    assert_true(b.full);
    assert_true(b.n <= 16);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commas_are_put),
        cmocka_unit_test(control_characters_are_escaped),
        cmocka_unit_test(invalid_utf8_becomes_the_replacement_character),
        cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(doubles_read_back),
        cmocka_unit_test(whole_doubles_look_like_integers),
        cmocka_unit_test(a_full_buffer_stays_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
