/* SPDX-License-Identifier: Apache-2.0
 *
 * The form, in words: null n, false f, true t; number # sign digits e exponent ; with neither leading nor
 * trailing zeros in the digits; string s bytes 0xff; array [ items ]; object { names and values }, the names
 * as strings in byte order.
 */
#include "cache/canon.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"

enum {
    MEMBERS_MAX = 4096, /* of one object: sorting them must not take long */
    MEMBERS_ON_STACK = 16,
    EXPONENT_DIGITS = 17, /* more of them are compared as text */
};

static inline void put(const struct canon *c, const char *p, size_t n)
{
    c->put(c->arg, p, n);
}

static inline const struct json_node *at(const struct canon *c, uint32_t i)
{
    return &c->doc->node[i];
}

static inline struct span raw(const struct canon *c, uint32_t i)
{
    return span_of(c->doc->text.p + at(c, i)->at, at(c, i)->len);
}

/* Numbers. */

struct decimal {
    bool negative;
    const char *digits, *digits_end; /* with at most one point in it; first and last one not zero */
    bool is_zero;
    int64_t exponent; /* of the last digit */
    bool is_huge;     /* the exponent has too many digits */
};

static bool read_exponent(const char *p, const char *end, int64_t *ret)
{
    bool negative = false;
    *ret = 0;
    if (p == end)
        return true;
    p++; /* the e */
    if (*p == '+' || *p == '-')
        negative = *p++ == '-';
    while (p < end && *p == '0')
        p++;
    if (end - p > EXPONENT_DIGITS)
        return false;
    for (; p < end; p++)
        *ret = *ret * 10 + (*p - '0');
    if (negative)
        *ret = -*ret;
    return true;
}

static struct decimal read_decimal(struct span s)
{
    struct decimal d = {.negative = *s.p == '-'};
    const char *p = s.p + d.negative, *end = s.p + s.n, *e = p;
    const char *point = NULL;
    for (; e < end && *e != 'e' && *e != 'E'; e++)
        if (*e == '.')
            point = e;
    const char *last = e;
    while (p < last && (*p == '0' || *p == '.'))
        p++;
    while (last > p && (last[-1] == '0' || last[-1] == '.'))
        last--;
    d.digits = p;
    d.digits_end = last;
    d.is_zero = p == last;
    if (d.is_zero)
        return d;
    d.is_huge = !read_exponent(e, end, &d.exponent);
    /* Of the last digit that was kept: left of the point it gains, right of it it loses. */
    if (!point)
        d.exponent += e - last;
    else if (last <= point)
        d.exponent += point - last;
    else
        d.exponent -= last - point - 1;
    return d;
}

static void put_number(const struct canon *c, uint32_t i)
{
    struct decimal d = read_decimal(raw(c, i));
    char tail[32];
    if (d.is_zero) {
        put(c, "#0;", 3);
        return;
    }
    if (d.is_huge) { /* no two ways of writing it are known to be equal */
        put(c, "!", 1);
        put(c, raw(c, i).p, raw(c, i).n);
        put(c, ";", 1);
        return;
    }
    put(c, "#-", d.negative ? 2 : 1);
    const char *point = memchr(d.digits, '.', (size_t)(d.digits_end - d.digits));
    if (point) {
        put(c, d.digits, (size_t)(point - d.digits));
        put(c, point + 1, (size_t)(d.digits_end - point - 1));
    } else {
        put(c, d.digits, (size_t)(d.digits_end - d.digits));
    }
    int n = snprintf(tail, sizeof tail, "e%lld;", (long long)d.exponent);
    put(c, tail, (size_t)n);
}

/* Strings. */

static void put_string(const struct canon *c, uint32_t i)
{
    put(c, "s", 1);
    if (at(c, i)->flags & JSON_ESCAPED)
        json_string_each(c->doc, i, c->put, c->arg);
    else
        put(c, raw(c, i).p + 1, at(c, i)->len - 2);
    put(c, "\xff", 1);
}

static bool is_string(const struct canon *c, uint32_t i, const char *s)
{
    return json_string_eq(c->doc, i, span_str(s));
}

/* Objects. */

struct member {
    struct span name; /* unescaped */
    uint32_t node;    /* the name's */
};

static int compare_members(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    size_t n = x->name.n < y->name.n ? x->name.n : y->name.n;
    int order = n ? memcmp(x->name.p, y->name.p, n) : 0;
    return order ? order : (x->name.n > y->name.n) - (x->name.n < y->name.n);
}

/* Few members, often in order already. */
static void sort_members(struct member *m, unsigned n)
{
    if (n > MEMBERS_ON_STACK) {
        qsort(m, n, sizeof *m, compare_members);
        return;
    }
    for (unsigned i = 1; i < n; i++) {
        struct member x = m[i];
        unsigned k = i;
        for (; k > 0 && compare_members(&m[k - 1], &x) > 0; k--)
            m[k] = m[k - 1];
        m[k] = x;
    }
}

static bool drops_nulls(enum canon_place place)
{
    return place == CANON_ROOT || place == CANON_TURN || place == CANON_TOOL || place == CANON_OPTIONS;
}

static bool is_among(const struct span *names, unsigned n, struct span name)
{
    for (unsigned i = 0; i < n; i++)
        if (span_eq(name, names[i]))
            return true;
    return false;
}

static bool is_left_out(const struct canon *c, struct span name)
{
#define IS(literal) span_eq(name, SPAN(literal))
    if (c->leave_out & CANON_NO_ATTRIBUTION && (IS("user") || IS("metadata")))
        return true;
    if (c->leave_out & CANON_NO_HINTS && (IS("safety_identifier") || IS("prompt_cache_key")))
        return true;
#undef IS
    return is_among(c->names, c->n_names, name);
}

/* Whether a member with this name and value is in the form. */
bool canon_keeps(const struct canon *c, enum canon_place place, struct span name, uint32_t value)
{
    uint8_t type = at(c, value)->type;
    if (type == JSON_NULL && drops_nulls(place) &&
        !(place == CANON_ROOT && is_among(c->nulls, c->n_nulls, name)))
        return false;
    if (place != CANON_ROOT)
        return true;
    return !is_left_out(c, name) && !(type == JSON_FALSE && span_eq(name, SPAN("stream")));
}

static enum canon_place place_in_root(const struct canon *c, struct span name)
{
    static const char *const options[] = {"response_format", "stream_options", "reasoning", "text",
                                          "thinking",        "tool_choice"};
    bool anthropic = c->dialect == DIALECT_MESSAGES;
    if (span_eq(name, SPAN("tools")))
        return CANON_TOOLS;
    if (span_eq(name, SPAN("messages")) && (anthropic || c->dialect == DIALECT_CHAT))
        return CANON_TURNS;
    if (span_eq(name, SPAN("input")) && c->dialect == DIALECT_RESPONSES)
        return CANON_TURNS;
    if (span_eq(name, SPAN("system")) && anthropic)
        return CANON_CONTENT;
    if (span_eq(name, SPAN("stop")) && (c->dialect == DIALECT_CHAT || c->dialect == DIALECT_COMPLETIONS))
        return CANON_STOP;
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (span_eq(name, span_str(options[i])))
            return CANON_OPTIONS;
    return CANON_PLAIN;
}

enum canon_place canon_place_of_member(const struct canon *c, enum canon_place place, struct span name)
{
    if (place == CANON_ROOT)
        return place_in_root(c, name);
    if (place == CANON_TURN && span_eq(name, SPAN("content")))
        return CANON_CONTENT;
    if (place == CANON_TOOL && span_eq(name, SPAN("function")))
        return CANON_OPTIONS;
    if (place == CANON_OPTIONS && (span_eq(name, SPAN("json_schema")) || span_eq(name, SPAN("format"))))
        return CANON_OPTIONS;
    return CANON_PLAIN;
}

static void put_members(const struct canon *c, uint32_t obj, enum canon_place place, struct member *m)
{
    unsigned n = 0;
    for (uint32_t i = json_first(c->doc, obj); i != JSON_NODE_NONE; i = json_next(c->doc, obj, i)) {
        struct span name = json_string(c->doc, i, c->arena);
        if (canon_keeps(c, place, name, i + 1))
            m[n++] = (struct member){name, i};
    }
    sort_members(m, n);
    put(c, "{", 1);
    for (unsigned k = 0; k < n; k++) {
        put(c, "s", 1);
        put(c, m[k].name.p, m[k].name.n);
        put(c, "\xff", 1);
        canon_value(c, m[k].node + 1, canon_place_of_member(c, place, m[k].name));
    }
    put(c, "}", 1);
}

static void put_object(const struct canon *c, uint32_t obj, enum canon_place place)
{
    if (at(c, obj)->count <= MEMBERS_ON_STACK) {
        struct member m[MEMBERS_ON_STACK];
        put_members(c, obj, place, m);
        return;
    }
    struct member *m = mem_array(at(c, obj)->count, sizeof *m);
    put_members(c, obj, place, m);
    free(m);
}

/* Arrays. */

/* The text node of an array that is one text part and nothing else; JSON_NODE_NONE otherwise. */
static uint32_t single_text(const struct canon *c, uint32_t array)
{
    uint32_t part = array + 1, text = JSON_NODE_NONE;
    bool typed = false;
    if (at(c, array)->count != 1 || at(c, part)->type != JSON_OBJECT)
        return JSON_NODE_NONE;
    for (uint32_t i = json_first(c->doc, part); i != JSON_NODE_NONE; i = json_next(c->doc, part, i)) {
        if (at(c, i + 1)->type == JSON_NULL)
            continue;
        if (is_string(c, i, "type"))
            typed = is_string(c, i + 1, c->dialect == DIALECT_RESPONSES ? "input_text" : "text");
        else if (is_string(c, i, "text") && at(c, i + 1)->type == JSON_STRING)
            text = i + 1;
        else
            return JSON_NODE_NONE;
    }
    return typed ? text : JSON_NODE_NONE;
}

enum canon_place canon_place_of_item(enum canon_place place)
{
    switch (place) {
    case CANON_TURNS:
        return CANON_TURN;
    case CANON_CONTENT:
        return CANON_OPTIONS;
    case CANON_TOOLS:
        return CANON_TOOL;
    default:
        return CANON_PLAIN;
    }
}

bool canon_is_one_text(const struct canon *c, uint32_t array, enum canon_place place)
{
    return place == CANON_CONTENT && json_is(c->doc, array, JSON_ARRAY) &&
           single_text(c, array) != JSON_NODE_NONE;
}

static void put_array(const struct canon *c, uint32_t array, enum canon_place place)
{
    if (place == CANON_CONTENT) {
        uint32_t text = single_text(c, array);
        if (text != JSON_NODE_NONE) {
            put_string(c, text);
            return;
        }
    }
    enum canon_place inner = canon_place_of_item(place);
    uint32_t end = at(c, array)->end;
    put(c, "[", 1);
    for (uint32_t i = array + 1; i < end; i = at(c, i)->end)
        canon_value(c, i, inner);
    put(c, "]", 1);
}

void canon_value(const struct canon *c, uint32_t i, enum canon_place place)
{
    switch ((enum json_type)at(c, i)->type) {
    case JSON_NULL:
        put(c, "n", 1);
        break;
    case JSON_FALSE:
        put(c, "f", 1);
        break;
    case JSON_TRUE:
        put(c, "t", 1);
        break;
    case JSON_NUMBER:
        put_number(c, i);
        break;
    case JSON_STRING:
        put(c, "[", place == CANON_STOP);
        put_string(c, i);
        put(c, "]", place == CANON_STOP);
        break;
    case JSON_ARRAY:
        put_array(c, i, place);
        break;
    case JSON_OBJECT:
        put_object(c, i, place);
        break;
    }
}

const char *canon_refuses(const struct json_doc *d)
{
    if (!json_is(d, 0, JSON_OBJECT))
        return "not_an_object";
    if (d->odd & JSON_ODD_DUPLICATE)
        return "duplicate_member";
    if (d->odd & JSON_ODD_INVALID_UTF8)
        return "invalid_utf8";
    if (d->odd & JSON_ODD_LONE_SURROGATE)
        return "lone_surrogate";
    if (d->n <= MEMBERS_MAX)
        return NULL;
    for (uint32_t i = 0; i < d->n; i++)
        if (d->node[i].type == JSON_OBJECT && d->node[i].count > MEMBERS_MAX)
            return "too_many_members";
    return NULL;
}

void canon_body(const struct canon *c)
{
    canon_value(c, 0, CANON_ROOT);
}

void canon_turn(const struct canon *c, uint32_t node)
{
    canon_value(c, node, CANON_TURN);
}

bool canon_has_member(const struct canon *c, uint32_t name_node)
{
    return canon_keeps(c, CANON_ROOT, json_string(c->doc, name_node, c->arena), name_node + 1);
}

void canon_member(const struct canon *c, uint32_t name_node)
{
    canon_value(c, name_node + 1, place_in_root(c, json_string(c->doc, name_node, c->arena)));
}

void canon_plain(const struct canon *c, uint32_t node)
{
    canon_value(c, node, CANON_PLAIN);
}
