/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters, gauges and histograms, shown in Prometheus' text format. Each family is one line of metrics.def;
 * a series (family + label values) is registered once and then addressed by a small handle. Counting is one
 * plain add into an array of the calling thread; a scrape sums over the threads. Types: COUNTER, GAUGE,
 * HISTOGRAM (buckets in ms), RATIOS (a histogram of shares).
 *
 * Threads: metric_series and metrics_render from any thread (a lock); metric_add, metric_observe from any
 * thread without lock; counts of threads that ended are kept. Label values are configured names, never what a
 * client sent.
 */
#ifndef ROLTER_OBSERVE_METRICS_H
#define ROLTER_OBSERVE_METRICS_H

#include "base/buf.h"

enum metric_id {
#define METRIC(id, type, name, labels, help) id,
#include "observe/metrics.def"
#undef METRIC
    METRIC_COUNT
};

enum { METRIC_LABELS_MAX = 3 };
typedef uint32_t metric_series_t; /* 0 = none: counting on it does nothing */

/* Series of <id> with as many label values as the table has labels, in its order (NULL for the rest). The
 * same values give the same handle; it stays valid for ever. O(1) expected, takes a lock: configuration time,
 * not request time. 0 when the million cells are used up. */
metric_series_t metric_series(enum metric_id id, const char *v1, const char *v2, const char *v3);
/* Series of a family without labels; O(1), no lock. */
metric_series_t metric_plain(enum metric_id id);

void metric_add(metric_series_t s, uint64_t n);
/* Histograms: milliseconds for HISTOGRAM, a share of 0 to 1 for RATIOS. Negative values and NaN count as 0.
 */
void metric_observe(metric_series_t s, double v);
/* Gauges: shared over threads. */
void metric_set(metric_series_t s, double v);
void metric_gauge_add(metric_series_t s, double v);
/* A gauge whose value is asked for at each scrape (any thread, must be quick, must not call
 * metric_set_function). <fn> NULL takes it away: once this returned, <fn> does not run any more and the gauge
 * keeps its last value. */
void metric_set_function(metric_series_t s, double (*fn)(void *arg), void *arg);

/* Sum of a counter over all threads (tests, status page). */
uint64_t metric_value(metric_series_t s);
/* What a histogram has seen over all threads: how many values, and their sum (milliseconds, or shares). */
void metric_totals(metric_series_t s, uint64_t *ret_count, double *ret_sum);
/* Every series of the counter family <id>, in order of registration, with its label values in the table's
 * order. Under the registry's lock: <visit> calls nothing of this header. */
void metric_visit(enum metric_id id,
                  void (*visit)(void *arg, const char *const value[METRIC_LABELS_MAX], uint64_t n),
                  void *arg);
/* All families with # HELP and # TYPE, sorted as in the table; families without labels appear from the start
 * at 0. */
void metrics_render(struct buf *b);
/* Names and help of all families as a Markdown table, for docs/metrics.md. */
void metrics_document(struct buf *b);

#endif
