/* SPDX-License-Identifier: Apache-2.0 */
#include "config/reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum { MAX_FINDINGS = 1000, MAX_FINDING_TEXT = 1000 };

enum place_of { PLACE_FIELD, PLACE_TABLE };

/* A struct and its first member share their address, hence the second word of the key. */
struct place_key {
    uintptr_t address, what;
};
struct place_entry {
    struct place_key key;
    struct toml_place at;
};

void reader_init(struct reader *r, struct settings *s, const char *name)
{
    *r = (struct reader){.s = s, .name = name};
    arena_init(&r->scratch, NULL);
    map_init(&r->places);
}

void reader_fini(struct reader *r)
{
    free(r->findings);
    free(r->warned);
    map_fini(&r->places);
    arena_reset(&r->scratch);
}

static void add_finding(struct reader *r, bool is_error, struct toml_place at, const char *fmt, va_list args)
{
    if (is_error)
        r->errors++;
    else
        r->warnings++;
    if (r->n_findings == MAX_FINDINGS)
        return;
    if (r->n_findings == r->cap_findings) {
        r->cap_findings = r->cap_findings ? 2 * r->cap_findings : 16;
        r->findings = mem_realloc(r->findings, r->cap_findings * sizeof *r->findings);
    }
    char text[MAX_FINDING_TEXT];
    int n = vsnprintf(text, sizeof text, fmt, args);
    if (n >= MAX_FINDING_TEXT)
        n = MAX_FINDING_TEXT - 1;
    for (int i = 0; i < n; i++) /* one line a finding, whatever the file's strings hold */
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
    r->findings[r->n_findings] = (struct finding){.at = at,
                                                  .is_error = is_error,
                                                  .order = r->n_findings,
                                                  .text = arena_dup(&r->scratch, span_of(text, (size_t)n)).p};
    r->n_findings++;
}

bool reader_is_full(const struct reader *r)
{
    return r->n_findings == MAX_FINDINGS;
}

void reader_fault(struct reader *r, struct toml_place at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_finding(r, true, at, fmt, args);
    va_end(args);
}

void reader_warn(struct reader *r, struct toml_place at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_finding(r, false, at, fmt, args);
    va_end(args);
}

static int in_order_of_the_file(const void *pa, const void *pb)
{
    const struct finding *a = pa, *b = pb;
    if (a->at.line != b->at.line)
        return a->at.line < b->at.line ? -1 : 1;
    if (a->at.column != b->at.column)
        return a->at.column < b->at.column ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

void reader_report(struct reader *r, struct config_report *out)
{
    if (r->n_findings > 0)
        qsort(r->findings, r->n_findings, sizeof *r->findings, in_order_of_the_file);
    for (unsigned i = 0; i < r->n_findings; i++) {
        const struct finding *f = &r->findings[i];
        const char *severity = f->is_error ? "error" : "warning";
        if (f->at.line > 0)
            buf_printf(&out->text, "%s:%u:%u: %s: %s\n", r->name, f->at.line, f->at.column, severity,
                       f->text);
        else
            buf_printf(&out->text, "%s: %s: %s\n", r->name, severity, f->text);
    }
    if (r->errors + r->warnings > r->n_findings)
        buf_printf(&out->text, "%s: and %u more\n", r->name, r->errors + r->warnings - r->n_findings);
    out->errors += r->errors;
    out->warnings += r->warnings;
}

static void note(struct reader *r, const void *p, enum place_of what, struct toml_place at)
{
    struct place_entry *e = ARENA_NEW(&r->scratch, struct place_entry);
    *e = (struct place_entry){.key = {(uintptr_t)p, (uintptr_t)what}, .at = at};
    map_put(&r->places, span_of((const char *)&e->key, sizeof e->key), e);
}

static struct toml_place look(const struct reader *r, const void *p, enum place_of what)
{
    const struct place_key key = {(uintptr_t)p, (uintptr_t)what};
    const struct place_entry *e = map_get(&r->places, span_of((const char *)&key, sizeof key));
    return e ? e->at : (struct toml_place){0, 0};
}

void reader_note_field(struct reader *r, const void *field, struct toml_place at)
{
    note(r, field, PLACE_FIELD, at);
}

void reader_note_table(struct reader *r, const void *table, struct toml_place at)
{
    note(r, table, PLACE_TABLE, at);
}

struct toml_place reader_field(const struct reader *r, const void *field)
{
    return look(r, field, PLACE_FIELD);
}

struct toml_place reader_table(const struct reader *r, const void *table)
{
    return look(r, table, PLACE_TABLE);
}

struct toml_place reader_field_or_table(const struct reader *r, const void *field, const void *table)
{
    const struct toml_place at = reader_field(r, field);
    return at.line > 0 ? at : reader_table(r, table);
}
