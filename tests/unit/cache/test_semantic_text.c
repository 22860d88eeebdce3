/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/mem.h"
#include "cache/semantic_text.h"

struct fixture {
    struct arena arena;
    struct json_doc doc;
};

static const char *read_text(struct fixture *f, enum dialect_id id, struct span body, struct span *ret)
{
    struct json_fault fault;
    arena_init(&f->arena, NULL);
    if (!json_parse(&f->arena, body, NULL, &f->doc, &fault))
        fail_msg("%s in %.*s", fault.what, SPAN_FMT(body));
    return semantic_text(id, &f->doc, &f->arena, ret);
}

static void expect_text(enum dialect_id id, const char *body, const char *text)
{
    struct fixture f;
    struct span got = SPAN_NONE;
    const char *why = read_text(&f, id, span_str(body), &got);
    if (why)
        fail_msg("%s: %s", why, body);
    if (!span_eq(got, span_str(text)))
        fail_msg("\"%.*s\" instead of \"%s\"", SPAN_FMT(got), text);
    arena_reset(&f.arena);
}

static void expect_bypass(enum dialect_id id, const char *body, const char *reason)
{
    struct fixture f;
    struct span got = SPAN("untouched");
    const char *why = read_text(&f, id, span_str(body), &got);
    if (!why || strcmp(why, reason) != 0)
        fail_msg("%s instead of %s: %s", why ? why : "accepted", reason, body);
    assert_true(span_eq(got, SPAN("untouched")));
    arena_reset(&f.arena);
}

static void text_is_roles_names_and_words(void **state)
{
    (void)state;
    expect_text(DIALECT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}", "user hello");
    expect_text(DIALECT_CHAT,
                "{\"messages\":[{\"role\":\"user\",\"name\":\"ann  b\",\"content\":\"  a \\t\\n b\"},"
                "{\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"text\":\" y z \",\"type\":\"text\"}],"
                "\"role\":\"assistant\"},{\"role\":\"user\",\"content\":\"c\"}]}",
                "user ann b a b assistant x y z user c");
    /* A word does not grow together over the edge of a part. */
    expect_text(
        DIALECT_MESSAGES,
        "{\"system\":\"S\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"car\",\"cache_control\":{\"type\":\"ephemeral\"}},{\"type\":\"text\",\"text\":\"pet\"}]}]}",
        "user car pet");
    expect_text(DIALECT_COMPLETIONS, "{\"prompt\":\" once  upon\\u00a0a \\u3000 time\",\"n\":3}",
                "once upon a time");
    expect_text(DIALECT_CHAT,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9\\ud83d\\ude00\\u2028\\u200bz\"}]}",
                "user \xc3\xa9\xf0\x9f\x98\x80 \xe2\x80\x8bz"); /* U+200B is no white space */
    expect_text(DIALECT_CHAT,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":null,\"refusal\":null}]}",
                "user a");
}

static void instructions_are_not_text(void **state)
{
    (void)state;
    expect_text(
        DIALECT_CHAT,
        "{\"messages\":[{\"role\":\"system\",\"content\":\"German\"},{\"role\":\"user\",\"content\":\"a\"},"
        "{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}]}]}",
        "user a");
    expect_text(
        DIALECT_MESSAGES,
        "{\"system\":[{\"type\":\"text\",\"text\":\"German\"}],\"messages\":[{\"role\":\"user\",\"content\":"
        "\"a\"}]}",
        "user a");
}

static void white_space_folds(void **state)
{
    (void)state;
    static const char *const spaces[] = {" ",       "\\t",     "\\n",     "\\u000b", "\\f",     "\\r",
                                         "\\u0085", "\\u00a0", "\\u1680", "\\u2000", "\\u200a", "\\u2028",
                                         "\\u2029", "\\u202f", "\\u205f", "\\u3000"};
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++) {
        char body[200];
        snprintf(body, sizeof(body), "{\"prompt\":\"%sa%s %sb%s\"}", spaces[i], spaces[i], spaces[i],
                 spaces[i]);
        expect_text(DIALECT_COMPLETIONS, body, "a b");
    }
    /* Raw, and so cut by the reader wherever it likes. */
    expect_text(DIALECT_COMPLETIONS,
                "{\"prompt\":\"\xe3\x80\x80 a\xe2\x80\xa8\\n\xc2\xa0\xe1\x9a\x80 b\xc3\xa9\"}",
                "a b\xc3\xa9");
}

static void what_text_does_not_hold_bypasses(void **state)
{
    (void)state;
#define USER "{\"role\":\"user\",\"content\":\"a\"}"
    /* path and root */
    for (int id = DIALECT_RESPONSES; id <= DIALECT_RERANK; id++)
        expect_bypass((enum dialect_id)id, "{\"input\":\"a\",\"messages\":[" USER "]}", "dialect");
    expect_bypass(DIALECT_CHAT, "[" USER "]", "shape");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[" USER "],\"messages\":[" USER "]}", "odd");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}", "odd");
    /* conversation */
    expect_bypass(DIALECT_CHAT, "{}", "shape");
    expect_bypass(DIALECT_CHAT, "{\"messages\":" USER "}", "shape");
    expect_bypass(DIALECT_CHAT, "{\"messages\":null}", "shape");
    expect_bypass(DIALECT_COMPLETIONS, "{}", "shape");
    expect_bypass(DIALECT_COMPLETIONS, "{\"prompt\":[\"a\"]}", "shape");
    expect_bypass(DIALECT_COMPLETIONS, "{\"prompt\":[1,2]}", "shape");
    /* turns */
    expect_bypass(DIALECT_CHAT, "{\"messages\":[\"a\"]}", "shape");
    static const char *const members[] = {"audio",         "refusal", "reasoning_content",
                                          "cache_control", "prefix",  "anything"};
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        char *body = mem_printf(
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"b\",\"%s\":{}}," USER "]}", members[i]);
        expect_bypass(DIALECT_CHAT, body, "member");
        MEM_FREE(body);
    }
    static const char *const traffic[] = {"tool_calls", "tool_call_id", "function_call"};
    for (size_t i = 0; i < ARRAY_LEN(traffic); i++) {
        char *body = mem_printf(
            "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"b\",\"%s\":[]}]}", traffic[i]);
        expect_bypass(DIALECT_CHAT, body, "tools");
        MEM_FREE(body);
    }
    expect_bypass(DIALECT_CHAT, "{\"messages\":[" USER ",{\"role\":\"tool\",\"content\":\"b\"}]}", "tools");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[" USER ",{\"role\":\"function\",\"content\":\"b\"}]}",
                  "tools");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"content\":\"a\"}]}", "role");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":7,\"content\":\"a\"}]}", "role");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":\"User\",\"content\":\"a\"}]}", "role");
    expect_bypass(DIALECT_MESSAGES, "{\"messages\":[{\"role\":\"system\",\"content\":\"a\"}," USER "]}",
                  "role");
    expect_bypass(DIALECT_MESSAGES, "{\"messages\":[{\"role\":\"developer\",\"content\":\"a\"}," USER "]}",
                  "role");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":1}]}", "name");
    /* content */
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "shape");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":null}]}", "shape");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":{}}]}", "shape");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":\"system\",\"content\":null}," USER "]}", "shape");
    static const char *const parts[] = {
        "\"a\"",
        "{\"type\":\"image_url\",\"image_url\":{\"url\":\"u\"}}",
        "{\"type\":\"image\",\"source\":{}}",
        "{\"type\":\"input_audio\",\"input_audio\":{}}",
        "{\"type\":\"document\",\"source\":{}}",
        "{\"type\":\"tool_result\",\"content\":\"x\"}",
        "{\"type\":\"thinking\",\"thinking\":\"x\"}",
        "{\"text\":\"x\"}",
        "{\"type\":\"text\"}",
        "{\"type\":\"text\",\"text\":null}",
        "{\"type\":\"text\",\"text\":\"x\",\"citations\":[]}",
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        char *body = mem_printf(
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},%s]}]}",
            parts[i]);
        expect_bypass(DIALECT_CHAT, body, "part");
        expect_bypass(DIALECT_MESSAGES, body, "part");
        MEM_FREE(body);
    }
    /* Anthropic's system */
    expect_bypass(DIALECT_MESSAGES, "{\"system\":7,\"messages\":[" USER "]}", "system");
    expect_bypass(DIALECT_MESSAGES, "{\"system\":[{\"type\":\"image\"}],\"messages\":[" USER "]}", "system");
    /* the end */
    expect_bypass(DIALECT_CHAT, "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"b\"}]}",
                  "prefill");
    expect_bypass(DIALECT_MESSAGES, "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"b\"}]}",
                  "prefill");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[]}", "empty");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\" \\n \"}]}", "empty");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "empty");
    expect_bypass(DIALECT_CHAT, "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}]}", "empty");
    expect_bypass(DIALECT_COMPLETIONS, "{\"prompt\":\" \"}", "empty");
#undef USER
}

static void what_splits_does_not_bypass(void **state)
{
    (void)state;
    expect_text(DIALECT_CHAT,
                "{\"n\":2,\"temperature\":1.5,\"tools\":[{\"type\":\"function\"}],\"tool_choice\":\"auto\","
                "\"response_format\":{\"type\":\"json_object\"},\"logprobs\":true,\"stream\":true,"
                "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
                "user a");
}

static void very_long_text_bypasses(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct buf b;
        buf_init(&b, SIZE_MAX);
        buf_add_str(&b, "{\"prompt\":\"");
        for (int i = 0; i < SEMANTIC_TEXT_MAX + more; i++)
            buf_add_char(&b, 'x');
        buf_add_str(&b, "\"}");
        struct fixture f;
        struct span got = SPAN_NONE;
        const char *why = read_text(&f, DIALECT_COMPLETIONS, buf_view(&b), &got);
        assert_true(more ? why && strcmp(why, "too_long") == 0 : !why && got.n == SEMANTIC_TEXT_MAX);
        arena_reset(&f.arena);
        buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_roles_names_and_words),
        cmocka_unit_test(instructions_are_not_text),
        cmocka_unit_test(white_space_folds),
        cmocka_unit_test(what_text_does_not_hold_bypasses),
        cmocka_unit_test(what_splits_does_not_bypass),
        cmocka_unit_test(very_long_text_bypasses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
