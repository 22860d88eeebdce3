/* SPDX-License-Identifier: Apache-2.0
 *
 * Token ids out of a request's head (R9).
 */
#include "unit.h"

#include "base/check.h"
#include "gateway/token_ids.h"

static void good_lists(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned n;
        uint32_t id[4];
    } cases[] = {
        {"0", 1, {0}},
        {"4294967295", 1, {UINT32_MAX}},
        {"1,2,300", 3, {1, 2, 300}},
        {" 1 ,\t2\t, 300 ", 3, {1, 2, 300}},
        {"007,1", 2, {7, 1}},
        {"00000000000000000000000001", 1, {1}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t out[4];
        size_t n = 0;
        assert_true(token_ids_parse(span_str(cases[i].text), out, &n));
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(out, cases[i].id, n * sizeof *out);
    }
}

static void bad_lists(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",    " ",          ",",    "1,",  "1,,2", ",1",  "-1",   "+1",
        "1.0", "4294967296", "0x10", "1 2", "1;2",  "[1]", "1,a2", "99999999999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t out[32];
        size_t n = 1;
        assert_false(token_ids_parse(span_str(cases[i]), out, &n));
        assert_int_equal(n, 1);
    }
}

static void parse(const char *fields, struct arena *a, struct token_ids *ret)
{
    static struct http_head h;
    char text[1024];
    size_t scanned = 0;
    enum http_reject why;
    int n = snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
    assert_int_equal(http_parse_request(&h, text, (size_t)n, &scanned, 4096, &why), HTTP_DONE);
    token_ids_from_head(&h, a, ret);
}

static void heads(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL);
    struct token_ids t;
    parse("", &a, &t);
    assert_int_equal(t.n, 0);
    assert_string_equal(t.why, "no_ids");
    parse("x-rolter-vllm-token-ids:\r\n", &a, &t);
    assert_int_equal(t.n, 0);
    assert_string_equal(t.why, "bad_ids");
    parse("X-Rolter-vLLM-Token-Ids: 5, 6\r\nx-other: 1\r\nx-rolter-vllm-token-ids: 7\r\n", &a, &t);
    assert_int_equal(t.n, 3);
    assert_null(t.why);
    assert_int_equal(t.id[0], 5);
    assert_int_equal(t.id[2], 7);
    parse("x-rolter-vllm-token-ids: 5\r\nx-rolter-vllm-token-ids: 7,\r\n", &a, &t);
    assert_int_equal(t.n, 0);
    assert_null(t.id);
    assert_string_equal(t.why, "bad_ids");
    arena_reset(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(good_lists), cmocka_unit_test(bad_lists),
                                       cmocka_unit_test(heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
