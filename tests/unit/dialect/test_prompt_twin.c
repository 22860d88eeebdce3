/* SPDX-License-Identifier: Apache-2.0
 *
 * The prompt readers beside a naive twin: it reads the body with jansson, builds the whole text, the whole
 * measured length and all bytes of the digest in memory, and cuts at the end. Bodies are random; the seed is
 * printed on failure.
 */
#include "unit.h"

#include "json/oracle.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/rng.h"
#include "dialect/dialect.h"

/* ---- bodies ---- */

struct gen {
    struct rng r;
    struct buf b;
    bool is_plain; /* strings without escapes: values that the digest takes as they are written */
};

static unsigned below(struct gen *g, unsigned n)
{
    return (unsigned)rng_below(&g->r, n);
}

static void space(struct gen *g)
{
    if (below(g, 6) == 0)
        buf_add_str(&g->b, below(g, 2) ? " " : "\n\t");
}

static void lit(struct gen *g, const char *s)
{
    space(g);
    buf_add_str(&g->b, s);
    space(g);
}

static void string(struct gen *g)
{
    static const char *const plain[] = {"a",  "the ", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                        ": ", "{",    "user"};
    static const char *const escaped[] = {"\\n",     "\\\"",           "\\\\", "\\u00e9",
                                          "\\u20AC", "\\uD83D\\uDE00", "\\t",  "\\/"};
    unsigned n = below(g, 200) == 0 ? 5000 + below(g, 20000) : below(g, 10);
    buf_add_char(&g->b, '"');
    while (n-- > 0)
        buf_add_str(&g->b, !g->is_plain && below(g, 9) == 0 ? escaped[below(g, 8)] : plain[below(g, 8)]);
    buf_add_char(&g->b, '"');
}

static void plain_string(struct gen *g)
{
    bool was = g->is_plain;
    g->is_plain = true;
    string(g);
    g->is_plain = was;
}

/* Any value, but such that jansson's dump is how it is written, white space aside. */
static void value(struct gen *g, unsigned depth)
{
    switch (below(g, depth ? 7 : 4)) {
    case 0:
        lit(g, "null");
        break;
    case 1:
        lit(g, below(g, 2) ? "true" : "-17");
        break;
    case 2:
    case 3:
        plain_string(g);
        break;
    case 4:
        lit(g, "[]");
        break;
    case 5:
        lit(g, "[");
        value(g, depth - 1);
        lit(g, ",");
        value(g, depth - 1);
        lit(g, "]");
        break;
    default:
        lit(g, "{\"k\":");
        value(g, depth - 1);
        lit(g, ",\"l\":");
        value(g, depth - 1);
        lit(g, "}");
    }
}

static void result_content(struct gen *g)
{
    unsigned n = below(g, 3);
    if (below(g, 2)) {
        string(g);
        return;
    }
    if (below(g, 4) == 0) {
        lit(g, "{\"x\":");
        value(g, 2);
        lit(g, "}");
        return;
    }
    lit(g, "[");
    for (unsigned i = 0; i <= n; i++) {
        lit(g, i ? "," : "");
        if (below(g, 2)) {
            lit(g, "{\"type\":\"text\",\"text\":");
            string(g);
        } else {
            lit(g, "{\"type\":\"image\",\"source\":");
            value(g, 2);
        }
        lit(g, "}");
    }
    lit(g, "]");
}

static void part(struct gen *g)
{
    switch (below(g, 6)) {
    case 0:
        string(g);
        return;
    case 1:
        lit(g, "{\"type\":\"image_url\",\"image_url\":");
        value(g, 2);
        break;
    case 2:
        lit(g, "{\"type\":\"tool_use\",\"id\":\"x\",\"name\":");
        string(g);
        lit(g, ",\"input\":");
        value(g, 2);
        break;
    case 3:
        lit(g, "{\"type\":\"tool_result\",\"content\":");
        result_content(g);
        break;
    default:
        lit(g, "{\"type\":\"text\",\"text\":");
        string(g);
    }
    lit(g, "}");
}

static void content(struct gen *g)
{
    unsigned n = below(g, 4);
    if (below(g, 2)) {
        string(g);
        return;
    }
    lit(g, "[");
    for (unsigned i = 0; i < n; i++) {
        lit(g, i ? "," : "");
        part(g);
    }
    lit(g, "]");
}

static void call(struct gen *g)
{
    lit(g, "{\"id\":\"c\",\"function\":{\"name\":");
    string(g);
    lit(g, ",\"arguments\":");
    if (below(g, 2))
        string(g);
    else
        value(g, 3);
    lit(g, "}}");
}

static void item(struct gen *g)
{
    static const char *const roles[] = {"user", "assistant", "system", "tool"};
    unsigned kind = below(g, 8);
    if (kind == 0) {
        lit(g, "{\"type\":\"function_call\",\"name\":");
        string(g);
        lit(g, ",\"arguments\":");
        string(g);
    } else if (kind == 1) {
        lit(g, "{\"type\":\"function_call_output\",\"output\":");
        result_content(g);
    } else if (kind == 2) {
        lit(g, "{\"type\":\"reasoning\",\"summary\":");
        value(g, 2);
    } else {
        lit(g, "{\"role\":");
        buf_printf(&g->b, "\"%s\"", roles[below(g, 4)]);
        if (kind > 3 || below(g, 2)) {
            lit(g, ",\"content\":");
            content(g);
        }
        if (kind == 4 || kind == 3) {
            lit(g, ",\"tool_calls\":[");
            call(g);
            lit(g, ",");
            call(g);
            lit(g, "]");
        }
    }
    lit(g, "}");
}

static void items(struct gen *g)
{
    unsigned n = below(g, 6);
    lit(g, "[");
    for (unsigned i = 0; i < n; i++) {
        lit(g, i ? "," : "");
        item(g);
    }
    lit(g, "]");
}

static void strings(struct gen *g)
{
    unsigned n = below(g, 4);
    lit(g, "[");
    for (unsigned i = 0; i < n; i++) {
        lit(g, i ? "," : "");
        if (below(g, 3))
            string(g);
        else
            lit(g, below(g, 2) ? "128009" : "[5,6,7]");
    }
    lit(g, "]");
}

static struct span body(struct gen *g, enum dialect_id id)
{
    buf_clear(&g->b);
    lit(g, "{\"model\":\"m\"");
    if (id == DIALECT_MESSAGES && below(g, 2)) {
        lit(g, ",\"system\":");
        content(g);
    }
    if (id == DIALECT_RESPONSES && below(g, 2)) {
        lit(g, ",\"instructions\":");
        string(g);
    }
    static const char *const member[] = {"messages", "prompt", "messages", "input", "input", "documents"};
    if (below(g, 20)) {
        buf_printf(&g->b, ",\"%s\":", member[id]);
        if (id == DIALECT_COMPLETIONS || id == DIALECT_EMBEDDINGS)
            strings(g);
        else if (id == DIALECT_RESPONSES && below(g, 3) == 0)
            string(g);
        else
            items(g);
    }
    lit(g, ",\"stream\":true}");
    assert_false(g->b.full);
    return buf_view(&g->b);
}

/* ---- the twin ---- */

struct twin {
    struct buf text, hashed;
    uint64_t len;
};

static void twin_text(struct twin *t, const char *p, size_t n)
{
    buf_add(&t->text, p, n);
    buf_add(&t->hashed, p, n);
    t->len += n;
}

static int dump_piece(const char *p, size_t n, void *arg)
{
    return buf_add(arg, p, n) ? 0 : -1;
}

static void twin_dump(struct twin *t, const json_t *v)
{
    assert_int_equal(json_dump_callback(v, dump_piece, &t->hashed, JSON_COMPACT | JSON_ENCODE_ANY), 0);
}

static void twin_measured(struct twin *t, const json_t *v)
{
    size_t before = t->hashed.n;
    if (!v)
        return;
    if (oracle_is(v, JSON_STRING))
        buf_add(&t->hashed, json_string_value(v), json_string_length(v));
    else
        twin_dump(t, v);
    t->len += t->hashed.n - before;
}

static const json_t *get(const json_t *v, const char *name)
{
    const json_t *m = json_object_get(v, name);
    return m && !oracle_is(m, JSON_NULL) ? m : NULL;
}

static const char *str(const json_t *v, const char *name)
{
    const char *s = json_string_value(get(v, name));
    return s ? s : "";
}

static void twin_result(struct twin *t, const json_t *v)
{
    if (!oracle_is(v, JSON_ARRAY)) {
        twin_measured(t, v);
        return;
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *block = json_array_get(v, i);
        if (get(block, "text"))
            twin_measured(t, get(block, "text"));
        else
            twin_dump(t, block);
    }
}

static void twin_content(struct twin *t, const json_t *v)
{
    if (oracle_is(v, JSON_ARRAY)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            twin_content(t, json_array_get(v, i));
        return;
    }
    const json_t *s = oracle_is(v, JSON_STRING) ? v : get(v, "text");
    if (s) {
        twin_text(t, json_string_value(s), json_string_length(s));
    } else if (strcmp(str(v, "type"), "tool_use") == 0) {
        twin_measured(t, get(v, "name"));
        twin_measured(t, get(v, "input"));
    } else if (strcmp(str(v, "type"), "tool_result") == 0) {
        twin_result(t, get(v, "content"));
    } else {
        twin_dump(t, v);
    }
}

static void twin_turn(struct twin *t, const char *role, const json_t *v)
{
    twin_text(t, role, strlen(role));
    twin_text(t, ": ", 2);
    if (v)
        twin_content(t, v);
    twin_text(t, "\n", 1);
}

static void twin_item(struct twin *t, const json_t *v)
{
    const json_t *calls = get(v, "tool_calls");
    const char *role = *str(v, "role") ? str(v, "role") : "item";
    if (get(v, "content") || calls) {
        twin_turn(t, role, get(v, "content"));
    } else {
        twin_text(t, role, strlen(role));
        twin_text(t, ": ", 2);
        if (get(v, "arguments")) {
            twin_measured(t, get(v, "name"));
            twin_measured(t, get(v, "arguments"));
        } else if (get(v, "output")) {
            twin_result(t, get(v, "output"));
        } else {
            twin_dump(t, v);
        }
        twin_text(t, "\n", 1);
    }
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *f = get(json_array_get(calls, i), "function");
        twin_measured(t, get(f, "name"));
        twin_measured(t, get(f, "arguments"));
    }
}

static void twin_bare(struct twin *t, const json_t *v)
{
    char id[32];
    if (oracle_is(v, JSON_ARRAY)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            twin_bare(t, json_array_get(v, i));
    } else if (oracle_is(v, JSON_NUMBER)) {
        twin_text(t, id, (size_t)snprintf(id, sizeof id, "%lld,", (long long)json_integer_value(v)));
    } else {
        twin_text(t, json_string_value(v), json_string_length(v));
    }
}

static void twin_read(struct twin *t, enum dialect_id id, struct span text)
{
    json_t *j = oracle_load(text, NULL);
    assert_non_null(j);
    const json_t *list = id == DIALECT_CHAT || id == DIALECT_MESSAGES ? get(j, "messages") : get(j, "input");
    buf_clear(&t->text);
    buf_clear(&t->hashed);
    t->len = 0;
    if (id == DIALECT_MESSAGES && get(j, "system"))
        twin_turn(t, "system", get(j, "system"));
    if (id == DIALECT_RESPONSES && get(j, "instructions"))
        twin_turn(t, "system", get(j, "instructions"));
    if (id == DIALECT_COMPLETIONS)
        list = get(j, "prompt");
    if (list && (id == DIALECT_COMPLETIONS || id == DIALECT_EMBEDDINGS))
        twin_bare(t, list);
    else if (list && oracle_is(list, JSON_STRING))
        twin_turn(t, "user", list);
    else if (id != DIALECT_RERANK)
        for (size_t i = 0; i < json_array_size(list); i++)
            twin_item(t, json_array_get(list, i));
    json_decref(j);
    if (t->len == 0) {
        buf_clear(&t->hashed);
        twin_text(t, text.p, text.n);
    }
    if (t->text.n > PROMPT_TEXT_MAX) {
        t->text.n = PROMPT_TEXT_MAX;
        while (((unsigned char)t->text.p[t->text.n] & 0xc0) == 0x80)
            t->text.n--;
    }
}

static void collect(void *arg, const char *p, size_t n)
{
    buf_add(arg, p, n);
}

static void like_the_twin(void **state)
{
    (void)state;
    enum { BODIES = 24000 };
    struct gen g = {0};
    struct twin t = {0};
    struct arena a;
    struct buf seen;
    size_t n_raw = 0, n_cut = 0, n_mixed = 0;
    buf_init(&g.b, 16 << 20);
    buf_init(&t.text, 16 << 20);
    buf_init(&t.hashed, 16 << 20);
    buf_init(&seen, 16 << 20);
    arena_init(&a, NULL);
    for (uint64_t seed = 0; seed < BODIES; seed++) {
        rng_seed(&g.r, seed);
        enum dialect_id id = (enum dialect_id)(seed % DIALECT_COUNT);
        struct span text = body(&g, id);
        struct json_doc d;
        struct json_fault fault;
        struct prompt_context c;
        assert_true(json_parse(&a, text, NULL, &d, &fault));
        buf_clear(&seen);
        dialect_prompt_with(id, &d, &(struct prompt_options){.each = collect, .arg = &seen}, &a, &c);
        twin_read(&t, id, text);
        if (!span_eq(c.text, buf_view(&t.text)) || c.len != t.len ||
            c.digest != hash_bytes(t.hashed.p, t.hashed.n) || seen.n != t.len)
            fail_msg("seed %llu, dialect %d, len %llu for %llu: %.*s", (unsigned long long)seed, id,
                     (unsigned long long)c.len, (unsigned long long)t.len,
                     (int)(text.n < 3000 ? text.n : 3000), text.p);
        n_raw += c.is_raw;
        n_cut += c.len > PROMPT_TEXT_MAX && c.text.n >= PROMPT_TEXT_MAX - 3;
        n_mixed += t.hashed.n > t.text.n;
        arena_reset(&a);
    }
    /* All branches were met, not only the easy one. */
    assert_true(n_raw > 1000 && n_cut > 100 && n_mixed > 5000);
    buf_fini(&g.b);
    buf_fini(&t.text);
    buf_fini(&t.hashed);
    buf_fini(&seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(like_the_twin)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
