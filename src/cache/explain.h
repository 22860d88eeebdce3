/* SPDX-License-Identifier: Apache-2.0
 *
 * Why was this a miss, and what was this hit (C14)? A book of the last lookups and of the last replies
 * stored. What was not found at once has digests of the parts of its request, path by path: explain_write
 * compares it with the nearest stored one of its route and names the parts that differ. No text of a request
 * is kept: names of members and digests.
 *
 * Paths: messages[2].content, tools[0].function.name; what surrounds the body: @scope, @query, @targets,
 * @path, "@header anthropic-beta". At most EXPLAIN_PARTS parts of a request are kept, the upper levels first;
 * what lies deeper shows as the part that holds it.
 *
 * Threads: all functions from any; one lock, a leaf, held while records are moved or compared (explain_write
 * is for people). Cost of a miss: some passes over the body and one small allocation. An exact hit is a note
 * of some hundred bytes in a ring that hardly anybody else writes, with a lock of its own, a leaf as well.
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
    EXPLAIN_HITS = 256,    /* exact hits kept for each ring */
    EXPLAIN_RINGS = 8,     /* threads share these */
};

struct explain;
struct explain *explain_new(void);
void explain_free(struct explain *e);

/* A request that was looked up in vain (<in> and its key), or that was not looked up (<in> NULL). <result>
 * and <reason> are static words of the caller ("miss", "bypass"; why), <reason> may be NULL for a miss: then
 * explain_write finds one. The record is the caller's until explain_settle. */
struct explain_record;
struct explain_record *explain_note(struct explain *e, struct span request_id, const char *result,
                                    const char *reason, const struct key_input *in,
                                    const struct cache_digest *key, struct arena *a,
                                    uint64_t now_ms) MUST_CHECK;

/* The entry that a request was answered with. */
struct explain_entry {
    struct cache_digest key;
    uint64_t scope; /* as in its owner */
    uint64_t created_ms, expires_ms;
};
/* What became of a request that was noted. Words are static. */
struct explain_outcome {
    const char *layer; /* that answered it after all: "semantic", "coalesced"...; NULL: none */
    const char *reason;
    const struct explain_entry *entry;    /* or NULL: not known (yet) */
    const struct cache_digest *partition; /* of its lookup by meaning; NULL: there was none */
    const char *semantic;                 /* why that found nothing, or why there was none; or NULL */
    double similarity;                    /* of what was served by meaning */
};
/* Once for each record; <o> may be NULL: as it was noted. */
void explain_settle(struct explain *e, struct explain_record *r, const struct explain_outcome *o);
/* A hit that was found at once. */
void explain_hit(struct explain *e, struct span request_id, const char *layer, const char *reason,
                 const struct explain_entry *entry, uint64_t now_ms);
/* The reply of a request that was noted was stored until <stale_until_ms> under <owner> and <stamp>. */
void explain_stored(struct explain *e, const struct cache_digest *key, const struct cache_owner *owner,
                    uint64_t stamp, uint64_t stale_until_ms);

/* Appends {"request_id", "result", "reason", "differs": [path...]}, of hits also "layer" and "entry", of
 * lookups by meaning "semantic"; false when the request is not in the book. Reasons that it finds: differs,
 * expired, purged, evicted (stored once, same key), nothing_stored (no reply of the route in the book). */
bool explain_write(struct explain *e, struct span request_id, const struct cache_purge *purge,
                   struct buf *out);
/* The same question about a request that was not made: the reason, and up to EXPLAIN_DIFFERS paths in <a>. */
const char *explain_compare(struct explain *e, const struct key_input *in, const struct cache_digest *key,
                            const struct cache_purge *purge, struct arena *a, uint64_t now_ms,
                            struct span ret[EXPLAIN_DIFFERS], unsigned *ret_n);
struct json_out;
/* {"key", "scope", "age_secs", "expires_in_secs"} */
void explain_write_entry(struct json_out *o, const struct explain_entry *e, uint64_t now_ms);

#endif
