/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a trace's file: lines through zlib, which reads plain files too.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "trace.h"

struct source {
    struct trace *trace;
    const char *path;
    size_t limit;
    trace_tell_fn *tell;
    void *arg;
    size_t faults;
};

static void tell(struct source *s, char *text)
{
    s->tell(s->arg, text);
    free(text);
}

static bool is_enough(const struct source *s)
{
    return s->limit && s->trace->n >= s->limit;
}

static void add_line(struct source *s, struct span line)
{
    struct trace_fault f;
    s->trace->lines++;
    if (is_enough(s) || trace_add_line(s->trace, line, &f) || s->faults++ >= TRACE_FAULTS_SHOWN)
        return;
    tell(s, mem_printf("%s:%zu:%zu: %s", s->path, s->trace->lines, f.column, f.what));
}

/* Hands out the complete lines of <b> and keeps the rest. */
static void add_lines(struct source *s, struct buf *b)
{
    size_t from = 0;
    for (char *end; (end = memchr(b->p + from, '\n', b->n - from)); from = (size_t)(end - b->p) + 1)
        add_line(s, span_of(b->p + from, (size_t)(end - b->p) - from));
    buf_consume(b, from);
}

static const char *gz_why(gzFile f)
{
    int code;
    const char *text = gzerror(f, &code);
    return code == Z_ERRNO ? strerror(errno) : code == Z_BUF_ERROR ? "the file ends too early" : text;
}

static bool read_all(struct source *s, gzFile f, struct buf *b)
{
    enum { PIECE = 256 * 1024 };
    while (!is_enough(s)) {
        if (!buf_reserve(b, PIECE)) {
            tell(s, mem_printf("%s:%zu: the line is too long", s->path, s->trace->lines + 1));
            return false;
        }
        int n = gzread(f, b->p + b->n, PIECE);
        if (n < 0) {
            tell(s, mem_printf("%s: %s", s->path, gz_why(f)));
            return false;
        }
        if (n == 0)
            break;
        b->n += (size_t)n;
        add_lines(s, b);
    }
    if (b->n > 0) /* the last line without an end */
        add_line(s, buf_view(b));
    return true;
}

bool trace_read_file(struct trace *t, const char *path, size_t limit, trace_tell_fn *tell_fn, void *arg)
{
    struct source s = {t, strcmp(path, "-") ? path : "standard input", limit, tell_fn, arg, 0};
    errno = 0;
    gzFile f = strcmp(path, "-") ? gzopen(path, "rb") : gzdopen(dup(STDIN_FILENO), "rb");
    if (!f) {
        tell(&s, mem_printf("%s: %s", s.path, errno ? strerror(errno) : "cannot be read"));
        return false;
    }
    struct buf b;
    buf_init(&b, TRACE_LINE_MAX);
    bool ok = read_all(&s, f, &b);
    buf_fini(&b);
    /* A file that breaks off inside of its compressed data reads well until it is closed. */
    int closed = gzclose(f);
    if (ok && closed != Z_OK) {
        ok = is_enough(&s); /* stopping early is no fault */
        if (!ok)
            tell(&s, mem_printf("%s: the file ends too early", s.path));
    }
    if (s.faults > TRACE_FAULTS_SHOWN)
        tell(&s, mem_printf("%s: %zu lines more", s.path, s.faults - TRACE_FAULTS_SHOWN));
    trace_finish(t);
    return ok;
}
