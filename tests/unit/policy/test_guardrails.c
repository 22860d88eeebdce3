/* SPDX-License-Identifier: Apache-2.0
 *
 * Guardrails on whole bodies: which texts are looked at, what rules do to them, what stays as it was.
 */
#include "rig.h"

#include "policy/splice.h"
#include "policy/texts.h"

struct made {
    struct arena a;
    struct guard_result r;
    struct span body;
};

static void apply(struct made *m, const struct guardrail_settings *s, enum rule_stage stage, const char *body)
{
    struct guardrails *g = guardrails_new(s);
    uint64_t *mask = guard_mask_new(&g->stage[stage], NULL);
    struct json_doc d;
    struct json_fault fault;
    arena_init(&m->a, NULL);
    struct span text = arena_dup(&m->a, span_str(body));
    if (!json_parse(&m->a, text, NULL, &d, &fault))
        fail_msg("%s", body);
    guardrails_apply(g, stage, mask, text, &d, &m->a, &m->r);
    m->body = m->r.verdict == GUARD_CHANGED ? m->r.body : text;
    free(mask);
    guardrails_free(g);
}

struct change {
    const char *before, *after; /* <after> NULL: the same */
};

static void check(enum rule_stage stage, bool include_system, const struct change *cases, size_t n)
{
    struct rule_settings rule = rig_rule("XX", RULE_REDACT, "#");
    rule.stage = stage;
    rule.include_system = include_system;
    const struct guardrail_settings s = {
        .enabled = true, .max_scan_bytes = 1 << 20, .rules = &rule, .n_rules = 1};
    for (size_t i = 0; i < n; i++) {
        struct made m;
        apply(&m, &s, stage, cases[i].before);
        const char *want = cases[i].after ? cases[i].after : cases[i].before;
        if (!span_eq(m.body, span_str(want)))
            fail_msg("%s\nbecame\n%.*s\nnot\n%s", cases[i].before, SPAN_FMT(m.body), want);
        assert_int_equal(m.r.verdict, cases[i].after ? GUARD_CHANGED : GUARD_SAME);
        arena_reset(&m.a);
    }
}

static void texts_of_requests(void **state)
{
    static const struct change cases[] = {
        {"{\"model\":\"XX\", \"messages\" : [ {\"role\":\"user\",\"content\":\"a XX b\"} ]}",
         "{\"model\":\"XX\", \"messages\" : [ {\"role\":\"user\",\"content\":\"a # b\"} ]}"},
        {"{\"messages\":[{\"role\":\"user\",\"name\":\"XX\",\"content\":[{\"type\":\"text\",\"text\":\"XX\"},"
         "{\"type\":"
         "\"image_url\",\"image_url\":{\"url\":\"http://XX\"}},{\"type\":\"refusal\",\"refusal\":\"XX\"}]}]}",
         "{\"messages\":[{\"role\":\"user\",\"name\":\"XX\",\"content\":[{\"type\":\"text\",\"text\":\"#\"},{"
         "\"type\":"
         "\"image_url\",\"image_url\":{\"url\":\"http://XX\"}},{\"type\":\"refusal\",\"refusal\":\"#\"}]}]}"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"XX\"},{\"role\":\"developer\",\"content\":[{"
         "\"text\":\"XX\"}]}]}",
         NULL},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"XX\","
         "\"function\":{\"name\":\"XX\","
         "\"arguments\":\"{\\\"XX\\\": [\\\"a\\\\nXX\\\", 1]}\"}},{\"custom\":{\"input\":\"XX\"}}]}]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"XX\","
         "\"function\":{\"name\":\"XX\","
         "\"arguments\":\"{\\\"XX\\\": [\\\"a\\\\n#\\\", 1]}\"}},{\"custom\":{\"input\":\"#\"}}]}]}"},
        {"{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"XX\",\"content\":\"XX\"},{\"role\":"
         "\"assistant\","
         "\"function_call\":{\"arguments\":\"not XX json\"}}]}",
         "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"XX\",\"content\":\"#\"},{\"role\":"
         "\"assistant\","
         "\"function_call\":{\"arguments\":\"not # json\"}}]}"},
        {"{\"prompt\":\"XX\",\"suffix\":\"XX\",\"user\":\"XX\",\"stop\":\"XX\"}",
         "{\"prompt\":\"#\",\"suffix\":\"#\",\"user\":\"XX\",\"stop\":\"XX\"}"},
        {"{\"prompt\":[\"XX\",\"b\",\"XX\"]}", "{\"prompt\":[\"#\",\"b\",\"#\"]}"},
        {"{\"prompt\":[1,2]}", NULL},
        {"{\"system\":\"XX\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_"
         "use_id\":\"XX\","
         "\"content\":[{\"type\":\"text\",\"text\":\"XX\"}]},{\"type\":\"document\",\"source\":{\"type\":"
         "\"text\",\"data\":"
         "\"XX\"}},{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"data\":\"XX\"}}]},{\"role\":"
         "\"assistant\",\"content\":"
         "[{\"type\":\"thinking\",\"thinking\":\"XX\",\"signature\":\"XX\"},{\"type\":\"tool_use\",\"id\":"
         "\"XX\",\"name\":\"XX\","
         "\"input\":{\"XX\":{\"deep\":[\"XX\"]}}}]}]}",
         "{\"system\":\"XX\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_"
         "use_id\":\"XX\","
         "\"content\":[{\"type\":\"text\",\"text\":\"#\"}]},{\"type\":\"document\",\"source\":{\"type\":"
         "\"text\",\"data\":"
         "\"#\"}},{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"data\":\"XX\"}}]},{\"role\":"
         "\"assistant\",\"content\":"
         "[{\"type\":\"thinking\",\"thinking\":\"XX\",\"signature\":\"XX\"},{\"type\":\"tool_use\",\"id\":"
         "\"XX\",\"name\":\"XX\","
         "\"input\":{\"XX\":{\"deep\":[\"#\"]}}}]}]}"},
        {"{\"instructions\":\"XX\",\"input\":\"XX\"}", "{\"instructions\":\"XX\",\"input\":\"#\"}"},
        {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"XX\"}]},{\"type\":"
         "\"function_call\","
         "\"name\":\"XX\",\"arguments\":\"{\\\"a\\\":\\\"XX\\\"}\"},{\"type\":\"function_call_output\","
         "\"output\":\"XX\"}]}",
         "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"#\"}]},{\"type\":"
         "\"function_call\","
         "\"name\":\"XX\",\"arguments\":\"{\\\"a\\\":\\\"#\\\"}\"},{\"type\":\"function_call_output\","
         "\"output\":\"#\"}]}"},
        {"{\"input\":[\"XX\",[1,2]],\"query\":\"XX\",\"documents\":[\"XX\",{\"text\":\"XX\"}]}",
         "{\"input\":[\"#\",[1,2]],\"query\":\"#\",\"documents\":[\"#\",{\"text\":\"#\"}]}"},
        {"{\"metadata\":{\"content\":\"XX\"},\"tools\":[{\"function\":{\"description\":\"XX\"}}],\"a\":"
         "\"XX\"}",
         NULL},
        {"{\"prompt\":\"X\\u0058 \\ud83d\\ude00\"}", "{\"prompt\":\"# \xf0\x9f\x98\x80\"}"},
    };
    check(RULE_PRE_CALL, false, cases, ARRAY_LEN(cases));
    static const struct change with_system[] = {
        {"{\"system\":[{\"type\":\"text\",\"text\":\"XX\"}],\"messages\":[{\"content\":\"XX\",\"role\":"
         "\"developer\"}]}",
         "{\"system\":[{\"type\":\"text\",\"text\":\"#\"}],\"messages\":[{\"content\":\"#\",\"role\":"
         "\"developer\"}]}"},
        {"{\"instructions\":\"XX\"}", "{\"instructions\":\"#\"}"},
    };
    check(RULE_PRE_CALL, true, with_system, ARRAY_LEN(with_system));
}

static void texts_of_replies(void **state)
{
    static const struct change cases[] = {
        {"{\"id\":\"XX\",\"choices\":[{\"message\":{\"content\":\"XX\",\"reasoning_content\":\"XX\"},"
         "\"logprobs\":{\"content\":"
         "[{\"token\":\"XX\"}]}},{\"message\":{\"content\":\"ok\"},\"logprobs\":{\"content\":[{\"token\":"
         "\"ok\"}]}}]}",
         "{\"id\":\"XX\",\"choices\":[{\"message\":{\"content\":\"#\",\"reasoning_content\":\"#\"},"
         "\"logprobs\":null},"
         "{\"message\":{\"content\":\"ok\"},\"logprobs\":{\"content\":[{\"token\":\"ok\"}]}}]}"},
        {"{\"choices\":[{\"text\":\"XX\",\"logprobs\":{\"tokens\":[\"XX\"]}}]}",
         "{\"choices\":[{\"text\":\"#\",\"logprobs\":null}]}"},
        {"{\"content\":[{\"type\":\"text\",\"text\":\"XX\"},{\"type\":\"thinking\",\"thinking\":\"XX\"},{"
         "\"type\":\"tool_use\","
         "\"input\":{\"a\":\"XX\"}}],\"stop_sequence\":\"XX\"}",
         "{\"content\":[{\"type\":\"text\",\"text\":\"#\"},{\"type\":\"thinking\",\"thinking\":\"#\"},{"
         "\"type\":\"tool_use\","
         "\"input\":{\"a\":\"#\"}}],\"stop_sequence\":\"XX\"}"},
        {"{\"instructions\":\"XX\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\","
         "\"text\":\"XX\","
         "\"logprobs\":[{\"token\":\"XX\"}]}]},{\"type\":\"reasoning\",\"summary\":[{\"text\":\"XX\"}]}],"
         "\"output_text\":\"XX\"}",
         "{\"instructions\":\"XX\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\","
         "\"text\":\"#\","
         "\"logprobs\":[]}]},{\"type\":\"reasoning\",\"summary\":[{\"text\":\"#\"}]}],\"output_text\":\"#"
         "\"}"},
    };
    check(RULE_POST_CALL, false, cases, ARRAY_LEN(cases));
}

static void rules_run_in_order(void **state)
{
    struct rule_settings rules[] = {
        rig_rule("a", RULE_REDACT, "b"), rig_rule("bb", RULE_REDACT, "c"), rig_rule("c", RULE_ANNOTATE, NULL),
        rig_rule("d", RULE_BLOCK, NULL), rig_rule("e", RULE_REDACT, "d"),
    };
    const struct guardrail_settings s = {
        .enabled = true, .max_scan_bytes = 1 << 20, .rules = rules, .n_rules = 5};
    struct made m;
    apply(&m, &s, RULE_POST_CALL, "{\"output_text\":\"ab ab\"}");
    assert_true(span_eq(m.body, SPAN("{\"output_text\":\"c c\"}")));
    assert_int_equal(m.r.noted[0], 7);
    assert_int_equal(m.r.redacted, 4);
    arena_reset(&m.a);
    apply(&m, &s, RULE_POST_CALL, "{\"output_text\":\"xdx\"}");
    assert_int_equal(m.r.verdict, GUARD_BLOCKED);
    assert_string_equal(m.r.rule, "d");
    arena_reset(&m.a);
    apply(&m, &s, RULE_POST_CALL, "{\"output_text\":\"e\"}"); /* too late for the rule before it */
    assert_true(span_eq(m.body, SPAN("{\"output_text\":\"d\"}")));
    arena_reset(&m.a);
}

static void anchors_are_of_each_text(void **state)
{
    struct rule_settings rules[] = {rig_rule("^x|x$", RULE_REDACT, "#")};
    const struct guardrail_settings s = {
        .enabled = true, .max_scan_bytes = 1 << 20, .rules = rules, .n_rules = 1};
    struct made m;
    apply(&m, &s, RULE_POST_CALL, "{\"content\":[\"xax\",\"axa\",\"x\"]}");
    assert_true(span_eq(m.body, SPAN("{\"content\":[\"#a#\",\"axa\",\"#\"]}")));
    arena_reset(&m.a);
}

static void builtins_find_what_they_should(void **state)
{
    static const struct {
        const char *builtin, *text, *after;
    } cases[] = {
        {"email", "a joe.x+y%z_1-@ex-am.ple.co.uk, b", "a [REDACTED:EMAIL], b"},
        {"email", "joe@localhost a@b.c @x.com", NULL},
        {"phone", "call +49 30.123-456 now", "call [REDACTED:PHONE] now"},
        {"phone", "1234567", NULL},
        {"phone", "12345678", "[REDACTED:PHONE]"},
        {"api_token", "sk-abcdefghij0123456 x", "[REDACTED:API_TOKEN] x"},
        {"api_token", "sk-abcdefghij01234", NULL},
        {"api_token", "ghp_abcdefghijklmnopqrst AKIA0123456789ABCDEF xoxb-1234567890",
         "[REDACTED:API_TOKEN] [REDACTED:API_TOKEN] [REDACTED:API_TOKEN]"},
        {"api_token", "AKIA0123456789ABCDE xoxq-1234567890 ghp_short", NULL},
        {"payment_card", "card 4111-1111 1111-1111.", "card [REDACTED:CARD]."},
        {"payment_card", "4111  1111 1111 1111", NULL},
        {"payment_card", "123456789012 12345678901234567890 x4111111111111111", NULL},
        {"payment_card", "1234567890123", "[REDACTED:CARD]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rule_settings rule = rig_builtin(cases[i].builtin, RULE_REDACT);
        struct policy_settings s = rig_settings(&rule, 1);
        struct arena a;
        arena_init(&a, NULL);
        struct span got = rig_whole(&s, span_str(cases[i].text), &a);
        const char *want = cases[i].after ? cases[i].after : cases[i].text;
        if (!span_eq(got, span_str(want)))
            fail_msg("%s: \"%s\" became \"%.*s\"", cases[i].builtin, cases[i].text, SPAN_FMT(got));
        arena_reset(&a);
    }
}

static void the_budget_is_cut_on_a_character(void **state)
{
    struct rule_settings rules[] = {rig_rule("x+", RULE_REDACT, "#")};
    struct guardrail_settings s = {.enabled = true, .on_budget = BUDGET_PASS, .rules = rules, .n_rules = 1};
    char text[2000] = "{\"output_text\":\"x", *at = text + strlen(text);
    for (unsigned i = 0; i < 300; i++)
        at += sprintf(at, "\xc3\xbc");
    strcpy(at, "x\",\"content\":[\"x\"]}");
    for (unsigned limit = 1; limit < 900; limit++) {
        struct made m;
        struct json_doc d;
        struct json_fault fault;
        s.max_scan_bytes = limit;
        apply(&m, &s, RULE_POST_CALL, text);
        assert_true(json_parse(&m.a, m.body, NULL, &d, &fault)); /* whole characters */
        assert_true(m.body.n == strlen(text));
        assert_int_equal(m.r.over_budget, limit < 603);
        assert_true(m.body.p[16] == '#');
        assert_int_equal(m.body.p[m.body.n - 4], limit < 603 ? 'x' : '#');
        arena_reset(&m.a);
    }
    s.on_budget = BUDGET_BLOCK;
    s.max_scan_bytes = 10;
    struct made m;
    apply(&m, &s, RULE_POST_CALL, text);
    assert_int_equal(m.r.verdict, GUARD_BLOCKED);
    assert_string_equal(m.r.rule, "max_scan_bytes");
    arena_reset(&m.a);
}

static void many_matches_in_many_texts(void **state)
{
    struct rule_settings rules[] = {rig_builtin("email", RULE_REDACT)};
    const struct guardrail_settings s = {
        .enabled = true, .max_scan_bytes = 1 << 24, .rules = rules, .n_rules = 1};
    struct buf b, want;
    buf_init(&b, 1 << 24);
    buf_init(&want, 1 << 24);
    BUF_LIT(&b, "{\"content\":[");
    BUF_LIT(&want, "{\"content\":[");
    for (unsigned i = 0; i < 3000; i++) {
        buf_printf(&b, "%s\"a%u@b.com and c@d.org\"", i ? "," : "", i);
        buf_printf(&want, "%s\"[REDACTED:EMAIL] and [REDACTED:EMAIL]\"", i ? "," : "");
    }
    BUF_LIT(&b, "]}\0");
    BUF_LIT(&want, "]}");
    struct made m;
    apply(&m, &s, RULE_POST_CALL, b.p);
    assert_true(span_eq(m.body, buf_view(&want)));
    assert_int_equal(m.r.redacted, 6000);
    arena_reset(&m.a);
    buf_fini(&b);
    buf_fini(&want);
}

static void splices(void **state)
{
    struct arena a;
    struct splice s;
    arena_init(&a, NULL);
    splice_init(&s, &a);
    splice_add(&s, 4, 2, SPAN("XYZ"));
    splice_add(&s, 0, 1, SPAN(""));
    splice_add(&s, 4, 2, SPAN("again"));
    splice_add(&s, 8, 0, SPAN("!"));
    assert_true(span_eq(splice_apply(&s, SPAN("01234567")), SPAN("123XYZ67!")));
    arena_reset(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_requests),
        cmocka_unit_test(texts_of_replies),
        cmocka_unit_test(rules_run_in_order),
        cmocka_unit_test(anchors_are_of_each_text),
        cmocka_unit_test(builtins_find_what_they_should),
        cmocka_unit_test(the_budget_is_cut_on_a_character),
        cmocka_unit_test(many_matches_in_many_texts),
        cmocka_unit_test(splices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
