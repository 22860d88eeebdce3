/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader beside jansson: both accept the same texts and read the same values from them. Each text lies in
 * a block of its exact size, so that a sanitizer sees a read behind it.
 */
#include "unit.h"

#include "gen.h"
#include "oracle.h"

static const struct json_limits deep = {.max_depth = 2000};

/* jansson is narrower: no numbers out of range, no NUL in names, no lone surrogates. */
static bool is_known_difference(const json_error_t *err, const struct json_doc *d)
{
    enum json_error_code code = json_error_code(err);
    return code == json_error_numeric_overflow || code == json_error_null_byte_in_key ||
           d->odd & JSON_ODD_LONE_SURROGATE;
}

static void same_value(const struct json_doc *d, uint32_t i, json_t *v);

static void same_string(const struct json_doc *d, uint32_t i, const char *p, size_t n)
{
    struct arena a;
    arena_init(&a, NULL);
    struct span s = json_string(d, i, &a);
    assert_true(span_eq(s, span_of(p, n)));
    assert_true(json_string_eq(d, i, span_of(p, n)));
    char *other = malloc(n + 1);
    memcpy(other, p, n);
    other[n] = 'x';
    assert_false(json_string_eq(d, i, span_of(other, n + 1)));
    if (n > 0) {
        other[n - 1] ^= 1;
        assert_false(json_string_eq(d, i, span_of(other, n)));
        assert_false(json_string_eq(d, i, span_of(p, n - 1)));
    }
    free(other);
    struct buf b;
    buf_init(&b, 1 << 20);
    json_string_each(d, i, gen_collect, &b);
    assert_true(span_eq(buf_view(&b), s));
    buf_fini(&b);
    arena_reset(&a);
}

static void same_object(const struct json_doc *d, uint32_t obj, json_t *v)
{
    unsigned members = 0, distinct = 0;
    for (uint32_t i = json_first(d, obj); i != JSON_NODE_NONE; i = json_next(d, obj, i)) {
        struct arena a;
        arena_init(&a, NULL);
        members++;
        assert_int_equal(d->node[i].flags & JSON_IS_NAME, JSON_IS_NAME);
        struct span name = arena_dup(&a, json_string(d, i, &a));
        json_t *want = json_object_get(v, name.p);
        assert_non_null(want);
        uint32_t last = json_get(d, obj, name.p);
        assert_true(last >= i + 1);
        if (last == i + 1) {
            distinct++;
            same_value(d, last, want);
        }
        unsigned times = json_count_name(d, obj, name.p);
        assert_true(times >= 1);
        if (times > 1)
            assert_true(d->odd & JSON_ODD_DUPLICATE);
        arena_reset(&a);
    }
    assert_int_equal(members, d->node[obj].count);
    assert_int_equal(distinct, json_object_size(v));
}

static void same_value(const struct json_doc *d, uint32_t i, json_t *v)
{
    double real;
    uint64_t whole;
    assert_true(oracle_is(v, d->node[i].type));
    switch (d->node[i].type) {
    case JSON_NUMBER:
        assert_true(json_double(d, i, &real));
        assert_true(real == json_number_value(v));
        assert_int_equal(json_u64(d, i, &whole), json_is_integer(v) && *json_raw(d, i).p != '-');
        if (json_u64(d, i, &whole))
            assert_true(whole == (uint64_t)json_integer_value(v));
        break;
    case JSON_STRING:
        same_string(d, i, json_string_value(v), json_string_length(v));
        break;
    case JSON_ARRAY: {
        size_t at = 0;
        for (uint32_t k = json_first(d, i); k != JSON_NODE_NONE; k = json_next(d, i, k))
            same_value(d, k, json_array_get(v, at++));
        assert_int_equal(at, json_array_size(v));
        assert_int_equal(at, d->node[i].count);
        break;
    }
    case JSON_OBJECT:
        same_object(d, i, v);
        break;
    default: /* true, false, null: the type is all */
        break;
    }
}

/* Whether some object in the tree of <d> has fewer different names than members, told by jansson's sizes. */
static bool has_duplicate(const struct json_doc *d, uint32_t i, json_t *v)
{
    if (d->node[i].type == JSON_ARRAY) {
        size_t at = 0;
        for (uint32_t k = json_first(d, i); k != JSON_NODE_NONE; k = json_next(d, i, k)) {
            if (has_duplicate(d, k, json_array_get(v, at++)))
                return true;
        }
    }
    if (d->node[i].type != JSON_OBJECT)
        return false;
    if (d->node[i].count != json_object_size(v))
        return true;
    for (uint32_t k = json_first(d, i); k != JSON_NODE_NONE; k = json_next(d, i, k)) {
        struct arena a;
        arena_init(&a, NULL);
        bool yes = has_duplicate(d, k + 1, json_object_get(v, arena_dup(&a, json_string(d, k, &a)).p));
        arena_reset(&a);
        if (yes)
            return true;
    }
    return false;
}

static void same_compact(const struct json_doc *d, json_t *v)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    json_compact_each(d, 0, gen_collect, &b);
    json_error_t err;
    json_t *again = oracle_load(buf_view(&b), &err);
    assert_non_null(again);
    assert_true(json_equal(v, again));
    json_decref(again);
    buf_fini(&b);
}

/* Returns whether the text was accepted. */
static bool compare(struct span text)
{
    struct arena a;
    struct json_doc d;
    struct json_fault fault = {SIZE_MAX, NULL};
    json_error_t err;
    char *own = malloc(text.n ? text.n : 1);
    memcpy(own, text.p, text.n);
    text.p = own;
    arena_init(&a, NULL);
    bool ok = json_parse(&a, text, &deep, &d, &fault);
    json_t *v = NULL;
    if (memchr(text.p, 0, text.n)) /* jansson stumbles over NUL bytes; they are never right */
        assert_false(ok);
    else
        v = oracle_load(text, &err);
    if (ok != (v != NULL) && !(ok && is_known_difference(&err, &d))) {
        print_error("ours %s (%s at %zu), jansson %s: %.*s\n", ok ? "yes" : "no", ok ? "" : fault.what,
                    ok ? 0 : fault.at, v ? "yes" : "no", SPAN_FMT(text));
        fail();
    }
    if (!ok) {
        assert_non_null(fault.what);
        assert_true(fault.at <= text.n);
    }
    if (v) {
        same_value(&d, 0, v);
        assert_int_equal(has_duplicate(&d, 0, v), d.odd & JSON_ODD_DUPLICATE ? 1 : 0);
        same_compact(&d, v);
    }
    json_decref(v);
    arena_reset(&a);
    free(own);
    return ok;
}

static void random_documents_read_alike(void **state)
{
    struct gen g = {0};
    rng_seed(&g.rng, 1);
    buf_init(&g.b, 1 << 20);
    for (int i = 0; i < 4000; i++)
        assert_true(compare(gen_doc(&g)));
    buf_fini(&g.b);
}

static void mutate(struct gen *g)
{
    static const char odd[] = "{}[]\",:\\u0019-+.eE tfn\x00\x1f\x7f\x80\xc0\xe0\xed\xf4\xff";
    struct buf *b = &g->b;
    unsigned at = gen_below(g, (unsigned)b->n), n;
    switch (gen_below(g, 5)) {
    case 0:
        b->p[at] = odd[gen_below(g, sizeof(odd) - 1)];
        break;
    case 1:
        b->p[at] ^= (char)(1 << gen_below(g, 8));
        break;
    case 2: /* cut */
        b->n = at;
        break;
    case 3: /* a byte out */
        memmove(b->p + at, b->p + at + 1, b->n - at - 1);
        b->n--;
        break;
    default: /* a piece doubled */
        n = gen_below(g, (unsigned)b->n - at) + 1;
        buf_reserve(b, n);
        memmove(b->p + at + n, b->p + at, b->n - at);
        b->n += n;
    }
}

static void mutated_documents_are_judged_alike(void **state)
{
    struct gen g = {0};
    unsigned accepted = 0, refused = 0;
    rng_seed(&g.rng, 2);
    buf_init(&g.b, 1 << 21);
    for (int i = 0; i < 20000; i++) {
        gen_doc(&g);
        for (unsigned k = 1 + gen_below(&g, 2); k > 0 && g.b.n > 1; k--)
            mutate(&g);
        *(compare(buf_view(&g.b)) ? &accepted : &refused) += 1;
    }
    /* The mutations are of use only while both happen. */
    assert_true(accepted > 1000);
    assert_true(refused > 1000);
    buf_fini(&g.b);
}

static void plain_documents_come_out_of_compact_as_jansson_dumps_them(void **state)
{
    struct gen g = {.plain = true};
    rng_seed(&g.rng, 3);
    buf_init(&g.b, 1 << 20);
    struct buf got;
    buf_init(&got, 1 << 20);
    for (int i = 0; i < 1000; i++) {
        struct span text = gen_doc(&g);
        json_error_t err;
        json_t *v = oracle_load(text, &err);
        assert_non_null(v);
        /* jansson's indented dump in, its compact dump out. */
        char *pretty = json_dumps(v, JSON_INDENT(3) | JSON_ENCODE_ANY);
        char *compact = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
        struct arena a;
        struct json_doc d;
        struct json_fault fault;
        arena_init(&a, NULL);
        assert_true(json_parse(&a, span_str(pretty), NULL, &d, &fault));
        buf_clear(&got);
        json_compact_each(&d, 0, gen_collect, &got);
        assert_true(span_eq(buf_view(&got), span_str(compact)));
        arena_reset(&a);
        free(pretty);
        free(compact);
        json_decref(v);
    }
    buf_fini(&got);
    buf_fini(&g.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_documents_read_alike),
        cmocka_unit_test(mutated_documents_are_judged_alike),
        cmocka_unit_test(plain_documents_come_out_of_compact_as_jansson_dumps_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
