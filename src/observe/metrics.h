/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters, gauges and histograms, shown in Prometheus' text format. Each family is one line of metrics.def; a
 * series (family + label values) is registered once and then addressed by a small handle. Counting is one plain add
 * into an array of the calling thread; a scrape sums over the threads.
 *
 * Threads: metric_series and metrics_render from any thread (a lock); metric_add, metric_observe from any thread
 * without lock; counts of threads that ended are kept. Label values are configured names, never what a client sent.
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

typedef uint32_t metric_series_t; /* 0 = none: counting on it does nothing */

/* Series of <id> with up to 3 label values in the order of the table (NULL for unused). The same values give the same
 * handle. O(1) expected, takes a lock: configuration time, not request time. */
metric_series_t metric_series(enum metric_id id, const char *v1, const char *v2, const char *v3);
/* Series of a family without labels; O(1), no lock. */
metric_series_t metric_plain(enum metric_id id);

void metric_add(metric_series_t s, uint64_t n);
/* Histograms: <ms> in milliseconds. */
void metric_observe(metric_series_t s, double ms);
/* Gauges: shared over threads. */
void metric_set(metric_series_t s, double v);
void metric_gauge_add(metric_series_t s, double v);
/* A gauge whose value is asked for at each scrape (any thread, must be quick). <fn> NULL takes it away. */
void metric_set_function(metric_series_t s, double (*fn)(void *arg), void *arg);

/* Sum of a counter over all threads (tests, status page). */
uint64_t metric_value(metric_series_t s);
/* All families with # HELP and # TYPE, sorted as in the table; counters without a label appear from the start at 0. */
void metrics_render(struct buf *b);
/* Names and help of all families as a Markdown table, for docs/metrics.md. */
void metrics_document(struct buf *b);

#endif
