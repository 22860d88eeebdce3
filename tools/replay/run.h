/* SPDX-License-Identifier: Apache-2.0
 *
 * What one replay of a trace gave: a row for each request, and what is told of them all. The offline replay
 * and the live one fill the same rows, so tables, JSON and page know no difference. Memory: heap, run_fini.
 * Thread: one owner.
 */
#ifndef ROLTER_REPLAY_RUN_H
#define ROLTER_REPLAY_RUN_H

#include "base/span.h"

enum { RUN_POINTS = 108, RUN_BINS = 240, RUN_ERROR_KINDS = 24 };

struct run_row {
    uint64_t at_us, first_us, end_us; /* given; first token, 0 = none came; over */
    uint32_t input, hit, output;      /* tokens; <hit> were cached */
    int replica;                      /* of run.names, or -1: not known */
    int status;                       /* HTTP, live only */
    const char *reason;               /* of the pick, offline only; static text or NULL */
    const char *error;                /* static text; NULL: it went well */
};

enum run_kind {
    RUN_STRATEGY, /* this gateway's */
    RUN_RULE,     /* another router's, for comparison */
    RUN_BOUND,    /* hits only */
    RUN_LIVE
};

struct run_replica {
    char *name;
    uint64_t requests, input, work; /* tokens given; tokens that were not cached */
};

struct run_error {
    const char *what;
    size_t n;
};

struct run {
    char *strategy;
    enum run_kind kind;
    uint64_t blocks; /* of each cache; 0: not known, or without end */
    struct run_row *rows;
    size_t n;
    struct run_replica *replicas;
    unsigned n_replicas;
    double took_ms;          /* to make this run, real time */
    size_t compared, agreed; /* picks beside those of a recording; 0 without one */
    size_t agreed_at_once;   /* of these, without the slack of the recorder's times */
    size_t unreported;       /* live: replies that went well and said nothing of cached tokens */
    double late_max_ms;      /* live: how long after its time a request was sent, at worst */

    /* ------ run_summarize sets these ------ */
    size_t ok, errors;
    uint64_t input, hit; /* tokens of the requests that went well; for a bound the caller sets them */
    double hit_share;
    double ttft_mean_ms, ttft_p50_ms, ttft_p90_ms, ttft_p99_ms, ttft_max_ms; /* NaN when there is none */
    double points[RUN_POINTS]; /* time to first token, ms, at the quantiles run_point_quantile says */
    double busiest;            /* most work of a replica / mean; NaN when there was none */
    double span_ms, bin_ms;
    float *load; /* [replica][RUN_BINS]: requests under way, mean over the bin */
    struct run_error error_kinds[RUN_ERROR_KINDS];
    unsigned n_error_kinds;
};

void run_init(struct run *r, const char *strategy, enum run_kind kind, uint64_t blocks);
void run_fini(struct run *r);
/* Index of the replica with this name, added when it is new. O(replicas). */
int run_replica_named(struct run *r, struct span name);
void run_summarize(struct run *r);
double run_point_quantile(unsigned i);
/* The value at rank ceil(q * n) of <n> > 0 sorted ones. */
double sorted_quantile(const double *sorted, size_t n, double q);
/* Adds to each of <n> bins of <bin> width the share of it that lies in [from, to). */
void bins_add_interval(float *bins, unsigned n, double bin, double from, double to);

#endif
