/* SPDX-License-Identifier: Apache-2.0
 *
 * Placements as bytes, as gateways exchange them: a batch of one gateway's. Little-endian:
 *
 *   "RAP" 1 | gateway id 8 | placements...
 *   a placement: target 8 | before 4 | n 2 | after 8, when before > 0 | n keys of 8
 *
 * How old it is says the stream, whose ids are times. A batch with anything in it that cannot be is refused
 * as a whole. Pure; thread: any.
 */
#ifndef ROLTER_SIGNALS_PLACEMENT_CODEC_H
#define ROLTER_SIGNALS_PLACEMENT_CODEC_H

#include "base/buf.h"
#include "signals/placement_queue.h"

enum { PLACEMENT_BATCH_MAX = 128 * 1024 };

/* <b> is empty and may become PLACEMENT_BATCH_MAX long. */
void placement_batch_begin(struct buf *b, uint64_t gateway);
/* n <= PLACEMENT_KEYS_MAX. False: it does not fit any more, and the batch is as it was. */
bool placement_batch_add(struct buf *b, const struct placement *p);

struct placement_batch {
    uint64_t gateway;
    struct span rest;
};
/* Reads and judges all of it. False: it is not a batch. O(bytes). */
bool placement_batch_open(struct span bytes, struct placement_batch *ret);
/* The next one, its keys in <keys> (PLACEMENT_KEYS_MAX); false at the end. */
bool placement_batch_next(struct placement_batch *b, struct placement *ret, uint64_t *keys);

#endif
