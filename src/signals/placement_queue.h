/* SPDX-License-Identifier: Apache-2.0
 *
 * Placements on their way from picks, on any thread, to the one thread that sends them to other gateways. A
 * ring of fixed size without a lock: a pick copies its keys and goes on; when there is no room, the placement
 * is not told, which is counted. A prompt of more new blocks than PLACEMENT_KEYS_MAX is told in parts.
 *
 * Memory: PLACEMENT_QUEUE_WORDS words. Cost of a push: one atomic exchange and a copy, 1 us for 2,000 keys.
 */
#ifndef ROLTER_SIGNALS_PLACEMENT_QUEUE_H
#define ROLTER_SIGNALS_PLACEMENT_QUEUE_H

#include "balance/balance.h"

enum { PLACEMENT_KEYS_MAX = 2048, PLACEMENT_QUEUE_WORDS = 1 << 17 };

struct placement_queue;

struct placement_queue *placement_queue_new(void);
/* No pick pushes any more. */
void placement_queue_free(struct placement_queue *q);

/* Any thread. False: no room for it, or not for its end. */
bool placement_queue_push(struct placement_queue *q, const struct placement *p, uint64_t now_ms);
/* One thread. The oldest; its keys are in <keys> (PLACEMENT_KEYS_MAX). False: there is none, or it is being
 * written this moment. */
bool placement_queue_pop(struct placement_queue *q, struct placement *ret, uint64_t *keys);
/* When the oldest was pushed, which stays. The same thread as pop. */
bool placement_queue_oldest(struct placement_queue *q, uint64_t *ret_pushed_ms);

#endif
