/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine is asked for each kind of body, and which questions are known to begin alike.
 */
#include "unit.h"

#include "base/mem.h"
#include "gateway/token_question.h"

struct asked {
    struct arena a;
    struct json_doc d;
    struct token_question q;
    struct buf body;
    bool ok;
};

static struct asked ask_with(enum dialect_id dialect, const char *text, const struct json_members *params)
{
    struct asked x;
    struct json_fault fault;
    arena_init(&x.a, NULL);
    buf_init(&x.body, 1 << 20);
    assert_true(json_parse(&x.a, span_str(text), NULL, &x.d, &fault));
    x.ok = token_question_read(dialect, &x.d, params, 1, &x.a, &x.q);
    if (x.ok && !x.q.given.n)
        token_question_write(&x.q, SPAN("\"up\""), &x.a, &x.body);
    return x;
}

static struct asked ask(enum dialect_id dialect, const char *text)
{
    return ask_with(dialect, text, NULL);
}

static void done(struct asked *x)
{
    arena_reset(&x->a);
    buf_fini(&x->body);
}

static void expect(enum dialect_id dialect, const char *text, const char *want)
{
    struct asked x = ask(dialect, text);
    assert_int_equal(x.ok, want != NULL);
    if (want)
        assert_true(span_eq(buf_view(&x.body), span_str(want)));
    done(&x);
}

static void bodies(void **state)
{
    expect(
        DIALECT_CHAT,
        "{\"model\":\"m\",\"temperature\":1,\"messages\":[ {\"role\":\"user\", \"content\":\"h\\u0069\"} ],"
        "\"tools\":[{\"a\":1}],\"chat_template_kwargs\":{\"thinking\":false},\"add_generation_prompt\":true}",
        "{\"model\":\"up\",\"messages\":[{\"role\":\"user\", "
        "\"content\":\"h\\u0069\"}],\"tools\":[{\"a\":1}],"
        "\"chat_template_kwargs\":{\"thinking\":false},\"add_generation_prompt\":true}");
    expect(DIALECT_CHAT,
           "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]},{\"role\":\"tool\","
           "\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]}",
           "{\"model\":\"up\",\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]},"
           "{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]}");
    expect(DIALECT_COMPLETIONS, "{\"prompt\":\"a b\",\"add_special_tokens\":false,\"tools\":[]}",
           "{\"model\":\"up\",\"prompt\":\"a b\",\"add_special_tokens\":false}");
    expect(DIALECT_COMPLETIONS, "{\"prompt\":[\"a b\"]}", "{\"model\":\"up\",\"prompt\":\"a b\"}");
    expect(
        DIALECT_MESSAGES,
        "{\"system\":[{\"type\":\"text\",\"text\":\"be \\\"terse\",\"cache_control\":{}},{\"type\":\"text\","
        "\"text\":\" "
        "now\"}],\"tools\":[{\"name\":\"x\"}],\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"yo\",\"x\":1}]}]}",
        "{\"model\":\"up\",\"messages\":[{\"role\":\"system\",\"content\":\"be \\\"terse "
        "now\"},{\"role\":\"user\","
        "\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"yo\"}]}]}");
    expect(
        DIALECT_RESPONSES, "{\"instructions\":\"be terse\",\"input\":\"hi\"}",
        "{\"model\":\"up\",\"messages\":[{\"role\":\"system\",\"content\":\"be terse\"},{\"role\":\"user\","
        "\"content\":\"hi\"}]}");
    expect(
        DIALECT_RESPONSES,
        "{\"instructions\":null,\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
        "\"hi\"}]},{\"type\":\"function_call\"}]}",
        "{\"model\":\"up\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]"
        "}]}");
}

static void what_cannot_be_asked(void **state)
{
    expect(DIALECT_CHAT, "{\"messages\":[]}", NULL);
    expect(DIALECT_CHAT, "{\"messages\":\"x\"}", NULL);
    expect(DIALECT_CHAT, "{}", NULL);
    expect(DIALECT_CHAT, "[]", NULL);
    expect(DIALECT_CHAT, "{\"messages\":[{\"content\":\"no role\"}]}", NULL);
    expect(DIALECT_CHAT, "{\"messages\":[7]}", NULL);
    expect(DIALECT_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"]}", NULL);
    expect(DIALECT_COMPLETIONS, "{\"prompt\":[]}", NULL);
    expect(DIALECT_COMPLETIONS, "{\"prompt\":[1,-2]}", NULL);
    expect(DIALECT_COMPLETIONS, "{\"prompt\":[1,4294967296]}", NULL);
    expect(DIALECT_COMPLETIONS, "{\"prompt\":7}", NULL);
    expect(DIALECT_MESSAGES,
           "{\"system\":[{\"type\":\"image\"}],\"messages\":[{\"role\":\"user\",\"content\":\"h\"}]}", NULL);
    expect(DIALECT_RESPONSES, "{\"input\":[{\"type\":\"function_call\"}]}", NULL);
    expect(DIALECT_EMBEDDINGS, "{\"input\":\"x\"}", NULL);
    expect(DIALECT_RERANK, "{\"query\":\"x\"}", NULL);
}

static void ids_in_the_body(void **state)
{
    static const char *const texts[] = {"{\"prompt\":[1,2,4294967295]}", "{\"prompt\":[[1,2,4294967295]]}"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct asked x = ask(DIALECT_COMPLETIONS, texts[i]);
        assert_true(x.ok && x.q.given.n == 3);
        assert_int_equal(x.q.given.id[2], UINT32_MAX);
        done(&x);
    }
}

static void media_end_the_question(void **state)
{
    const char *text =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"},{\"role\":\"user\",\"content\":[{\"type\":"
        "\"text\",\"text\":\"two\"},{\"type\":\"image_url\",\"image_url\":{}}]},{\"role\":\"user\","
        "\"content\":\"three\"}]}";
    struct asked x = ask(DIALECT_CHAT, text),
                 y = ask(DIALECT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":"
                                       "\"one\"}]}");
    assert_true(x.ok && x.q.n == 1 && x.q.key == y.q.key);
    assert_true(span_eq(buf_view(&x.body), buf_view(&y.body)));
    done(&x);
    done(&y);
    expect(DIALECT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", NULL);
}

/* A conversation of <n> messages. */
static char *conversation(unsigned n, const char *more)
{
    char *text = mem_printf("{%s\"messages\":[", more);
    for (unsigned i = 0; i < n; i++) {
        char *next = mem_printf("%s%s{\"role\":\"user\",\"content\":\"turn %u\"}", text, i ? "," : "", i);
        free(text);
        text = next;
    }
    char *all = mem_printf("%s]}", text);
    free(text);
    return all;
}

static struct asked ask_turns(unsigned n, const char *more)
{
    char *text = conversation(n, more);
    struct asked x = ask(DIALECT_CHAT, text); /* its slices are not looked at any more */
    free(text);
    return x;
}

static void beginnings(void **state)
{
    struct asked turn[100];
    for (unsigned n = 1; n < 100; n++)
        turn[n] = ask_turns(n, "");
    for (unsigned n = 1; n < 100; n++) {
        const struct token_question *q = &turn[n].q;
        assert_int_equal(q->n_beginnings, n - 1 < TOKEN_BEGINNINGS_MAX ? n - 1 : TOKEN_BEGINNINGS_MAX);
        for (unsigned k = 0; k < q->n_beginnings; k++) {
            assert_int_equal(q->beginning[k].key, turn[n - 1 - k].q.key);
            assert_int_equal(q->beginning[k].bytes, turn[n - 1 - k].q.bytes);
        }
        for (unsigned k = 1; k < n; k++)
            assert_int_not_equal(q->key, turn[k].q.key);
    }
    /* What the template reads parts conversations; what it does not read does not. */
    static const char *const apart[] = {"\"tools\":[1],", "\"tools\":[2],",
                                        "\"add_generation_prompt\":false,", "\"chat_template\":\"x\","};
    uint64_t keys[ARRAY_LEN(apart)];
    for (size_t i = 0; i < ARRAY_LEN(apart); i++) {
        struct asked x = ask_turns(5, apart[i]);
        keys[i] = x.q.key;
        assert_int_not_equal(x.q.key, turn[5].q.key);
        assert_int_not_equal(x.q.beginning[0].key, turn[4].q.key);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(keys[k], keys[i]);
        done(&x);
    }
    struct asked same = ask_turns(5, "\"temperature\":0.5,\"max_tokens\":7,");
    assert_int_equal(same.q.key, turn[5].q.key);
    done(&same);
    for (unsigned n = 1; n < 100; n++)
        done(&turn[n]);
}

static void params_of_the_route(void **state)
{
    struct json_member item = {SPAN("chat_template_kwargs"), SPAN("{\"thinking\":false}")};
    const struct json_members params = {&item, 1};
    const char *plain = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    struct asked x = ask_with(DIALECT_CHAT, plain, &params), y = ask(DIALECT_CHAT, plain);
    assert_true(span_find(buf_view(&x.body), SPAN("\"chat_template_kwargs\":{\"thinking\":false}")) > 0);
    assert_int_not_equal(x.q.key, y.q.key);
    done(&x);
    done(&y);
}

static void answers(void **state)
{
    struct arena a;
    struct token_ids ids = {0};
    arena_init(&a, NULL);
    assert_true(token_answer_read(SPAN("{\"count\":3,\"max_model_len\":9,\"tokens\":[1,2,4294967295],"
                                       "\"token_strs\":null}"),
                                  &a, &ids));
    assert_true(ids.n == 3 && ids.id[0] == 1 && ids.id[2] == UINT32_MAX);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"tokens\":[]}",
                                      "{\"tokens\":[-1]}",
                                      "{\"tokens\":[1.5]}",
                                      "{\"tokens\":[\"1\"]}",
                                      "{\"tokens\":[4294967296]}",
                                      "{\"tokens\":{}}",
                                      "{\"tokens\":[1]",
                                      "{\"count\":1}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(token_answer_read(span_str(bad[i]), &a, &ids));
    assert_int_equal(ids.n, 3);
    arena_reset(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies),          cmocka_unit_test(what_cannot_be_asked),
        cmocka_unit_test(ids_in_the_body), cmocka_unit_test(media_end_the_question),
        cmocka_unit_test(beginnings),      cmocka_unit_test(params_of_the_route),
        cmocka_unit_test(answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
