/* SPDX-License-Identifier: Apache-2.0
 *
 * Placements of `least_prefill` between this gateway's pools and the other gateways
 * (signals/affinity_sync.h).
 */
#ifndef ROLTER_GATEWAY_GATEWAY_AFFINITY_H
#define ROLTER_GATEWAY_GATEWAY_AFFINITY_H

#include "gateway/plan.h"
#include "signals/affinity_sync.h"

struct gateway_affinity;

/* NULL: the plan does not ask for it, or Redis cannot be used. <plan> is the place where the running plan
 * stands, which is looked at on the loop's thread, on which all of this is called. */
struct gateway_affinity *gateway_affinity_start(struct plan *const *plan, struct net_loop *loop);
/* A plan that the workers do not have yet: what its pools place is told. NULL <a> is nothing. */
void gateway_affinity_join(struct gateway_affinity *a, const struct plan *p);
/* Nothing is sent or taken over any more; the workers still pick. */
void gateway_affinity_stop(struct gateway_affinity *a);
/* No worker picks any more. */
void gateway_affinity_free(struct gateway_affinity *a);

#endif
