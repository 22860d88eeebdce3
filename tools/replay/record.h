/* SPDX-License-Identifier: Apache-2.0
 *
 * Recordings: what happened to each request of a run, a JSON line each.
 *
 *   {"request": 0, "strategy": "least_load", "blocks": 2000, "at_us": 1, "first_us": 2, "end_us": 3,
 * "target": "r3", "reason": "least_load", "input": 6758, "cached": 512, "output": 500, "status": 200,
 * "error": null}
 *
 * request: place in the trace, from 0. Times: microseconds of one clock. A null target: nobody knows where it
 * went.
 */
#ifndef ROLTER_REPLAY_RECORD_H
#define ROLTER_REPLAY_RECORD_H

#include <stdio.h>

#include "run.h"

/* False when the file could not be written. */
bool record_write(FILE *f, const struct run *r);

struct recorded {
    uint64_t at_us, first_us, end_us; /* first: 0 = none came, or an old recording */
    int64_t cached;                   /* tokens, -1: not said */
    int target;                       /* of the names given, or -1 */
    bool is_known;                    /* the line was there */
};
/* Reads one run of <n> requests. <names>: the targets. False with a line for people: a line that cannot be
 * read, a request past <n> or twice, a target that has no name here. */
bool record_read(const char *path, size_t n, const char *const *names, unsigned n_names, struct recorded *ret,
                 char *ret_error, size_t size);

#endif
