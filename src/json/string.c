/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "json/copy.h"
#include "json/parser.h"

static size_t put_utf8(char *dst, unsigned c)
{
    unsigned char *d = (unsigned char *)dst;
    if (c < 0x80) {
        d[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        d[0] = (unsigned char)(0xc0 | c >> 6);
        d[1] = (unsigned char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        d[0] = (unsigned char)(0xe0 | c >> 12);
        d[1] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
        d[2] = (unsigned char)(0x80 | (c & 0x3f));
        return 3;
    }
    d[0] = (unsigned char)(0xf0 | c >> 18);
    d[1] = (unsigned char)(0x80 | (c >> 12 & 0x3f));
    d[2] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    d[3] = (unsigned char)(0x80 | (c & 0x3f));
    return 4;
}

/* <p> is a backslash; returns the length of the escape. */
static unsigned unescape_one(const char *p, const char *end, char *dst, size_t *ret_n)
{
    static const char plain[256] = {
        ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
        ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
    };
    char c = plain[(unsigned char)p[1]];
    if (LIKELY(c != 0)) {
        *dst = c;
        *ret_n = 1;
        return 2;
    }
    unsigned v = (unsigned)json_hex4(p + 2), len = 6;
    if (v >= 0xd800 && v <= 0xdfff) {
        int low = v < 0xdc00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? json_hex4(p + 8) : -1;
        if (low >= 0xdc00 && low <= 0xdfff) {
            v = 0x10000 + ((v - 0xd800) << 10) + ((unsigned)low - 0xdc00);
            len = 12;
        } else {
            v = 0xfffd;
        }
    }
    *ret_n = put_utf8(dst, v);
    return len;
}

size_t json_unescape(const char **at, const char *end, char *dst, size_t cap)
{
    const char *p = *at;
    size_t n = 0, one;
    while (p < end && cap - n >= JSON_UNESCAPE_ROOM) {
        if (LIKELY(end - p >= JSON_COPY)) {
            unsigned plain = json_copy_unescaped(dst + n, p);
            p += plain;
            n += plain;
            if (plain == JSON_COPY)
                continue;
        } else if (*p != '\\') {
            dst[n++] = *p++;
            continue;
        }
        p += unescape_one(p, end, dst + n, &one);
        n += one;
    }
    *at = p;
    return n;
}

/* The bytes between the quotes of string node <i>. */
static struct span inner(const struct json_doc *d, uint32_t i)
{
    return span_of(d->text.p + d->node[i].at + 1, d->node[i].len - 2);
}

struct span json_string(const struct json_doc *d, uint32_t i, struct arena *a)
{
    if (!json_is(d, i, JSON_STRING))
        return SPAN_NONE;
    struct span s = inner(d, i);
    if (!(d->node[i].flags & JSON_ESCAPED))
        return s;
    size_t cap = s.n + JSON_UNESCAPE_ROOM;
    char *to = arena_alloc(a, cap);
    const char *at = s.p;
    return span_of(to, json_unescape(&at, s.p + s.n, to, cap));
}

bool json_string_eq(const struct json_doc *d, uint32_t i, struct span s)
{
    if (!json_is(d, i, JSON_STRING))
        return false;
    struct span own = inner(d, i);
    if (!(d->node[i].flags & JSON_ESCAPED))
        return span_eq(own, s);
    /* An escape is never shorter than what it means. */
    if (own.n < s.n)
        return false;
    char piece[256];
    const char *at = own.p, *end = own.p + own.n;
    while (at < end) {
        size_t n = json_unescape(&at, end, piece, sizeof(piece));
        if (n > s.n || memcmp(piece, s.p, n) != 0)
            return false;
        s.p += n;
        s.n -= n;
    }
    return s.n == 0;
}

void json_string_each(const struct json_doc *d, uint32_t i, void (*put)(void *arg, const char *p, size_t n),
                      void *arg)
{
    if (!json_is(d, i, JSON_STRING))
        return;
    struct span s = inner(d, i);
    if (!(d->node[i].flags & JSON_ESCAPED)) {
        if (s.n)
            put(arg, s.p, s.n);
        return;
    }
    char piece[1024];
    const char *at = s.p, *end = s.p + s.n;
    while (at < end) {
        size_t n = json_unescape(&at, end, piece, sizeof(piece));
        put(arg, piece, n);
    }
}
