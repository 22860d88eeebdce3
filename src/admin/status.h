/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the gateway as JSON, for GET /status.
 */
#ifndef ROLTER_ADMIN_STATUS_H
#define ROLTER_ADMIN_STATUS_H

#include "gateway/gateway.h"

/* On the signals thread. */
void status_write(struct gateway *g, uint64_t now_ms, struct buf *b);

#endif
