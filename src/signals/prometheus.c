/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/prometheus.h"

#include <math.h>
#include <stdlib.h>

static bool to_double(struct span s, double *ret)
{
    char text[64], *end;
    s = span_trim(s);
    if (s.n == 0 || s.n >= sizeof text)
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    double v = strtod(text, &end);
    if (*end)
        return false;
    *ret = v;
    return true;
}

/* Splits "name{labels} value timestamp". Label values may hold escaped quotes and braces. */
static bool split_sample(struct span line, struct prometheus_sample *ret)
{
    size_t i = 0;
    while (i < line.n && line.p[i] != '{' && line.p[i] != ' ' && line.p[i] != '\t')
        i++;
    ret->name = span_of(line.p, i);
    ret->labels = SPAN_NONE;
    if (i < line.n && line.p[i] == '{') {
        size_t from = ++i;
        bool quoted = false;
        for (; i < line.n && (quoted || line.p[i] != '}'); i++) {
            if (quoted && line.p[i] == '\\')
                i++;
            else if (line.p[i] == '"')
                quoted = !quoted;
        }
        if (i >= line.n)
            return false;
        ret->labels = span_of(line.p + from, i - from);
        i++;
    }
    struct span rest = span_trim(span_of(line.p + i, line.n - i)), value;
    return span_split(&rest, ' ', &value) && to_double(value, &ret->value);
}

bool prometheus_next(struct span *io_text, struct prometheus_sample *ret)
{
    for (struct span line; span_split(io_text, '\n', &line);)
        if (line.n > 0 && line.p[0] != '#' && split_sample(line, ret))
            return true;
    return false;
}

bool prometheus_label_number(struct span labels, struct span name, double *ret)
{
    ptrdiff_t at = span_find(labels, name);
    double v;
    if (at < 0)
        return false;
    struct span rest = span_of(labels.p + at + name.n, labels.n - (size_t)at - name.n), part;
    if (!span_split(&rest, '"', &part) || !to_double(part, &v) || !isfinite(v))
        return false;
    *ret = v;
    return true;
}
