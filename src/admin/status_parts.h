/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of GET /status; each adds its members to the object that is open. Inside of admin/. Thread:
 * signals.
 */
#ifndef ROLTER_ADMIN_STATUS_PARTS_H
#define ROLTER_ADMIN_STATUS_PARTS_H

#include "gateway/gateway.h"
#include "gateway/reply_cache.h"
#include "json/write.h"

/* "routes", and "direct": what "provider/model" requests have in common. */
void status_routes(struct json_out *o, const struct plan *p, uint64_t now_ms);
/* "cache" and "semantic"; nothing when <c> is NULL. */
void status_cache(struct json_out *o, const struct reply_cache *c);
/* "policy": what guardrails, webhook, plugins and the PII sanitizer did. */
void status_policy(struct json_out *o);
/* "limits": refusals, and how much of each budget and rate limit is used. */
void status_limits(struct json_out *o, const struct plan *p, uint64_t wall_ms);

/* "memory", and "redis" when there is one. */
void status_store(struct json_out *o, const struct store_stats *s);
/* <name>: an object of the counters of a family with one label, by its values; zeros are left out. */
void status_by_label(struct json_out *o, const char *name, enum metric_id id);

#endif
