/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of one request: allocations are freed all at once by arena_reset. Chunks come from a pool that one
 * worker keeps, so that a request touches warm pages and calls the allocator only when it is unusually large.
 *
 * Thread: one owner; neither the pool nor the arena is safe for two threads.
 * Errors: fixed-size allocations abort when memory is gone; whoever allocates a size that an outsider chose
 * has checked it against a limit first.
 */
#ifndef ROLTER_BASE_ARENA_H
#define ROLTER_BASE_ARENA_H

#include <stddef.h>

#include "base/check.h"
#include "base/span.h"

struct arena_chunk;

/* Kept chunks of ARENA_CHUNK_BYTES; at most <keep> stay when arenas give them back. */
struct arena_pool {
    struct arena_chunk *free;
    size_t n_free;
    size_t keep;
};

struct arena {
    struct arena_pool *pool; /* may be NULL: plain malloc */
    struct arena_chunk *chunks;
    char *at, *end;
    size_t used_bytes; /* handed out since the last reset, for limits and tests */
};

enum { ARENA_CHUNK_BYTES = 8192 };

void arena_pool_init(struct arena_pool *p, size_t keep);
void arena_pool_fini(struct arena_pool *p);

void arena_init(struct arena *a, struct arena_pool *pool);
/* Gives every chunk back; all pointers into the arena become invalid. The arena may be used again. */
void arena_reset(struct arena *a);

/* The way of arena_alloc when the chunk is used up; <n> is a multiple of 16. */
void *arena_grow(struct arena *a, size_t n);

/* <n> bytes aligned to 16, not cleared. O(1). */
static inline void *arena_alloc(struct arena *a, size_t n)
{
    CHECK(n < SIZE_MAX / 2);
    n = (n + 15 + !n) & ~(size_t)15; /* nothing gets a place of its own too, never NULL */
    a->used_bytes += n;
    if (UNLIKELY(n > (size_t)(a->end - a->at)))
        return arena_grow(a, n);
    void *p = a->at;
    a->at += n;
    return p;
}

void *arena_zalloc(struct arena *a, size_t n);
/* A copy of <s> with a NUL behind it (not counted in the span). */
struct span arena_dup(struct arena *a, struct span s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define ARENA_NEW(a, type)      ((type *)arena_zalloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_zalloc((a), sizeof(type) * (n)))

#endif
