/* SPDX-License-Identifier: Apache-2.0
 *
 * A growable run of bytes that states its maximum. Appending past the maximum changes nothing, returns false
 * and stays remembered in `full`, so that a writer may append many times and look once at the end. Thread:
 * one owner. Memory: heap, freed by buf_fini; buf_clear keeps it for the next use.
 */
#ifndef ROLTER_BASE_BUF_H
#define ROLTER_BASE_BUF_H

#include "base/check.h"
#include "base/span.h"

struct buf {
    char *p;
    size_t n;   /* bytes in use */
    size_t cap; /* bytes allocated */
    size_t max; /* bytes at most */
    bool full;  /* an append did not fit */
};

void buf_init(struct buf *b, size_t max);
void buf_fini(struct buf *b);
/* Empties it and keeps the memory. */
void buf_clear(struct buf *b);
/* The way of buf_reserve when the room is not there yet. */
bool buf_grow(struct buf *b, size_t n);

/* Appending is inlined: heads are made of many pieces whose sizes the compiler knows. */

/* Room for <n> more bytes without moving; false past the maximum. */
static inline bool buf_reserve(struct buf *b, size_t n)
{
    return LIKELY(n <= b->cap - b->n) || buf_grow(b, n);
}

static inline bool buf_add(struct buf *b, const void *p, size_t n)
{
    if (UNLIKELY(!buf_reserve(b, n)))
        return false;
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    return true;
}

static inline bool buf_add_span(struct buf *b, struct span s)
{
    return buf_add(b, s.p, s.n);
}

static inline bool buf_add_str(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

static inline bool buf_add_char(struct buf *b, char c)
{
    return buf_add(b, &c, 1);
}

bool buf_add_u64(struct buf *b, uint64_t v);
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Drops the first <n> bytes; moves the rest to the front. O(rest). */
void buf_consume(struct buf *b, size_t n);

/* Never NULL, so that whoever walks an empty one does no arithmetic on a null pointer. */
static inline struct span buf_view(const struct buf *b)
{
    return span_of(b->p ? b->p : "", b->n);
}

#define BUF_LIT(b, literal) buf_add((b), (literal), sizeof(literal) - 1)

#endif
