/* SPDX-License-Identifier: Apache-2.0
 *
 * The paths that the gateway answers itself: health, readiness, metrics, models.
 */
#ifndef ROLTER_GATEWAY_ENDPOINTS_H
#define ROLTER_GATEWAY_ENDPOINTS_H

#include "gateway/request.h"

enum endpoint { ENDPOINT_NONE, ENDPOINT_HEALTHZ, ENDPOINT_READYZ, ENDPOINT_METRICS, ENDPOINT_MODELS };

enum endpoint endpoint_by_path(const struct plan *p, struct span path);
enum step endpoint_answer(struct request *r, enum endpoint e);

#endif
