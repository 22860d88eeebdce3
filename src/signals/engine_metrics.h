/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads an engine's Prometheus text for the few values that routing uses. Names of vLLM, SGLang and TGI, in
 * the order in which they are preferred; label sets of one name are summed (shares: the largest counts).
 */
#ifndef ROLTER_SIGNALS_ENGINE_METRICS_H
#define ROLTER_SIGNALS_ENGINE_METRICS_H

#include "fleet/provider.h"

/* False when no known name is in <text>; fields that it does not say are NaN. O(bytes). */
bool engine_metrics_parse(struct span text, struct engine_metrics *ret);

#endif
