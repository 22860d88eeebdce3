/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/calibration.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cache/lexical.h"

enum { COLUMNS_MAX = 64, STEPS = 1000 };

struct csv {
    struct span rest;
    struct arena *arena;
    unsigned line; /* of the record being read, from 1 */
    unsigned lines_in_it;
};

static char take(struct csv *c)
{
    char b = c->rest.p[0];
    c->rest = span_of(c->rest.p + 1, c->rest.n - 1);
    return b;
}

static bool quoted(struct csv *c, struct span *ret)
{
    char *out = arena_alloc(c->arena, c->rest.n + 1);
    size_t n = 0;
    take(c);
    while (c->rest.n) {
        char b = take(c);
        if (b == '"' && (!c->rest.n || c->rest.p[0] != '"')) {
            *ret = span_of(out, n);
            return !c->rest.n || c->rest.p[0] == ',' || c->rest.p[0] == '\n' || c->rest.p[0] == '\r';
        }
        if (b == '"')
            take(c);
        c->lines_in_it += b == '\n';
        out[n++] = b;
    }
    return false;
}

/* The next record; false at the end. *ret_ok: quotes are as they must be. */
static bool record(struct csv *c, struct span *field, unsigned *ret_n, bool *ret_ok)
{
    c->line += c->lines_in_it;
    c->lines_in_it = 1;
    *ret_n = 0;
    *ret_ok = true;
    if (!c->rest.n)
        return false;
    for (;;) {
        struct span f = span_of(c->rest.p, 0);
        if (c->rest.n && c->rest.p[0] == '"') {
            if (!quoted(c, &f)) {
                *ret_ok = false;
                return true;
            }
        } else {
            while (f.n < c->rest.n && f.p[f.n] != ',' && f.p[f.n] != '\n' && f.p[f.n] != '\r')
                f.n++;
            c->rest = span_of(c->rest.p + f.n, c->rest.n - f.n);
        }
        if (*ret_n < COLUMNS_MAX)
            field[(*ret_n)++] = f;
        char after = c->rest.n ? take(c) : '\n';
        if (after == '\r' && c->rest.n && c->rest.p[0] == '\n')
            after = take(c);
        if (after != ',')
            return true;
    }
}

static bool read_label(struct span s, bool *ret)
{
    static const char *const yes[] = {"1", "true", "yes"}, *const no[] = {"0", "false", "no"};
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (span_eq_nocase(s, span_str(yes[i])) || span_eq_nocase(s, span_str(no[i]))) {
            *ret = span_eq_nocase(s, span_str(yes[i]));
            return true;
        }
    }
    return false;
}

static int column(const struct span *field, unsigned n, const char *name)
{
    for (unsigned i = 0; i < n; i++)
        if (span_eq_nocase(span_trim(field[i]), span_str(name)))
            return (int)i;
    return -1;
}

/* Words parted by single spaces, as the gate wants them. */
static struct span folded(struct span s, struct arena *a)
{
    char *p = arena_alloc(a, s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        bool space = s.p[i] == ' ' || (s.p[i] >= '\t' && s.p[i] <= '\r');
        if (!space)
            p[n++] = s.p[i];
        else if (n && p[n - 1] != ' ')
            p[n++] = ' ';
    }
    while (n && p[n - 1] == ' ')
        n--;
    return span_of(p, n);
}

static const char *lexical_word(struct span x, struct span y)
{
    struct arena a;
    arena_init(&a, NULL);
    const char *why =
        lexical_differ(lexical_signature(folded(x, &a), &a), lexical_signature(folded(y, &a), &a));
    arena_reset(&a);
    return why;
}

static struct labelled_pair *new_pair(struct labelled_pairs *p)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 256;
        p->at = mem_realloc(p->at, p->cap * sizeof(*p->at));
    }
    struct labelled_pair *l = &p->at[p->n++];
    *l = (struct labelled_pair){0};
    return l;
}

struct columns {
    int a, b, same, similarity;
};

static const char *read_pair(const struct span *f, unsigned n, const struct columns *c,
                             struct labelled_pairs *ret)
{
    int most = c->a > c->b ? c->a : c->b;
    most = c->same > most ? c->same : most;
    if ((int)n <= most)
        return "has too few columns";
    struct labelled_pair *l = new_pair(ret);
    l->a = f[c->a];
    l->b = f[c->b];
    if (!read_label(span_trim(f[c->same]), &l->same))
        return "\"same\" is neither 1 nor 0";
    if (c->similarity >= 0 && c->similarity < (int)n && span_trim(f[c->similarity]).n) {
        char text[64], *end;
        struct span s = span_trim(f[c->similarity]);
        snprintf(text, sizeof(text), "%.*s", SPAN_FMT(s));
        l->similarity = strtod(text, &end);
        l->has_similarity = true;
        if (*end || !isfinite(l->similarity))
            return "\"similarity\" is no number";
    }
    l->differ = lexical_word(l->a, l->b);
    return NULL;
}

bool labelled_pairs_read(struct span csv, struct arena *a, struct labelled_pairs *ret, char *why)
{
    struct csv c = {.rest = csv, .arena = a, .line = 1};
    struct span f[COLUMNS_MAX];
    unsigned n;
    bool ok;
    *ret = (struct labelled_pairs){0};
    if (span_starts(csv, SPAN("\xef\xbb\xbf")))
        c.rest = span_of(csv.p + 3, csv.n - 3);
    if (!record(&c, f, &n, &ok) || !ok) {
        snprintf(why, 256, "no head line");
        return false;
    }
    struct columns at = {column(f, n, "a"), column(f, n, "b"), column(f, n, "same"),
                         column(f, n, "similarity")};
    if (at.a < 0 || at.b < 0 || at.same < 0) {
        snprintf(why, 256, "line 1: the head line names the columns \"a\", \"b\" and \"same\"");
        return false;
    }
    while (record(&c, f, &n, &ok)) {
        if (n == 1 && f[0].n == 0 && ok)
            continue; /* an empty line */
        const char *fault = ok ? read_pair(f, n, &at, ret) : "a quotation mark has no partner";
        if (fault) {
            snprintf(why, 256, "line %u: %s", c.line, fault);
            labelled_pairs_fini(ret);
            return false;
        }
    }
    return true;
}

void labelled_pairs_fini(struct labelled_pairs *p)
{
    MEM_FREE(p->at);
    p->n = p->cap = 0;
}

struct calibration calibration_at(const struct labelled_pairs *p, double threshold, bool gate)
{
    struct calibration c = {.threshold = threshold, .pairs = p->n};
    for (size_t i = 0; i < p->n; i++) {
        const struct labelled_pair *l = &p->at[i];
        bool hit = l->has_similarity && l->similarity >= threshold && !(gate && l->differ);
        c.same += l->same;
        c.hits += hit;
        c.right += hit && l->same;
    }
    return c;
}

bool calibration_choose(const struct labelled_pairs *p, double error, bool gate, struct calibration *ret)
{
    bool found = false;
    for (int i = STEPS; i >= 0; i--) {
        struct calibration c = calibration_at(p, (double)i / STEPS, gate);
        if ((double)(c.hits - c.right) > error * (double)c.hits)
            break;
        if (c.hits == 0)
            continue;
        found = true;
        *ret = c;
    }
    return found;
}

double calibration_upper(size_t wrong, size_t n)
{
    if (n == 0)
        return 1;
    const double z = 1.959964, share = (double)wrong / (double)n, m = (double)n;
    double middle = share + z * z / (2 * m);
    double width = z * sqrt(share * (1 - share) / m + z * z / (4 * m * m));
    return (middle + width) / (1 + z * z / m);
}

static double percent(size_t part, size_t of)
{
    return of ? 100.0 * (double)part / (double)of : 0;
}

static void print_half(struct buf *out, struct calibration c)
{
    if (c.hits)
        buf_printf(out, "  %6zu  %9.1f %%  %7.1f %%", c.hits, percent(c.right, c.hits),
                   percent(c.right, c.same));
    else
        buf_printf(out, "  %6d  %11s  %9s", 0, "-", "-");
}

static void print_choice(struct buf *out, const struct labelled_pairs *p, double error, bool gate)
{
    struct calibration c;
    buf_printf(out, "guard = \"%s\": ", gate ? "lexical" : "none");
    if (!calibration_choose(p, error, gate, &c)) {
        buf_printf(out, "no threshold keeps wrong hits at %.3g %% of all hits\n", 100 * error);
        return;
    }
    buf_printf(
        out,
        "threshold = %.3f for at most %.3g %% wrong hits: %zu hits, %zu wrong (with 95 %% confidence below "
        "%.1f %%), %.1f %% of what could hit\n",
        c.threshold, 100 * error, c.hits, c.hits - c.right, 100 * calibration_upper(c.hits - c.right, c.hits),
        percent(c.right, c.same));
}

void calibration_print(const struct labelled_pairs *p, double error, struct buf *out)
{
    size_t same = calibration_at(p, 0, false).same, kept = 0, stopped = 0;
    for (size_t i = 0; i < p->n; i++) {
        kept += p->at[i].same && !p->at[i].differ;
        stopped += !p->at[i].same && p->at[i].differ;
    }
    buf_printf(out,
               "%zu pairs, %zu of the same answer; the lexical guard keeps %zu of these and stops %zu of the "
               "other %zu\n\n",
               p->n, same, kept, stopped, p->n - same);
    buf_printf(out, "              guard = \"none\"                   guard = \"lexical\"\n");
    buf_printf(out, "threshold    hits    precision     found    hits    precision     found\n");
    for (int i = 50; i <= 100; i += i < 80 ? 5 : i < 90 ? 2 : 1) {
        buf_printf(out, "     %.2f ", (double)i / 100);
        print_half(out, calibration_at(p, (double)i / 100, false));
        print_half(out, calibration_at(p, (double)i / 100, true));
        buf_add_char(out, '\n');
    }
    buf_add_char(out, '\n');
    print_choice(out, p, error, false);
    print_choice(out, p, error, true);
}
