/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/buf.h"
#include "live_reply.h"

#define EVENT(json)   "data: " json "\n\n"
#define DELTA(fields) EVENT("{\"choices\":[{\"index\":0,\"delta\":{" fields "}}]}")
#define DONE          EVENT("[DONE]")

/* Fed whole and byte by byte. Gives the error; the findings in *ret. */
static const char *read_stream(const char *text, struct live_reply *ret)
{
    struct live_reply slow;
    live_reply_init(ret);
    live_reply_init(&slow);
    live_reply_feed(ret, text, strlen(text));
    for (size_t i = 0; text[i]; i++)
        live_reply_feed(&slow, text + i, 1);
    const char *error = live_reply_end(ret), *again = live_reply_end(&slow);
    assert_true((error == NULL) == (again == NULL));
    if (error)
        assert_string_equal(error, again);
    assert_int_equal(ret->has_content, slow.has_content);
    assert_true(ret->usage.cache_read == slow.usage.cache_read && ret->usage.prompt == slow.usage.prompt);
    live_reply_fini(ret);
    live_reply_fini(&slow);
    return error;
}

static void test_whole_stream(void **state)
{
    struct live_reply r;
    const char *text = DELTA("\"role\":\"assistant\",\"content\":\"\"") DELTA("\"content\":\"Hi\"")
        DELTA("\"content\":\" you\"")
            EVENT("{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":4}}}") DONE;
    assert_null(read_stream(text, &r));
    assert_true(r.has_content && r.is_done);
    assert_int_equal(r.usage.prompt, 9);
    assert_int_equal(r.usage.completion, 2);
    assert_int_equal(r.usage.cache_read, 4);
}

static void test_first_content(void **state)
{
    struct live_reply r;
    static const char *const with[] = {DELTA("\"content\":\"x\""), DELTA("\"reasoning_content\":\"x\""),
                                       DELTA("\"reasoning\":\"x\""), DELTA("\"tool_calls\":[{\"index\":0}]")};
    static const char *const without[] = {DELTA("\"role\":\"assistant\""),
                                          DELTA("\"content\":\"\""),
                                          DELTA("\"content\":null"),
                                          EVENT("{\"choices\":[]}"),
                                          EVENT("{}"),
                                          ": comment\n\n"};
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        live_reply_init(&r);
        live_reply_feed(&r, with[i], strlen(with[i]));
        assert_true(r.has_content);
        live_reply_fini(&r);
    }
    live_reply_init(&r);
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        live_reply_feed(&r, without[i], strlen(without[i]));
    assert_false(r.has_content || r.is_broken);
    live_reply_fini(&r);
}

static void test_faults(void **state)
{
    struct live_reply r;
    assert_string_equal(read_stream(DELTA("\"content\":\"x\""), &r), "the stream ended without [DONE]");
    assert_string_equal(read_stream(DELTA("\"content\":\"x\"") "data: {\"choi", &r), "the stream broke off");
    assert_string_equal(read_stream("data: {\"choi", &r), "the stream broke off");
    assert_string_equal(read_stream(EVENT("{\"error\":{\"message\":\"m\"}}") DONE, &r),
                        "an error in the stream");
    assert_string_equal(read_stream(DELTA("\"content\":\"x\"") EVENT("{\"error\":{\"message\":\"m\"}}"), &r),
                        "an error in the stream");
    assert_string_equal(read_stream(EVENT("nonsense") DONE, &r), "an event that cannot be read");
    assert_string_equal(read_stream("", &r), "the stream ended without [DONE]");
    assert_null(read_stream(EVENT("{\"choices\":[],\"error\":null}") DONE, &r));
    assert_true(r.usage.cache_read == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_stream),
        cmocka_unit_test(test_first_content),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
