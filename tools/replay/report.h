/* SPDX-License-Identifier: Apache-2.0
 *
 * Telling the runs: a table for people, JSON for programs, a page with plots that holds the same JSON.
 * docs/replay.md describes the members.
 */
#ifndef ROLTER_REPLAY_REPORT_H
#define ROLTER_REPLAY_REPORT_H

#include <stdio.h>

#include "base/buf.h"
#include "options.h"
#include "run.h"
#include "trace.h"

struct report {
    const struct options *o;
    const struct trace *trace;
    const struct run *runs;
    unsigned n;
    bool was_stopped; /* by the user, before the trace's end */
};

void report_table(const struct report *r, FILE *to);
void report_json(const struct report *r, struct buf *ret);
/* <json>: what report_json gave. */
void report_page(struct span json, struct buf *ret);

#endif
