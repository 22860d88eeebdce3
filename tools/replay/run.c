/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"

void run_init(struct run *r, const char *strategy, enum run_kind kind, uint64_t blocks)
{
    *r = (struct run){.strategy = mem_strdup(strategy), .kind = kind, .blocks = blocks};
}

void run_fini(struct run *r)
{
    for (unsigned i = 0; i < r->n_replicas; i++)
        free(r->replicas[i].name);
    MEM_FREE(r->replicas);
    MEM_FREE(r->strategy);
    MEM_FREE(r->rows);
    MEM_FREE(r->load);
}

int run_replica_named(struct run *r, struct span name)
{
    for (unsigned i = 0; i < r->n_replicas; i++)
        if (span_eq(name, span_str(r->replicas[i].name)))
            return (int)i;
    r->replicas = mem_realloc(r->replicas, (r->n_replicas + 1) * sizeof *r->replicas);
    r->replicas[r->n_replicas] = (struct run_replica){.name = mem_spandup(name)};
    return (int)r->n_replicas++;
}

double run_point_quantile(unsigned i)
{
    /* Every percent, and the tail more closely. */
    static const double tail[RUN_POINTS - 100] = {0.992, 0.994, 0.996, 0.998, 0.999, 0.9995, 0.9999, 1};
    return i < 100 ? i / 100.0 : tail[i - 100];
}

double sorted_quantile(const double *sorted, size_t n, double q)
{
    double rank = ceil(q * (double)n - 1e-9);
    size_t i = rank < 1 ? 0 : (size_t)rank - 1;
    return sorted[i < n ? i : n - 1];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarize_ttft(struct run *r)
{
    double *ms = mem_array(r->n > 0 ? r->n : 1, sizeof *ms), sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct run_row *row = &r->rows[i];
        if (row->error || row->first_us == 0)
            continue;
        ms[n] = (double)(row->first_us - row->at_us) / 1000;
        sum += ms[n++];
    }
    r->ttft_mean_ms = r->ttft_p50_ms = r->ttft_p90_ms = r->ttft_p99_ms = r->ttft_max_ms = NAN;
    for (unsigned i = 0; i < RUN_POINTS; i++)
        r->points[i] = NAN;
    if (n > 0) {
        qsort(ms, n, sizeof *ms, by_value);
        r->ttft_mean_ms = sum / (double)n;
        r->ttft_p50_ms = sorted_quantile(ms, n, 0.5);
        r->ttft_p90_ms = sorted_quantile(ms, n, 0.9);
        r->ttft_p99_ms = sorted_quantile(ms, n, 0.99);
        r->ttft_max_ms = ms[n - 1];
        for (unsigned i = 0; i < RUN_POINTS; i++)
            r->points[i] = sorted_quantile(ms, n, run_point_quantile(i));
    }
    free(ms);
}

static void count_error(struct run *r, const char *what)
{
    unsigned i = 0;
    while (i < r->n_error_kinds && strcmp(r->error_kinds[i].what, what) != 0)
        i++;
    if (i == RUN_ERROR_KINDS) /* there are fewer words than that, but one never knows */
        i--;
    if (i == r->n_error_kinds)
        r->error_kinds[r->n_error_kinds++].what = what;
    r->error_kinds[i].n++;
}

static void summarize_counts(struct run *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct run_row *row = &r->rows[i];
        if (row->error) {
            r->errors++;
            count_error(r, row->error);
            continue;
        }
        r->ok++;
        r->input += row->input;
        r->hit += row->hit;
        if (row->replica < 0)
            continue;
        struct run_replica *at = &r->replicas[row->replica];
        at->requests++;
        at->input += row->input;
        at->work += row->input - row->hit;
    }
    uint64_t most = 0, sum = 0;
    for (unsigned i = 0; i < r->n_replicas; i++) {
        most = r->replicas[i].work > most ? r->replicas[i].work : most;
        sum += r->replicas[i].work;
    }
    r->busiest = sum > 0 ? (double)most * r->n_replicas / (double)sum : NAN;
}

void bins_add_interval(float *bins, unsigned n, double bin, double from, double to)
{
    if (!(to > from))
        return;
    double last = bin * n;
    from = from > 0 ? from : 0;
    to = to < last ? to : last;
    for (unsigned i = (unsigned)(from / bin); i < n && i * bin < to; i++) {
        double a = i * bin > from ? i * bin : from, b = (i + 1) * bin < to ? (i + 1) * bin : to;
        if (b > a)
            bins[i] += (float)((b - a) / bin);
    }
}

/* From the first request to the last; what runs on behind the last bin is not shown. */
static void summarize_load(struct run *r)
{
    uint64_t first = UINT64_MAX, last = 0;
    for (size_t i = 0; i < r->n; i++) {
        first = r->rows[i].at_us < first ? r->rows[i].at_us : first;
        last = r->rows[i].end_us > last ? r->rows[i].end_us : last;
    }
    r->load = mem_array((size_t)(r->n_replicas + 1) * RUN_BINS, sizeof *r->load);
    if (last <= first)
        return;
    r->span_ms = (double)(last - first) / 1000;
    r->bin_ms = r->span_ms / RUN_BINS;
    for (size_t i = 0; i < r->n; i++) {
        const struct run_row *row = &r->rows[i];
        if (row->replica >= 0)
            bins_add_interval(r->load + (size_t)row->replica * RUN_BINS, RUN_BINS, r->bin_ms,
                              (double)(row->at_us - first) / 1000, (double)(row->end_us - first) / 1000);
    }
}

void run_summarize(struct run *r)
{
    CHECK(!r->load);
    if (r->kind != RUN_BOUND)
        summarize_counts(r);
    summarize_ttft(r);
    summarize_load(r);
    if (r->kind == RUN_BOUND)
        r->busiest = NAN;
    r->hit_share = r->input > 0 ? (double)r->hit / (double)r->input : 0;
}
