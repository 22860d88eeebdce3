/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact key: what surrounds the body counts; which requests are never looked up.
 */
#include "unit.h"

#include "cache/key_unit.h"

/* What surrounds the body. */

struct around {
    struct key_input in;
    struct cache_scope scope;
    struct cache_digest targets;
    struct key_header headers[3];
    struct arena a;
    struct json_doc doc;
};

static void around_init(struct around *r)
{
    struct json_fault fault;
    struct key_target t[2] = {
        {.provider = SPAN("east"), .api_base = SPAN("http://e/v1"), .model = SPAN("m")},
        {.provider = SPAN("west"), .api_base = SPAN("http://w/v1"), .model = SPAN("m")}};
    arena_init(&r->a, NULL);
    assert_true(json_parse(&r->a, SPAN("{\"model\":\"m\",\"messages\":[],\"temperature\":1}"), NULL, &r->doc,
                           &fault));
    key_scope_of_key(NULL, &r->scope);
    key_targets(t, 2, NULL, 0, &r->targets);
    r->headers[0] = (struct key_header){SPAN("anthropic-version"), SPAN("2023-06-01")};
    r->headers[1] = (struct key_header){SPAN("anthropic-beta"), SPAN("a")};
    r->headers[2] = (struct key_header){SPAN("Anthropic-Beta"), SPAN("b")};
    r->in = (struct key_input){
        .dialect = DIALECT_CHAT,
        .path = SPAN("/v1/chat/completions"),
        .query = SPAN("a=b"),
        .route = SPAN("m"),
        .scope = &r->scope,
        .targets = &r->targets,
        .headers = r->headers,
        .n_headers = 3,
        .doc = &r->doc,
    };
}

static struct cache_digest around_key(struct around *r)
{
    struct cache_digest d;
    key_exact(&r->in, &r->a, &d);
    return d;
}

static void surroundings(void **state)
{
    (void)state;
    struct around r;
    around_init(&r);
    struct cache_digest base = around_key(&r), d;
    uint8_t some_key[32] = {1};
    struct cache_scope other;
    struct span temperature = SPAN("temperature");
#define SPLITS(change)                                                                                       \
    do {                                                                                                     \
        struct key_input kept = r.in;                                                                        \
        struct key_header kept_headers[3];                                                                   \
        memcpy(kept_headers, r.headers, sizeof kept_headers);                                                \
        change;                                                                                              \
        d = around_key(&r);                                                                                  \
        assert_false(digest_eq(&base, &d));                                                                  \
        r.in = kept;                                                                                         \
        memcpy(r.headers, kept_headers, sizeof kept_headers);                                                \
        d = around_key(&r);                                                                                  \
        assert_true(digest_eq(&base, &d));                                                                   \
    } while (0)
    SPLITS(r.in.path = SPAN("/v1/completions"));
    SPLITS(r.in.query = SPAN("a=c"));
    SPLITS(r.in.query = SPAN_NONE);
    SPLITS(r.in.route = SPAN("n"));
    SPLITS((r.in.path = SPAN("/v1/chat/completionsa"), r.in.query = SPAN("=b"))); /* no boundary moves */
    SPLITS(r.headers[0].value = SPAN("2024"));
    SPLITS(r.headers[0].name = SPAN("anthropic-versio"));
    SPLITS(r.in.n_headers = 2);
    SPLITS((r.headers[1].value = SPAN("b"), r.headers[2].value = SPAN("a"))); /* their order has a meaning */
    SPLITS((r.in.overridden = &temperature, r.in.n_overridden = 1));
    key_scope_of_key(some_key, &other);
    SPLITS(r.in.scope = &other);
    key_scope_of_route(SPAN("m"), &other);
    SPLITS(r.in.scope = &other);
    /* Names in any case and in any order, blanks around a value. */
    struct key_header first = r.headers[0];
    r.headers[0] = r.headers[1], r.headers[1] = r.headers[2], r.headers[2] = first;
    r.headers[2].name = SPAN("ANTHROPIC-Version");
    r.headers[2].value = SPAN(" 2023-06-01\t");
    d = around_key(&r);
    assert_true(digest_eq(&base, &d));
    arena_reset(&r.a);
#undef SPLITS
}

/* A member that the route sets anyway does not split. */
static void overridden(void **state)
{
    (void)state;
    struct around r;
    struct json_fault fault;
    struct span temperature = SPAN("temperature");
    around_init(&r);
    r.in.overridden = &temperature;
    r.in.n_overridden = 1;
    struct cache_digest base = around_key(&r), d;
    assert_true(json_parse(&r.a, SPAN("{\"model\":\"m\",\"messages\":[]}"), NULL, &r.doc, &fault));
    d = around_key(&r);
    assert_true(digest_eq(&base, &d));
    arena_reset(&r.a);
}

static struct cache_digest key_of_body(struct around *r, const char *body)
{
    struct json_fault fault;
    assert_true(json_parse(&r->a, span_str(body), NULL, &r->doc, &fault));
    return around_key(r);
}

/* A member that the route sets where it is absent: an explicit null keeps the route's value away. */
static void defaulted(void **state)
{
    (void)state;
    struct around r;
    struct span temperature = SPAN("temperature");
    around_init(&r);
    const char *absent = "{\"model\":\"m\"}", *null = "{\"model\":\"m\",\"temperature\":null}";
    const char *other = "{\"model\":\"m\",\"top_p\":null}";
    struct cache_digest a = key_of_body(&r, absent), b = key_of_body(&r, null);
    assert_true(digest_eq(&a, &b));
    r.in.defaulted = &temperature;
    r.in.n_defaulted = 1;
    struct cache_digest c = key_of_body(&r, absent), d = key_of_body(&r, null), e = key_of_body(&r, other);
    assert_true(digest_eq(&a, &c));
    assert_false(digest_eq(&c, &d));
    assert_true(digest_eq(&c, &e));
    arena_reset(&r.a);
}

static void scopes(void **state)
{
    (void)state;
    uint8_t a[32] = {1}, b[32] = {2};
    struct cache_scope s[5];
    key_scope_of_key(a, &s[0]);
    key_scope_of_key(b, &s[1]);
    key_scope_of_key(NULL, &s[2]);
    key_scope_of_route(SPAN("m"), &s[3]);
    key_scope_of_route(SPAN("n"), &s[4]);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++)
            assert_false(digest_eq(&s[i].digest, &s[k].digest));
}

static struct cache_digest targets_of(const struct key_target *t, unsigned n)
{
    struct cache_digest d;
    key_targets(t, n, NULL, 0, &d);
    return d;
}

static void targets(void **state)
{
    (void)state;
    struct key_param p[2] = {{SPAN("top_k"), SPAN("1"), false}, {SPAN("seed"), SPAN("2"), true}};
    struct key_target t[2] = {
        {SPAN("v1"), SPAN("east"), SPAN("http://e/v1"), SPAN("m"), p, 2},
        {SPAN("v2"), SPAN("west"), SPAN("http://w/v1"), SPAN("m"), NULL, 0},
    };
    struct key_target swapped[2] = {t[1], t[0]};
    struct cache_digest base = targets_of(t, 2), d = targets_of(swapped, 2);
    assert_true(digest_eq(&base, &d)); /* strategies and their order are not in it */
#define SPLITS(place, value)                                                                                 \
    do {                                                                                                     \
        __typeof__(place) kept = place;                                                                      \
        place = value;                                                                                       \
        d = targets_of(t, 2);                                                                                \
        assert_false(digest_eq(&base, &d));                                                                  \
        place = kept;                                                                                        \
    } while (0)
    SPLITS(t[0].api_base, SPAN("http://e/v2"));
    SPLITS(t[0].model, SPAN("m2"));
    SPLITS(t[1].provider, SPAN("north"));
    SPLITS(t[1].variant, SPAN("v3"));
    SPLITS(t[0].n_params, 1);
    SPLITS(p[1].value, SPAN("3"));
    SPLITS(p[1].name, SPAN("seeds"));
    SPLITS(p[1].caller_wins, false);
#undef SPLITS
    d = targets_of(t, 1);
    assert_false(digest_eq(&base, &d));
    struct span line = SPAN("x-a: 1\r\n");
    key_targets(t, 2, &line, 1, &d);
    assert_false(digest_eq(&base, &d));
}

static void header_names(void **state)
{
    (void)state;
    assert_true(key_header_counts(SPAN("anthropic-version"), false));
    assert_true(key_header_counts(SPAN("Anthropic-Beta"), false));
    assert_true(key_header_counts(SPAN("openai-beta"), false));
    assert_true(key_header_counts(SPAN("OpenAI-Organization"), false));
    assert_true(key_header_counts(SPAN("x-mine"), true));
    assert_false(key_header_counts(SPAN("x-mine"), false));
    assert_false(key_header_counts(SPAN("user-agent"), false));
    assert_false(key_header_counts(SPAN("traceparent"), true));
    assert_false(key_header_counts(SPAN("X-B3-TraceId"), true));
    assert_false(key_header_counts(SPAN("x-request-id"), true));
}

/* What is never looked up. */

struct refusal {
    enum dialect_id dialect;
    const char *members; /* of the root */
    const char *why;     /* NULL: it may be */
};

static const struct refusal refusals[] = {
    {DIALECT_CHAT, "\"messages\":[],\"n\":3,\"temperature\":2", NULL},
    {DIALECT_CHAT, "\"store\":true", NULL},
    {DIALECT_CHAT, "\"tools\":[{\"type\":\"function\",\"function\":{}},{\"type\":\"custom\"}]", NULL},
    {DIALECT_CHAT, "\"tools\":[]", NULL},
    {DIALECT_CHAT, "\"tools\":null", NULL},
    {DIALECT_CHAT, "\"tools\":[{\"type\":\"function\"},{\"type\":\"web_search\"}]", "hosted_tool"},
    {DIALECT_CHAT, "\"tools\":[{\"name\":\"x\"}]", "hosted_tool"},
    {DIALECT_CHAT, "\"tools\":[\"x\"]", "hosted_tool"},
    {DIALECT_CHAT, "\"tools\":\"x\"", "hosted_tool"},
    {DIALECT_CHAT, "\"web_search_options\":{}", "hosted_tool"},
    {DIALECT_CHAT, "\"web_search_options\":null", NULL},
    {DIALECT_CHAT, "\"previous_response_id\":\"x\"", "previous_response_id"},
    {DIALECT_CHAT, "\"a\":1,\"a\":2", "duplicate_member"},
    {DIALECT_CHAT, "\"a\":\"\\udfff\"", "lone_surrogate"},
    {DIALECT_COMPLETIONS, "\"prompt\":\"x\"", NULL},
    {DIALECT_MESSAGES, "\"tools\":[{\"name\":\"x\"},{\"type\":null},{\"type\":\"custom\"}]", NULL},
    {DIALECT_MESSAGES, "\"tools\":[{\"type\":\"web_search_20250305\"}]", "hosted_tool"},
    {DIALECT_MESSAGES, "\"tools\":[{\"type\":\"function\"}]", "hosted_tool"},
    {DIALECT_MESSAGES, "\"mcp_servers\":[{\"url\":\"x\"}]", "hosted_tool"},
    {DIALECT_MESSAGES, "\"mcp_servers\":[]", NULL},
    {DIALECT_MESSAGES, "\"container\":\"c\"", "hosted_tool"},
    {DIALECT_MESSAGES, "\"container\":null", NULL},
    {DIALECT_RESPONSES, "\"input\":\"x\"", "store"},
    {DIALECT_RESPONSES, "\"store\":true", "store"},
    {DIALECT_RESPONSES, "\"store\":null", "store"},
    {DIALECT_RESPONSES, "\"store\":false", NULL},
    {DIALECT_RESPONSES, "\"store\":false,\"previous_response_id\":\"r\"", "previous_response_id"},
    {DIALECT_RESPONSES, "\"store\":false,\"previous_response_id\":null,\"conversation\":null", NULL},
    {DIALECT_RESPONSES, "\"store\":false,\"conversation\":{\"id\":\"c\"}", "conversation"},
    {DIALECT_RESPONSES, "\"store\":false,\"background\":true", "background"},
    {DIALECT_RESPONSES, "\"store\":false,\"background\":false", NULL},
    {DIALECT_RESPONSES, "\"store\":false,\"input\":[{\"role\":\"user\",\"content\":\"x\"}]", NULL},
    {DIALECT_RESPONSES, "\"store\":false,\"input\":[{\"type\":\"item_reference\",\"id\":\"i\"}]",
     "item_reference"},
    {DIALECT_RESPONSES, "\"store\":false,\"input\":[{\"id\":\"i\"}]", "item_reference"},
    {DIALECT_RESPONSES, "\"store\":false,\"tools\":[{\"type\":\"function\"},{\"type\":\"custom\"}]", NULL},
    {DIALECT_RESPONSES, "\"store\":false,\"tools\":[{\"type\":\"mcp\"}]", "hosted_tool"},
    {DIALECT_RESPONSES, "\"store\":false,\"tools\":[{\"type\":\"code_interpreter\"}]", "hosted_tool"},
    {DIALECT_EMBEDDINGS, "\"input\":\"x\"", NULL},
    {DIALECT_RERANK, "\"query\":\"x\"", "dialect"},
};

static void never_looked_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        struct arena a;
        struct json_doc d;
        struct json_fault fault;
        char text[256];
        arena_init(&a, NULL);
        snprintf(text, sizeof text, "{\"model\":\"m\",%s}", refusals[i].members);
        assert_true(json_parse(&a, span_str(text), NULL, &d, &fault));
        const char *why = key_refuses(refusals[i].dialect, &d);
        if ((why == NULL) != (refusals[i].why == NULL) || (why && strcmp(why, refusals[i].why) != 0))
            fail_msg("%s: %s", text, why ? why : "may be looked up");
        arena_reset(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(surroundings),    cmocka_unit_test(overridden), cmocka_unit_test(defaulted),
        cmocka_unit_test(scopes),          cmocka_unit_test(targets),    cmocka_unit_test(header_names),
        cmocka_unit_test(never_looked_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
