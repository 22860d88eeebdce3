/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ways through: direct() looks for a whole event in the fed bytes and hands it out in place; what it does
 * not find whole goes line by line into <hold> (collect()), until the blank line comes. Lines that say
 * nothing (comments, retry, unknown fields) count for neither, so that endless comments cost no memory.
 */
#include "http/sse.h"

#include "base/check.h"
#include "http/scan.h"

static const char bom[3] = {'\xef', '\xbb', '\xbf'};

void sse_init(struct sse *s, size_t max_event_bytes)
{
    CHECK(max_event_bytes > 0 && max_event_bytes < SIZE_MAX);
    *s = (struct sse){.at_start = true, .max = max_event_bytes};
    buf_init(&s->hold, max_event_bytes + 1); /* the last line's LF */
    buf_init(&s->joined, max_event_bytes + 1);
}

void sse_fini(struct sse *s)
{
    buf_fini(&s->hold);
    buf_fini(&s->joined);
}

/* Whether the line has this field; then *ret is its value. */
static inline bool is_field(const char *base, size_t at, size_t n, struct span name, struct sse_slice *ret)
{
    const char *line = base + at;
    if (n < name.n || memcmp(line, name.p, name.n) != 0 || (n > name.n && line[name.n] != ':'))
        return false;
    size_t skip = name.n;
    if (skip < n)
        skip += skip + 1 < n && line[skip + 1] == ' ' ? 2 : 1;
    *ret = (struct sse_slice){at + skip, n - skip};
    return true;
}

/* Notes what the line <base>[at, at + n) says; false when it says nothing. */
static inline bool note_line(struct sse_fields *f, const char *base, size_t at, size_t n)
{
    struct sse_slice v;
    switch (base[at]) {
    case 'd':
        if (!is_field(base, at, n, SPAN("data"), &v))
            return false;
        if (f->n_data++ == 0)
            f->data = v;
        return true;
    case 'e':
        return is_field(base, at, n, SPAN("event"), &f->type);
    case 'i':
        if (!is_field(base, at, n, SPAN("id"), &v) || (v.n > 0 && memchr(base + v.at, '\0', v.n)))
            return false;
        f->id = v;
        return true;
    default:
        return false;
    }
}

/* Joins the data lines of the event [p, p + n), which may have other lines too. */
static struct span join_data(struct sse *s, const char *p, size_t n)
{
    struct sse_slice v;
    bool first = true;
    buf_clear(&s->joined);
    for (size_t at = 0; at < n;) {
        size_t e = (size_t)(scan_line_end(p + at, p + n) - p);
        if (is_field(p, at, e - at, SPAN("data"), &v)) {
            bool fits = (first || buf_add_char(&s->joined, '\n')) && buf_add(&s->joined, p + v.at, v.n);
            CHECK(fits); /* no more than the lines that were counted */
            first = false;
        }
        at = e + 1; /* between CR and LF: an empty line, which is no data */
    }
    return buf_view(&s->joined);
}

static inline struct span slice(const char *base, struct sse_slice v)
{
    return v.n ? span_of(base + v.at, v.n) : SPAN_NONE;
}

/* The lines of the event are [p, p + n). */
static inline void dispatch(struct sse *s, const struct sse_fields *f, const char *p, size_t n,
                            sse_event_fn *on_event, void *arg)
{
    if (f->n_data == 0)
        return;
    struct sse_event e = {
        .type = slice(p, f->type),
        .data = f->n_data == 1 ? slice(p, f->data) : join_data(s, p, n),
        .id = slice(p, f->id),
    };
    on_event(arg, &e);
}

/* Steps over the line end at <at>: CR, LF or CR LF. */
static inline size_t skip_line_end(struct sse *s, const char *p, size_t at, size_t n)
{
    if (p[at] == '\n')
        return at + 1;
    if (at + 1 == n)
        s->last_was_cr = true;
    return at + 1 < n && p[at + 1] == '\n' ? at + 2 : at + 1;
}

static size_t give_up(struct sse *s, size_t n)
{
    s->broken = true;
    buf_fini(&s->hold);
    buf_fini(&s->joined);
    s->line = 0;
    s->fields = (struct sse_fields){0};
    return n;
}

/* Takes bytes until the event in <hold> is complete and dispatched, or until nothing needs to be held. */
static size_t collect(struct sse *s, const char *p, size_t n, sse_event_fn *on_event, void *arg)
{
    for (size_t at = 0; at < n;) {
        size_t e = (size_t)(scan_line_end(p + at, p + n) - p);
        if (e - at > s->max || s->hold.n > s->max - (e - at))
            return give_up(s, n);
        bool fits = buf_add(&s->hold, p + at, e - at);
        CHECK(fits);
        if (e == n)
            return n;
        at = skip_line_end(s, p, e, n);
        if (s->hold.n == s->line) {
            dispatch(s, &s->fields, s->hold.p, s->hold.n, on_event, arg);
            s->hold.n = 0;
            s->line = 0;
            s->fields = (struct sse_fields){0};
            return at;
        }
        if (note_line(&s->fields, s->hold.p, s->line, s->hold.n - s->line))
            buf_add_char(&s->hold, '\n');
        else
            s->hold.n = s->line;
        s->line = s->hold.n;
        if (s->hold.n == 0)
            return at;
    }
    return n;
}

/* Nothing is held. Hands out the event at <p> if it is whole; returns its bytes, or 0. */
static inline size_t direct(struct sse *s, const char *p, size_t n, sse_event_fn *on_event, void *arg)
{
    struct sse_fields f = {0};
    size_t counted = 0; /* as hold.n would be */
    for (size_t at = 0; at < n;) {
        size_t e = (size_t)(scan_line_end(p + at, p + n) - p);
        if (e == n)
            return 0;
        if (UNLIKELY(e - at > s->max || counted > s->max - (e - at)))
            return give_up(s, n);
        if (e == at) {
            size_t used = skip_line_end(s, p, e, n);
            dispatch(s, &f, p, at, on_event, arg);
            return used;
        }
        if (note_line(&f, p, at, e - at))
            counted += e - at + 1;
        at = p[e] == '\r' && e + 1 < n && p[e + 1] == '\n' ? e + 2 : e + 1;
    }
    return 0;
}

/* A BOM may stand before the first line. Returns the bytes that were taken. */
static size_t feed_start(struct sse *s, const char *p, size_t n)
{
    size_t at = 0;
    while (at < n && s->bom < sizeof bom && p[at] == bom[s->bom]) {
        at++;
        s->bom++;
    }
    if (at == n && s->bom < sizeof bom)
        return n;
    s->at_start = false;
    /* Not a BOM after all: what looked like one begins the first line. */
    if (s->bom < sizeof bom && s->bom > 0) {
        if (s->bom > s->max)
            return give_up(s, n);
        buf_add(&s->hold, bom, s->bom);
    }
    return at;
}

HOT void sse_feed(struct sse *s, const char *p, size_t n, sse_event_fn *on_event, void *arg)
{
    size_t at = 0;
    if (UNLIKELY(s->at_start))
        at = feed_start(s, p, n);
    while (at < n && !s->broken) {
        if (s->last_was_cr) {
            s->last_was_cr = false;
            if (p[at] == '\n') {
                at++;
                continue;
            }
        }
        size_t used = s->hold.n == 0 ? direct(s, p + at, n - at, on_event, arg) : 0;
        at += used ? used : collect(s, p + at, n - at, on_event, arg);
    }
}

bool sse_end(struct sse *s, sse_event_fn *on_event, void *arg)
{
    if (s->broken || (s->hold.n == 0 && (!s->at_start || s->bom == 0)))
        return s->broken;
    if (s->hold.n > s->line)
        note_line(&s->fields, s->hold.p, s->line, s->hold.n - s->line);
    dispatch(s, &s->fields, s->hold.p, s->hold.n, on_event, arg);
    s->hold.n = 0;
    s->line = 0;
    s->fields = (struct sse_fields){0};
    return true;
}
