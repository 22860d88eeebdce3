/* SPDX-License-Identifier: Apache-2.0
 *
 * What gateways tell each other of their placements ([affinity_sync]): each hears what the others placed, so
 * much later. Virtual time; nothing is lost. Thread: one owner.
 */
#ifndef ROLTER_REPLAY_EXCHANGE_H
#define ROLTER_REPLAY_EXCHANGE_H

#include "balance/balance.h"

struct exchange_of_placements;

/* Becomes the sink of all the balancers, which outlive it. */
struct exchange_of_placements *placements_share(struct balancer *const *balancers, unsigned n,
                                                uint64_t lag_us);
void placements_free(struct exchange_of_placements *x);
/* Brings all up to what they have heard by <now_us>, and what they place from now on has this time. */
void placements_apply(struct exchange_of_placements *x, uint64_t now_us);

#endif
