/* SPDX-License-Identifier: Apache-2.0
 *
 * The response cache on the admin listener (C14, R62): POST /cache/purge, GET /cache/stats, GET
 * and POST /cache/explain. Each appends a JSON answer to <out> and returns its status. Thread: signals.
 */
#ifndef ROLTER_ADMIN_CACHE_PAGES_H
#define ROLTER_ADMIN_CACHE_PAGES_H

#include "gateway/gateway.h"

/* <body>: {"key": NAME}, {"route": MODEL}, {"scope": DIGEST} or {"all": true}. */
int cache_page_purge(struct gateway *g, struct span body, struct buf *out);
int cache_page_stats(struct gateway *g, struct buf *out);
/* <query>: request_id=ID, percent-encoded where need be. */
int cache_page_explain(struct gateway *g, struct span query, struct buf *out);
/* <body>: a request that was not made (gateway/cache_preview.h). */
int cache_page_preview(struct gateway *g, struct span body, struct buf *out);

#endif
