/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of Prometheus' text format, one after the other; comments and lines that are none are passed over.
 * Nothing is copied. It knows no types and no families.
 */
#ifndef ROLTER_SIGNALS_PROMETHEUS_H
#define ROLTER_SIGNALS_PROMETHEUS_H

#include "base/span.h"

struct prometheus_sample {
    struct span name, labels; /* between the braces, as written */
    double value;             /* may be infinite or not a number */
};

/* Takes lines off <io_text> until one is a sample. False at the end. O(bytes). */
bool prometheus_next(struct span *io_text, struct prometheus_sample *ret);
/* The value behind <name>, which ends in =", when it is a finite number. */
bool prometheus_label_number(struct span labels, struct span name, double *ret);

#endif
