/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/stream_frame.h"

void frame_cutter_init(struct frame_cutter *c, size_t max_frame_bytes)
{
    *c = (struct frame_cutter){0};
    buf_init(&c->pending, max_frame_bytes);
    buf_init(&c->joined, max_frame_bytes);
}

void frame_cutter_fini(struct frame_cutter *c)
{
    buf_fini(&c->pending);
    buf_fini(&c->joined);
}

bool frame_cutter_add(struct frame_cutter *c, struct span bytes)
{
    if (c->from) {
        buf_consume(&c->pending, c->from);
        c->line -= c->from;
        c->at -= c->from;
        c->from = 0;
    }
    return buf_add_span(&c->pending, bytes);
}

/* The lines of a frame, without their ends. */
static bool next_line(struct span *rest, struct span *ret)
{
    if (rest->n == 0)
        return false;
    size_t n = 0;
    while (n < rest->n && rest->p[n] != '\n' && rest->p[n] != '\r')
        n++;
    *ret = span_of(rest->p, n);
    size_t end = n;
    if (end < rest->n)
        end += rest->p[end] == '\r' && end + 1 < rest->n && rest->p[end + 1] == '\n' ? 2 : 1;
    *rest = span_of(rest->p + end, rest->n - end);
    return true;
}

static bool is_data(struct span line, struct span *ret_value)
{
    static const struct span bom = SPAN("\xef\xbb\xbf");
    if (span_starts(line, bom))
        line = span_of(line.p + bom.n, line.n - bom.n);
    if (!span_starts(line, SPAN("data")) || (line.n > 4 && line.p[4] != ':'))
        return false;
    size_t skip = line.n == 4 ? 4 : line.n > 5 && line.p[5] == ' ' ? 6 : 5;
    *ret_value = span_of(line.p + skip, line.n - skip);
    return true;
}

static void read_frame(struct frame_cutter *c, struct frame *f)
{
    struct span rest = f->raw, line, value;
    f->data = SPAN_NONE;
    f->data_lines = 0;
    while (next_line(&rest, &line)) {
        if (!is_data(line, &value))
            continue;
        if (f->data_lines == 1) {
            buf_clear(&c->joined);
            buf_add_span(&c->joined, f->data);
        }
        if (f->data_lines++ == 0) {
            f->data = value;
            continue;
        }
        buf_add_char(&c->joined, '\n');
        buf_add_span(&c->joined, value);
        f->data = buf_view(&c->joined);
    }
}

/* Behind the present frame's last byte, or 0. Of a CR that ends the frame nobody knows yet whether an LF
 * belongs to it until the next byte is there. */
static size_t find_end(struct frame_cutter *c, bool last)
{
    const char *p = c->pending.p;
    size_t n = c->pending.n;
    for (size_t i = c->at; i < n; i++) {
        if (p[i] != '\n' && p[i] != '\r')
            continue;
        if (p[i] == '\r' && i + 1 == n && !last) {
            c->at = i;
            return 0;
        }
        bool blank = i == c->line;
        i += p[i] == '\r' && i + 1 < n && p[i + 1] == '\n';
        c->line = i + 1;
        if (blank)
            return i + 1;
    }
    c->at = n;
    return last ? n : 0;
}

bool frame_cutter_next(struct frame_cutter *c, bool last, struct frame *ret)
{
    size_t end = find_end(c, last);
    if (end <= c->from)
        return false;
    ret->raw = span_of(c->pending.p + c->from, end - c->from);
    read_frame(c, ret);
    c->from = c->at = c->line = end;
    return true;
}
