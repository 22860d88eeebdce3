/* SPDX-License-Identifier: Apache-2.0
 *
 * Why was this a miss (C14)? A book of the last lookups that found nothing and of the last replies stored,
 * each with digests of the parts of its request, path by path. explain_write compares a request with the
 * nearest stored one of its route and names the parts that differ. No text of a request is kept: names of
 * members and digests.
 *
 * Paths: messages[2].content, tools[0].function.name; what surrounds the body: @scope, @query, @targets,
 * @path, "@header anthropic-beta". At most EXPLAIN_PARTS parts of a request are kept, the upper levels first;
 * what lies deeper shows as the part that holds it.
 *
 * Threads: all functions from any; one lock, a leaf, held while records are moved or compared (explain_write
 * is for people). Cost of a miss: some passes over the body and one small allocation; a hit never comes here.
 * Memory: at most some KiB for each record kept.
 */
#ifndef ROLTER_CACHE_EXPLAIN_H
#define ROLTER_CACHE_EXPLAIN_H

#include "cache/key.h"

enum {
    EXPLAIN_PARTS = 96,
    EXPLAIN_PATH_MAX = 96, /* bytes; deeper parts are not looked into */
    EXPLAIN_RECENT = 512,  /* lookups kept */
    EXPLAIN_STORED = 1024, /* stored replies kept */
    EXPLAIN_DIFFERS = 16,  /* paths named */
};

struct explain;
struct explain *explain_new(void);
void explain_free(struct explain *e);

/* A request that was looked up in vain (<in> and its key), or that was not looked up (<in> NULL). <result>
 * and <reason> are static words of the caller ("miss", "bypass"; why), <reason> may be NULL for a miss: then
 * explain_write finds one. */
void explain_note(struct explain *e, struct span request_id, const char *result, const char *reason,
                  const struct key_input *in, const struct cache_digest *key, struct arena *a,
                  uint64_t now_ms);
/* The reply of a request that was noted was stored until <stale_until_ms> under <owner> and <stamp>. */
void explain_stored(struct explain *e, const struct cache_digest *key, const struct cache_owner *owner,
                    uint64_t stamp, uint64_t stale_until_ms);

/* Appends {"request_id", "result", "reason", "differs": [path...]}; false when the request is not in the
 * book. Reasons that it finds: differs, expired, purged, evicted (stored once, same key), nothing_stored (no
 * reply of the route in the book). */
bool explain_write(struct explain *e, struct span request_id, const struct cache_purge *purge,
                   struct buf *out);

#endif
