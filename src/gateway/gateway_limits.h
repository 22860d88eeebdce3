/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROLTER_GATEWAY_GATEWAY_LIMITS_H
#define ROLTER_GATEWAY_GATEWAY_LIMITS_H

#include "gateway/plan.h"
#include "net/loop.h"
#include "policy/limits_share.h"

/* Shares the limits of the plan with other gateways when it has some and Redis is configured; else NULL.
 * Thread: the loop's. */
struct limits_share *gateway_share_limits(const struct plan *p, struct net_loop *loop);

#endif
