/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /decisions of the admin listener: the last requests, newest first, as a JSON array. Thread: signals.
 */
#ifndef ROLTER_ADMIN_DECISIONS_PAGE_H
#define ROLTER_ADMIN_DECISIONS_PAGE_H

#include "gateway/gateway.h"

/* <query>: limit=N, at most 256, which is the default. Appends the answer and returns its status. */
int decisions_page(struct gateway *g, struct span query, struct buf *out);

#endif
