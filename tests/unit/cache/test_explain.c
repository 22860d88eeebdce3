/* SPDX-License-Identifier: Apache-2.0
 *
 * Why something was a miss: the parts that differ from the nearest stored request.
 */
#include "unit.h"

#include "cache/key_unit.h"

#include "base/hash.h"
#include "cache/explain.h"
#include "cache/explain_parts.h"

struct rig {
    struct explain *explain;
    struct cache_purge *purge;
    struct arena a;
    struct cache_scope scope;
    struct cache_digest targets;
    struct key_header header;
    struct key_input in;
    unsigned n;
    uint64_t now;
};

static void rig_init(struct rig *r)
{
    *r = (struct rig){.explain = explain_new(), .purge = purge_new(), .now = 1000};
    arena_init(&r->a, NULL);
    key_scope_of_key(NULL, &r->scope);
    key_targets(NULL, 0, NULL, 0, &r->targets);
    r->header = (struct key_header){SPAN("Anthropic-Beta"), SPAN("x")};
    r->in = (struct key_input){
        .dialect = DIALECT_CHAT,
        .path = SPAN("/v1/chat/completions"),
        .route = SPAN("m"),
        .scope = &r->scope,
        .targets = &r->targets,
        .headers = &r->header,
        .n_headers = 1,
    };
}

static void rig_fini(struct rig *r)
{
    explain_free(r->explain);
    purge_free(r->purge);
    arena_reset(&r->a);
}

static const struct cache_owner owner = {1, 2, 3};

/* A miss with this body, stored afterwards or not; "r1", "r2"... */
static struct cache_digest miss(struct rig *r, const char *body, bool stored)
{
    struct json_doc d;
    struct json_fault fault;
    struct cache_digest key;
    char id[16];
    assert_true(json_parse(&r->a, span_str(body), NULL, &d, &fault));
    r->in.doc = &d;
    key_exact(&r->in, &r->a, &key);
    snprintf(id, sizeof id, "r%u", ++r->n);
    explain_settle(r->explain,
                   explain_note(r->explain, span_str(id), "miss", NULL, &r->in, &key, &r->a, r->now++), NULL);
    if (stored)
        explain_stored(r->explain, &key, &owner, purge_stamp(r->purge, &owner), 5000);
    return key;
}

static void expect(struct rig *r, const char *id, const char *want)
{
    struct buf b;
    char text[2048];
    buf_init(&b, 1 << 16);
    if (want) {
        assert_true(explain_write(r->explain, span_str(id), r->purge, &b));
        snprintf(text, sizeof text, "%.*s", SPAN_FMT(buf_view(&b)));
        assert_string_equal(text, want);
    } else {
        assert_false(explain_write(r->explain, span_str(id), r->purge, &b));
        assert_int_equal(b.n, 0);
    }
    buf_fini(&b);
}

#define BODY(content, more)                                                                                  \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":" content "}]" more "}"
#define ANSWER(id, reason, differs)                                                                          \
    "{\"request_id\":\"" id "\",\"result\":\"miss\",\"reason\":\"" reason "\",\"differs\":[" differs "]}"

static void names_what_differs(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    miss(&r, BODY("\"hello\"", ",\"temperature\":0.5"), true);
    expect(&r, "r1", ANSWER("r1", "nothing_stored", ""));
    miss(&r, BODY("\"hello\"", ",\"temperature\":0.6"), false);
    expect(&r, "r2", ANSWER("r2", "differs", "\"temperature\""));
    miss(&r, BODY("\"hello you\"", ",\"temperature\":0.5"), false);
    expect(&r, "r3", ANSWER("r3", "differs", "\"messages[0].content\""));
    miss(&r, BODY("\"hello\"", ""), false); /* what only the other one has */
    expect(&r, "r4", ANSWER("r4", "differs", "\"temperature\""));
    miss(&r,
         BODY("[{\"type\":\"text\",\"text\":\"hello\"},{\"type\":\"text\",\"text\":\"x\"}]",
              ",\"temperature\":5e-1"),
         false);
    expect(&r, "r5", ANSWER("r5", "differs", "\"messages[0].content[0]\",\"messages[0].content[1]\""));
    expect(&r, "r6", NULL);
    rig_fini(&r);
}

static void surroundings_differ(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    miss(&r, BODY("\"q\"", ""), true);
    key_scope_of_route(SPAN("m"), &r.scope);
    miss(&r, BODY("\"q\"", ""), false);
    expect(&r, "r2", ANSWER("r2", "differs", "\"@scope\""));
    key_scope_of_key(NULL, &r.scope);
    r.header.value = SPAN("y");
    miss(&r, BODY("\"q\"", ""), false);
    expect(&r, "r3", ANSWER("r3", "differs", "\"@header anthropic-beta\""));
    r.header.value = SPAN("x");
    r.in.route = SPAN("other"); /* no reply of this route was stored */
    miss(&r, BODY("\"q\"", ""), false);
    expect(&r, "r4", ANSWER("r4", "nothing_stored", ""));
    rig_fini(&r);
}

/* Of many stored ones the one with most in common, wherever it stands. */
static void takes_the_nearest(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    for (int i = 0; i < 50; i++) {
        char body[256];
        snprintf(body, sizeof body, BODY("\"question %d\"", ",\"seed\":%d,\"top_p\":0.%d"), i, i, i + 10);
        miss(&r, body, true);
    }
    miss(&r, BODY("\"question 17\"", ",\"seed\":17,\"top_p\":0.5"), false);
    expect(&r, "r51", ANSWER("r51", "differs", "\"top_p\""));
    rig_fini(&r);
}

static void equal_keys(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    miss(&r, BODY("\"q\"", ""), true);
    miss(&r, BODY("\"q\"", ""), false);
    expect(&r, "r2", ANSWER("r2", "evicted", ""));
    r.now = 5000;
    miss(&r, BODY("\"q\"", ""), false);
    expect(&r, "r3", ANSWER("r3", "expired", ""));
    purge_now(r.purge, PURGE_ROUTE, owner.route);
    expect(&r, "r2", ANSWER("r2", "purged", ""));
    rig_fini(&r);
}

static void not_looked_up(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    explain_settle(r.explain,
                   explain_note(r.explain, SPAN("b"), "bypass", "hosted_tool", NULL, NULL, &r.a, 1), NULL);
    expect(&r, "b", "{\"request_id\":\"b\",\"result\":\"bypass\",\"reason\":\"hosted_tool\",\"differs\":[]}");
    rig_fini(&r);
}

static const struct explain_entry an_entry = {
    .key = {{0xab, 1}}, .scope = 0x0102, .created_ms = 0, .expires_ms = 9500};
#define AN_ENTRY(age, left)                                                                                  \
    "\"entry\":{\"key\":\"ab01000000000000000000000000000000000000000000000000000000000000\","               \
    "\"scope\":\"0201000000000000\",\"age_secs\":" age ",\"expires_in_secs\":" left "}"

/* Of hits: what answered, how old it was then and how long it had to live. */
static void hits(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    explain_hit(r.explain, SPAN("h"), "exact", "exact", &an_entry, 3000);
    expect(&r, "h",
           "{\"request_id\":\"h\",\"result\":\"hit\",\"reason\":\"exact\",\"differs\":[],\"layer\":"
           "\"exact\"," AN_ENTRY("3", "6") "}");
    explain_hit(r.explain, SPAN("h"), "exact", "stale_while_revalidate", &an_entry, 12000);
    expect(&r, "h",
           "{\"request_id\":\"h\",\"result\":\"hit\",\"reason\":\"stale_while_revalidate\",\"differs\":[],"
           "\"layer\":\"exact\"," AN_ENTRY("12", "-2") "}");
    /* Of several with one id the last one counts, also within a millisecond. */
    explain_settle(r.explain, explain_note(r.explain, SPAN("h"), "bypass", "store", NULL, NULL, &r.a, 12000),
                   NULL);
    expect(&r, "h", "{\"request_id\":\"h\",\"result\":\"bypass\",\"reason\":\"store\",\"differs\":[]}");
    explain_hit(r.explain, SPAN("i"), "exact", "exact", &an_entry, 3000);
    explain_settle(r.explain, explain_note(r.explain, SPAN("i"), "bypass", "store", NULL, NULL, &r.a, 3000),
                   NULL);
    explain_hit(r.explain, SPAN("i"), "exact", "exact", &an_entry, 3000);
    expect(&r, "i",
           "{\"request_id\":\"i\",\"result\":\"hit\",\"reason\":\"exact\",\"differs\":[],\"layer\":"
           "\"exact\"," AN_ENTRY("3", "6") "}");
    for (int i = 0; i < EXPLAIN_HITS; i++)
        explain_hit(r.explain, SPAN("x"), "exact", "exact", &an_entry, 4000);
    expect(&r, "i",
           "{\"request_id\":\"i\",\"result\":\"bypass\",\"reason\":\"store\",\"differs\":[]}"); /* that is
                                                                                                   left */
    rig_fini(&r);
}

/* What was noted as a miss may still be answered by another layer. */
static void settled(void **state)
{
    (void)state;
    struct rig r;
    struct json_doc d;
    struct json_fault fault;
    struct cache_digest partition = {{0xcd}};
    rig_init(&r);
    assert_true(json_parse(&r.a, SPAN(BODY("\"q\"", "")), NULL, &d, &fault));
    r.in.doc = &d;
    struct cache_digest key = {{1}};
    struct explain_record *note = explain_note(r.explain, SPAN("s"), "miss", NULL, &r.in, &key, &r.a, 2000);
    expect(&r, "s", ANSWER("s", "nothing_stored", "")); /* still under way */
    explain_settle(r.explain, note,
                   &(struct explain_outcome){.layer = "semantic",
                                             .reason = "semantic",
                                             .entry = &an_entry,
                                             .partition = &partition,
                                             .similarity = 0.75});
    expect(&r, "s",
           "{\"request_id\":\"s\",\"result\":\"hit\",\"reason\":\"semantic\",\"differs\":[],\"layer\":"
           "\"semantic\"," AN_ENTRY(
               "2", "7") ",\"semantic\":{\"partition\":"
                         "\"cd00000000000000000000000000000000000000000000000000000000000000\","
                         "\"similarity\":0.75,\"reason\":null}}");
    note = explain_note(r.explain, SPAN("t"), "miss", NULL, &r.in, &key, &r.a, 2000);
    explain_settle(r.explain, note, &(struct explain_outcome){.semantic = "part"});
    expect(&r, "t",
           "{\"request_id\":\"t\",\"result\":\"miss\",\"reason\":\"nothing_stored\",\"differs\":[],"
           "\"semantic\":{\"reason\":\"part\"}}");
    /* A record outlives the ring as long as its request is under way. */
    note = explain_note(r.explain, SPAN("u"), "miss", NULL, &r.in, &key, &r.a, 2000);
    for (int i = 0; i < EXPLAIN_RECENT; i++)
        explain_settle(r.explain, explain_note(r.explain, SPAN("x"), "bypass", "store", NULL, NULL, &r.a, 1),
                       NULL);
    explain_settle(r.explain, note, &(struct explain_outcome){.layer = "coalesced", .reason = "coalesced"});
    expect(&r, "u", NULL);
    rig_fini(&r);
}

/* The book forgets; what was stored stays longer than what was only looked up. */
static void forgets(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    miss(&r, BODY("\"q\"", ",\"seed\":1"), true);
    for (int i = 0; i < EXPLAIN_RECENT; i++)
        explain_settle(r.explain, explain_note(r.explain, SPAN("x"), "bypass", "store", NULL, NULL, &r.a, 1),
                       NULL);
    expect(&r, "r1", NULL);
    miss(&r, BODY("\"q\"", ",\"seed\":2"), false);
    expect(&r, "r2", ANSWER("r2", "differs", "\"seed\""));
    rig_fini(&r);
}

/* Bounded whatever comes: long names, many members, deep values. */
static void bounded(void **state)
{
    (void)state;
    struct rig r;
    struct buf b;
    rig_init(&r);
    buf_init(&b, 1 << 20);
    BUF_LIT(&b, "{\"model\":\"m\",\"messages\":[]");
    for (int i = 0; i < 300; i++)
        buf_printf(&b, ",\"member %d %0*d\":[[[[%d]]]]", i, i % 150 + 1, 0, i);
    buf_add(&b, "}", 2);
    struct cache_digest x = miss(&r, b.p, true);
    buf_clear(&b);
    struct json_doc d;
    struct json_fault fault;
    struct explain_parts *p = malloc(sizeof *p);
    r.in.doc = &d;
    assert_true(json_parse(&r.a, SPAN("{\"a\":[1,2,{\"b\":null}],\"user\":\"u\",\"stream\":false}"), NULL, &d,
                           &fault));
    explain_parts_of(&r.in, &r.a, p);
    bool has_user = false, has_b = false;
    for (unsigned i = 0; i < p->n; i++) {
        has_user |= span_eq(explain_path(p, i), SPAN("user"));
        has_b |= span_eq(explain_path(p, i), SPAN("a[2].b"));
    }
    assert_int_equal(p->n, 5 + 5); /* five around; a, its three items, b */
    assert_true(has_b && !has_user);
    free(p);
    (void)x;
    buf_fini(&b);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_what_differs),
        cmocka_unit_test(surroundings_differ),
        cmocka_unit_test(takes_the_nearest),
        cmocka_unit_test(equal_keys),
        cmocka_unit_test(not_looked_up),
        cmocka_unit_test(hits),
        cmocka_unit_test(settled),
        cmocka_unit_test(forgets),
        cmocka_unit_test(bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
