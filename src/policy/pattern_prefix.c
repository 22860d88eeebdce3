/* SPDX-License-Identifier: Apache-2.0
 *
 * A recursive reader of RE2's syntax into a small tree, and a writer. Flags ((?i) and the like) are carried
 * by each atom itself, since atoms end up in groups of other shapes than those they came from.
 */
#include "policy/pattern_prefix.h"

#include <stdio.h>

#include "base/arena.h"

enum { DEPTH_MAX = 200, NO_LIMIT = -1 };
enum { FLAG_I = 1, FLAG_M = 2, FLAG_S = 4, FLAG_U = 8 };

enum node_kind { NODE_ATOM, NODE_ASSERT, NODE_CONCAT, NODE_ALT, NODE_REPEAT };

struct node {
    enum node_kind kind;
    struct span text;          /* ATOM, ASSERT: as written */
    uint8_t flags;             /* in effect there */
    bool literal;              /* ATOM: <text> is one character that stands for itself */
    bool quoted;               /* CONCAT: several characters between \Q and \E */
    int min, max;              /* REPEAT; max NO_LIMIT = unbounded */
    struct node *first, *next; /* children; sibling */
};

struct reader {
    const char *p, *end;
    struct arena *arena;
    uint8_t flags;
    unsigned depth;
    bool failed, has_anchor;
};

static struct node *new_node(struct reader *r, enum node_kind kind)
{
    struct node *n = ARENA_NEW(r->arena, struct node);
    n->kind = kind;
    n->flags = r->flags;
    return n;
}

static struct node *leaf(struct reader *r, enum node_kind kind, const char *from)
{
    struct node *n = new_node(r, kind);
    n->text = span_of(from, (size_t)(r->p - from));
    return n;
}

static struct node *fail(struct reader *r)
{
    r->failed = true;
    r->p = r->end;
    return NULL;
}

static bool at(const struct reader *r, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(r->end - r->p) >= n && memcmp(r->p, s, n) == 0;
}

/* Behind the next <c>, or false. */
static bool skip_past(struct reader *r, char c)
{
    const char *to = memchr(r->p, c, (size_t)(r->end - r->p));
    if (!to)
        return false;
    r->p = to + 1;
    return true;
}

/* One UTF-8 character. */
static void skip_character(struct reader *r)
{
    r->p++;
    while (r->p < r->end && ((unsigned char)*r->p & 0xc0) == 0x80)
        r->p++;
}

/* <p> is behind a backslash. */
static bool skip_escape(struct reader *r)
{
    if (r->p == r->end)
        return false;
    char c = *r->p;
    skip_character(r);
    switch (c) {
    case 'p':
    case 'P':
        if (at(r, "{"))
            return skip_past(r, '}');
        if (r->p == r->end)
            return false;
        skip_character(r);
        return true;
    case 'x':
        if (at(r, "{"))
            return skip_past(r, '}');
        if (r->end - r->p < 2)
            return false;
        r->p += 2;
        return true;
    default:
        if (c >= '0' && c <= '7') /* octal: up to three digits; \1 to \7 alone are refused by RE2 */
            for (unsigned i = 0; i < 2 && r->p < r->end && *r->p >= '0' && *r->p <= '7'; i++)
                r->p++;
        return true;
    }
}

static struct node *read_class(struct reader *r)
{
    const char *from = r->p++;
    if (at(r, "^"))
        r->p++;
    bool first = true;
    while (r->p < r->end && (first || *r->p != ']')) {
        first = false;
        if (at(r, "[:")) {
            const char *back = r->p;
            r->p += 2;
            while (r->p < r->end && *r->p != ']' && *r->p != ':')
                r->p++;
            if (at(r, ":]")) {
                r->p += 2;
            } else {
                r->p = back + 1;
            }
        } else if (*r->p == '\\') {
            r->p++;
            if (!skip_escape(r))
                return fail(r);
        } else {
            skip_character(r);
        }
    }
    if (r->p == r->end)
        return fail(r);
    r->p++;
    return leaf(r, NODE_ATOM, from);
}

static struct node *read_alternatives(struct reader *r);

static void append(struct node *list, struct node **last, struct node *n)
{
    if (*last)
        (*last)->next = n;
    else
        list->first = n;
    *last = n;
}

/* \Q...\E, the \E being optional at the end. */
static struct node *read_quoted(struct reader *r)
{
    struct node *list = new_node(r, NODE_CONCAT), *last = NULL;
    while (r->p < r->end && !at(r, "\\E")) {
        const char *from = r->p;
        skip_character(r);
        struct node *n = leaf(r, NODE_ATOM, from);
        n->literal = true;
        append(list, &last, n);
    }
    if (at(r, "\\E"))
        r->p += 2;
    list->quoted = list->first != last;
    return list;
}

static struct node *read_backslash(struct reader *r)
{
    const char *from = r->p++;
    if (at(r, "Q")) {
        r->p++;
        return read_quoted(r);
    }
    if (r->p < r->end && (*r->p == 'A' || *r->p == 'z')) {
        r->has_anchor = true;
        r->p++;
        return leaf(r, NODE_ASSERT, from);
    }
    if (r->p < r->end && (*r->p == 'b' || *r->p == 'B')) {
        r->p++;
        return leaf(r, NODE_ASSERT, from);
    }
    if (at(r, "C")) /* a single byte: may end in the middle of a character */
        return fail(r);
    if (!skip_escape(r))
        return fail(r);
    return leaf(r, NODE_ATOM, from);
}

/* The letters of (?flags) and (?flags:, <p> at the first one. True when a group follows. */
static bool read_flags(struct reader *r, bool *ret_group)
{
    bool on = true;
    uint8_t flags = r->flags;
    for (; r->p < r->end; r->p++) {
        uint8_t bit = 0;
        switch (*r->p) {
        case 'i':
            bit = FLAG_I;
            break;
        case 'm':
            bit = FLAG_M;
            break;
        case 's':
            bit = FLAG_S;
            break;
        case 'U':
            bit = FLAG_U;
            break;
        case '-':
            on = false;
            continue;
        case ')':
        case ':':
            *ret_group = *r->p == ':';
            r->p++;
            r->flags = flags;
            return true;
        default:
            return false;
        }
        flags = (uint8_t)(on ? flags | bit : flags & ~bit);
    }
    return false;
}

static struct node *read_group(struct reader *r)
{
    uint8_t outer = r->flags;
    r->p++;
    if (at(r, "?P<") || at(r, "?<")) {
        if (!skip_past(r, '>'))
            return fail(r);
    } else if (at(r, "?")) {
        bool group = false;
        r->p++;
        if (!read_flags(r, &group))
            return fail(r);
        if (!group) /* (?i): until the end of the group that it stands in */
            return new_node(r, NODE_CONCAT);
    }
    if (++r->depth > DEPTH_MAX)
        return fail(r);
    struct node *n = read_alternatives(r);
    r->depth--;
    if (r->failed || !at(r, ")"))
        return fail(r);
    r->p++;
    r->flags = outer;
    return n;
}

static struct node *read_atom(struct reader *r)
{
    const char *from = r->p;
    switch (*r->p) {
    case '(':
        return read_group(r);
    case '[':
        return read_class(r);
    case '\\':
        return read_backslash(r);
    case '^':
    case '$':
        r->p++;
        r->has_anchor = true;
        return leaf(r, NODE_ASSERT, from);
    case '.':
        r->p++;
        return leaf(r, NODE_ATOM, from);
    default:
        skip_character(r);
        struct node *n = leaf(r, NODE_ATOM, from);
        n->literal = true;
        return n;
    }
}

static bool read_number(const char **p, const char *end, int *ret)
{
    int v = 0;
    const char *from = *p;
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p) {
        v = v * 10 + (**p - '0');
        if (v > 1000)
            return false;
    }
    *ret = v;
    return *p > from;
}

/* {n} {n,} {n,m} at <p>; anything else is a literal brace. */
static bool read_counts(struct reader *r, int *min, int *max)
{
    const char *p = r->p + 1;
    if (!read_number(&p, r->end, min))
        return false;
    *max = *min;
    if (p < r->end && *p == ',') {
        p++;
        *max = NO_LIMIT;
        if (p < r->end && *p != '}' && !read_number(&p, r->end, max))
            return false;
    }
    if (p == r->end || *p != '}')
        return false;
    r->p = p + 1;
    return true;
}

static bool read_repeat(struct reader *r, int *min, int *max)
{
    if (r->p == r->end)
        return false;
    *max = NO_LIMIT;
    switch (*r->p) {
    case '*':
        *min = 0;
        r->p++;
        break;
    case '+':
        *min = 1;
        r->p++;
        break;
    case '?':
        *min = 0;
        *max = 1;
        r->p++;
        break;
    case '{':
        if (!read_counts(r, min, max))
            return false;
        break;
    default:
        return false;
    }
    if (at(r, "?")) /* lazy: which match is found changes, what can match does not */
        r->p++;
    return true;
}

static struct node *read_concat(struct reader *r)
{
    struct node *list = new_node(r, NODE_CONCAT), *last = NULL;
    while (r->p < r->end && *r->p != '|' && *r->p != ')') {
        struct node *n = read_atom(r);
        int min, max;
        if (!n)
            return fail(r);
        while (read_repeat(r, &min, &max)) {
            if (n->quoted) /* it would be the last character's */
                return fail(r);
            struct node *repeat = new_node(r, NODE_REPEAT);
            repeat->min = min;
            repeat->max = max;
            repeat->first = n;
            n = repeat;
        }
        append(list, &last, n);
    }
    return list;
}

static struct node *read_alternatives(struct reader *r)
{
    struct node *first = read_concat(r);
    if (r->failed || r->p == r->end || *r->p != '|')
        return first;
    struct node *list = new_node(r, NODE_ALT), *last = NULL;
    append(list, &last, first);
    while (!r->failed && r->p < r->end && *r->p == '|') {
        r->p++;
        append(list, &last, read_concat(r));
    }
    return list;
}

static bool read_all(struct reader *r, struct span pattern, struct arena *a, struct node **ret)
{
    *r = (struct reader){.p = pattern.p, .end = pattern.p + pattern.n, .arena = a};
    *ret = read_alternatives(r);
    return !r->failed && r->p == r->end;
}

static void write_leaf(const struct node *n, struct buf *out)
{
    uint8_t flags = n->flags & (FLAG_I | FLAG_M | FLAG_S);
    if (flags)
        buf_printf(out, "(?%s%s%s:", flags & FLAG_I ? "i" : "", flags & FLAG_M ? "m" : "",
                   flags & FLAG_S ? "s" : "");
    if (n->literal && n->text.n == 1 && strchr("\\.+*?()|[]{}^$", n->text.p[0]))
        buf_add_char(out, '\\');
    buf_add_span(out, n->text);
    if (flags)
        buf_add_char(out, ')');
}

static void write_counts(struct buf *out, int min, int max)
{
    if (max == NO_LIMIT)
        buf_printf(out, "{%d,}", min);
    else
        buf_printf(out, "{%d,%d}", min, max);
}

/* What the node matches. */
static void write_whole(const struct node *n, struct buf *out)
{
    switch (n->kind) {
    case NODE_ATOM:
    case NODE_ASSERT:
        write_leaf(n, out);
        return;
    case NODE_REPEAT:
        BUF_LIT(out, "(?:");
        write_whole(n->first, out);
        BUF_LIT(out, ")");
        write_counts(out, n->min, n->max);
        return;
    case NODE_CONCAT:
        for (const struct node *k = n->first; k; k = k->next)
            write_whole(k, out);
        return;
    case NODE_ALT:
        BUF_LIT(out, "(?:");
        for (const struct node *k = n->first; k; k = k->next) {
            if (k != n->first)
                BUF_LIT(out, "|");
            write_whole(k, out);
        }
        BUF_LIT(out, ")");
        return;
    }
}

static void write_prefix(const struct node *n, struct buf *out);

/* Beginnings of what <n> and its siblings match one after the other. */
static void write_rest(const struct node *n, struct buf *out)
{
    if (!n)
        return;
    if (!n->next) {
        write_prefix(n, out);
        return;
    }
    BUF_LIT(out, "(?:");
    if (n->kind != NODE_ATOM && n->kind != NODE_ASSERT) {
        write_prefix(n, out);
        BUF_LIT(out, "|");
    }
    write_whole(n, out);
    write_rest(n->next, out);
    buf_add_str(out, n->kind == NODE_ATOM || n->kind == NODE_ASSERT ? ")?" : ")");
}

static void write_prefix(const struct node *n, struct buf *out)
{
    switch (n->kind) {
    case NODE_ATOM:
        BUF_LIT(out, "(?:");
        write_leaf(n, out);
        BUF_LIT(out, ")?");
        return;
    case NODE_ASSERT:
        return;
    case NODE_CONCAT:
        write_rest(n->first, out);
        return;
    case NODE_ALT:
        BUF_LIT(out, "(?:");
        for (const struct node *k = n->first; k; k = k->next) {
            if (k != n->first)
                BUF_LIT(out, "|");
            write_prefix(k, out);
        }
        BUF_LIT(out, ")");
        return;
    case NODE_REPEAT:
        if (n->max == 0)
            return;
        BUF_LIT(out, "(?:");
        write_whole(n->first, out);
        BUF_LIT(out, ")");
        write_counts(out, 0, n->max == NO_LIMIT ? NO_LIMIT : n->max - 1);
        BUF_LIT(out, "(?:");
        write_prefix(n->first, out);
        BUF_LIT(out, ")");
        return;
    }
}

bool pattern_prefix(struct span pattern, struct buf *out)
{
    struct arena a;
    struct reader r;
    struct node *root;
    arena_init(&a, NULL);
    bool good = read_all(&r, pattern, &a, &root);
    if (good)
        write_prefix(root, out);
    arena_reset(&a);
    return good && !out->full;
}

bool pattern_has_anchor(struct span pattern)
{
    struct arena a;
    struct reader r;
    struct node *root;
    arena_init(&a, NULL);
    bool good = read_all(&r, pattern, &a, &root);
    arena_reset(&a);
    return !good || r.has_anchor;
}
