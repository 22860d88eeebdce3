/* SPDX-License-Identifier: Apache-2.0
 *
 * The text side of the metrics: families, label escaping, Prometheus' exposition format 0.0.4. Inside of
 * observe; everybody else uses metrics.h. Pure functions; no locks.
 */
#ifndef ROLTER_OBSERVE_METRICS_TEXT_H
#define ROLTER_OBSERVE_METRICS_TEXT_H

#include "observe/metrics.h"

enum { METRIC_BUCKETS = 13, METRIC_SUM_CELL = METRIC_BUCKETS + 1, METRIC_SUM_SCALE = 1000000 };
/* One cell for each bound, one for +Inf (each counts its own range only), one for the sum in millionths. */
enum { METRIC_HISTOGRAM_CELLS = METRIC_BUCKETS + 2 };

/* The words of metrics.def. HISTOGRAM has bounds in milliseconds, RATIOS between 0 and 1. */
enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM, METRIC_RATIOS };

struct metric_family {
    const char *name, *help, *labels;
    enum metric_type type;
};

struct metric_line {
    struct metric_line *next; /* of the same family, in order of registration */
    metric_series_t series;
    char *value[METRIC_LABELS_MAX];
};

const struct metric_family *metric_family_get(enum metric_id id);
unsigned metric_label_count(const struct metric_family *f);
/* METRIC_BUCKETS upper bounds, ascending. */
const double *metric_bounds(enum metric_type t);

void metric_text_head(struct buf *b, const struct metric_family *f);
void metric_text_counter(struct buf *b, const struct metric_family *f, const struct metric_line *l,
                         uint64_t v);
void metric_text_gauge(struct buf *b, const struct metric_family *f, const struct metric_line *l, double v);
void metric_text_histogram(struct buf *b, const struct metric_family *f, const struct metric_line *l,
                           const uint64_t *cell);

#endif
