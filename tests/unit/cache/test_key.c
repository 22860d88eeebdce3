/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact key over a corpus of bodies in five dialects: every change of every member at every depth misses
 * but for the documented list, every other way of writing the same request hits; golden values.
 */
#include "unit.h"

#include "cache/key_unit.h"

enum { CORPUS_LEAST = 60 };

/* Changes. */

struct mutation {
    const struct corpus_body *body;
    const struct json_doc *doc;
    struct cache_digest key; /* of the body as it is */
    unsigned n_missed, n_listed;
};

/* The text with the bytes [from, to) replaced. */
static struct span spliced(struct buf *b, struct span text, size_t from, size_t to, struct span with)
{
    buf_clear(b);
    buf_add(b, text.p, from);
    buf_add_span(b, with);
    buf_add(b, text.p + to, text.n - to);
    return buf_view(b);
}

static bool is_name(const struct json_doc *d, uint32_t name, const char *word)
{
    return json_string_eq(d, name, span_str(word));
}

/* Name node of the root member that node <i> belongs to. */
static uint32_t root_member(const struct json_doc *d, uint32_t i)
{
    for (uint32_t n = json_first(d, 0); n != JSON_NODE_NONE; n = json_next(d, 0, n))
        if (i >= n && i < d->node[n + 1].end)
            return n;
    return JSON_NODE_NONE;
}

/* The documented list: whether a change at node <i> may go unnoticed. */
static bool is_listed(const struct json_doc *d, uint32_t i)
{
    static const char *const words[] = {"user", "metadata", "safety_identifier", "prompt_cache_key"};
    uint32_t m = root_member(d, i);
    for (size_t k = 0; m != JSON_NODE_NONE && k < ARRAY_LEN(words); k++)
        if (is_name(d, m, words[k]))
            return true;
    return false;
}

static void try_change(struct mutation *m, uint32_t node, struct span text, bool listed)
{
    struct cache_digest key = key_of(m->body->dialect, text);
    listed |= is_listed(m->doc, node);
    if (digest_eq(&key, &m->key) != listed)
        fail_msg("%s: %.*s and %.*s", listed ? "splits" : "one key", SPAN_FMT(m->body->text), SPAN_FMT(text));
    if (listed)
        m->n_listed++;
    else
        m->n_missed++;
}

/* Other values in place of a scalar or container. */
static void change_value(struct mutation *m, uint32_t i, struct buf *b)
{
    const struct json_node *n = &m->doc->node[i];
    size_t from = n->at, to = n->at + n->len;
    struct span text = m->body->text;
    /* The name in front of it, if it is a member's value. */
    bool is_false_stream = n->type == JSON_FALSE && i > 0 && m->doc->node[i - 1].flags & JSON_IS_NAME &&
                           root_member(m->doc, i) == i - 1 && is_name(m->doc, i - 1, "stream");
    switch ((enum json_type)n->type) {
    case JSON_NULL:
        try_change(m, i, spliced(b, text, from, to, SPAN("0")), false);
        try_change(m, i, spliced(b, text, from, to, SPAN("\"null\"")), false);
        break;
    case JSON_FALSE:
    case JSON_TRUE:
        try_change(m, i, spliced(b, text, from, to, n->type == JSON_TRUE ? SPAN("false") : SPAN("true")),
                   false);
        try_change(m, i, spliced(b, text, from, to, SPAN("1")), false);
        try_change(m, i, spliced(b, text, from, to, SPAN("null")), is_false_stream);
        break;
    case JSON_NUMBER:
        if (span_eq(json_raw(m->doc, i), SPAN("0"))) {
            try_change(m, i, spliced(b, text, to, to, SPAN(".1")), false);
        } else {
            try_change(m, i, spliced(b, text, to, to, SPAN("1")), false);
            try_change(m, i, spliced(b, text, to, to, SPAN("e1")), false);
        }
        try_change(m, i, spliced(b, text, from, to, SPAN("true")), false);
        break;
    case JSON_STRING:
        try_change(m, i, spliced(b, text, to - 1, to - 1, SPAN("~")), false);
        try_change(m, i, spliced(b, text, from + 1, from + 1, SPAN(" ")), false);
        try_change(m, i, spliced(b, text, from, to, SPAN("null")), false);
        try_change(m, i, spliced(b, text, from, to, SPAN("[]")), false);
        break;
    case JSON_ARRAY:
        try_change(m, i, spliced(b, text, to - 1, to - 1, n->count ? SPAN(",0") : SPAN("0")), false);
        try_change(m, i, spliced(b, text, from + 1, from + 1, n->count ? SPAN("0,") : SPAN("0")), false);
        try_change(m, i, spliced(b, text, from, to, SPAN("{}")), false);
        break;
    case JSON_OBJECT:
        try_change(m, i, spliced(b, text, to - 1, to - 1, n->count ? SPAN(",\"new\":0") : SPAN("\"new\":0")),
                   false);
        try_change(m, i, spliced(b, text, from, to, SPAN("7")), false);
        break;
    }
}

/* A null that is the same as nothing: the member may go, or be called otherwise. */
static bool null_may_go(const struct json_doc *d, uint32_t name)
{
    static const char *const fixed[] = {"content", "refusal", "strict", "summary"};
    if (d->node[name + 1].type != JSON_NULL)
        return false;
    if (root_member(d, name) == name)
        return true;
    for (size_t k = 0; k < ARRAY_LEN(fixed); k++)
        if (is_name(d, name, fixed[k]))
            return true;
    return false;
}

static void change_members(struct mutation *m, uint32_t obj, struct buf *b)
{
    const struct json_doc *d = m->doc;
    struct span text = m->body->text;
    uint32_t before = JSON_NODE_NONE;
    for (uint32_t n = json_first(d, obj); n != JSON_NODE_NONE; before = n, n = json_next(d, obj, n)) {
        const struct json_node *name = &d->node[n], *value = &d->node[n + 1];
        uint32_t next = json_next(d, obj, n);
        bool listed = null_may_go(d, n) || (obj == 0 && is_name(d, n, "stream") && value->type == JSON_FALSE);
        size_t from = name->at, to = value->at + value->len;
        if (next != JSON_NODE_NONE)
            to = d->node[next].at;
        else if (before != JSON_NODE_NONE)
            from = d->node[before + 1].at + d->node[before + 1].len;
        try_change(m, n, spliced(b, text, from, to, SPAN_NONE), listed);
        /* Called otherwise: unnoticed only if it was nothing in the first place and still is. */
        if (!is_listed(d, n) && !(listed && value->type == JSON_FALSE))
            try_change(m, n, spliced(b, text, name->at + name->len - 1, name->at + name->len - 1, SPAN("_")),
                       listed);
    }
}

static void change_items(struct mutation *m, uint32_t array, struct buf *b)
{
    const struct json_doc *d = m->doc;
    struct span text = m->body->text;
    for (uint32_t i = json_first(d, array); i != JSON_NODE_NONE; i = json_next(d, array, i)) {
        uint32_t next = json_next(d, array, i);
        const struct json_node *n = &d->node[i];
        struct span item = span_of(text.p + n->at, n->len);
        size_t to = next == JSON_NODE_NONE ? n->at + n->len : d->node[next].at;
        if (next != JSON_NODE_NONE || d->node[array].count == 1)
            try_change(m, i, spliced(b, text, n->at, to, SPAN_NONE), false); /* without it */
        struct buf twice;
        buf_init(&twice, 1 << 20);
        buf_add_span(&twice, item);
        buf_add_char(&twice, ',');
        buf_add_span(&twice, item);
        try_change(m, i, spliced(b, text, n->at, n->at + n->len, buf_view(&twice)), false);
        if (next != JSON_NODE_NONE) { /* the next one first */
            const struct json_node *o = &d->node[next];
            struct span other = span_of(text.p + o->at, o->len);
            buf_clear(&twice);
            buf_add_span(&twice, other);
            buf_add_char(&twice, ',');
            buf_add_span(&twice, item);
            if (!span_eq(item, other))
                try_change(m, i, spliced(b, text, n->at, o->at + o->len, buf_view(&twice)), false);
        }
        buf_fini(&twice);
    }
}

static void mutations_miss(void **state)
{
    (void)state;
    struct corpus c = corpus_read();
    struct buf b;
    unsigned dialects = 0, missed = 0, listed = 0;
    buf_init(&b, 1 << 20);
    assert_true(c.n >= CORPUS_LEAST);
    for (unsigned k = 0; k < c.n; k++) {
        struct arena a;
        struct json_doc d;
        struct json_fault fault;
        arena_init(&a, NULL);
        assert_true(json_parse(&a, c.body[k].text, NULL, &d, &fault));
        struct mutation m = {&c.body[k], &d, key_of(c.body[k].dialect, c.body[k].text), 0, 0};
        dialects |= 1u << c.body[k].dialect;
        for (uint32_t i = 0; i < d.n; i++) {
            if (d.node[i].flags & JSON_IS_NAME)
                continue;
            if (i > 0)
                change_value(&m, i, &b);
            if (d.node[i].type == JSON_OBJECT)
                change_members(&m, i, &b);
            if (d.node[i].type == JSON_ARRAY)
                change_items(&m, i, &b);
        }
        missed += m.n_missed;
        listed += m.n_listed;
        arena_reset(&a);
    }
    print_message("%u bodies, %u changes that miss, %u on the list\n", c.n, missed, listed);
    assert_int_equal(dialects, 31);
    assert_true(missed > 3000 && listed > 20);
    buf_fini(&b);
    corpus_free(&c);
}

/* All bodies of the corpus are different requests but for those that are equal by the rules. */
static void corpus_is_distinct(void **state)
{
    (void)state;
    struct corpus c = corpus_read();
    for (unsigned i = 0; i < c.n; i++)
        for (unsigned k = 0; k < i; k++)
            if (same_key(c.body[i].dialect, c.body[i].text, c.body[k].text))
                fail_msg("one key: %.*s and %.*s", SPAN_FMT(c.body[i].text), SPAN_FMT(c.body[k].text));
    corpus_free(&c);
}

/* Other ways of writing the whole. */

struct style {
    const char *name;
    bool reversed, spaced, escaped, decimals;
    const char *more; /* members in front of the root's */
};

static const struct style styles[] = {
    {"reversed", true, false, false, false, ""},
    {"spaced", false, true, false, false, ""},
    {"escaped", false, false, true, false, ""},
    {"decimals", false, false, false, true, ""},
    {"all", true, true, true, true, ""},
    {"user", false, false, false, false, "\"user\":\"someone\""},
    {"metadata", false, false, false, false, "\"metadata\":{\"run\":17}"},
    {"hints", false, false, false, false, "\"safety_identifier\":\"x\",\"prompt_cache_key\":\"y\""},
    {"null", false, false, false, false, "\"never_heard_of\":null"},
    {"stream", false, false, false, false, "\"stream\":false"},
};

static void write_escaped(struct buf *b, struct span s, unsigned salt)
{
    buf_add_char(b, '"');
    for (size_t i = 0; i < s.n; i++) {
        unsigned char ch = (unsigned char)s.p[i];
        if (ch < 0x20 || ch == '"' || ch == '\\' || (ch < 0x80 && (i + salt) % 2))
            buf_printf(b, i % 4 ? "\\u%04x" : "\\u%04X", ch);
        else if (ch == '/' && i % 3 == 0)
            buf_add_str(b, "\\/");
        else
            buf_add_char(b, (char)ch);
    }
    buf_add_char(b, '"');
}

/* The same value, otherwise: 12 -> 12.0, 120e-1, 1.2e1 with other digits behind it. */
static void write_number(struct buf *b, struct span s, unsigned salt)
{
    bool has_point = memchr(s.p, '.', s.n) != NULL;
    buf_add_span(b, s);
    if (has_point)
        buf_add_str(b, salt % 2 ? "00" : "0e+0");
    else
        buf_add_str(b, salt % 2 ? ".0" : "0E-1");
    if (!has_point && salt % 2 == 0 && span_eq(s, SPAN("0"))) { /* "00" is no number */
        b->n -= 4;
        buf_add_str(b, "e5");
    }
}

static void space(struct buf *b, const struct style *st, unsigned salt)
{
    static const char *const spaces[] = {" ", "\n  ", "\t", "\r\n"};
    if (st->spaced)
        buf_add_str(b, spaces[salt % ARRAY_LEN(spaces)]);
}

static void rewrite(struct buf *b, const struct json_doc *d, uint32_t i, const struct style *st,
                    struct arena *a)
{
    const struct json_node *n = &d->node[i];
    space(b, st, i);
    switch ((enum json_type)n->type) {
    case JSON_STRING:
        if (st->escaped)
            write_escaped(b, json_string(d, i, a), i);
        else
            buf_add_span(b, json_raw(d, i));
        break;
    case JSON_NUMBER:
        if (st->decimals)
            write_number(b, json_raw(d, i), i);
        else
            buf_add_span(b, json_raw(d, i));
        break;
    case JSON_ARRAY:
        buf_add_char(b, '[');
        for (uint32_t k = json_first(d, i), first = 1; k != JSON_NODE_NONE;
             k = json_next(d, i, k), first = 0) {
            if (!first)
                buf_add_char(b, ',');
            rewrite(b, d, k, st, a);
        }
        space(b, st, i + 1);
        buf_add_char(b, ']');
        break;
    case JSON_OBJECT: {
        uint32_t names[64];
        unsigned count = 0;
        for (uint32_t k = json_first(d, i); k != JSON_NODE_NONE; k = json_next(d, i, k))
            names[count++] = k;
        buf_add_char(b, '{');
        if (i == 0 && *st->more)
            buf_printf(b, "%s,", st->more);
        for (unsigned k = 0; k < count; k++) {
            uint32_t name = names[st->reversed ? count - 1 - k : k];
            if (k)
                buf_add_char(b, ',');
            rewrite(b, d, name, st, a);
            space(b, st, k);
            buf_add_char(b, ':');
            rewrite(b, d, name + 1, st, a);
        }
        space(b, st, i);
        buf_add_char(b, '}');
        break;
    }
    default:
        buf_add_span(b, json_raw(d, i));
    }
}

/* Whether the root has one of the members that the style adds: then it would be there twice. */
static bool has_more(const struct json_doc *d, const struct style *st)
{
    struct arena a;
    struct json_doc more;
    struct json_fault fault;
    char text[128];
    bool has = false;
    if (!*st->more)
        return false;
    arena_init(&a, NULL);
    snprintf(text, sizeof text, "{%s}", st->more);
    assert_true(json_parse(&a, span_str(text), NULL, &more, &fault));
    for (uint32_t i = json_first(&more, 0); i != JSON_NODE_NONE; i = json_next(&more, 0, i))
        for (uint32_t k = json_first(d, 0); k != JSON_NODE_NONE; k = json_next(d, 0, k))
            has |= json_string_eq(d, k, json_string(&more, i, &a));
    arena_reset(&a);
    return has;
}

static void rewrites_hit(void **state)
{
    (void)state;
    struct corpus c = corpus_read();
    struct buf b;
    unsigned n = 0;
    buf_init(&b, 1 << 20);
    for (unsigned k = 0; k < c.n; k++) {
        struct arena a;
        struct json_doc d;
        struct json_fault fault;
        arena_init(&a, NULL);
        assert_true(json_parse(&a, c.body[k].text, NULL, &d, &fault));
        for (size_t s = 0; s < ARRAY_LEN(styles); s++) {
            if (has_more(&d, &styles[s]))
                continue;
            buf_clear(&b);
            rewrite(&b, &d, 0, &styles[s], &a);
            if (!same_key(c.body[k].dialect, c.body[k].text, buf_view(&b)))
                fail_msg("%s splits: %.*s and %.*s", styles[s].name, SPAN_FMT(c.body[k].text),
                         SPAN_FMT(buf_view(&b)));
            n++;
        }
        arena_reset(&a);
    }
    print_message("%u rewrites\n", n);
    assert_true(n > 500);
    buf_fini(&b);
    corpus_free(&c);
}

/* The values that every process of this layout has. Who changes them raises ENTRY_LAYOUT_VERSION. */
static void golden(void **state)
{
    (void)state;
    struct corpus c = corpus_read();
    struct digest_writer w;
    struct cache_digest *all = calloc(c.n, sizeof *all), sum;
    char hex[2][65];
    for (unsigned i = 0; i < c.n; i++)
        all[i] = key_of(c.body[i].dialect, c.body[i].text);
    digest_begin(&w);
    digest_add(&w, all, c.n * sizeof *all);
    digest_end(&w, &sum);
    for (int i = 0; i < 32; i++) {
        sprintf(hex[0] + 2 * i, "%02x", all[0].b[i]);
        sprintf(hex[1] + 2 * i, "%02x", sum.b[i]);
    }
    assert_string_equal(hex[0], "17095dfb334dd4dbc08ab5b24d32d46506131e0be032c25509412e972405a21f");
    assert_string_equal(hex[1], "ef97d31c7b7268551c7ace7f0653b9c3da57b2b21543669c88a637df5988aed8");
    free(all);
    corpus_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutations_miss),
        cmocka_unit_test(corpus_is_distinct),
        cmocka_unit_test(rewrites_hit),
        cmocka_unit_test(golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
