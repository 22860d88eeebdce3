/* SPDX-License-Identifier: Apache-2.0
 *
 * The scan of a JSON text, included once by each of the files that compile it. The including file defines
 * before: SCAN            name of the function SCAN_TARGET     attribute of every function here (which
 * instructions the compiler may use), or nothing BLOCK           bytes looked at together, at most 32 struct
 * block_seen, block_special(p, seen), block_seen_wide(seen) bit i of block_special is set when p[i] is a
 * quote, a backslash or below 0x20; `seen` gathers the bytes, so that one look at the end tells whether any
 * was above 0x7f.
 *
 * `seen` may take in bytes behind a string: it only decides whether the check of UTF-8, which goes over the
 * whole text, is needed.
 */
#include "base/check.h"
#include "json/parser.h"

/* 2 for what may follow a backslash and ends the escape. */
static const uint8_t escape_len[256] = {
    ['"'] = 2, ['\\'] = 2, ['/'] = 2, ['b'] = 2, ['f'] = 2, ['n'] = 2, ['r'] = 2, ['t'] = 2,
};

static inline SCAN_TARGET const char *skip_space(const char *p, const char *end)
{
    while (p < end && (unsigned char)*p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* The mask of fewer than BLOCK bytes at the end of the text, without reading behind it: the last whole block
 * of the text, shifted. */
static SCAN_TARGET uint32_t tail_special(struct json_parser *ps, const char *p)
{
    size_t n = (size_t)(ps->end - p);
    if (n == 0)
        return 0;
    struct block_seen seen = {0};
    uint32_t mask;
    if (LIKELY(ps->end - ps->text >= BLOCK)) {
        mask = block_special(ps->end - BLOCK, &seen) >> (BLOCK - n);
    } else {
        char pad[BLOCK];
        memset(pad, ' ', BLOCK);
        memcpy(pad, p, n);
        mask = block_special(pad, &seen);
    }
    ps->wide |= block_seen_wide(&seen);
    return mask;
}

/* <p> is behind the opening quote; returns the place behind the closing one, or NULL with the fault set. */
static inline SCAN_TARGET const char *scan_string(struct json_parser *ps, struct block_seen *seen,
                                                  const char *p, uint8_t *flags)
{
    const char *end = ps->end;
    for (;;) {
        bool whole = end - p >= BLOCK;
        uint32_t mask = LIKELY(whole) ? block_special(p, seen) : tail_special(ps, p);
        unsigned i = 0;
        while (mask) {
            i = (unsigned)__builtin_ctz(mask);
            const char *at = p + i;
            if (LIKELY(*at == '"'))
                return at + 1;
            if (*at != '\\') {
                json_scan_fault(ps, at, "control character in a string");
                return NULL;
            }
            *flags |= JSON_ESCAPED;
            unsigned len = at + 1 < end ? escape_len[(unsigned char)at[1]] : 0;
            if (len == 0 && (len = json_scan_unicode(ps, at)) == 0)
                return NULL;
            i += len;
            if (i >= BLOCK)
                break;
            mask &= UINT32_MAX << i;
        }
        if (i < BLOCK && !whole) {
            json_scan_fault(ps, end, "string without end");
            return NULL;
        }
        p += i < BLOCK ? BLOCK : i;
    }
}

static inline SCAN_TARGET bool is_digit(const char *p, const char *end)
{
    return p < end && (unsigned char)(*p - '0') < 10;
}

static inline SCAN_TARGET const char *scan_number(struct json_parser *ps, const char *p)
{
    const char *end = ps->end;
    p += *p == '-';
    if (!is_digit(p, end))
        goto bad;
    if (*p++ != '0') {
        while (is_digit(p, end))
            p++;
    }
    if (p < end && *p == '.') {
        if (!is_digit(++p, end))
            goto bad;
        while (is_digit(p, end))
            p++;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        if (!is_digit(p, end))
            goto bad;
        while (is_digit(p, end))
            p++;
    }
    return p;
bad:
    json_scan_fault(ps, p, "expected a digit");
    return NULL;
}

static inline SCAN_TARGET const char *scan_literal(struct json_parser *ps, const char *p, const char *word,
                                                   size_t n)
{
    if ((size_t)(ps->end - p) >= n && memcmp(p, word, n) == 0)
        return p + n;
    json_scan_fault(ps, p, "expected a value");
    return NULL;
}

/* A value that is no container; sets its type and flags, returns the place behind it. */
static inline SCAN_TARGET const char *scan_scalar(struct json_parser *ps, struct block_seen *seen,
                                                  const char *p, struct json_node *n)
{
    n->flags = 0;
    switch (*p) {
    case '"':
        n->type = JSON_STRING;
        return scan_string(ps, seen, p + 1, &n->flags);
    case 't':
        n->type = JSON_TRUE;
        return scan_literal(ps, p, "true", 4);
    case 'f':
        n->type = JSON_FALSE;
        return scan_literal(ps, p, "false", 5);
    case 'n':
        n->type = JSON_NULL;
        return scan_literal(ps, p, "null", 4);
    case '-':
    case '0' ... '9':
        n->type = JSON_NUMBER;
        return scan_number(ps, p);
    default:
        json_scan_fault(ps, p, "expected a value");
        return NULL;
    }
}

/* Makes sure of room for two nodes (a name and its value). */
#define ROOM()                                                                                               \
    do {                                                                                                     \
        if (UNLIKELY(n == ps->cap)) {                                                                        \
            ps->n = n;                                                                                       \
            if (!json_scan_grow(ps, p))                                                                      \
                return false;                                                                                \
            node = ps->node;                                                                                 \
        }                                                                                                    \
    } while (0)

#define AT(c) (p < end && *p == (c))

/* One value and the white space around it; ps->node, n, odd and wide are set when it is one. */
SCAN_TARGET bool SCAN(struct json_parser *ps)
{
    const char *const text = ps->text, *const end = ps->end;
    const char *p = skip_space(text, end), *q;
    struct json_node *node = ps->node;
    struct block_seen seen = {0};
    uint32_t n = 0, open = JSON_NODE_NONE, depth = 0;

value:
    ROOM();
    if (UNLIKELY(p == end))
        return json_scan_fault(ps, p, "expected a value");
    if (*p == '{' || *p == '[') {
        if (depth == ps->max_depth)
            return json_scan_fault(ps, p, "nested too deep");
        depth++;
        node[n] = (struct json_node){
            .at = (uint32_t)(p - text), .end = open, .type = *p == '{' ? JSON_OBJECT : JSON_ARRAY};
        open = n++;
        p = skip_space(p + 1, end);
        if (node[open].type == JSON_OBJECT) {
            if (AT('}'))
                goto close;
            goto name;
        }
        if (AT(']'))
            goto close;
        node[open].count = 1;
        goto value;
    }
    q = scan_scalar(ps, &seen, p, &node[n]);
    if (UNLIKELY(!q))
        return false;
    node[n].at = (uint32_t)(p - text);
    node[n].len = (uint32_t)(q - p);
    node[n].end = n + 1;
    node[n].count = 0;
    n++;
    p = q;

behind:
    p = skip_space(p, end);
    if (open == JSON_NODE_NONE) {
        if (p != end)
            return json_scan_fault(ps, p, "expected the end of the text");
        ps->n = n;
        ps->wide |= block_seen_wide(&seen);
        return true;
    }
    if (AT(',')) {
        p = skip_space(p + 1, end);
        if (node[open].type == JSON_OBJECT)
            goto name;
        node[open].count++;
        goto value;
    }
    if (node[open].type == JSON_OBJECT ? !AT('}') : !AT(']'))
        return json_scan_fault(
            ps, p, node[open].type == JSON_OBJECT ? "expected ',' or '}'" : "expected ',' or ']'");

close:
    p++;
    q = text + node[open].at;
    {
        uint32_t up = node[open].end;
        node[open].len = (uint32_t)(p - q);
        node[open].end = n;
        if (node[open].count > 1 && node[open].type == JSON_OBJECT && json_names_repeat(ps, open))
            ps->odd |= JSON_ODD_DUPLICATE;
        open = up;
    }
    depth--;
    goto behind;

name:
    if (UNLIKELY(!AT('"')))
        return json_scan_fault(ps, p, "expected a member's name");
    ROOM();
    node[n].flags = JSON_IS_NAME;
    q = scan_string(ps, &seen, p + 1, &node[n].flags);
    if (UNLIKELY(!q))
        return false;
    node[n].at = (uint32_t)(p - text);
    node[n].len = (uint32_t)(q - p);
    node[n].end = n + 1;
    node[n].count = 0;
    node[n].type = JSON_STRING;
    n++;
    node[open].count++;
    p = skip_space(q, end);
    if (UNLIKELY(!AT(':')))
        return json_scan_fault(ps, p, "expected ':'");
    p = skip_space(p + 1, end);
    goto value;
}
