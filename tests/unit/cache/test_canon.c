/* SPDX-License-Identifier: Apache-2.0
 *
 * Which bodies are the same request: by hand, pair by pair.
 */
#include "unit.h"

#include "cache/key_unit.h"

struct pair {
    enum dialect_id dialect;
    const char *a, *b;
};

#define CHAT(x) "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]" x "}"
#define TURN(x) "{\"model\":\"m\",\"messages\":[" x "]}"
#define RESP(x) "{\"model\":\"m\",\"store\":false,\"input\":" x "}"

static const struct pair equal[] = {
    /* JSON */
    {DIALECT_CHAT, CHAT(""),
     " {\n\"model\" : \"m\" ,\t\"messages\":[ {\"role\":\"user\",\r\n\"content\":\"q\"} ] } "},
    {DIALECT_CHAT, CHAT(""), "{\"messages\":[{\"content\":\"q\",\"role\":\"user\"}],\"model\":\"m\"}"},
    {DIALECT_CHAT, CHAT(""),
     "{\"mod\\u0065l\":\"m\",\"messages\":[{\"role\":\"\\u0075ser\",\"content\":\"\\u0071\"}]}"},
    {DIALECT_CHAT, CHAT(",\"x\":\"a/b\""), CHAT(",\"x\":\"a\\/b\"")},
    {DIALECT_CHAT, CHAT(",\"x\":\"é😀\""), CHAT(",\"x\":\"\\u00e9\\uD83D\\uDE00\"")},
    {DIALECT_CHAT, CHAT(",\"x\":\"\\t\\u0000\""), CHAT(",\"x\":\"\\u0009\\u0000\"")},
    /* numbers */
    {DIALECT_CHAT, CHAT(",\"x\":1"), CHAT(",\"x\":1.0")},
    {DIALECT_CHAT, CHAT(",\"x\":1"), CHAT(",\"x\":1e0")},
    {DIALECT_CHAT, CHAT(",\"x\":1"), CHAT(",\"x\":10e-1")},
    {DIALECT_CHAT, CHAT(",\"x\":1"), CHAT(",\"x\":0.001E+3")},
    {DIALECT_CHAT, CHAT(",\"x\":0"), CHAT(",\"x\":-0")},
    {DIALECT_CHAT, CHAT(",\"x\":0"), CHAT(",\"x\":0.000e99")},
    {DIALECT_CHAT, CHAT(",\"x\":0"), CHAT(",\"x\":-0e-99999999999999999999999")},
    {DIALECT_CHAT, CHAT(",\"x\":0.7"), CHAT(",\"x\":0.70")},
    {DIALECT_CHAT, CHAT(",\"x\":0.7"), CHAT(",\"x\":7e-1")},
    {DIALECT_CHAT, CHAT(",\"x\":1000"), CHAT(",\"x\":1e3")},
    {DIALECT_CHAT, CHAT(",\"x\":-120.50"), CHAT(",\"x\":-1.205e+02")},
    {DIALECT_CHAT, CHAT(",\"x\":9007199254740993"), CHAT(",\"x\":9007199254740993.000")},
    {DIALECT_CHAT, CHAT(",\"x\":1e400"), CHAT(",\"x\":10e399")},
    {DIALECT_CHAT, CHAT(",\"x\":1e0000000000000000000000000000000000002"), CHAT(",\"x\":100")},
    /* what does not change the reply */
    {DIALECT_CHAT, CHAT(""), CHAT(",\"stream\":false")},
    {DIALECT_CHAT, CHAT(""), CHAT(",\"user\":\"u\"")},
    {DIALECT_CHAT, CHAT(",\"user\":\"u\""), CHAT(",\"user\":{\"id\":[1]}")},
    {DIALECT_CHAT, CHAT(""), CHAT(",\"metadata\":{\"a\":1}")},
    {DIALECT_CHAT, CHAT(""), CHAT(",\"safety_identifier\":\"s\"")},
    {DIALECT_CHAT, CHAT(""), CHAT(",\"prompt_cache_key\":\"s\"")},
    {DIALECT_CHAT, CHAT(""), CHAT(",\"m\\u0065tadata\":{}")},
    /* nulls of fixed members */
    {DIALECT_CHAT, CHAT(""), CHAT(",\"temperature\":null")},
    {DIALECT_CHAT, CHAT(""), CHAT(",\"stream\":null")},
    {DIALECT_CHAT, CHAT(""), CHAT(",\"stop\":null")},
    {DIALECT_CHAT, CHAT(""), CHAT(",\"unknown\":null")},
    {DIALECT_CHAT, CHAT(""), TURN("{\"role\":\"user\",\"content\":\"q\",\"name\":null}")},
    {DIALECT_CHAT, TURN("{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]}"),
     TURN("{\"role\":\"assistant\",\"tool_calls\":[]}")},
    {DIALECT_CHAT, CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"),
     CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":null,\"description\":"
          "null}}]")},
    {DIALECT_CHAT, CHAT(",\"stream_options\":{}"),
     CHAT(",\"stream_options\":{\"include_obfuscation\":null}")},
    {DIALECT_CHAT, CHAT(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}"),
     CHAT(
         ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":null}}")},
    {DIALECT_RESPONSES, RESP("\"q\""), RESP("\"q\",\"previous_response_id\":null")},
    /* strings and single text parts */
    {DIALECT_CHAT, CHAT(""), TURN("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"q\"}]}")},
    {DIALECT_CHAT, CHAT(""),
     TURN("{\"role\":\"user\",\"content\":[{\"text\":\"\\u0071\",\"type\":\"text\"}]}")},
    {DIALECT_CHAT, CHAT(""),
     TURN("{\"role\":\"user\",\"content\":[{\"text\":\"q\",\"type\":\"text\",\"cache_control\":null}]}")},
    {DIALECT_MESSAGES, CHAT(""),
     TURN("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"q\"}]}")},
    {DIALECT_MESSAGES, CHAT(",\"system\":\"s\""), CHAT(",\"system\":[{\"type\":\"text\",\"text\":\"s\"}]")},
    {DIALECT_RESPONSES, RESP("[{\"role\":\"user\",\"content\":\"q\"}]"),
     RESP("[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"q\"}]}]")},
    /* stop */
    {DIALECT_CHAT, CHAT(",\"stop\":\"x\""), CHAT(",\"stop\":[\"x\"]")},
    {DIALECT_COMPLETIONS, "{\"prompt\":\"p\",\"stop\":\"\\n\"}", "{\"prompt\":\"p\",\"stop\":[\"\\u000a\"]}"},
};

static const struct pair different[] = {
    /* numbers: by value, and nothing but the value */
    {DIALECT_CHAT, CHAT(",\"x\":1"), CHAT(",\"x\":\"1\"")},
    {DIALECT_CHAT, CHAT(",\"x\":1"), CHAT(",\"x\":true")},
    {DIALECT_CHAT, CHAT(",\"x\":0"), CHAT(",\"x\":false")},
    {DIALECT_CHAT, CHAT(",\"x\":1"), CHAT(",\"x\":-1")},
    {DIALECT_CHAT, CHAT(",\"x\":12"), CHAT(",\"x\":1.2")},
    {DIALECT_CHAT, CHAT(",\"x\":12"), CHAT(",\"x\":120")},
    {DIALECT_CHAT, CHAT(",\"x\":0.1"), CHAT(",\"x\":0.1000000000000000055511151231257827")},
    {DIALECT_CHAT, CHAT(",\"x\":9007199254740992"), CHAT(",\"x\":9007199254740993")},
    {DIALECT_CHAT, CHAT(",\"x\":1e400"), CHAT(",\"x\":1e401")},
    {DIALECT_CHAT, CHAT(",\"x\":1e-400"), CHAT(",\"x\":0")},
    {DIALECT_CHAT, CHAT(",\"x\":1e99999999999999999999"), CHAT(",\"x\":1e99999999999999999998")},
    {DIALECT_CHAT, CHAT(",\"x\":1e99999999999999999999"), CHAT(",\"x\":1e-99999999999999999999")},
    {DIALECT_CHAT, CHAT(",\"x\":[1,2]"), CHAT(",\"x\":[12]")},
    {DIALECT_CHAT, CHAT(",\"x\":[1,2]"), CHAT(",\"x\":[2,1]")},
    {DIALECT_CHAT, CHAT(",\"x\":[1,[2]]"), CHAT(",\"x\":[[1],2]")},
    {DIALECT_CHAT, CHAT(",\"x\":[]"), CHAT(",\"x\":{}")},
    {DIALECT_CHAT, CHAT(",\"x\":[]"), CHAT(",\"x\":[[]]")},
    {DIALECT_CHAT, CHAT(",\"x\":[null]"), CHAT(",\"x\":[]")},
    /* texts: as they are */
    {DIALECT_CHAT, CHAT(",\"x\":\"mW\""), CHAT(",\"x\":\"MW\"")},
    {DIALECT_CHAT, CHAT(",\"x\":\" a\""), CHAT(",\"x\":\"a\"")},
    {DIALECT_CHAT, CHAT(",\"x\":\"\\u00e9\""), CHAT(",\"x\":\"e\\u0301\"")},
    {DIALECT_CHAT, CHAT(",\"x\":\"a\\u0000b\""), CHAT(",\"x\":\"ab\"")},
    {DIALECT_CHAT, CHAT(",\"x\":\"a\\\\nb\""), CHAT(",\"x\":\"a\\nb\"")},
    {DIALECT_CHAT, CHAT(",\"x\":\"\""), CHAT(",\"x\":null")},
    /* boundaries */
    {DIALECT_CHAT, CHAT(",\"x\":[\"a-b\",\"c\"]"), CHAT(",\"x\":[\"a\",\"b-c\"]")},
    {DIALECT_CHAT, CHAT(",\"x\":[\"ab\"]"), CHAT(",\"x\":[\"a\",\"b\"]")},
    {DIALECT_CHAT, CHAT(",\"x\":{\"a\":\"b\"}"), CHAT(",\"x\":{\"ab\":\"\"}")},
    {DIALECT_CHAT, CHAT(",\"x\":{\"a\":\"sb\"}"), CHAT(",\"x\":{\"as\":\"b\"}")},
    {DIALECT_CHAT, CHAT(",\"x\":\"#1e0;\""), CHAT(",\"x\":1")},
    {DIALECT_CHAT, CHAT(",\"x\":{\"a\":{},\"b\":1}"), CHAT(",\"x\":{\"a\":{\"b\":1}}")},
    /* nulls that say something */
    {DIALECT_CHAT, CHAT(",\"x\":{\"const\":null}"), CHAT(",\"x\":{}")},
    {DIALECT_CHAT,
     CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"const\":null}}}"
          "]"),
     CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]")},
    {DIALECT_MESSAGES, CHAT(",\"tools\":[{\"name\":\"f\",\"input_schema\":{\"default\":null}}]"),
     CHAT(",\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]")},
    {DIALECT_MESSAGES,
     TURN("{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"input\":{\"a\":null}}]}"),
     TURN("{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"input\":{}}]}")},
    {DIALECT_CHAT, CHAT(",\"response_format\":{\"json_schema\":{\"schema\":{\"default\":null}}}"),
     CHAT(",\"response_format\":{\"json_schema\":{\"schema\":{}}}")},
    /* members that look like those of the list */
    {DIALECT_CHAT, CHAT(",\"stream\":true"), CHAT("")},
    {DIALECT_CHAT, CHAT(",\"stream\":0"), CHAT("")},
    {DIALECT_CHAT, CHAT(",\"store\":false"), CHAT("")},
    {DIALECT_CHAT, CHAT(",\"service_tier\":\"auto\""), CHAT("")},
    {DIALECT_CHAT, CHAT(",\"users\":\"u\""), CHAT("")},
    {DIALECT_CHAT, CHAT(",\"x\":{\"user\":\"u\"}"), CHAT(",\"x\":{}")},
    {DIALECT_CHAT, TURN("{\"role\":\"user\",\"content\":\"q\",\"metadata\":{}}"), CHAT("")},
    {DIALECT_CHAT, CHAT(",\"x\":{\"stream\":false}"), CHAT(",\"x\":{}")},
    {DIALECT_CHAT, CHAT(",\"prompt_cache_retention\":\"24h\""), CHAT("")},
    {DIALECT_CHAT, CHAT(",\"max_tokens\":5"), CHAT(",\"max_completion_tokens\":5")},
    {DIALECT_CHAT, CHAT(",\"temperature\":1"), CHAT("")},
    {DIALECT_CHAT, CHAT(",\"n\":1"), CHAT("")},
    {DIALECT_CHAT, CHAT(",\"tool_choice\":\"auto\""), CHAT("")},
    {DIALECT_CHAT, CHAT(",\"reasoning_effort\":\"low\""), CHAT(",\"reasoning_effort\":\"high\"")},
    {DIALECT_CHAT, CHAT(",\"stream\":true,\"stream_options\":{\"include_usage\":true}"),
     CHAT(",\"stream\":true")},
    /* turns */
    {DIALECT_CHAT, TURN("{\"role\":\"system\",\"content\":\"q\"}"),
     TURN("{\"role\":\"developer\",\"content\":\"q\"}")},
    {DIALECT_CHAT, TURN("{\"role\":\"user\",\"content\":\"ab\"}"),
     TURN("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":"
          "\"b\"}]}")},
    {DIALECT_CHAT, TURN("{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}"),
     TURN("{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"user\",\"content\":\"a\"}")},
    {DIALECT_CHAT, TURN("{\"role\":\"user\",\"content\":\"\"}"),
     TURN("{\"role\":\"user\",\"content\":null}")},
    {DIALECT_CHAT, TURN("{\"role\":\"user\",\"content\":\"a\"}"),
     TURN("{\"role\":\"user\",\"content\":[\"a\"]}")},
    {DIALECT_CHAT, TURN("{\"role\":\"user\",\"content\":\"a\"}"),
     TURN("{\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"text\":\"a\"}]}")},
    {DIALECT_CHAT, TURN("{\"role\":\"user\",\"content\":\"a\"}"),
     TURN("{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}")},
    {DIALECT_CHAT, TURN("{\"role\":\"user\",\"content\":\"a\",\"name\":\"x\"}"),
     TURN("{\"role\":\"user\",\"content\":\"a\"}")},
    {DIALECT_CHAT, TURN("{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"a\"}"),
     TURN("{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"a\"}")},
    {DIALECT_MESSAGES, CHAT(",\"system\":\"s\""),
     CHAT(",\"system\":[{\"type\":\"text\",\"text\":\"s\",\"cache_control\":{\"type\":\"ephemeral\"}}]")},
    {DIALECT_CHAT, CHAT(",\"system\":\"s\""), CHAT(",\"system\":[{\"type\":\"text\",\"text\":\"s\"}]")},
    {DIALECT_RESPONSES, RESP("[{\"role\":\"assistant\",\"content\":\"q\"}]"),
     RESP("[{\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"q\"}]}]")},
    {DIALECT_RESPONSES, RESP("\"q\""), RESP("[{\"role\":\"user\",\"content\":\"q\"}]")},
    {DIALECT_MESSAGES, CHAT(",\"stop_sequences\":[\"x\"]"), CHAT(",\"stop\":[\"x\"]")},
    {DIALECT_MESSAGES, CHAT(",\"stop\":\"x\""), CHAT(",\"stop\":[\"x\"]")},
    {DIALECT_CHAT, CHAT(",\"stop\":[\"x\"]"), CHAT(",\"stop\":[\"x\",\"x\"]")},
    {DIALECT_CHAT, CHAT(",\"stop\":[\"x\"]"), CHAT(",\"stop\":[[\"x\"]]")},
    {DIALECT_EMBEDDINGS, "{\"input\":\"a\"}", "{\"input\":[\"a\"]}"},
    {DIALECT_EMBEDDINGS, "{\"input\":\"a\"}", "{\"input\":\"a\",\"dimensions\":3}"},
    {DIALECT_EMBEDDINGS, "{\"input\":\"a\"}", "{\"input\":\"a\",\"encoding_format\":\"base64\"}"},
    {DIALECT_COMPLETIONS, "{\"prompt\":[1,2]}", "{\"prompt\":[[1,2]]}"},
};

static void pairs_equal(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(equal); i++)
        if (!same_key(equal[i].dialect, span_str(equal[i].a), span_str(equal[i].b)))
            fail_msg("not the same: %s and %s", equal[i].a, equal[i].b);
}

static void pairs_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(different); i++)
        if (same_key(different[i].dialect, span_str(different[i].a), span_str(different[i].b)))
            fail_msg("the same: %s and %s", different[i].a, different[i].b);
}

static const char *refusal(const char *text)
{
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    const struct json_limits limits = {.any_bytes = true};
    arena_init(&a, NULL);
    assert_true(json_parse(&a, span_str(text), &limits, &d, &fault));
    const char *why = canon_refuses(&d);
    arena_reset(&a);
    return why;
}

static void refusals(void **state)
{
    (void)state;
    assert_null(refusal("{}"));
    assert_string_equal(refusal("[]"), "not_an_object");
    assert_string_equal(refusal("{\"a\":1,\"a\":1}"), "duplicate_member");
    assert_string_equal(refusal("{\"x\":[{\"a\":1,\"\\u0061\":2}]}"), "duplicate_member");
    assert_string_equal(refusal("{\"a\":\"\\ud800\"}"), "lone_surrogate");
    assert_string_equal(refusal("{\"a\":\"\xff\"}"), "invalid_utf8");
    assert_string_equal(refusal("{\"a\xc3\":1}"), "invalid_utf8");
    assert_string_equal(refusal("{\"\\udc00\":1}"), "lone_surrogate");
    struct buf b;
    buf_init(&b, 1 << 20);
    for (unsigned most = 4095; most <= 4097; most++) {
        buf_clear(&b);
        BUF_LIT(&b, "{\"x\":{");
        for (unsigned i = 0; i < most; i++)
            buf_printf(&b, "%s\"m%u\":%u", i ? "," : "", most - i, i);
        buf_add(&b, "}}", 3);
        if (most <= 4096)
            assert_null(refusal(b.p));
        else
            assert_string_equal(refusal(b.p), "too_many_members");
    }
    buf_fini(&b);
}

/* Every order of members gives one key, with few of them and with many, with escapes in the names or not. */
static void many_members(void **state)
{
    (void)state;
    struct buf a, b;
    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    for (unsigned n = 1; n < 400; n += 1 + n / 4) {
        buf_clear(&a);
        buf_clear(&b);
        for (unsigned i = 0; i < n; i++) {
            unsigned k = n - 1 - i;
            buf_printf(&a, "%c\"member %u\":%u", i ? ',' : '{', i, i);
            buf_printf(&b, k % 3 ? "%c\"member %u\":%u" : "%c\"m\\u0065mber %u\":%u", i ? ',' : '{', k, k);
        }
        buf_add_char(&a, '}');
        buf_add_char(&b, '}');
        assert_true(same_key(DIALECT_CHAT, buf_view(&a), buf_view(&b)));
    }
    buf_fini(&a);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_equal),
        cmocka_unit_test(pairs_differ),
        cmocka_unit_test(refusals),
        cmocka_unit_test(many_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
