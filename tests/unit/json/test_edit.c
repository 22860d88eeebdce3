/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "gen.h"
#include "json/edit.h"
#include "oracle.h"

struct bench {
    struct arena a;
    struct json_doc d;
    struct json_edits e;
};

static void open_text(struct bench *b, struct span text)
{
    struct json_fault fault;
    arena_init(&b->a, NULL);
    assert_true(json_parse(&b->a, text, NULL, &b->d, &fault));
    json_edits_init(&b->e, &b->d, &b->a);
}

static void expect(struct bench *b, const char *want)
{
    struct span got = SPAN("untouched");
    bool ok = json_edits_apply(&b->e, &got);
    assert_int_equal(ok, want != NULL);
    if (!ok)
        assert_true(span_eq(got, SPAN("untouched")));
    else if (!span_eq(got, span_str(want)))
        fail_msg("got %.*s, not %s", SPAN_FMT(got), want);
    arena_reset(&b->a);
}

#define SET(name, value) json_edits_set(&b.e, span_str(name), span_str(value))
#define REMOVE(name)     json_edits_remove(&b.e, span_str(name))
#define REPLACE(node, v) json_edits_replace(&b.e, (node), span_str(v))
#define OPEN(text)       open_text(&b, span_str(text))

static void nothing_to_do_gives_the_same_text(void **state)
{
    struct bench b;
    struct span got;
    OPEN(" {\"a\" : 1} ");
    REMOVE("b");
    assert_true(json_edits_apply(&b.e, &got));
    assert_ptr_equal(got.p, b.d.text.p);
    arena_reset(&b.a);
}

static void setting_changes_the_value_only(void **state)
{
    struct bench b;
    OPEN(" { \"model\" : \"x\" , \"n\" : [ 1 , 2 ] }\n");
    SET("model", "\"y-long\"");
    expect(&b, " { \"model\" : \"y-long\" , \"n\" : [ 1 , 2 ] }\n");
    OPEN("{\"m\\u006fdel\":1,\"a\":2,\"model\":3}");
    SET("model", "0");
    expect(&b, "{\"m\\u006fdel\":0,\"a\":2,\"model\":0}");
    OPEN("{\"a\":1}");
    SET("a", "2");
    SET("a", "3");
    expect(&b, "{\"a\":3}");
}

static void absent_members_are_appended(void **state)
{
    struct bench b;
    OPEN("{}");
    SET("a", "1");
    expect(&b, "{\"a\":1}");
    OPEN(" { \n } ");
    SET("a", "1");
    SET("b\"\n", "{}");
    expect(&b, " {\"a\":1,\"b\\\"\\n\":{} \n } ");
    OPEN("{ \"x\": [1] }");
    SET("a", "1");
    SET("b", "2");
    SET("a", "3");
    expect(&b, "{ \"x\": [1],\"a\":3,\"b\":2 }");
    OPEN("{ \"x\": [1] }");
    SET("a", "1");
    REMOVE("a");
    expect(&b, "{ \"x\": [1] }");
}

static void removing_takes_one_comma_along(void **state)
{
    struct bench b;
    static const char three[] = "{ \"a\": 1 , \"b\": 2 , \"c\": 3 }";
    OPEN(three);
    REMOVE("a");
    expect(&b, "{ \"b\": 2 , \"c\": 3 }");
    OPEN(three);
    REMOVE("b");
    expect(&b, "{ \"a\": 1 , \"c\": 3 }");
    OPEN(three);
    REMOVE("c");
    expect(&b, "{ \"a\": 1 , \"b\": 2 }");
    OPEN(three);
    REMOVE("c");
    REMOVE("b");
    expect(&b, "{ \"a\": 1 }");
    OPEN(three);
    REMOVE("a");
    REMOVE("c");
    expect(&b, "{ \"b\": 2 }");
    OPEN(three);
    REMOVE("b");
    REMOVE("a");
    REMOVE("c");
    REMOVE("c");
    expect(&b, "{  }");
    OPEN("{\"a\":1,\"b\":2,\"\\u0061\":3}");
    REMOVE("a");
    expect(&b, "{\"b\":2}");
}

static void edits_go_together(void **state)
{
    struct bench b;
    OPEN("{\"a\":1,\"b\":2}");
    REMOVE("a");
    REMOVE("b");
    SET("c", "3");
    expect(&b, "{\"c\":3}");
    OPEN("{\"a\":1,\"b\":2}");
    REMOVE("b");
    SET("c", "3");
    SET("a", "9");
    expect(&b, "{\"a\":9,\"c\":3}");
    OPEN("{\"a\":1,\"b\":2}");
    REMOVE("b");
    SET("b", "3");
    expect(&b, "{\"a\":1,\"b\":3}");
    OPEN("{\"a\":1,\"b\":2}");
    SET("b", "3");
    REMOVE("b");
    expect(&b, "{\"a\":1}");
    OPEN("{\"a\":[1,2],\"b\":2}");
    REPLACE(3, "7"); /* {, a, [, 1 */
    SET("b", "3");
    expect(&b, "{\"a\":[7,2],\"b\":3}");
    OPEN("{\"a\":[1,2],\"b\":2}");
    REPLACE(1, "\"z\""); /* a name */
    REPLACE(4, "7");
    expect(&b, "{\"z\":[1,7],\"b\":2}");
    OPEN("[1,2]");
    REPLACE(1, "7");
    expect(&b, "[7,2]");
    OPEN(" 1 ");
    REPLACE(0, "2");
    expect(&b, " 2 ");
}

static void edits_inside_a_removed_member_go_with_it(void **state)
{
    struct bench b;
    OPEN("{\"a\":[1,2],\"b\":2}");
    REPLACE(3, "7");
    REPLACE(1, "\"z\"");
    REMOVE("a");
    expect(&b, "{\"b\":2}");
    OPEN("{\"b\":2,\"a\":[1,2]}");
    REMOVE("a");
    REPLACE(5, "7");
    expect(&b, "{\"b\":2}");
}

static void what_cannot_be_done_is_refused(void **state)
{
    struct bench b;
    OPEN("{\"a\":[1,2]}");
    REPLACE(3, "7");
    SET("a", "1");
    expect(&b, NULL);
    OPEN("{\"a\":[1,2]}");
    REPLACE(2, "7");
    REPLACE(3, "7");
    expect(&b, NULL);
    OPEN("{\"a\":1}");
    REPLACE(0, "{}");
    REMOVE("a");
    expect(&b, NULL);
    OPEN("{\"a\":1}");
    REPLACE(0, "{}");
    SET("b", "1");
    expect(&b, NULL);
    OPEN("[]");
    SET("b", "1");
    expect(&b, NULL);
    OPEN("{}");
    for (int i = 0; i <= JSON_EDITS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        SET(name, "1");
    }
    expect(&b, NULL);
}

static void arguments_are_copied(void **state)
{
    struct bench b;
    char name[] = "new", value[] = "123";
    OPEN("{\"a\":1}");
    SET(name, value);
    SET("a", value);
    memset(name, 'x', 3);
    memset(value, 'x', 3);
    expect(&b, "{\"a\":123,\"new\":123}");
}

/* Each member that was not edited still stands in the new text as it was written. */
static void members_stay(const struct json_doc *d, const bool *edited, struct span got)
{
    unsigned k = 0;
    size_t from = 0;
    for (uint32_t i = json_first(d, 0); i != JSON_NODE_NONE; i = json_next(d, 0, i)) {
        if (edited[k++])
            continue;
        struct span piece = span_of(d->text.p + d->node[i].at,
                                    d->node[i + 1].at + (size_t)d->node[i + 1].len - d->node[i].at);
        ptrdiff_t at = span_find(span_of(got.p + from, got.n - from), piece);
        assert_true(at >= 0);
        from += (size_t)at + piece.n;
    }
}

static void one_random_object(struct gen *g)
{
    struct bench b;
    bool edited[64] = {false};
    struct span text = gen_object(g);
    json_error_t err;
    json_t *v = oracle_load(text, &err);
    assert_non_null(v);
    open_text(&b, text);
    unsigned members = b.d.node[0].count;
    for (unsigned step = gen_below(g, 12); step > 0; step--) {
        char name[24];
        const char *value = ((const char *[]){"1", "\"s\"", "[1,{}]", "null"})[gen_below(g, 4)];
        unsigned k = gen_below(g, members + 2), at = 0;
        snprintf(name, sizeof(name), "fresh%u", k);
        for (uint32_t i = json_first(&b.d, 0); i != JSON_NODE_NONE; i = json_next(&b.d, 0, i)) {
            if (at++ == k)
                snprintf(name, sizeof(name), "%.*s", SPAN_FMT(json_string(&b.d, i, &b.a)));
        }
        edited[k] = true;
        if (gen_below(g, 2)) {
            SET(name, value);
            json_object_set_new(v, name, json_loads(value, JSON_DECODE_ANY, NULL));
        } else {
            REMOVE(name);
            json_object_del(v, name);
        }
    }
    struct span got;
    assert_true(json_edits_apply(&b.e, &got));
    json_t *w = oracle_load(got, &err);
    if (!w || !json_equal(v, w))
        fail_msg("%.*s became %.*s", SPAN_FMT(text), SPAN_FMT(got));
    members_stay(&b.d, edited, got);
    json_decref(w);
    json_decref(v);
    arena_reset(&b.a);
}

static void random_edits_give_what_the_tree_gives(void **state)
{
    struct gen g = {.unique = true};
    rng_seed(&g.rng, 11);
    buf_init(&g.b, 1 << 20);
    for (int i = 0; i < 4000; i++)
        one_random_object(&g);
    buf_fini(&g.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_do_gives_the_same_text),
        cmocka_unit_test(setting_changes_the_value_only),
        cmocka_unit_test(absent_members_are_appended),
        cmocka_unit_test(removing_takes_one_comma_along),
        cmocka_unit_test(edits_go_together),
        cmocka_unit_test(edits_inside_a_removed_member_go_with_it),
        cmocka_unit_test(what_cannot_be_done_is_refused),
        cmocka_unit_test(arguments_are_copied),
        cmocka_unit_test(random_edits_give_what_the_tree_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
