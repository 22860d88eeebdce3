/* SPDX-License-Identifier: Apache-2.0
 *
 * A stored reply: the upstream's own body (identity-encoded, event stream or JSON), taken before any policy,
 * with what made it. Immutable and reference-counted; body and texts live in one allocation with it. Nothing
 * of the transport is in it: no framing, no Set-Cookie, no request ids, no rate limits (C8).
 *
 * The binary form is head bytes, then the body as it is, so that a writer need not copy the body. It names
 * its layout version; another version, another order of times, a sum that does not fit or a length too much
 * make entry_parse refuse: a foreign or damaged value is a miss, never a wrong reply.
 *
 * Threads: entries are shared by all threads. Times: wall clock, milliseconds.
 */
#ifndef ROLTER_CACHE_ENTRY_H
#define ROLTER_CACHE_ENTRY_H

#include <stdatomic.h>

#include "base/buf.h"
#include "cache/digest.h"
#include "cache/purge.h"
#include "dialect/dialect.h"

/* Goes up whenever the binary form or the rules of the key change. */
enum { ENTRY_LAYOUT_VERSION = 1 };
/* Of each text; longer ones are refused. */
enum { ENTRY_TEXT_MAX = 4096 };
/* Bytes in front of the body at most. */
enum { ENTRY_HEAD_MAX = 256 + 6 * ENTRY_TEXT_MAX };

struct entry_facts {
    struct cache_digest key; /* the exact key (cache/key.h) */
    enum dialect_id dialect;
    bool is_stream;
    bool is_truncated; /* cut by its length limit, kept by store_truncated */
    uint64_t created_ms, expires_ms;
    uint64_t stale_until_ms; /* the end of the longest stale window; not before expires_ms */
    struct usage usage;
    struct cache_owner owner;
    uint64_t stamp;           /* purge_stamp when the upstream call started */
    struct span content_type; /* the upstream's field value */
    struct span route;        /* public name */
    struct span provider;     /* its slug */
    struct span target;       /* the upstream's model */
    struct span model;        /* as the first client wrote it */
    struct span variant;      /* or empty */
};

struct cache_entry {
    struct entry_facts facts;
    struct span body;
    size_t memory_bytes; /* all that it occupies (cache/entry_heap.h) */
    _Atomic unsigned refs;
};

/* Copies texts and body. One reference, the caller's. NULL when a text is longer than ENTRY_TEXT_MAX, the
 * body is 4 GiB or more, or the times are not in order. */
struct cache_entry *entry_new(const struct entry_facts *facts, struct span body) MUST_CHECK;
struct cache_entry *entry_ref(struct cache_entry *e);
/* NULL is allowed. */
void entry_unref(struct cache_entry *e);

/* What an entry with these facts and so large a body will occupy. */
size_t entry_bytes(const struct entry_facts *facts, size_t body_bytes);

static inline bool entry_is_fresh(const struct cache_entry *e, uint64_t now_ms)
{
    return now_ms < e->facts.expires_ms;
}
/* Whole seconds since it was stored, for Age. */
static inline uint64_t entry_age_secs(const struct cache_entry *e, uint64_t now_ms)
{
    return now_ms > e->facts.created_ms ? (now_ms - e->facts.created_ms) / 1000 : 0;
}

/* Appends everything but the body: the binary form is these bytes and then e->body. False when <b> is full.
 */
bool entry_write_head(const struct cache_entry *e, struct buf *b) MUST_CHECK;
/* NULL when <bytes> are not a whole entry of this layout. O(bytes). */
struct cache_entry *entry_parse(struct span bytes) MUST_CHECK;

#endif
