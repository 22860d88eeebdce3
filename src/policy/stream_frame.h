/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of policy/: cuts the bytes of an event stream into frames, each with all its bytes: the lines up to
 * and with the blank one that ends an event. Joined again they are the stream, whatever is in it. Unlike
 * http/sse.h, which hands out what events mean and forgets their bytes.
 */
#ifndef ROLTER_POLICY_STREAM_FRAME_H
#define ROLTER_POLICY_STREAM_FRAME_H

#include "base/buf.h"

struct frame {
    struct span raw;
    struct span data;    /* of the one data line, in <raw>; of several, joined by LF, elsewhere */
    unsigned data_lines; /* 0: a comment, or nothing */
};

struct frame_cutter {
    struct buf pending;
    size_t from; /* where in it the present frame begins, */
    size_t line; /* its present line, */
    size_t at;   /* and what has not been looked at */
    struct buf joined;
};

void frame_cutter_init(struct frame_cutter *c, size_t max_frame_bytes);
void frame_cutter_fini(struct frame_cutter *c);
/* Takes bytes in; false when a frame is larger than the maximum: nothing was taken in then. */
bool frame_cutter_add(struct frame_cutter *c, struct span bytes);
/* The next complete frame; with <last> also what stands there without an end. Its slices live until the next
 * call. False: there is none. */
bool frame_cutter_next(struct frame_cutter *c, bool last, struct frame *ret);

#endif
