/* SPDX-License-Identifier: Apache-2.0 */
#include "json/write.h"

#include <math.h>

#include "base/check.h"
#include "json/copy.h"
#include "json/number.h"
#include "json/parser.h"

/* What each byte needs: 0 nothing, 'u' \u00XX, else the letter behind the backslash. */
static const char escape_of[256] = {
    [0 ... 7] = 'u', ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n',  [0x0b] = 'u',
    ['\f'] = 'f',    ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\', [0x0e ... 0x1f] = 'u',
};

static size_t escape_byte(char *dst, unsigned char c)
{
    dst[0] = '\\';
    dst[1] = escape_of[c];
    if (dst[1] != 'u')
        return 2;
    dst[2] = dst[3] = '0';
    dst[4] = (char)('0' + (c >> 4));
    dst[5] = "0123456789abcdef"[c & 15];
    return 6;
}

/* How many bytes of a sequence that is not valid go together into one U+FFFD: the start of a valid one that
 * is cut short, else a single byte. Behind the second byte any continuation is right, so putting some there
 * shows whether the bytes are such a start. */
static size_t bad_len(const unsigned char *p, size_t n)
{
    for (size_t keep = n < 3 ? n : 3; keep > 1; keep--) {
        unsigned char whole[5] = {0x80, 0x80, 0x80, 0x80, 0x80};
        memcpy(whole, p, keep);
        if (json_utf8_len(whole, sizeof(whole)) > keep)
            return keep;
    }
    return 1;
}

/* Escapes from *<at> on until <end> or until less than ESCAPE_ROOM of <cap> is left. <valid>: the text is
 * known to be UTF-8. */
enum { ESCAPE_ROOM = 32 };
static size_t escape_some(const char **at, const char *end, bool valid, char *dst, size_t cap)
{
    const unsigned char *p = (const unsigned char *)*at, *stop = (const unsigned char *)end;
    size_t n = 0;
    while (p < stop && cap - n >= ESCAPE_ROOM) {
        /* Most text needs nothing done: copied by 16 bytes up to the first that does. */
        if (LIKELY(valid && stop - p >= JSON_COPY)) {
            unsigned plain = json_copy_plain(dst + n, (const char *)p);
            p += plain;
            n += plain;
            if (plain == JSON_COPY)
                continue;
        }
        if (escape_of[*p]) {
            n += escape_byte(dst + n, *p++);
            continue;
        }
        unsigned len = valid ? 1 : json_utf8_len(p, (size_t)(stop - p));
        if (len > 0) {
            memcpy(dst + n, p, len);
            n += len;
            p += len;
        } else {
            memcpy(dst + n, "\xef\xbf\xbd", 3);
            n += 3;
            p += bad_len(p, (size_t)(stop - p));
        }
    }
    *at = (const char *)p;
    return n;
}

size_t json_escape_into(char *dst, struct span s)
{
    if (s.n == 0)
        return 0;
    const char *at = s.p;
    return escape_some(&at, s.p + s.n, json_utf8_valid(s) == s.n, dst, s.n * 6 + ESCAPE_ROOM);
}

void json_escape(struct buf *b, struct span s)
{
    char piece[1024];
    if (s.n == 0) /* <s> may have no address */
        return;
    const char *at = s.p, *end = s.p + s.n;
    bool valid = json_utf8_valid(s) == s.n;
    while (at < end) {
        size_t n = escape_some(&at, end, valid, piece, sizeof(piece));
        if (!buf_add(b, piece, n))
            return;
    }
}

void json_out_init(struct json_out *o, struct buf *b)
{
    *o = (struct json_out){.b = b};
}

/* In front of every value and name. */
static void item(struct json_out *o)
{
    if (o->comma)
        buf_add_char(o->b, ',');
    o->comma = true;
}

static void item_text(struct json_out *o, const char *p, size_t n)
{
    item(o);
    buf_add(o->b, p, n);
}

static void quoted(struct json_out *o, struct span s)
{
    buf_add_char(o->b, '"');
    json_escape(o->b, s);
    buf_add_char(o->b, '"');
}

void json_out_object(struct json_out *o)
{
    item_text(o, "{", 1);
    o->comma = false;
}

void json_out_object_end(struct json_out *o)
{
    buf_add_char(o->b, '}');
    o->comma = true;
}

void json_out_array(struct json_out *o)
{
    item_text(o, "[", 1);
    o->comma = false;
}

void json_out_array_end(struct json_out *o)
{
    buf_add_char(o->b, ']');
    o->comma = true;
}

void json_out_name_span(struct json_out *o, struct span name)
{
    item(o);
    quoted(o, name);
    buf_add_char(o->b, ':');
    o->comma = false;
}

void json_out_name(struct json_out *o, const char *name)
{
    json_out_name_span(o, span_str(name));
}

void json_out_string(struct json_out *o, struct span s)
{
    item(o);
    quoted(o, s);
}

void json_out_str(struct json_out *o, const char *s)
{
    if (s)
        json_out_string(o, span_str(s));
    else
        json_out_null(o);
}

void json_out_u64(struct json_out *o, uint64_t v)
{
    item(o);
    buf_add_u64(o->b, v);
}

void json_out_i64(struct json_out *o, int64_t v)
{
    item(o);
    if (v < 0)
        buf_add_char(o->b, '-');
    buf_add_u64(o->b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void json_out_double(struct json_out *o, double v)
{
    char text[JSON_DOUBLE_MAX];
    if (isfinite(v))
        item_text(o, text, json_number_write(text, v));
    else
        json_out_null(o);
}

void json_out_bool(struct json_out *o, bool v)
{
    item_text(o, v ? "true" : "false", v ? 4 : 5);
}

void json_out_null(struct json_out *o)
{
    item_text(o, "null", 4);
}

void json_out_raw(struct json_out *o, struct span json)
{
    item_text(o, json.p, json.n);
}

void json_out_member_span(struct json_out *o, const char *name, struct span v)
{
    json_out_name(o, name);
    json_out_string(o, v);
}

void json_out_member_str(struct json_out *o, const char *name, const char *v)
{
    json_out_name(o, name);
    json_out_str(o, v);
}

void json_out_member_u64(struct json_out *o, const char *name, uint64_t v)
{
    json_out_name(o, name);
    json_out_u64(o, v);
}

void json_out_member_double(struct json_out *o, const char *name, double v)
{
    json_out_name(o, name);
    json_out_double(o, v);
}

void json_out_member_bool(struct json_out *o, const char *name, bool v)
{
    json_out_name(o, name);
    json_out_bool(o, v);
}
