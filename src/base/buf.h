/* SPDX-License-Identifier: Apache-2.0
 *
 * A growable run of bytes that states its maximum. Appending past the maximum changes nothing, returns false and
 * stays remembered in `full`, so that a writer may append many times and look once at the end.
 * Thread: one owner. Memory: heap, freed by buf_fini; buf_clear keeps it for the next use.
 */
#ifndef ROLTER_BASE_BUF_H
#define ROLTER_BASE_BUF_H

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
/* Room for <n> more bytes without moving; false past the maximum. */
bool buf_reserve(struct buf *b, size_t n);
bool buf_add(struct buf *b, const void *p, size_t n);
bool buf_add_span(struct buf *b, struct span s);
bool buf_add_str(struct buf *b, const char *s);
bool buf_add_char(struct buf *b, char c);
bool buf_add_u64(struct buf *b, uint64_t v);
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Drops the first <n> bytes; moves the rest to the front. O(rest). */
void buf_consume(struct buf *b, size_t n);

static inline struct span buf_view(const struct buf *b)
{
    return span_of(b->p, b->n);
}

#define BUF_LIT(b, literal) buf_add((b), (literal), sizeof(literal) - 1)

#endif
