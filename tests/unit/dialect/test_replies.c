/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of dialects, usage of replies and streams, error bodies.
 */
#include "unit.h"

#include "json/oracle.h"

#include "base/buf.h"
#include "base/check.h"
#include "dialect/dialect.h"

#define NONE UINT64_MAX

static void paths(void **state)
{
    (void)state;
    for (enum dialect_id id = 0; id < DIALECT_COUNT; id++) {
        enum dialect_id got = DIALECT_COUNT;
        const struct dialect *d = dialect_get(id);
        assert_ptr_equal(dialect_by_path(span_str(d->path), &got), d);
        assert_ptr_equal(dialect_by_path(span_str(d->path), NULL), d);
        assert_int_equal(got, id);
        assert_int_equal(d->anthropic_errors, id == DIALECT_MESSAGES);
        assert_int_equal(d->has_stream, id <= DIALECT_RESPONSES);
        /* Each byte counts. */
        for (size_t i = 0; i < strlen(d->path); i++) {
            char wrong[40];
            snprintf(wrong, sizeof wrong, "%s", d->path);
            wrong[i] ^= 1;
            assert_null(dialect_by_path(span_str(wrong), NULL));
        }
    }
    static const char *const others[] = {
        "", "/", "/v1", "/v1/models", "/v1/messages/", "/v1/messages/count_tokens"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_null(dialect_by_path(span_str(others[i]), NULL));
    assert_null(dialect_by_path(SPAN_NONE, NULL));
}

struct usage_case {
    enum dialect_id id;
    bool is_event;
    const char *text;
    struct usage want;
};

static const struct usage_case usage_cases[] = {
    {DIALECT_CHAT,
     false,
     "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
     "\"assistant\",\"content\":\"x\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":19,"
     "\"completion_tokens\":10,\"total_tokens\":29,\"prompt_tokens_details\":{\"cached_tokens\":16,"
     "\"audio_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0}}}",
     {19, 10, 29, 16, NONE}},
    {DIALECT_CHAT,
     false,
     "{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":0,\"total_tokens\":1,"
     "\"prompt_tokens_details\":null}}",
     {1, 0, 1, NONE, NONE}},
    {DIALECT_CHAT, false, "{\"choices\":[]}", {NONE, NONE, NONE, NONE, NONE}},
    {DIALECT_CHAT, false, "{\"usage\":null}", {NONE, NONE, NONE, NONE, NONE}},
    {DIALECT_CHAT, false, "[]", {NONE, NONE, NONE, NONE, NONE}},
    {DIALECT_CHAT,
     false,
     "{\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":\"5\",\"total_tokens\":18446744073709551615}}",
     {NONE, NONE, NONE, NONE, NONE}},
    {DIALECT_CHAT,
     true,
     "{\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_"
     "tokens\":7,"
     "\"total_tokens\":12}}",
     {5, 7, 12, NONE, NONE}},
    {DIALECT_COMPLETIONS,
     false,
     "{\"object\":\"text_completion\",\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7,\"total_"
     "tokens\":12}}",
     {5, 7, 12, NONE, NONE}},
    {DIALECT_EMBEDDINGS,
     false,
     "{\"object\":\"list\",\"data\":[],\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}",
     {8, NONE, 8, NONE, NONE}},
    {DIALECT_RERANK, false, "{\"results\":[],\"usage\":{\"total_tokens\":30}}", {NONE, NONE, 30, NONE, NONE}},
    {DIALECT_RESPONSES,
     false,
     "{\"object\":\"response\",\"usage\":{\"input_tokens\":36,\"input_tokens_details\":{\"cached_tokens\":4},"
     "\"output_tokens\":87,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":123}}",
     {36, 87, 123, 4, NONE}},
    {DIALECT_RESPONSES,
     true,
     "{\"type\":\"response.completed\",\"sequence_number\":9,\"response\":{\"status\":\"completed\","
     "\"usage\":{"
     "\"input_tokens\":36,\"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens\":87,\"total_"
     "tokens\":123}}}",
     {36, 87, 123, 0, NONE}},
    {DIALECT_RESPONSES,
     true,
     "{\"type\":\"response.created\",\"response\":{\"usage\":null}}",
     {NONE, NONE, NONE, NONE, NONE}},
    {DIALECT_MESSAGES,
     false,
     "{\"type\":\"message\",\"usage\":{\"input_tokens\":12,\"cache_creation_input_tokens\":100,"
     "\"cache_read_input_tokens\":50,\"output_tokens\":6}}",
     {12, 6, NONE, 50, 100}},
};

static struct json_doc parse(struct arena *a, const char *text)
{
    struct json_doc d;
    struct json_fault fault;
    if (!json_parse(a, span_str(text), NULL, &d, &fault))
        fail_msg("%s: %s", fault.what, text);
    return d;
}

static void usages(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL);
    for (size_t i = 0; i < ARRAY_LEN(usage_cases); i++) {
        const struct usage_case *c = &usage_cases[i];
        struct json_doc d = parse(&a, c->text);
        struct usage u;
        usage_init(&u);
        assert_false(usage_is_known(&u));
        (c->is_event ? dialect_get(c->id)->event_usage : dialect_get(c->id)->reply_usage)(&d, &u);
        if (memcmp(&u, &c->want, sizeof u) != 0)
            fail_msg("%s", c->text);
        if (!c->is_event) {
            usage_init(&u);
            dialect_reply_usage(c->id, span_str(c->text), &a, &u);
            if (memcmp(&u, &c->want, sizeof u) != 0)
                fail_msg("from its end: %s", c->text);
        }
        bool is_known = c->want.prompt != NONE || c->want.completion != NONE || c->want.total != NONE;
        assert_int_equal(usage_is_known(&u), is_known);
        if (is_known)
            assert_true(dialect_may_have_usage(c->id, span_str(c->text)));
    }
    arena_reset(&a);
}

/* The short way from the end of a reply says what reading all of it says. */
static void usage_from_the_end(void **state)
{
    static const struct {
        const char *text;
        uint64_t prompt;
    } cases[] = {
        {"{\"usage\":{\"prompt_tokens\":1}}", 1},
        {" {\"a\":[1,{}],\"usage\" : {\"prompt_tokens\":2} , \"b\":\"c\" } \n", 2},
        /* inside of something else, before it, behind it, alone */
        {"{\"x\":{\"usage\":{\"prompt_tokens\":9}},\"usage\":{\"prompt_tokens\":3}}", 3},
        {"{\"usage\":{\"prompt_tokens\":4},\"x\":{\"usage\":{\"prompt_tokens\":9}}}", 4},
        {"{\"usage\":{\"prompt_tokens\":5},\"x\":[{\"usage\":{\"prompt_tokens\":9}}]}", 5},
        {"{\"x\":{\"usage\":{\"prompt_tokens\":9}}}", NONE},
        {"{\"x\":{\"usage\":{\"prompt_tokens\":9}},\"y\":{}}", NONE},
        /* as a value, and in a text */
        {"{\"usage\":{\"prompt_tokens\":6},\"kind\":\"usage\"}", 6},
        {"{\"usage\":{\"prompt_tokens\":7},\"text\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":9}\"}", 7},
        {"{\"usage\":{\"prompt_tokens\":8},\"text\":\"say \\\"usage\"}", 8},
        {"{\"usage\":{\"prompt_tokens\":8},\"\\\"usage\":{\"prompt_tokens\":9}}", 8},
        /* the last one counts, as everywhere */
        {"{\"usage\":{\"prompt_tokens\":9},\"usage\":{\"prompt_tokens\":10}}", 10},
        {"{\"usage\":null}", NONE},
        {"{\"usage\":{\"prompt_tokens\":1}", NONE},
        {"{\"usage\":{\"prompt_tokens\":1}}}", NONE},
        {"\"usage\":{\"prompt_tokens\":1}}", NONE},
        {"", NONE},
        {"{}", NONE},
    };
    struct arena a;
    arena_init(&a, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct usage u;
        usage_init(&u);
        dialect_reply_usage(DIALECT_CHAT, span_str(cases[i].text), &a, &u);
        if (u.prompt != cases[i].prompt)
            fail_msg("%s", cases[i].text);
    }
    /* Far from the end all of it is read. */
    static char text[8000];
    int n = snprintf(text, sizeof text, "{\"usage\":{\"prompt_tokens\":11},\"text\":\"%05000d\"}", 0);
    struct usage u;
    usage_init(&u);
    dialect_reply_usage(DIALECT_CHAT, span_of(text, (size_t)n), &a, &u);
    assert_int_equal(u.prompt, 11);
    arena_reset(&a);
}

/* An Anthropic stream: the last value of each field wins, nothing is added. */
static void split_usage(void **state)
{
    (void)state;
    static const char *const events[] = {
        "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"content\":[],\"usage\":{\"input_"
        "tokens\":25,"
        "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":7,\"output_tokens\":1}}}",
        "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":"
        "\"\\\"usage\\\":{}\"}}",
        "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":"
        "15,"
        "\"input_tokens\":null}}",
        "{\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"input_tokens\":26,\"output_tokens\":20}}",
    };
    static const bool may[] = {true, false, true, true};
    struct arena a;
    struct usage u;
    arena_init(&a, NULL);
    usage_init(&u);
    for (size_t i = 0; i < ARRAY_LEN(events); i++) {
        struct json_doc d = parse(&a, events[i]);
        assert_int_equal(dialect_may_have_usage(DIALECT_MESSAGES, span_str(events[i])), may[i]);
        dialect_get(DIALECT_MESSAGES)->event_usage(&d, &u);
    }
    assert_int_equal(u.prompt, 26);
    assert_int_equal(u.completion, 20);
    assert_int_equal(u.cache_read, 7);
    assert_int_equal(u.cache_write, 0);
    assert_int_equal(usage_total(&u), 46);
    arena_reset(&a);
}

static void totals(void **state)
{
    (void)state;
    assert_int_equal(usage_total(&(struct usage){3, 4, 9, NONE, NONE}), 9);
    assert_int_equal(usage_total(&(struct usage){3, NONE, NONE, NONE, NONE}), 3);
    assert_int_equal(usage_total(&(struct usage){NONE, NONE, NONE, NONE, NONE}), 0);
    assert_int_equal(usage_total(&(struct usage){NONE - 1, 5, NONE, NONE, NONE}), NONE);
}

/* The name is found at every place of texts of every length, and nothing that is nearly it. */
static void usage_is_found_anywhere(void **state)
{
    static const char name[] = "\"usage\":1", near[] = "\"usagf\":1";
    char text[120];
    for (size_t n = sizeof name - 1; n <= sizeof text; n++) {
        for (size_t at = 0; at + sizeof name - 1 <= n; at++) {
            memset(text, at % 2 ? '"' : 'u', n);
            memcpy(text + at, name, sizeof name - 1);
            assert_true(dialect_may_have_usage(DIALECT_CHAT, span_of(text, n)));
            assert_false(dialect_may_have_usage(DIALECT_CHAT, span_of(text, at + sizeof name - 3)));
            memcpy(text + at, near, sizeof near - 1);
            assert_false(dialect_may_have_usage(DIALECT_CHAT, span_of(text, n)));
        }
    }
}

static void may_have_usage(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        bool want;
    } cases[] = {
        {"", false},
        {"[DONE]", false},
        {"{\"usage\"", false},
        {"{\"usage\":", true},
        {"{\"usage\":null}", false},
        {"{\"usage\" : null}", false},
        {"{\"usage\" : {}}", true},
        {"{\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":1\"}}],\"usage\":null}", false},
        {"{\"choices\":[{\"delta\":{\"content\":\"usage\"}}],\"usage\":null}", false},
        {"{\"a\":{\"usage\":null},\"usage\":{\"prompt_tokens\":1}}", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(dialect_may_have_usage(DIALECT_CHAT, span_str(cases[i].data)), cases[i].want);
    assert_false(dialect_may_have_usage(DIALECT_CHAT, SPAN_NONE));
}

static void error_types(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *openai, *anthropic;
    } cases[] = {
        {400, "invalid_request_error", "invalid_request_error"},
        {401, "authentication_error", "authentication_error"},
        {402, "insufficient_quota", "billing_error"},
        {403, "permission_error", "permission_error"},
        {404, "not_found_error", "not_found_error"},
        {405, "invalid_request_error", "invalid_request_error"},
        {408, "invalid_request_error", "invalid_request_error"},
        {413, "invalid_request_error", "request_too_large"},
        {429, "rate_limit_error", "rate_limit_error"},
        {500, "api_error", "api_error"},
        {501, "api_error", "api_error"},
        {502, "overloaded_error", "api_error"},
        {503, "overloaded_error", "overloaded_error"},
        {504, "overloaded_error", "timeout_error"},
        {529, "api_error", "overloaded_error"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_string_equal(dialect_error_type(NULL, cases[i].status), cases[i].openai);
        for (enum dialect_id id = 0; id < DIALECT_COUNT; id++)
            assert_string_equal(dialect_error_type(dialect_get(id), cases[i].status),
                                id == DIALECT_MESSAGES ? cases[i].anthropic : cases[i].openai);
    }
}

static json_t *error_json(struct buf *b, const struct dialect *d, const char *code, const char *param)
{
    buf_clear(b);
    dialect_error(b, d, 404, code, param, SPAN("no \"m\"\n\xff"), SPAN("r-1"));
    json_t *j = json_loadb(b->p, b->n, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    return j;
}

static void error_bodies(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 16);
    json_t *j = error_json(&b, NULL, "model_not_found", "model"), *e = json_object_get(j, "error");
    assert_int_equal(json_object_size(j), 1);
    assert_int_equal(json_object_size(e), 4);
    assert_string_equal(json_string_value(json_object_get(e, "message")), "no \"m\"\n\xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(e, "type")), "not_found_error");
    assert_string_equal(json_string_value(json_object_get(e, "code")), "model_not_found");
    assert_string_equal(json_string_value(json_object_get(e, "param")), "model");
    json_decref(j);

    j = error_json(&b, dialect_get(DIALECT_RESPONSES), NULL, NULL);
    e = json_object_get(j, "error");
    assert_true(oracle_is(json_object_get(e, "code"), JSON_NULL) &&
                oracle_is(json_object_get(e, "param"), JSON_NULL));
    json_decref(j);

    j = error_json(&b, dialect_get(DIALECT_MESSAGES), "model_not_found", "model");
    e = json_object_get(j, "error");
    assert_string_equal(json_string_value(json_object_get(j, "type")), "error");
    assert_string_equal(json_string_value(json_object_get(j, "request_id")), "r-1");
    assert_string_equal(json_string_value(json_object_get(e, "type")), "not_found_error");
    assert_int_equal(json_object_size(e), 2);
    json_decref(j);

    buf_clear(&b);
    dialect_error(&b, dialect_get(DIALECT_MESSAGES), 503, NULL, NULL, SPAN("busy"), SPAN_NONE);
    assert_true(
        span_eq(buf_view(&b), SPAN("{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":"
                                   "\"busy\"}}")));
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths),
        cmocka_unit_test(usages),
        cmocka_unit_test(usage_from_the_end),
        cmocka_unit_test(split_usage),
        cmocka_unit_test(totals),
        cmocka_unit_test(error_types),
        cmocka_unit_test(error_bodies),
        cmocka_unit_test(may_have_usage),
        cmocka_unit_test(usage_is_found_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
