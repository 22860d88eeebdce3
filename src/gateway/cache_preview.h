/* SPDX-License-Identifier: Apache-2.0
 *
 * What would the caches say to this request (C14)? The way of a request up to its lookups, without sending
 * anything: which entry it would get, or why none; and where it stands among those of its semantic partition.
 * What guardrails and plugins would make of the request first is left out, and so are budgets and limits.
 *
 * Nothing is counted or moved, nobody is asked: of Redis nothing is known but what memory has of it. An
 * embedding is asked for only when the question says so and the text's vector is not known; the call goes on
 * by itself, and the same question finds its vector a moment later.
 *
 * Thread: signals.
 */
#ifndef ROLTER_GATEWAY_CACHE_PREVIEW_H
#define ROLTER_GATEWAY_CACHE_PREVIEW_H

#include "base/buf.h"
#include "gateway/gateway.h"

/* <text>: {"path": PATH, "key": NAME, "headers": {NAME: VALUE}, "embed": BOOL, "body": {...}}; all but the
 * body may be absent. Appends the answer as JSON and returns NULL; or what is wrong with the question,
 * static. */
const char *cache_preview(struct gateway *g, struct span text, struct buf *out);

#endif
