/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/mem.h"
#include "cache/semantic_partition.h"
#include "cache/semantic_text.h"

/* Everything about a request that may differ. */
struct request {
    enum dialect_id dialect;
    const char *body, *query, *route, *provider, *api_base, *model;
    struct cache_scope scope;
    struct cache_digest targets;
    struct key_header header[2];
    unsigned n_headers;
    struct span overridden[1];
    unsigned n_overridden;
};

static struct request request(enum dialect_id dialect, const char *body)
{
    struct request r = {.dialect = dialect,
                        .body = body,
                        .query = "",
                        .route = "r",
                        .provider = "p",
                        .api_base = "http://e",
                        .model = "m"};
    key_scope_of_key(NULL, &r.scope);
    key_targets(NULL, 0, NULL, 0, &r.targets);
    return r;
}

static struct cache_digest partition(const struct request *r)
{
    struct arena a;
    struct json_doc doc;
    struct json_fault fault;
    struct span text;
    struct cache_digest got;
    arena_init(&a, NULL);
    if (!json_parse(&a, span_str(r->body), NULL, &doc, &fault))
        fail_msg("%s: %s", fault.what, r->body);
    const char *why = semantic_text(r->dialect, &doc, &a, &text);
    if (!why)
        why = key_refuses(r->dialect, &doc);
    if (why)
        fail_msg("%s: %s", why, r->body);
    struct key_input in = {.dialect = r->dialect,
                           .path = span_str(dialect_get(r->dialect)->path),
                           .query = span_str(r->query),
                           .route = span_str(r->route),
                           .scope = &r->scope,
                           .targets = &r->targets,
                           .headers = r->header,
                           .n_headers = r->n_headers,
                           .overridden = r->overridden,
                           .n_overridden = r->n_overridden,
                           .doc = &doc};
    struct semantic_source s = {span_str(r->provider), span_str(r->api_base), span_str(r->model)};
    semantic_partition(&in, &s, &a, &got);
    arena_reset(&a);
    return got;
}

static bool same(const struct request *a, const struct request *b)
{
    struct cache_digest x = partition(a), y = partition(b);
    return digest_eq(&x, &y);
}

static void expect(enum dialect_id dialect, const char *a, const char *b, bool shared)
{
    struct request x = request(dialect, a), y = request(dialect, b);
    if (same(&x, &y) != shared)
        fail_msg("%s: %s / %s", shared ? "split" : "shared", a, b);
}

#define CHAT(more) "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" more "}"
#define TEXT(text) "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]}"
#define ANTHROPIC(more)                                                                                      \
    "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" more "}"

static void every_member_splits(void **state)
{
    (void)state;
    static const char *const members[] = {"\"stream\":true",
                                          "\"stream_options\":{\"include_usage\":true}",
                                          "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]",
                                          "\"tool_choice\":\"none\"",
                                          "\"parallel_tool_calls\":false",
                                          "\"response_format\":{\"type\":\"json_object\"}",
                                          "\"temperature\":0.5",
                                          "\"top_p\":0.5",
                                          "\"top_k\":5",
                                          "\"min_p\":0.1",
                                          "\"n\":2",
                                          "\"seed\":7",
                                          "\"stop\":\"x\"",
                                          "\"max_tokens\":5",
                                          "\"max_completion_tokens\":5",
                                          "\"presence_penalty\":1",
                                          "\"frequency_penalty\":1",
                                          "\"logit_bias\":{\"5\":1}",
                                          "\"logprobs\":true",
                                          "\"top_logprobs\":2",
                                          "\"reasoning_effort\":\"low\"",
                                          "\"thinking\":{\"type\":\"enabled\"}",
                                          "\"service_tier\":\"flex\"",
                                          "\"store\":true",
                                          "\"modalities\":[\"text\"]",
                                          "\"prediction\":{\"type\":\"content\",\"content\":\"x\"}",
                                          "\"verbosity\":\"low\"",
                                          "\"safety_identifier\":\"s\"",
                                          "\"prompt_cache_key\":\"k\"",
                                          "\"functions\":[{\"name\":\"f\"}]",
                                          "\"function_call\":\"auto\"",
                                          "\"suffix\":\"x\"",
                                          "\"echo\":true",
                                          "\"best_of\":2",
                                          "\"stop_sequences\":[\"x\"]",
                                          "\"system\":\"s\"",
                                          "\"something_new\":{\"a\":[1]}",
                                          "\"something_new\":\"\"",
                                          "\"Messages\":[]",
                                          "\"USER\":\"u\"",
                                          "\"guided_json\":{}",
                                          "\"chat_template_kwargs\":{\"a\":1}"};
    struct request plain = request(DIALECT_CHAT, CHAT(""));
    struct cache_digest seen[ARRAY_LEN(members) + 1];
    seen[0] = partition(&plain);
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        char *body = mem_printf("{\"model\":\"m\",%s,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
                                members[i]);
        char *twin = mem_printf(
            "{\"messages\":[{\"role\":\"user\",\"content\":\"other words\"}], %s, \"model\":\"m\"}",
            members[i]);
        struct request r = request(DIALECT_CHAT, body), t = request(DIALECT_CHAT, twin);
        seen[i + 1] = partition(&r);
        for (size_t k = 0; k <= i; k++)
            if (digest_eq(&seen[k], &seen[i + 1]))
                fail_msg("%s does not split", members[i]);
        if (!same(&r, &t))
            fail_msg("%s splits from itself", members[i]);
        free(body);
        free(twin);
    }
    expect(DIALECT_CHAT, CHAT(""), "{\"model\":\"n\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
           false);
    /* Values of tools and formats, not only their presence. */
    expect(DIALECT_CHAT, CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"),
           CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"), false);
    expect(DIALECT_CHAT, CHAT(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"a\":1}}"),
           CHAT(",\"response_format\":{\"type\":\"json_object\"}"), false);
    expect(DIALECT_CHAT, CHAT(",\"temperature\":0.5"), CHAT(",\"temperature\":0.50001"), false);
    expect(DIALECT_CHAT, CHAT(",\"stop\":[\"a\",\"b\"]"), CHAT(",\"stop\":[\"b\",\"a\"]"), false);
}

static void text_and_attribution_do_not_split(void **state)
{
    (void)state;
    expect(DIALECT_CHAT, TEXT("hi"), TEXT("something else"), true);
    expect(DIALECT_CHAT, CHAT(""), CHAT(",\"user\":\"ann\",\"metadata\":{\"a\":\"b\"},\"stream\":false"),
           true);
    expect(DIALECT_CHAT, CHAT(",\"n\":1,\"seed\":2"), CHAT(", \"seed\" : 2.0, \"n\" : 1"), true);
    expect(DIALECT_CHAT, CHAT(",\"stop\":\"x\""), CHAT(",\"stop\":[\"x\"]"), true);
    expect(DIALECT_CHAT, CHAT(""), CHAT(",\"seed\":null"), true);
    expect(DIALECT_CHAT, CHAT(""),
           "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"name\":\"n\",\"content\":[{\"type\":\"text\","
           "\"text\":\"a\"}]}]}",
           true);
    expect(DIALECT_COMPLETIONS, "{\"prompt\":\"a\"}", "{\"prompt\":\"b\",\"user\":\"u\"}", true);
    expect(DIALECT_COMPLETIONS, "{\"prompt\":\"a\"}", "{\"prompt\":\"a\",\"suffix\":\"u\"}", false);
    expect(DIALECT_COMPLETIONS, "{\"prompt\":\"a\"}", "{\"prompt\":\"a\",\"messages\":[]}", false);
}

#define TURN(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define TURNS(list)      "{\"model\":\"m\",\"messages\":[" list "]}"

/* The texts of the first two are equal, word for word. */
static void roles_split(void **state)
{
    (void)state;
    static const char *const three =
        TURNS(TURN("user", "a") "," TURN("assistant", "b") "," TURN("user", "c"));
    expect(DIALECT_CHAT, TURNS(TURN("user", "a assistant b user c")), three, false);
    expect(DIALECT_CHAT, TURNS(TURN("user", "a") "," TURN("user", "b") "," TURN("user", "c")), three, false);
    expect(DIALECT_CHAT, TURNS(TURN("user", "x") "," TURN("assistant", "y") "," TURN("user", "z")), three,
           true);
    expect(DIALECT_MESSAGES, TURNS(TURN("user", "a assistant b user c")), three, false);
}

#define SYSTEM(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define MESSAGES(list)     "{\"messages\":[" list "]}"
#define USER               "{\"role\":\"user\",\"content\":\"hi\"}"
#define USER2              "{\"role\":\"user\",\"content\":\"other\"}"

static void instructions_split_with_their_places(void **state)
{
    (void)state;
    expect(DIALECT_CHAT, MESSAGES(SYSTEM("system", "German") "," USER),
           MESSAGES(SYSTEM("system", "German") "," USER2), true);
    expect(DIALECT_CHAT, MESSAGES(SYSTEM("system", "German") "," USER),
           MESSAGES(SYSTEM("system", "Japanese") "," USER), false);
    expect(DIALECT_CHAT, MESSAGES(SYSTEM("system", "German") "," USER),
           MESSAGES(SYSTEM("developer", "German") "," USER), false);
    expect(DIALECT_CHAT, MESSAGES(SYSTEM("system", "German") "," USER), MESSAGES(USER), false);
    expect(DIALECT_CHAT, MESSAGES(SYSTEM("system", "German") "," USER),
           MESSAGES(USER "," SYSTEM("system", "German")), false);
    expect(DIALECT_CHAT, MESSAGES(SYSTEM("system", "a") "," SYSTEM("system", "b") "," USER),
           MESSAGES(SYSTEM("system", "ab") "," USER), false);
    expect(DIALECT_CHAT, MESSAGES(SYSTEM("system", "a") "," SYSTEM("system", "b") "," USER),
           MESSAGES(SYSTEM("system", "b") "," SYSTEM("system", "a") "," USER), false);
    expect(DIALECT_CHAT, MESSAGES("{\"role\":\"system\",\"name\":\"x\",\"content\":\"a\"}," USER),
           MESSAGES(SYSTEM("system", "a") "," USER), false);
    /* The equalities of the exact key: a string is one text part. */
    expect(DIALECT_CHAT, MESSAGES(SYSTEM("system", "a") "," USER),
           MESSAGES("{\"content\":[{\"type\":\"text\",\"text\":\"a\"}],\"role\":\"system\"}," USER2), true);
    expect(DIALECT_MESSAGES, ANTHROPIC(",\"system\":\"a\""), ANTHROPIC(",\"system\":\"b\""), false);
    expect(DIALECT_MESSAGES, ANTHROPIC(",\"system\":\"a\""), ANTHROPIC(""), false);
    expect(DIALECT_MESSAGES, ANTHROPIC(",\"system\":\"a\""),
           ANTHROPIC(",\"system\":[{\"type\":\"text\",\"text\":\"a\"}]"), true);
}

static void surroundings_split(void **state)
{
    (void)state;
    struct request a = request(DIALECT_CHAT, CHAT("")), b;
#define SPLITS(change)                                                                                       \
    b = a;                                                                                                   \
    change;                                                                                                  \
    assert_false(same(&a, &b))
    SPLITS(b.query = "x=1");
    SPLITS(b.route = "other");
    SPLITS(b.provider = "other");
    SPLITS(b.api_base = "http://f");
    SPLITS(b.model = "other");
    SPLITS(key_scope_of_route(SPAN("r"), &b.scope));
    uint8_t key[32] = {1};
    SPLITS(key_scope_of_key(key, &b.scope));
    struct key_target t = {.provider = SPAN("p"), .api_base = SPAN("http://a"), .model = SPAN("m")};
    SPLITS(key_targets(&t, 1, NULL, 0, &b.targets));
    SPLITS((b.header[0] = (struct key_header){SPAN("anthropic-beta"), SPAN("x")}, b.n_headers = 1));
    b = a;
    b.dialect = DIALECT_MESSAGES;
    assert_false(same(&a, &b));
    /* What the route sets itself says nothing in the body. */
    b = a;
    b.body = CHAT(",\"seed\":5");
    assert_false(same(&a, &b));
    a.overridden[0] = b.overridden[0] = SPAN("seed");
    a.n_overridden = b.n_overridden = 1;
    assert_true(same(&a, &b));
}

/* The same in every process and build. Another value is another layout: raise SEMANTIC_LAYOUT_VERSION
 * (a raised ENTRY_LAYOUT_VERSION is one, too). */
static void the_layout_is_fixed(void **state)
{
    (void)state;
    struct request r =
        request(DIALECT_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},"
                              "{\"role\":\"user\",\"content\":\"u\"}],\"temperature\":0.5,\"seed\":1}");
    struct cache_digest d = partition(&r);
    char hex[65];
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", d.b[i]);
    assert_string_equal(hex, "2e25baa5d84cc9cf0b5848980d6486f0732dc7694576eeebc18cae0b839a3664");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_splits), cmocka_unit_test(text_and_attribution_do_not_split),
        cmocka_unit_test(roles_split),         cmocka_unit_test(instructions_split_with_their_places),
        cmocka_unit_test(surroundings_split),  cmocka_unit_test(the_layout_is_fixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
