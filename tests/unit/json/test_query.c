/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "gen.h"
#include "json/json.h"

#define TEXT(literal)                                                                                        \
    {                                                                                                        \
        literal, sizeof(literal) - 1                                                                         \
    }

struct fixture {
    struct arena a;
    struct json_doc d;
};

static void open_doc(struct fixture *f, struct span text)
{
    struct json_fault fault;
    arena_init(&f->a, NULL);
    assert_true(json_parse(&f->a, text, NULL, &f->d, &fault));
}

static void no_node_is_answered_with_nothing(void **state)
{
    struct fixture f;
    uint64_t u = 5;
    double v = 5;
    open_doc(&f, SPAN("{\"a\":[],\"b\":\"x\",\"c\":{}}"));
    const struct json_doc *d = &f.d;
    assert_int_equal(json_get(d, 0, "z"), JSON_NODE_NONE);
    assert_int_equal(json_get(d, JSON_NODE_NONE, "z"), JSON_NODE_NONE);
    assert_int_equal(json_get(d, 2, "z"), JSON_NODE_NONE);
    assert_int_equal(json_count_name(d, JSON_NODE_NONE, "z"), 0);
    assert_false(json_is(d, JSON_NODE_NONE, JSON_NULL));
    assert_int_equal(json_first(d, JSON_NODE_NONE), JSON_NODE_NONE);
    assert_int_equal(json_first(d, json_get(d, 0, "a")), JSON_NODE_NONE);
    assert_int_equal(json_first(d, json_get(d, 0, "b")), JSON_NODE_NONE);
    assert_int_equal(json_first(d, json_get(d, 0, "c")), JSON_NODE_NONE);
    assert_int_equal(json_next(d, JSON_NODE_NONE, 1), JSON_NODE_NONE);
    assert_int_equal(json_next(d, 0, JSON_NODE_NONE), JSON_NODE_NONE);
    assert_null(json_raw(d, JSON_NODE_NONE).p);
    assert_null(json_string(d, JSON_NODE_NONE, &f.a).p);
    assert_null(json_string(d, 0, &f.a).p);
    assert_false(json_string_eq(d, JSON_NODE_NONE, SPAN("")));
    assert_false(json_u64(d, JSON_NODE_NONE, &u) || json_u64(d, 4, &u));
    assert_false(json_double(d, JSON_NODE_NONE, &v) || json_double(d, 4, &v));
    assert_true(u == 5 && v == 5);
    arena_reset(&f.a);
}

static void strings_are_unescaped(void **state)
{
    static const struct {
        struct span raw, want;
        uint8_t odd;
    } table[] = {
        {TEXT("\"\""), TEXT(""), 0},
        {TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), TEXT("\"\\/\b\f\n\r\t"), 0},
        {TEXT("\"a\\u0000b\""), TEXT("a\0b"), 0},
        {TEXT("\"\\u007f\\u0080\\u07ff\\u0800\\uffff\""),
         TEXT("\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"), 0},
        {TEXT("\"\\ud83d\\uDE00\\ud800\\udc00\\udbff\\udfff\""), TEXT("😀\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"),
         0},
        {TEXT("\"\\ud800\""), TEXT("\xef\xbf\xbd"), JSON_ODD_LONE_SURROGATE},
        {TEXT("\"\\udc00\\ud800\""), TEXT("\xef\xbf\xbd\xef\xbf\xbd"), JSON_ODD_LONE_SURROGATE},
        {TEXT("\"\\ud800\\ud83d\\ude00\""), TEXT("\xef\xbf\xbd😀"), JSON_ODD_LONE_SURROGATE},
        {TEXT("\"\\ud800\\u0041\""),
         TEXT("\xef\xbf\xbd"
              "A"),
         JSON_ODD_LONE_SURROGATE},
        {TEXT("\"\\ud800\\n\\ud800x\""), TEXT("\xef\xbf\xbd\n\xef\xbf\xbdx"), JSON_ODD_LONE_SURROGATE},
        {TEXT("\"\\\\ud800\""), TEXT("\\ud800"), 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct fixture f;
        open_doc(&f, table[i].raw);
        assert_int_equal(f.d.odd, table[i].odd);
        assert_true(span_eq(json_string(&f.d, 0, &f.a), table[i].want));
        assert_true(json_string_eq(&f.d, 0, table[i].want));
        assert_false(json_string_eq(&f.d, 0, SPAN("something else")));
        arena_reset(&f.a);
    }
}

static void numbers_are_read(void **state)
{
    struct fixture f;
    uint64_t u = 0;
    double v = 0;
    open_doc(&f,
             SPAN("[0,18446744073709551615,18446744073709551616,-1,1.0,1e2,1e400,-1e-400,0.1,0e999999999999,"
                  "0.00000000000000000000000000000000000000000000000000000000000000000001e-300,\"1\"]"));
    assert_true(json_u64(&f.d, 1, &u) && u == 0);
    assert_true(json_u64(&f.d, 2, &u) && u == UINT64_MAX);
    for (uint32_t i = 3; i < f.d.n; i++)
        assert_false(json_u64(&f.d, i, &u));
    assert_true(json_double(&f.d, 3, &v) && v == 18446744073709551616.0);
    assert_true(json_double(&f.d, 4, &v) && v == -1);
    assert_true(json_double(&f.d, 6, &v) && v == 100);
    assert_false(json_double(&f.d, 7, &v));
    assert_true(json_double(&f.d, 8, &v) && v == 0);
    assert_true(json_double(&f.d, 9, &v) && v == 0.1);
    assert_true(json_double(&f.d, 10, &v) && v == 0);
    v = 1;
    assert_true(json_double(&f.d, 11, &v) && v == 0);
    assert_false(json_double(&f.d, 12, &v));
    arena_reset(&f.a);
}

static void doubled_members_give_the_last(void **state)
{
    struct fixture f;
    open_doc(&f, SPAN("{\"a\":1,\"b\":2,\"\\u0061\":3,\"ab\":4,\"c\":{\"a\":5}}"));
    assert_int_equal(f.d.odd, JSON_ODD_DUPLICATE);
    assert_int_equal(json_count_name(&f.d, 0, "a"), 2);
    assert_int_equal(json_count_name(&f.d, 0, "ab"), 1);
    assert_true(span_eq(json_raw(&f.d, json_get(&f.d, 0, "a")), SPAN("3")));
    arena_reset(&f.a);
}

static void compact_form_has_no_white_space(void **state)
{
    struct fixture f;
    struct buf b;
    buf_init(&b, 4096);
    open_doc(&f, SPAN(" { \"a b\" :\t[ 1.0 ,\n\"x \\n\" , { } , [ ] ] ,\r\n \"b\" : null } "));
    json_compact_each(&f.d, 0, gen_collect, &b);
    assert_true(span_eq(buf_view(&b), SPAN("{\"a b\":[1.0,\"x \\n\",{},[]],\"b\":null}")));
    buf_clear(&b);
    json_compact_each(&f.d, 2, gen_collect, &b);
    assert_true(span_eq(buf_view(&b), SPAN("[1.0,\"x \\n\",{},[]]")));
    buf_clear(&b);
    json_compact_each(&f.d, JSON_NODE_NONE, gen_collect, &b);
    assert_int_equal(b.n, 0);
    buf_fini(&b);
    arena_reset(&f.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_node_is_answered_with_nothing),
        cmocka_unit_test(strings_are_unescaped),
        cmocka_unit_test(numbers_are_read),
        cmocka_unit_test(doubled_members_give_the_last),
        cmocka_unit_test(compact_form_has_no_white_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
