/* SPDX-License-Identifier: Apache-2.0
 *
 * Which replies are whole: recorded streams, cut at every byte and fed in every split of two reads; JSON
 * replies; how many choices a request asks for.
 */
#include "unit.h"

#include "stream_unit.h"

enum { FIXTURES_LEAST = 40 };

static struct stream_fixture fixtures[STREAM_FIXTURES_MAX];
static unsigned n_fixtures;

static int load(void **state)
{
    (void)state;
    n_fixtures = stream_fixtures(fixtures);
    return n_fixtures >= FIXTURES_LEAST ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    stream_fixtures_free(fixtures, n_fixtures);
    return 0;
}

static void expect(const struct stream_fixture *f, const char *how, size_t where, enum complete_verdict got)
{
    if (got != f->verdict)
        fail_msg("%s, %s %zu: %s", f->name, how, where, complete_word(got));
}

static void whole(void **state)
{
    (void)state;
    for (unsigned i = 0; i < n_fixtures; i++) {
        bool cut = true;
        enum complete_verdict v =
            judge_stream(&fixtures[i], fixtures[i].text.n, fixtures[i].text.n, 1, false, &cut);
        expect(&fixtures[i], "whole", 0, v);
        assert_int_equal(cut, v != COMPLETE_OK); /* untouched when it is not kept */
    }
}

static void in_every_split(void **state)
{
    (void)state;
    for (unsigned i = 0; i < n_fixtures; i++) {
        size_t n = fixtures[i].text.n;
        for (size_t cut = 1; cut < n; cut++)
            expect(&fixtures[i], "split at", cut, judge_stream(&fixtures[i], n, cut, n, false, NULL));
        for (size_t step = 1; step < 20; step++)
            expect(&fixtures[i], "in steps of", step, judge_stream(&fixtures[i], n, step, step, false, NULL));
    }
}

/* Where the terminal event of a good stream ends: behind the blank line after its last mention. */
static size_t terminal_end(const struct stream_fixture *f)
{
    static const char *const marks[] = {
        [DIALECT_CHAT] = "[DONE]",
        [DIALECT_COMPLETIONS] = "[DONE]",
        [DIALECT_MESSAGES] = "\"message_stop\"",
        [DIALECT_RESPONSES] = "\"response.completed\"",
    };
    struct span mark = span_str(marks[f->dialect]);
    size_t at = 0;
    for (size_t i = 0; i + mark.n <= f->text.n; i++)
        if (memcmp(f->text.p + i, mark.p, mark.n) == 0)
            at = i + mark.n;
    for (; at < f->text.n; at++) {
        struct span end = span_of(f->text.p + at, f->text.n - at);
        if (span_starts(end, SPAN("\r\n\r\n")))
            return at + 4;
        if (span_starts(end, SPAN("\n\n")) || span_starts(end, SPAN("\r\r")))
            return at + 2;
    }
    fail_msg("%s has no terminal event", f->name);
    return 0;
}

/* Not one prefix is kept that lacks something, even if the framing calls it whole. */
static void cut_at_every_byte(void **state)
{
    (void)state;
    size_t cuts = 0, kept = 0;
    for (unsigned i = 0; i < n_fixtures; i++) {
        const struct stream_fixture *f = &fixtures[i];
        size_t end = f->verdict == COMPLETE_OK ? terminal_end(f) : f->text.n;
        if (strstr(f->name, "behind") || strstr(f->name, "twice"))
            continue; /* these were whole before something came that does not belong there */
        for (size_t n = 0; n < end; n++, cuts++)
            if (judge_stream(f, n, n, 1, false, NULL) == COMPLETE_OK)
                fail_msg("%s is kept when cut at %zu of %zu", f->name, n, f->text.n);
        if (f->verdict != COMPLETE_OK)
            continue;
        assert_int_equal(judge_stream(f, end, end, 1, false, NULL), COMPLETE_OK);
        kept++;
    }
    print_message("%u streams, %zu cuts, none kept; %zu whole ones, all kept\n", n_fixtures, cuts, kept);
}

/* Whole or not, the end of a connection proves nothing. */
static void without_framing(void **state)
{
    (void)state;
    struct arena scratch;
    arena_init(&scratch, NULL);
    for (unsigned i = 0; i < n_fixtures; i++) {
        struct complete *c = complete_new(&(struct complete_options){
            .dialect = fixtures[i].dialect, .is_stream = true, .asked = 1, .scratch = &scratch});
        complete_feed(c, fixtures[i].text.p, fixtures[i].text.n);
        assert_int_not_equal(complete_end(c, false, SPAN_NONE, NULL), COMPLETE_OK);
        complete_free(c);
    }
    arena_reset(&scratch);
}

/* store_truncated keeps what its length limit cut, and changes no other verdict. */
static void truncated(void **state)
{
    (void)state;
    unsigned n = 0;
    for (unsigned i = 0; i < n_fixtures; i++) {
        bool cut = false;
        size_t size = fixtures[i].text.n;
        enum complete_verdict v = judge_stream(&fixtures[i], size, size, 1, true, &cut);
        assert_int_equal(v, fixtures[i].verdict == COMPLETE_LENGTH ? COMPLETE_OK : fixtures[i].verdict);
        assert_int_equal(cut, fixtures[i].verdict == COMPLETE_LENGTH);
        n += cut;
    }
    assert_true(n >= 4);
}

/* An event past the limit, or one that never ends. */
static void too_large(void **state)
{
    (void)state;
    struct arena scratch;
    arena_init(&scratch, NULL);
    struct complete *c = complete_new(&(struct complete_options){
        .dialect = DIALECT_CHAT, .is_stream = true, .max_bytes = 1000, .scratch = &scratch});
    char piece[64];
    memset(piece, 'x', sizeof piece);
    complete_feed(c, "data: {\"a\":\"", 12);
    for (int i = 0; i < 14; i++)
        complete_feed(c, piece, sizeof piece);
    assert_int_equal(complete_so_far(c), COMPLETE_OK);
    for (int i = 0; i < 4; i++)
        complete_feed(c, piece, sizeof piece);
    assert_int_equal(complete_so_far(c), COMPLETE_UNREADABLE);
    complete_free(c);
    complete_free(NULL);
    arena_reset(&scratch);
}

struct json_case {
    enum dialect_id dialect;
    enum complete_verdict verdict;
    unsigned asked;
    const char *text;
};

#define CHAT(message, reason)                                                                                \
    "{\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\"," message \
    "},\"finish_reason\":" reason "}]}"
#define MESSAGE(content, reason) "{\"type\":\"message\",\"content\":[" content "],\"stop_reason\":" reason "}"
#define RESPONSE(status, output, more)                                                                       \
    "{\"object\":\"response\",\"status\":\"" status "\",\"error\":null,\"output\":[" output "]" more "}"
#define TEXT_ITEM(text)                                                                                      \
    "{\"type\":\"message\",\"status\":\"completed\",\"content\":[{\"type\":\"output_text\",\"text\":\"" text \
    "\"}]}"
#define VECTORS(data) "{\"object\":\"list\",\"data\":[" data "],\"error\":null}"

static const struct json_case json_cases[] = {
    {DIALECT_CHAT, COMPLETE_OK, 1, CHAT("\"content\":\"x\"", "\"stop\"")},
    {DIALECT_CHAT, COMPLETE_OK, 1, CHAT("\"content\":\"\\u0078\",\"refusal\":null", "\"stop\"")},
    {DIALECT_CHAT, COMPLETE_OK, 1, CHAT("\"content\":[{\"type\":\"text\",\"text\":\"x\"}]", "\"stop\"")},
    {DIALECT_CHAT, COMPLETE_OK, 1,
     CHAT("\"content\":null,\"tool_calls\":[{\"id\":\"1\"}]", "\"tool_calls\"")},
    {DIALECT_CHAT, COMPLETE_OK, 1, CHAT("\"content\":null,\"function_call\":{}", "\"function_call\"")},
    {DIALECT_CHAT, COMPLETE_OK, 1, CHAT("\"content\":null,\"audio\":{\"id\":\"a\"}", "\"stop\"")},
    {DIALECT_CHAT, COMPLETE_OK, 0, CHAT("\"content\":\"x\"", "\"stop\"")},
    {DIALECT_CHAT, COMPLETE_OK, 2,
     "{\"choices\":[{\"message\":{\"content\":\"\"},\"finish_reason\":\"stop\"},{\"message\":{\"content\":"
     "\"x\"},"
     "\"finish_reason\":\"stop\"}]}"},
    {DIALECT_CHAT, COMPLETE_CHOICES, 2, CHAT("\"content\":\"x\"", "\"stop\"")},
    {DIALECT_CHAT, COMPLETE_CHOICES, 2,
     "{\"choices\":[{\"index\":0,\"message\":{\"content\":\"x\"},\"finish_reason\":\"stop\"},{\"index\":0,"
     "\"message\":"
     "{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}"},
    {DIALECT_CHAT, COMPLETE_UNFINISHED, 1, CHAT("\"content\":\"x\"", "null")},
    {DIALECT_CHAT, COMPLETE_UNFINISHED, 1, CHAT("\"content\":\"x\"", "\"\"")},
    {DIALECT_CHAT, COMPLETE_UNFINISHED, 1, "{\"choices\":[]}"},
    {DIALECT_CHAT, COMPLETE_UNFINISHED, 1, "{}"},
    {DIALECT_CHAT, COMPLETE_LENGTH, 1, CHAT("\"content\":\"x\"", "\"length\"")},
    {DIALECT_CHAT, COMPLETE_CONTENT_FILTER, 1, CHAT("\"content\":\"x\"", "\"content_filter\"")},
    {DIALECT_CHAT, COMPLETE_ERROR, 1, CHAT("\"content\":\"x\"", "\"error\"")},
    {DIALECT_CHAT, COMPLETE_UNKNOWN_REASON, 1, CHAT("\"content\":\"x\"", "\"abort\"")},
    {DIALECT_CHAT, COMPLETE_UNKNOWN_REASON, 1, CHAT("\"content\":\"x\"", "7")},
    {DIALECT_CHAT, COMPLETE_REFUSAL, 1, CHAT("\"content\":null,\"refusal\":\"no\"", "\"stop\"")},
    {DIALECT_CHAT, COMPLETE_EMPTY, 1, CHAT("\"content\":\"\"", "\"stop\"")},
    {DIALECT_CHAT, COMPLETE_EMPTY, 1, CHAT("\"content\":\" \\n\\u0009\"", "\"stop\"")},
    {DIALECT_CHAT, COMPLETE_EMPTY, 1, CHAT("\"content\":null,\"tool_calls\":[]", "\"stop\"")},
    {DIALECT_CHAT, COMPLETE_ERROR, 1, "{\"error\":{\"message\":\"x\"}}"},
    {DIALECT_CHAT, COMPLETE_UNREADABLE, 1, "{\"choices\":{}}"},
    {DIALECT_CHAT, COMPLETE_UNREADABLE, 1, "{\"choices\":[7]}"},
    {DIALECT_CHAT, COMPLETE_UNREADABLE, 1, "[]"},
    {DIALECT_CHAT, COMPLETE_UNREADABLE, 1, ""},
    {DIALECT_CHAT, COMPLETE_UNREADABLE, 1, "data: {}\n\n"},
    {DIALECT_CHAT, COMPLETE_UNREADABLE, 1, "{\"choices\":[],\"choices\":[]}"},
    {DIALECT_COMPLETIONS, COMPLETE_OK, 1,
     "{\"choices\":[{\"text\":\"x\",\"index\":0,\"finish_reason\":\"stop\"}]}"},
    {DIALECT_COMPLETIONS, COMPLETE_EMPTY, 1,
     "{\"choices\":[{\"text\":\"\",\"index\":0,\"finish_reason\":\"stop\"}]}"},
    {DIALECT_MESSAGES, COMPLETE_OK, 1, MESSAGE("{\"type\":\"text\",\"text\":\"x\"}", "\"end_turn\"")},
    {DIALECT_MESSAGES, COMPLETE_OK, 1,
     MESSAGE("{\"type\":\"tool_use\",\"id\":\"t\",\"input\":{}}", "\"tool_use\"")},
    {DIALECT_MESSAGES, COMPLETE_EMPTY, 1, MESSAGE("", "\"end_turn\"")},
    {DIALECT_MESSAGES, COMPLETE_EMPTY, 1,
     MESSAGE("{\"type\":\"thinking\",\"thinking\":\"x\"}", "\"end_turn\"")},
    {DIALECT_MESSAGES, COMPLETE_LENGTH, 1, MESSAGE("{\"type\":\"text\",\"text\":\"x\"}", "\"max_tokens\"")},
    {DIALECT_MESSAGES, COMPLETE_PAUSED, 1, MESSAGE("{\"type\":\"text\",\"text\":\"x\"}", "\"pause_turn\"")},
    {DIALECT_MESSAGES, COMPLETE_REFUSAL, 1, MESSAGE("{\"type\":\"text\",\"text\":\"x\"}", "\"refusal\"")},
    {DIALECT_MESSAGES, COMPLETE_UNFINISHED, 1, MESSAGE("{\"type\":\"text\",\"text\":\"x\"}", "null")},
    {DIALECT_MESSAGES, COMPLETE_UNREADABLE, 1, "{\"type\":\"message\",\"stop_reason\":\"end_turn\"}"},
    {DIALECT_MESSAGES, COMPLETE_ERROR, 1, "{\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}"},
    {DIALECT_RESPONSES, COMPLETE_OK, 1, RESPONSE("completed", TEXT_ITEM("x"), "")},
    {DIALECT_RESPONSES, COMPLETE_OK, 1, RESPONSE("completed", "{\"type\":\"function_call\"}", "")},
    {DIALECT_RESPONSES, COMPLETE_EMPTY, 1, RESPONSE("completed", TEXT_ITEM(" "), "")},
    {DIALECT_RESPONSES, COMPLETE_EMPTY, 1,
     RESPONSE("completed", "{\"type\":\"reasoning\",\"summary\":[]}", "")},
    {DIALECT_RESPONSES, COMPLETE_UNFINISHED, 1, RESPONSE("queued", "", "")},
    {DIALECT_RESPONSES, COMPLETE_UNFINISHED, 1, RESPONSE("in_progress", TEXT_ITEM("x"), "")},
    {DIALECT_RESPONSES, COMPLETE_FAILED, 1, RESPONSE("failed", "", "")},
    {DIALECT_RESPONSES, COMPLETE_FAILED, 1, RESPONSE("cancelled", TEXT_ITEM("x"), "")},
    {DIALECT_RESPONSES, COMPLETE_LENGTH, 1,
     RESPONSE("incomplete", TEXT_ITEM("x"), ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}")},
    {DIALECT_RESPONSES, COMPLETE_CONTENT_FILTER, 1,
     RESPONSE("incomplete", TEXT_ITEM("x"), ",\"incomplete_details\":{\"reason\":\"content_filter\"}")},
    {DIALECT_RESPONSES, COMPLETE_INCOMPLETE, 1, RESPONSE("incomplete", TEXT_ITEM("x"), "")},
    {DIALECT_RESPONSES, COMPLETE_REFUSAL, 1,
     RESPONSE("completed", "{\"type\":\"message\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}",
              "")},
    {DIALECT_RESPONSES, COMPLETE_UNREADABLE, 1, "{\"status\":\"completed\"}"},
    {DIALECT_EMBEDDINGS, COMPLETE_OK, 1, VECTORS("{\"index\":0,\"embedding\":[0.5]}")},
    {DIALECT_EMBEDDINGS, COMPLETE_OK, 2,
     VECTORS("{\"index\":0,\"embedding\":[0.5]},{\"embedding\":\"AAAA\"}")},
    {DIALECT_EMBEDDINGS, COMPLETE_OK, 0, VECTORS("{\"index\":0,\"embedding\":[0.5]}")},
    {DIALECT_EMBEDDINGS, COMPLETE_CHOICES, 2, VECTORS("{\"index\":0,\"embedding\":[0.5]}")},
    {DIALECT_EMBEDDINGS, COMPLETE_CHOICES, 2,
     VECTORS("{\"index\":0,\"embedding\":[0.5]},{\"index\":0,\"embedding\":[0.5]}")},
    {DIALECT_EMBEDDINGS, COMPLETE_CHOICES, 0, VECTORS("")},
    {DIALECT_EMBEDDINGS, COMPLETE_UNREADABLE, 1, VECTORS("{\"index\":0,\"embedding\":[]}")},
    {DIALECT_EMBEDDINGS, COMPLETE_UNREADABLE, 1, VECTORS("{\"index\":0}")},
    {DIALECT_EMBEDDINGS, COMPLETE_UNREADABLE, 1, "{}"},
    {DIALECT_RERANK, COMPLETE_DIALECT, 1, "{\"results\":[{\"index\":0,\"relevance_score\":1}]}"},
};

static enum complete_verdict judge_json(const struct json_case *k, size_t n, bool framed)
{
    struct arena scratch;
    arena_init(&scratch, NULL);
    struct complete *c = complete_new(
        &(struct complete_options){.dialect = k->dialect, .asked = k->asked, .scratch = &scratch});
    complete_feed(c, k->text, n); /* says nothing about a JSON reply */
    enum complete_verdict v = complete_end(c, framed, span_of(k->text, n), NULL);
    complete_free(c);
    arena_reset(&scratch);
    return v;
}

static void json_replies(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(json_cases); i++) {
        const struct json_case *k = &json_cases[i];
        enum complete_verdict v = judge_json(k, strlen(k->text), true);
        if (v != k->verdict)
            fail_msg("%s: %s", k->text, complete_word(v));
        for (size_t n = 0; n < strlen(k->text); n++)
            assert_int_not_equal(judge_json(k, n, true), COMPLETE_OK);
        assert_int_not_equal(judge_json(k, strlen(k->text), false), COMPLETE_OK);
    }
}

struct asked_case {
    enum dialect_id dialect;
    unsigned want;
    const char *text;
};

static const struct asked_case asked_cases[] = {
    {DIALECT_CHAT, 1, "{}"},
    {DIALECT_CHAT, 1, "{\"n\":null}"},
    {DIALECT_CHAT, 3, "{\"n\":3}"},
    {DIALECT_CHAT, 0, "{\"n\":2.5}"},
    {DIALECT_CHAT, 0, "{\"n\":99999999999}"},
    {DIALECT_COMPLETIONS, 1, "{\"prompt\":\"x\"}"},
    {DIALECT_COMPLETIONS, 6, "{\"prompt\":[\"x\",\"y\"],\"n\":3}"},
    {DIALECT_COMPLETIONS, 1, "{\"prompt\":[1,2,3]}"},
    {DIALECT_COMPLETIONS, 2, "{\"prompt\":[[1,2],[3]]}"},
    {DIALECT_EMBEDDINGS, 1, "{\"input\":\"x\"}"},
    {DIALECT_EMBEDDINGS, 2, "{\"input\":[\"x\",\"y\"]}"},
    {DIALECT_EMBEDDINGS, 1, "{\"input\":[1,2]}"},
    {DIALECT_EMBEDDINGS, 0, "{\"messages\":[]}"},
    {DIALECT_MESSAGES, 1, "{\"n\":5}"},
    {DIALECT_RESPONSES, 1, "{}"},
};

static void asked(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(asked_cases); i++) {
        struct arena a;
        struct json_doc d;
        struct json_fault fault;
        arena_init(&a, NULL);
        assert_true(json_parse(&a, span_str(asked_cases[i].text), NULL, &d, &fault));
        assert_int_equal(complete_asked(asked_cases[i].dialect, &d), asked_cases[i].want);
        arena_reset(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),
        cmocka_unit_test(in_every_split),
        cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(truncated),
        cmocka_unit_test(without_framing),
        cmocka_unit_test(too_large),
        cmocka_unit_test(json_replies),
        cmocka_unit_test(asked),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
