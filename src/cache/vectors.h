/* SPDX-License-Identifier: Apache-2.0
 *
 * The vectors of stored replies, searched in memory: one index per partition, of which the newest entries are
 * compared. Bodies are somewhere else (cache/store.h); an entry here names its body by the exact key.
 *
 * Vectors are kept at length 1, as floats and as bytes. A search reads the bytes, whose error is known for
 * each vector, and computes what may still be a match from the floats, in double precision at the end; so it
 * finds exactly what a search in double precision finds.
 *
 * An index is made of blocks that only grow. A search holds the lock while it takes a reference to them, and
 * then reads what had been written by then. Vectors of another dimension are an index of their own.
 * Thread: any. Errors: a vector that is no direction (zero, not finite, too many dimensions) is refused.
 */
#ifndef ROLTER_CACHE_VECTORS_H
#define ROLTER_CACHE_VECTORS_H

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"

enum { VECTORS_KEY_BYTES = 32, VECTORS_DIMS_MAX = 16384, VECTORS_NOTE_MAX = 8192 };

struct vectors;

/* What belongs to a vector. */
struct vectors_entry {
    unsigned char id[VECTORS_KEY_BYTES]; /* the exact key of its reply */
    uint64_t created_ms, expires_ms;     /* wall clock */
    struct span note;                    /* at most VECTORS_NOTE_MAX bytes for the caller; copied */
};

struct vectors_match {
    struct vectors_entry entry; /* the note is in the arena */
    double similarity;          /* cosine, -1..1, rounded to a float; so is the threshold */
};

struct vectors_stats {
    size_t indexes, entries, bytes;
    uint64_t evicted; /* entries that made room for others, since the start */
};

/* Of <max_bytes> in all: then the index goes that was used longest ago. */
struct vectors *vectors_new(size_t max_bytes);
void vectors_free(struct vectors *v);

/* Whether <x> has a direction: every number finite, and some not zero. */
bool vectors_is_direction(const float *x, unsigned dims);

/* Adds an entry as the newest one; an older one with the same id goes. <window> is how many are compared at
 * most, and so how many are worth keeping. False when the vector is refused. O(window) for the ids. */
bool vectors_put(struct vectors *v, const unsigned char index[VECTORS_KEY_BYTES], unsigned window,
                 const float *x, unsigned dims, const struct vectors_entry *e, uint64_t now_ms);

/* The best of the newest <window> entries that have not expired and whose cosine is at least <threshold>:
 * best first, of equals the newest first, at most <max> of them. Returns how many. O(window * dims). */
unsigned vectors_find(struct vectors *v, const unsigned char index[VECTORS_KEY_BYTES], unsigned window,
                      const float *x, unsigned dims, double threshold, uint64_t now_ms, struct arena *a,
                      struct vectors_match *ret, unsigned max);

/* Its reply does not exist any more. */
void vectors_remove(struct vectors *v, const unsigned char index[VECTORS_KEY_BYTES], unsigned dims,
                    const unsigned char id[VECTORS_KEY_BYTES]);
/* When the entry expires; 0 when there is none, or it has expired. */
uint64_t vectors_expiry(struct vectors *v, const unsigned char index[VECTORS_KEY_BYTES], unsigned dims,
                        const unsigned char id[VECTORS_KEY_BYTES], uint64_t now_ms);
/* Entries of an index, those that are gone but still there included. */
unsigned vectors_count(struct vectors *v, const unsigned char index[VECTORS_KEY_BYTES], unsigned dims);
/* Forgets everything. */
void vectors_clear(struct vectors *v);

void vectors_stats(struct vectors *v, struct vectors_stats *ret);

#endif
