/* SPDX-License-Identifier: Apache-2.0
 *
 * Slow and simple twins of the readers in src/http, for tests and fuzzers: they see the whole input at once.
 */
#ifndef ROLTER_TESTS_HTTP_NAIVE_H
#define ROLTER_TESTS_HTTP_NAIVE_H

#include "base/buf.h"
#include "base/check.h"
#include "http/chunk.h"
#include "http/sse.h"

/* ---- event streams
 * ---------------------------------------------------------------------------------------------- */

/* An event as text in which different events differ. */
static inline void naive_record(void *arg, const struct sse_event *e)
{
    struct buf *b = arg;
    const struct span parts[3] = {e->type, e->data, e->id};
    for (int i = 0; i < 3; i++)
        if (!buf_printf(b, "%zu:", parts[i].n) || !buf_add_span(b, parts[i]))
            CHECK_MSG(false, "a record does not fit");
    buf_add_char(b, '\n');
}

struct naive_sse {
    struct buf data, type, id;
    bool has_data, has_any;
};

static inline void naive_sse_line(struct naive_sse *s, struct span line)
{
    const char *colon = memchr(line.p, ':', line.n);
    struct span name = colon ? span_of(line.p, (size_t)(colon - line.p)) : line;
    struct span value = colon ? span_of(colon + 1, line.n - name.n - 1) : SPAN_NONE;
    if (value.n > 0 && value.p[0] == ' ')
        value = span_of(value.p + 1, value.n - 1);
    if (span_eq(name, SPAN("data"))) {
        if (s->has_data)
            buf_add_char(&s->data, '\n');
        buf_add_span(&s->data, value);
        s->has_data = s->has_any = true;
    } else if (span_eq(name, SPAN("event"))) {
        buf_clear(&s->type);
        buf_add_span(&s->type, value);
        s->has_any = true;
    } else if (span_eq(name, SPAN("id")) && !(value.n > 0 && memchr(value.p, 0, value.n))) {
        buf_clear(&s->id);
        buf_add_span(&s->id, value);
        s->has_any = true;
    }
}

static inline void naive_sse_dispatch(struct naive_sse *s, struct buf *out)
{
    struct sse_event e = {.type = buf_view(&s->type), .data = buf_view(&s->data), .id = buf_view(&s->id)};
    if (s->has_data)
        naive_record(out, &e);
    buf_clear(&s->data);
    buf_clear(&s->type);
    buf_clear(&s->id);
    s->has_data = s->has_any = false;
}

/* Records all events of the stream in <out>; returns whether it ends unterminated. */
static inline bool naive_sse(const char *p, size_t n, struct buf *out)
{
    struct naive_sse s = {0};
    buf_init(&s.data, n + 1);
    buf_init(&s.type, n + 1);
    buf_init(&s.id, n + 1);
    size_t at = n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, from = at;
    for (; at < n; at++) {
        if (p[at] != '\r' && p[at] != '\n')
            continue;
        if (at == from)
            naive_sse_dispatch(&s, out);
        else
            naive_sse_line(&s, span_of(p + from, at - from));
        if (p[at] == '\r' && at + 1 < n && p[at + 1] == '\n')
            at++;
        from = at + 1;
    }
    bool open = from < n || s.has_any;
    if (from < n)
        naive_sse_line(&s, span_of(p + from, n - from));
    naive_sse_dispatch(&s, out);
    buf_fini(&s.data);
    buf_fini(&s.type);
    buf_fini(&s.id);
    return open;
}

/* ---- chunks
 * ----------------------------------------------------------------------------------------------------- */

static inline bool naive_no_controls(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (((unsigned char)s.p[i] < ' ' && s.p[i] != '\t') || s.p[i] == 0x7f)
            return false;
    return true;
}

/* The line from *at without its CR LF, up to the first LF; false when there is none or it is not well-formed.
 */
static inline bool naive_line(struct span in, size_t *at, struct span *ret)
{
    const char *lf = *at < in.n ? memchr(in.p + *at, '\n', in.n - *at) : NULL;
    if (!lf || lf == in.p + *at || lf[-1] != '\r')
        return false;
    *ret = span_of(in.p + *at, (size_t)(lf - 1 - in.p) - *at);
    *at = (size_t)(lf + 1 - in.p);
    return naive_no_controls(*ret);
}

static inline bool naive_trailers(struct span in, size_t *at)
{
    const char *name_chars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t from = *at;
    struct span line;
    while (naive_line(in, at, &line)) {
        if (*at - from > 8192)
            return false;
        if (line.n == 0)
            return true;
        size_t name = 0;
        while (name < line.n && line.p[name] && strchr(name_chars, line.p[name]))
            name++;
        if (name == 0 || name == line.n || line.p[name] != ':')
            return false;
    }
    return false;
}

/* Whether <in> starts with a complete, valid chunked body; then its data is in <out> and *ret_used its
 * length. */
static inline bool naive_chunked(struct span in, struct buf *out, size_t *ret_used)
{
    struct span line;
    for (size_t at = 0; naive_line(in, &at, &line);) {
        uint64_t size = 0;
        size_t digits = 0;
        const char *hex = "0123456789abcdef0123456789ABCDEF", *d;
        while (digits < line.n && line.p[digits] && (d = strchr(hex, line.p[digits]))) {
            size = size << 4 | (uint64_t)((d - hex) & 15);
            digits++;
        }
        if (digits == 0 || digits > 16 || line.n - digits > 256 || (line.n > digits && line.p[digits] != ';'))
            return false;
        if (size == 0) {
            if (!naive_trailers(in, &at))
                return false;
            *ret_used = at;
            return true;
        }
        if (size > in.n - at)
            return false;
        buf_add(out, in.p + at, (size_t)size);
        at += (size_t)size;
        if (!naive_line(in, &at, &line) || line.n != 0)
            return false;
    }
    return false;
}

#endif
