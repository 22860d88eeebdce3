/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/metrics_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double bounds_ms[METRIC_BUCKETS] = {1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000};
static const double bounds_ratio[METRIC_BUCKETS] = {0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25,
                                                    0.3,  0.4,  0.5,  0.6, 0.8,  1};

const double *metric_bounds(enum metric_type t)
{
    return t == METRIC_RATIOS ? bounds_ratio : bounds_ms;
}

static const char *type_word(enum metric_type t)
{
    switch (t) {
    case METRIC_COUNTER:
        return "counter";
    case METRIC_GAUGE:
        return "gauge";
    default:
        return "histogram";
    }
}

/* Backslash and line end everywhere, the quote in label values only. */
static void add_escaped(struct buf *b, const char *s, bool quotes)
{
    for (; *s; s++) {
        if (*s == '\n')
            BUF_LIT(b, "\\n");
        else if (*s == '\\' || (quotes && *s == '"'))
            buf_printf(b, "\\%c", *s);
        else
            buf_add_char(b, *s);
    }
}

/* The shortest of three precisions that reads back the same. */
static void add_double(struct buf *b, double v)
{
    if (isnan(v)) {
        BUF_LIT(b, "NaN");
        return;
    }
    if (isinf(v)) {
        buf_add_str(b, v > 0 ? "+Inf" : "-Inf");
        return;
    }
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    buf_add_str(b, text);
}

void metric_text_head(struct buf *b, const struct metric_family *f)
{
    buf_printf(b, "# HELP %s ", f->name);
    add_escaped(b, f->help, false);
    buf_printf(b, "\n# TYPE %s %s\n", f->name, type_word(f->type));
}

/* name<suffix>{labels,le="bound"} and a space; <le> NULL for none. */
static void add_name(struct buf *b, const struct metric_family *f, const struct metric_line *l,
                     const char *suffix, const char *le)
{
    buf_add_str(b, f->name);
    buf_add_str(b, suffix);
    struct span rest = span_str(f->labels), label;
    char before = '{';
    for (unsigned i = 0; rest.n && span_split(&rest, ',', &label); i++) {
        buf_add_char(b, before);
        buf_add_span(b, label);
        BUF_LIT(b, "=\"");
        add_escaped(b, l->value[i], true);
        buf_add_char(b, '"');
        before = ',';
    }
    if (le) {
        buf_printf(b, "%cle=\"%s\"", before, le);
        before = ',';
    }
    buf_add_str(b, before == ',' ? "} " : " ");
}

void metric_text_counter(struct buf *b, const struct metric_family *f, const struct metric_line *l,
                         uint64_t v)
{
    add_name(b, f, l, "", NULL);
    buf_add_u64(b, v);
    buf_add_char(b, '\n');
}

void metric_text_gauge(struct buf *b, const struct metric_family *f, const struct metric_line *l, double v)
{
    add_name(b, f, l, "", NULL);
    add_double(b, v);
    buf_add_char(b, '\n');
}

void metric_text_histogram(struct buf *b, const struct metric_family *f, const struct metric_line *l,
                           const uint64_t *cell)
{
    const double *bound = metric_bounds(f->type);
    uint64_t n = 0;
    for (unsigned i = 0; i <= METRIC_BUCKETS; i++) {
        char le[24] = "+Inf";
        if (i < METRIC_BUCKETS)
            snprintf(le, sizeof le, "%g", bound[i]);
        n += cell[i];
        add_name(b, f, l, "_bucket", le);
        buf_add_u64(b, n);
        buf_add_char(b, '\n');
    }
    add_name(b, f, l, "_sum", NULL);
    add_double(b, (double)cell[METRIC_SUM_CELL] / METRIC_SUM_SCALE);
    BUF_LIT(b, "\n");
    add_name(b, f, l, "_count", NULL);
    buf_add_u64(b, n);
    BUF_LIT(b, "\n");
}

void metrics_document(struct buf *b)
{
    BUF_LIT(b, "| name | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for (enum metric_id id = 0; id < METRIC_COUNT; id++) {
        const struct metric_family *f = metric_family_get(id);
        buf_printf(b, "| `%s` | %s | ", f->name, type_word(f->type));
        struct span rest = span_str(f->labels), label;
        for (unsigned i = 0; rest.n && span_split(&rest, ',', &label); i++)
            buf_printf(b, "%s`%.*s`", i ? ", " : "", SPAN_FMT(label));
        buf_printf(b, "%s| %s |\n", f->labels[0] ? " " : "", f->help);
    }
}
