/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 over many small pieces: they are gathered before they go to OpenSSL, whose calls cost more than the
 * hashing of a few bytes. The digest does not depend on the cuts. Thread: each has one context, so it has at
 * most one digest under way. Errors: none; a library without SHA-256 ends the process.
 */
#ifndef ROLTER_CACHE_DIGEST_H
#define ROLTER_CACHE_DIGEST_H

#include "base/check.h"
#include "base/span.h"

struct cache_digest {
    uint8_t b[32];
};

enum { DIGEST_GATHER = 1024 };
struct digest_writer {
    void *ctx;
    size_t n;
    char gathered[DIGEST_GATHER];
};

void digest_begin(struct digest_writer *w);
/* The way of digest_add when the piece does not fit with what was gathered. */
void digest_add_large(struct digest_writer *w, const void *p, size_t n);
/* A piece of any size; no boundary is left between two of them. Inlined: most are a few bytes. */
static inline void digest_add(struct digest_writer *w, const void *p, size_t n)
{
    if (UNLIKELY(n > DIGEST_GATHER || w->n > DIGEST_GATHER - n)) {
        digest_add_large(w, p, n);
        return;
    }
    if (n)
        memcpy(w->gathered + w->n, p, n);
    w->n += n;
}
/* Eight bytes, little endian. */
void digest_add_u64(struct digest_writer *w, uint64_t v);
/* Length, then bytes: "a" and "bc" differ from "ab" and "c". */
void digest_add_framed(struct digest_writer *w, struct span s);
void digest_end(struct digest_writer *w, struct cache_digest *ret);

static inline bool digest_eq(const struct cache_digest *a, const struct cache_digest *b)
{
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

/* The first eight bytes as a number: for tables, and as the short form that people see. */
static inline uint64_t digest_short(const struct cache_digest *d)
{
    uint64_t v;
    memcpy(&v, d->b, sizeof v);
    return v;
}

#endif
