/* SPDX-License-Identifier: Apache-2.0
 *
 * What the signals thread is to watch for a plan.
 */
#ifndef ROLTER_GATEWAY_PLAN_SIGNALS_H
#define ROLTER_GATEWAY_PLAN_SIGNALS_H

#include "gateway/plan.h"
#include "signals/signals.h"

/* Holds a reference to the plan until the settings are released. */
void plan_signals(struct plan *p, struct signals_settings *ret);

#endif
