/* SPDX-License-Identifier: Apache-2.0
 *
 * Every shape of a conversation, and the worked cases of the prompt rules.
 */
#include "unit.h"

#include "base/buf.h"
#include "base/check.h"
#include "dialect/dialect.h"

static struct arena arena;

static int fresh(void **state)
{
    (void)state;
    arena_init(&arena, NULL);
    return 0;
}

static int gone(void **state)
{
    (void)state;
    arena_reset(&arena);
    return 0;
}

static struct prompt_context read_span(enum dialect_id id, struct span body)
{
    struct json_doc d;
    struct json_fault fault;
    struct prompt_context c;
    if (!json_parse(&arena, body, NULL, &d, &fault))
        fail_msg("%s at %zu in %.*s", fault.what, fault.at, (int)(body.n < 200 ? body.n : 200), body.p);
    dialect_prompt(id, &d, &arena, &c);
    return c;
}

static struct prompt_context read_body(enum dialect_id id, const char *body)
{
    return read_span(id, span_str(body));
}

/* One shape: its text, what else counts to the length, and the bytes that the digest covers. */
struct shape {
    enum dialect_id id;
    const char *body, *text;
    size_t more;        /* measured bytes that are not text */
    const char *hashed; /* NULL: the text */
};

static const struct shape shapes[] = {
    /* chat */
    {DIALECT_CHAT,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\","
     "\"content\":\"Hi\"}]}",
     "system: Be brief.\nuser: Hi\n", 0, NULL},
    {DIALECT_CHAT, "{\"messages\":[{\"content\":\"Hi\",\"role\":\"developer\"}],\"model\":\"m\"}",
     "developer: Hi\n", 0, NULL},
    {DIALECT_CHAT, "{\"messages\":[{\"content\":\"Hi\"},\"there\",{\"role\":7,\"content\":\"x\"}]}",
     "item: Hi\nitem: there\nitem: x\n", 0, NULL},
    {DIALECT_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\\u00e9\"},\"b\",{"
     "\"type\":"
     "\"refusal\",\"refusal\":\"c\"}]}]}",
     "user: a\xc3\xa9"
     "bc\n",
     0, NULL},
    {DIALECT_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"see\"},{\"type\":\"image_"
     "url\","
     "\"image_url\": {\"url\":\"data:image/png;base64,AAAA\"}}]}]}",
     "user: see\n", 0,
     "user: see{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,AAAA\"}}\n"},
    {DIALECT_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":{\"data\":"
     "\"AA\","
     "\"format\":\"wav\"}},{\"type\":\"file\",\"file\":{\"file_id\":\"f1\"}}]}]}",
     "user: \n", 0,
     "user: "
     "{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"AA\",\"format\":\"wav\"}}{\"type\":\"file\","
     "\"file\":{\"file_id\":\"f1\"}}\n"},
    {DIALECT_CHAT,
     "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call_1\",\"type\":"
     "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}},{\"id\":\"c2\",\"type\":"
     "\"custom\","
     "\"custom\":{\"name\":\"g\",\"input\":\"raw\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_1\","
     "\"content\":"
     "\"42\"}]}",
     "assistant: \ntool: 42\n", 1 + 7 + 1 + 3, "assistant: \nf{\"a\":1}grawtool: 42\n"},
    {DIALECT_CHAT,
     "{\"messages\":[{\"role\":\"assistant\",\"content\":\"ok\",\"tool_calls\":[{\"function\":{\"name\":"
     "\"f\","
     "\"arguments\":{\"a\": [1, 2]}}}]}]}",
     "assistant: ok\n", 1 + 11, "assistant: ok\nf{\"a\":[1,2]}"},
    {DIALECT_CHAT,
     "{\"messages\":[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}},{"
     "\"role\":"
     "\"function\",\"name\":\"f\",\"content\":\"r\"}]}",
     "assistant: \nfunction: r\n", 3, "assistant: \nf{}function: r\n"},
    {DIALECT_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"x\": 1}]}]}", "assistant: \n",
     7, "assistant: \n{\"x\":1}"},
    {DIALECT_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"audio\":{\"id\":\"a\"}}]}",
     "assistant: \n", 0, "assistant: {\"role\":\"assistant\",\"content\":null,\"audio\":{\"id\":\"a\"}}\n"},
    {DIALECT_CHAT, "{\"messages\":[{\"\\u0072ole\":\"us\\u0065r\",\"cont\\u0065nt\":\"x\"}]}", "user: x\n", 0,
     NULL},
    {DIALECT_CHAT, "{\"messages\":[{\"role\":\"a\",\"role\":\"b\",\"content\":\"x\",\"content\":\"y\"}]}",
     "b: y\n", 0, NULL},
    {DIALECT_CHAT, "{\"messages\":[{\"role\":\"u\",\"content\":\"\\ud800\"}]}", "u: \xef\xbf\xbd\n", 0, NULL},
    /* Anthropic Messages */
    {DIALECT_MESSAGES,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"system\":\"Be brief.\",\"max_tokens\":5}",
     "system: Be brief.\nuser: Hi\n", 0, NULL},
    {DIALECT_MESSAGES,
     "{\"system\":[{\"type\":\"text\",\"text\":\"Be \",\"cache_control\":{\"type\":\"ephemeral\"}},{\"type\":"
     "\"text\",\"text\":\"brief.\"}],\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
     "system: Be brief.\nuser: Hi\n", 0, NULL},
    {DIALECT_MESSAGES,
     "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"Look\"},{\"type\":"
     "\"tool_use\",\"id\":\"toolu_1\",\"name\":\"f\",\"input\":{\"q\": "
     "\"x\"}}]},{\"role\":\"user\",\"content\":[{"
     "\"type\":\"tool_result\",\"tool_use_id\":\"toolu_1\",\"content\":\"sunny\"},{\"type\":\"tool_result\","
     "\"content\":[{\"type\":\"text\",\"text\":\"and\"},{\"type\":\"image\",\"source\":{\"type\":\"url\"}}]}]"
     "}]}",
     "assistant: Look\nuser: \n", 1 + 9 + 5 + 3,
     "assistant: Lookf{\"q\":\"x\"}\nuser: sunnyand{\"type\":\"image\",\"source\":{\"type\":\"url\"}}\n"},
    {DIALECT_MESSAGES,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"mcp_tool_result\",\"content\":{\"a\": "
     "1}},{\"type\":"
     "\"tool_result\"},{\"type\":\"server_tool_use\",\"name\":\"s\",\"input\":{}}]}]}",
     "user: \n", 7 + 1 + 2, "user: {\"a\":1}s{}\n"},
    {DIALECT_MESSAGES,
     "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\","
     "\"signature\":"
     "\"s\"},{\"type\":\"document\",\"source\":{}}]}]}",
     "assistant: \n", 0,
     "assistant: "
     "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"s\"}{\"type\":\"document\",\"source\":{}}"
     "\n"},
    /* Responses */
    {DIALECT_RESPONSES, "{\"input\":\"Hi\",\"instructions\":\"Be brief.\"}", "system: Be brief.\nuser: Hi\n",
     0, NULL},
    {DIALECT_RESPONSES,
     "{\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
     "\"Hi\"},{"
     "\"type\":\"input_image\",\"image_url\":\"u\"}]},{\"role\":\"assistant\",\"content\":[{\"type\":"
     "\"output_text\","
     "\"text\":\"Yes\",\"annotations\":[]}]}]}",
     "user: Hi\nassistant: Yes\n", 0,
     "user: Hi{\"type\":\"input_image\",\"image_url\":\"u\"}\nassistant: Yes\n"},
    {DIALECT_RESPONSES,
     "{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"type\":\"function_call\",\"call_id\":\"c\","
     "\"name\":\"f\","
     "\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"sunny\"},{"
     "\"type\":"
     "\"function_call_output\",\"output\":[{\"type\":\"input_text\",\"text\":\"and\"},{\"type\":\"input_"
     "file\"}]}]}",
     "user: Hi\nitem: \nitem: \nitem: \n", 1 + 2 + 5 + 3,
     "user: Hi\nitem: f{}\nitem: sunny\nitem: and{\"type\":\"input_file\"}\n"},
    {DIALECT_RESPONSES,
     "{\"input\":[{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"zz\"},{\"type\":\"item_"
     "reference\","
     "\"id\":\"i\"}]}",
     "item: \nitem: \n", 0,
     "item: {\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"zz\"}\nitem: "
     "{\"type\":\"item_reference\","
     "\"id\":\"i\"}\n"},
    /* completions, embeddings */
    {DIALECT_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"Once upon\"}", "Once upon", 0, NULL},
    {DIALECT_COMPLETIONS, "{\"prompt\":[\"Once\",\" upon\"]}", "Once upon", 0, NULL},
    {DIALECT_COMPLETIONS, "{\"prompt\":[1, 22, 333]}", "1,22,333,", 0, NULL},
    {DIALECT_COMPLETIONS, "{\"prompt\":[[1,22],[333]]}", "1,22,333,", 0, NULL},
    {DIALECT_EMBEDDINGS, "{\"input\":\"text\",\"encoding_format\":\"base64\"}", "text", 0, NULL},
    {DIALECT_EMBEDDINGS, "{\"input\":[\"one\",\"two\"]}", "onetwo", 0, NULL},
    {DIALECT_EMBEDDINGS, "{\"input\":[[5,6]]}", "5,6,", 0, NULL},
    {DIALECT_EMBEDDINGS, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "user: x\n", 0, NULL},
};

static void every_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const struct shape *s = &shapes[i];
        struct prompt_context c = read_body(s->id, s->body);
        struct span want = span_str(s->text), hashed = s->hashed ? span_str(s->hashed) : want;
        if (!span_eq(c.text, want))
            fail_msg("%s\ngave  %.*s", s->body, SPAN_FMT(c.text));
        if (c.digest != hash_bytes(hashed.p, hashed.n))
            fail_msg("digest of %s", s->body);
        assert_int_equal(c.len, want.n + s->more);
        assert_false(c.is_raw);
    }
}

static void unknown_shapes_give_the_raw_body(void **state)
{
    (void)state;
    static const struct {
        enum dialect_id id;
        const char *body;
    } cases[] = {
        {DIALECT_RERANK, "{\"query\":\"q\",\"documents\":[\"a\",\"b\"]}"},
        {DIALECT_CHAT, "{\"prompt\":\"x\"}"},
        {DIALECT_CHAT, "{\"messages\":[]}"},
        {DIALECT_CHAT, "{\"messages\":[null, 7]}"},
        {DIALECT_CHAT, "{\"messages\":{\"role\":\"user\"}}"},
        {DIALECT_CHAT, "[1]"},
        {DIALECT_CHAT, "\"x\""},
        {DIALECT_MESSAGES, "{\"system\":null}"},
        {DIALECT_RESPONSES, "{\"input\":[]}"},
        {DIALECT_COMPLETIONS, "{\"prompt\":\"\"}"},
        {DIALECT_EMBEDDINGS, "{\"model\":\"m\"}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct prompt_context c = read_body(cases[i].id, cases[i].body);
        struct span body = span_str(cases[i].body);
        assert_true(c.is_raw);
        assert_ptr_equal(c.text.p, body.p); /* a slice, no copy */
        assert_true(span_eq(c.text, body));
        assert_int_equal(c.len, body.n);
        assert_int_equal(c.digest, hash_bytes(body.p, body.n));
    }
}

static struct span big_body(struct buf *b, const char *before, const char *unit, size_t times,
                            const char *after)
{
    buf_init(b, 64 << 20);
    buf_add_str(b, before);
    for (size_t i = 0; i < times; i++)
        buf_add_str(b, unit);
    buf_add_str(b, after);
    assert_false(b->full);
    return buf_view(b);
}

static void raw_body_is_bounded(void **state)
{
    (void)state;
    struct buf b;
    struct span body = big_body(&b, "{\"query\":\"", "\xe2\x82\xac", 20000, "\"}");
    struct prompt_context c = read_span(DIALECT_RERANK, body);
    assert_true(c.is_raw && c.len == body.n && c.digest == hash_bytes(body.p, body.n));
    assert_in_range(c.text.n, PROMPT_TEXT_MAX - 2, PROMPT_TEXT_MAX);
    assert_int_equal((c.text.n - 10) % 3, 0);
    buf_fini(&b);
}

/* A4: a conversation that goes on extends its text; A5: the envelope never counts. */
static void conversation_extends_its_prefix(void **state)
{
    (void)state;
    struct prompt_context one = read_body(
        DIALECT_CHAT, "{\"model\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"first question\"}]}");
    struct prompt_context two = read_body(
        DIALECT_CHAT,
        "{\"temperature\":0.5,\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"first question\"}],"
        "\"role\":\"user\"},{\"role\":\"assistant\",\"content\":\"an "
        "answer\"},{\"role\":\"user\",\"content\":"
        "\"more\"}],\"model\":\"other\",\"stream\":true}");
    struct prompt_context other =
        read_body(DIALECT_CHAT, "{\"model\":\"a\",\"messages\":[{\"role\":\"system\",\"content\":\"zzz\"}]}");
    assert_true(span_starts(two.text, one.text));
    assert_int_not_equal(other.text.p[0], one.text.p[0]);
    assert_int_not_equal(one.digest, two.digest);
    assert_int_equal(one.head_len, 0);
    assert_int_equal(other.head_len, other.len);
}

/* A7: how a text is split into parts and escaped does not matter. */
static void parts_and_escapes_do_not_matter(void **state)
{
    (void)state;
    static const char *const same[] = {
        "{\"messages\":[{\"role\":\"user\",\"content\":\"na\xc3\xafve \\\"test\\\"\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"n\\u0061\\u00EFve \\u0022test\\\"\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"na\xc3\xafve "
        "\\\"test\\\"\"}]}]}",
        "{ \"messages\" : [ {\"content\" : [ \"na\", {\"text\":\"\\u00efve \"}, \"\\\"test\\\"\" ], "
        "\"role\":\"user\"} ] }",
    };
    struct prompt_context first = read_body(DIALECT_CHAT, same[0]);
    for (size_t i = 1; i < ARRAY_LEN(same); i++) {
        struct prompt_context c = read_body(DIALECT_CHAT, same[i]);
        assert_true(span_eq(c.text, first.text));
        assert_int_equal(c.digest, first.digest);
        assert_int_equal(c.len, first.len);
    }
}

/* A6: whatever the offset of the characters, the cut falls between two of them, and the digest covers all. */
static void cut_on_a_character_boundary(void **state)
{
    (void)state;
    static const char *const units[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\\u20ac\\n"};
    static const char *const plain[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                        "\xe2\x82\xac\n"};
    for (size_t u = 0; u < ARRAY_LEN(units); u++) {
        for (size_t shift = 0; shift < 5; shift++) {
            struct buf b, text;
            char before[80], role[8] = "uuuuuuu";
            role[shift + 1] = 0;
            snprintf(before, sizeof before, "{\"messages\":[{\"role\":\"%s\",\"content\":\"", role);
            struct span body =
                big_body(&b, before, units[u], 40000, "\"},{\"role\":\"user\",\"content\":\"tail\"}]}");
            snprintf(before, sizeof before, "%s: ", role);
            struct span full = big_body(&text, before, plain[u], 40000, "\nuser: tail\n");
            struct prompt_context c = read_span(DIALECT_CHAT, body);
            assert_int_equal(c.len, full.n);
            assert_int_equal(c.digest, hash_bytes(full.p, full.n));
            assert_true(span_starts(full, c.text));
            assert_in_range(c.text.n, PROMPT_TEXT_MAX - 3, PROMPT_TEXT_MAX);
            assert_true(((unsigned char)full.p[c.text.n] & 0xc0) != 0x80);
            /* No more was left out than needed. */
            size_t next = c.text.n + 1;
            while (((unsigned char)full.p[next] & 0xc0) == 0x80)
                next++;
            assert_true(next > PROMPT_TEXT_MAX);
            buf_fini(&b);
            buf_fini(&text);
            arena_reset(&arena);
        }
    }
}

/* The last byte that fits: 32768 bytes are whole, one more is cut, and a small text after the cut is not
 * appended. */
static void exactly_full(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        struct buf b;
        size_t n = PROMPT_TEXT_MAX - strlen("u: \n") + extra;
        struct span body = big_body(&b, "{\"messages\":[{\"role\":\"u\",\"content\":\"", "x", n, "\"}]}");
        struct prompt_context c = read_span(DIALECT_CHAT, body);
        assert_int_equal(c.text.n, PROMPT_TEXT_MAX);
        assert_int_equal(c.len, PROMPT_TEXT_MAX + extra);
        assert_int_equal(c.text.p[c.text.n - 1], extra ? 'x' : '\n');
        assert_true((c.digest == hash_bytes(c.text.p, c.text.n)) == !extra);
        buf_fini(&b);
    }
}

/* A7: nothing of a 4 MiB message but the bounded text is copied, whether text, escapes, tool traffic or
 * media. */
static void large_bodies_are_not_copied(void **state)
{
    (void)state;
    static const char *const before[] = {
        "{\"messages\":[{\"role\":\"user\",\"content\":\"",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":\"",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"content\":\"",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_use\",\"input\":{\"a\":\""};
    static const char *const after[] = {"\"}]}", "\"}]}]}", "\"}]}]}", "\"}}]}]}"};
    for (size_t i = 0; i < 8; i++) {
        struct buf b;
        struct span body =
            big_body(&b, before[i % 4], i < 4 ? "abcdefgh" : "abcd\\\"ef", (4 << 20) / 8, after[i % 4]);
        struct json_doc d;
        struct json_fault fault;
        struct prompt_context c;
        assert_true(json_parse(&arena, body, NULL, &d, &fault));
        size_t used = arena.used_bytes;
        dialect_prompt(DIALECT_CHAT, &d, &arena, &c);
        assert_in_range(arena.used_bytes - used, 0, 2 * PROMPT_TEXT_MAX);
        assert_true(i % 4 == 1 ? c.len == 7 : c.len > (4 << 20) * 7 / 8);
        assert_true(c.text.n <= PROMPT_TEXT_MAX);
        buf_fini(&b);
        arena_reset(&arena);
    }
}

static void media_changes_the_digest_only(void **state)
{
    (void)state;
    const char *form =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":"
        "\"image_url\",\"image_url\":{\"url\":\"data:%s\"}}]}]}";
    char a[300], b[300];
    snprintf(a, sizeof a, form, "AAAA");
    snprintf(b, sizeof b, form, "AAAABBBB");
    struct prompt_context ca = read_body(DIALECT_CHAT, a), cb = read_body(DIALECT_CHAT, b);
    assert_true(span_eq(ca.text, cb.text) && ca.len == cb.len);
    assert_int_not_equal(ca.digest, cb.digest);
}

static void tool_results_count(void **state)
{
    (void)state;
    const char *form =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"content\":\"%s\"}]}]}";
    char a[300], b[300];
    snprintf(a, sizeof a, form, "12345");
    snprintf(b, sizeof b, form, "12346 and more");
    struct prompt_context ca = read_body(DIALECT_MESSAGES, a), cb = read_body(DIALECT_MESSAGES, b);
    assert_true(span_eq(ca.text, cb.text));
    assert_int_equal(cb.len - ca.len, 9);
    assert_int_not_equal(ca.digest, cb.digest);
}

static void collect(void *arg, const char *p, size_t n)
{
    assert_true(n > 0);
    buf_add(arg, p, n);
}

/* A19, and the stream of all measured bytes. */
static void tools_come_first(void **state)
{
    (void)state;
    struct buf b, tools, seen;
    buf_init(&tools, 1 << 20);
    for (int round = 0; round < 2; round++) {
        buf_clear(&tools);
        BUF_LIT(&tools, "[");
        for (int i = 0; i < (round ? 3000 : 2); i++)
            buf_printf(&tools, "%s{\"type\":\"function\",\"n\":%d}", i ? "," : "", i);
        BUF_LIT(&tools, "]");
        buf_init(&b, 1 << 20);
        buf_printf(
            &b,
            "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[\"x\",{"
            "\"type\":\"image\"}]}], \"tools\": %.*s }",
            (int)tools.n, tools.p);
        buf_init(&seen, 1 << 20);
        struct prompt_options o = {.include_tools = true, .each = collect, .arg = &seen};
        struct json_doc d;
        struct json_fault fault;
        struct prompt_context c;
        assert_true(json_parse(&arena, buf_view(&b), NULL, &d, &fault));
        dialect_prompt_with(DIALECT_CHAT, &d, &o, &arena, &c);
        struct span turns = SPAN("system: s\nuser: x\n");
        size_t kept = tools.n < PROMPT_TEXT_MAX / 2 ? tools.n : PROMPT_TEXT_MAX / 2;
        assert_int_equal(c.text.n, kept + turns.n);
        assert_memory_equal(c.text.p, tools.p, kept);
        assert_memory_equal(c.text.p + kept, turns.p, turns.n);
        assert_int_equal(c.len, tools.n + turns.n);
        assert_int_equal(c.head_len, tools.n + strlen("system: s\n"));
        buf_add_span(&tools, turns);
        assert_true(span_eq(buf_view(&seen), buf_view(&tools)));
        tools.n--;
        BUF_LIT(&tools, "{\"type\":\"image\"}\n");
        assert_int_equal(c.digest, hash_bytes(tools.p, tools.n));
        dialect_prompt(DIALECT_CHAT, &d, &arena, &c);
        assert_true(span_eq(c.text, turns));
        buf_fini(&b);
        buf_fini(&seen);
    }
    buf_fini(&tools);
}

static void each_sees_raw_bodies_and_plain_texts(void **state)
{
    (void)state;
    static const char *const bodies[] = {"{\"messages\":[]}",
                                         "{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}]}"};
    static const char *const want[] = {"{\"messages\":[]}", "u: x\n"};
    for (int i = 0; i < 2; i++) {
        struct buf seen;
        struct json_doc d;
        struct json_fault fault;
        struct prompt_context c;
        buf_init(&seen, 1 << 20);
        struct prompt_options o = {.each = collect, .arg = &seen};
        assert_true(json_parse(&arena, span_str(bodies[i]), NULL, &d, &fault));
        dialect_prompt_with(DIALECT_CHAT, &d, &o, &arena, &c);
        assert_true(span_eq(buf_view(&seen), span_str(want[i])));
        buf_fini(&seen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_shape, fresh, gone),
        cmocka_unit_test_setup_teardown(unknown_shapes_give_the_raw_body, fresh, gone),
        cmocka_unit_test_setup_teardown(raw_body_is_bounded, fresh, gone),
        cmocka_unit_test_setup_teardown(conversation_extends_its_prefix, fresh, gone),
        cmocka_unit_test_setup_teardown(parts_and_escapes_do_not_matter, fresh, gone),
        cmocka_unit_test_setup_teardown(cut_on_a_character_boundary, fresh, gone),
        cmocka_unit_test_setup_teardown(exactly_full, fresh, gone),
        cmocka_unit_test_setup_teardown(large_bodies_are_not_copied, fresh, gone),
        cmocka_unit_test_setup_teardown(media_changes_the_digest_only, fresh, gone),
        cmocka_unit_test_setup_teardown(tool_results_count, fresh, gone),
        cmocka_unit_test_setup_teardown(tools_come_first, fresh, gone),
        cmocka_unit_test_setup_teardown(each_sees_raw_bodies_and_plain_texts, fresh, gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
