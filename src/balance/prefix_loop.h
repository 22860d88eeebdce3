/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a replica's mirror tells the truth: what it predicts of each prompt against what the engine reports
 * (A21, R15). One for each lane. Inside of balance/.
 *
 * An error is the difference of the shares of cached prompt tokens. When the errors of the last 20
 * informative replies add up to more than a quarter of what they could, and the mirror claims more than the
 * engine has, then it lies. If the last of them found nothing of what was claimed, the mirror is dropped:
 * that is what a restart or another template looks like. Else its oldest part goes, to the share that was
 * found, and its size comes down to the same: the cache may be smaller than we think. A mirror that is a
 * little too large comes down without being called a liar. While the replies are right the size grows back,
 * in steps; each step that was too much makes the next ones rarer.
 *
 * What an open request has recorded may be computed or not when a sibling arrives, so a prediction has a
 * lower end as well, without what is open; a report between the two is no error.
 *
 * Threads: any; a lock of some ten nanoseconds.
 */
#ifndef ROLTER_BALANCE_PREFIX_LOOP_H
#define ROLTER_BALANCE_PREFIX_LOOP_H

#include "balance/prefix_lock.h"

enum { LOOP_WINDOW = 20, LOOP_OPEN = 64 };

enum mirror_reset {
    MIRROR_RESTARTED, /* seen by health or start time (A18) */
    MIRROR_DROPPED,   /* the replies support nothing of it */
    MIRROR_SHRUNK,    /* they support a part */
    MIRROR_RESET_COUNT,
    MIRROR_KEPT = MIRROR_RESET_COUNT
};

struct loop_sample {
    float predicted, reported, error;
};

struct loop_open {
    uint64_t first; /* key of the first block that it added */
    uint32_t before;
    uint32_t id; /* 0 = free */
};

struct prefix_loop {
    struct prefix_lock lock;
    struct loop_sample sample[LOOP_WINDOW];
    unsigned n, at;
    unsigned age;        /* replies since the window was last looked at for the size */
    unsigned steady;     /* windows that must be right for a step */
    unsigned good;       /* that were, in a row */
    _Atomic float scale; /* of the size that it should have, 0 < scale <= 1 */
    struct loop_open open[LOOP_OPEN];
    uint32_t last_id;
    unsigned next_open;
    atomic_uint resets[MIRROR_RESET_COUNT]; /* not told yet */
    atomic_bool is_told;                    /* somebody was told of a lie, and no good window came since */
};

void prefix_loop_init(struct prefix_loop *l);

/* An informative reply: predicted between <low> and <high>, shares. Sets the error. What is to be done with
 * the mirror, which holds <share> of the blocks that it should hold: *ret_keep is the share of what it has
 * now that stays. */
enum mirror_reset prefix_loop_note(struct prefix_loop *l, double low, double high, double reported,
                                   double share, double *ret_error, double *ret_keep);
/* The window is for a cache that does not exist any more. */
void prefix_loop_forget(struct prefix_loop *l);

/* A request is open that adds <first> behind <before> blocks. 0: nothing to close. */
uint32_t prefix_loop_open(struct prefix_loop *l, uint64_t first, uint32_t before);
void prefix_loop_close(struct prefix_loop *l, uint32_t id);
/* How many of the <depth> leading blocks are not those of an open request. */
uint32_t prefix_loop_settled(struct prefix_loop *l, const uint64_t *keys, uint32_t depth);

#endif
