/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/check.h"
#include "policy/answers.h"

static void actions(void **state)
{
    static const struct {
        const char *text;
        int action; /* -1: a failure */
        const char *reason, *content, *annotations;
    } cases[] = {
        {"{\"action\":\"allow\"}", ACTION_ALLOW, "", "", ""},
        {" {\"x\":[],\"action\":\"\\u0061llow\",\"content\":5} ", ACTION_ALLOW, "", "", ""},
        {"{\"action\":\"block\"}", ACTION_BLOCK, "", "", ""},
        {"{\"action\":\"block\",\"reason\":\"a\\nb\"}", ACTION_BLOCK, "a\nb", "", ""},
        {"{\"action\":\"block\",\"reason\":7}", ACTION_BLOCK, "", "", ""},
        {"{\"action\":\"transform\",\"content\":{\"a\": [1]}}", ACTION_TRANSFORM, "", "{\"a\": [1]}", ""},
        {"{\"action\":\"annotate\",\"annotations\":[1,\"x\"]}", ACTION_ANNOTATE, "", "", "[1,\"x\"]"},
        {"{\"action\":\"annotate\",\"annotations\":null}", ACTION_ANNOTATE, "", "", ""},
        {"", -1, "", "", ""},
        {"allow", -1, "", "", ""},
        {"\"allow\"", -1, "", "", ""},
        {"[\"allow\"]", -1, "", "", ""},
        {"{\"action\":\"Allow\"}", -1, "", "", ""},
        {"{\"action\":true}", -1, "", "", ""},
        {"{\"action\":\"allow\"} x", -1, "", "", ""},
        {"{\"action\":\"allow\",\"action\":\"allow\"}", -1, "", "", ""},
        {"{\"action\":\"transform\"}", -1, "", "", ""},
        {"{\"action\":\"transform\",\"content\":null}", -1, "", "", ""},
        {"{\"action\":\"transform\",\"content\":[]}", -1, "", "", ""},
        {"{\"action\":\"transform\",\"content\":{},\"content\":{}}", -1, "", "", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena a;
        struct action_answer got;
        const char *why = NULL;
        arena_init(&a, NULL);
        bool good = answer_action(span_str(cases[i].text), &a, &got, &why);
        if (good != (cases[i].action >= 0) || good == (why != NULL))
            fail_msg("%s: %d", cases[i].text, good);
        if (good) {
            assert_int_equal(got.action, cases[i].action);
            assert_true(span_eq(got.reason, span_str(cases[i].reason)));
            assert_true(span_eq(got.content, span_str(cases[i].content)));
            assert_true(span_eq(got.annotations, span_str(cases[i].annotations)));
        }
        arena_reset(&a);
    }
}

static void sanitizers(void **state)
{
    static const struct {
        const char *text, *content, *token;
        unsigned entities;
    } cases[] = {
        {"{\"content\":{\"a\":1}}", "{\"a\":1}", "", 0},
        {"{\"content\":{},\"restoration_token\":\"t\\u00fc\",\"findings\":[{\"count\":2},{\"entity_type\":"
         "\"X\"},5]}",
         "{}", "t\xc3\xbc", 4},
        {"{\"content\":{},\"restored\":3}", "{}", "", 3},
        {"{\"content\":{},\"restored\":true,\"restoration_token\":null}", "{}", "", 1},
        {"{\"content\":{},\"findings\":[{\"count\":18446744073709551615}]}", "{}", "", UINT32_MAX},
        {"{}", NULL, "", 0},
        {"{\"content\":\"text\"}", NULL, "", 0},
        {"{\"content\":{},\"restoration_token\":5}", NULL, "", 0},
        {"{\"content\":{}", NULL, "", 0},
        {"{\"content\":{},\"content\":{}}", NULL, "", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena a;
        struct sanitizer_answer got;
        const char *why = NULL;
        arena_init(&a, NULL);
        bool good = answer_sanitizer(span_str(cases[i].text), &a, &got, &why);
        if (good != (cases[i].content != NULL))
            fail_msg("%s: %d", cases[i].text, good);
        if (good) {
            assert_true(span_eq(got.content, span_str(cases[i].content)));
            assert_true(span_eq(got.token, span_str(cases[i].token)));
            assert_true(got.entities == cases[i].entities);
        }
        arena_reset(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actions),
        cmocka_unit_test(sanitizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
