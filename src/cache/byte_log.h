/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that one writer appends and many readers read at their own pace, each from where it stands: a reply
 * while it is captured. Chunks are shared, never copied for a reader; a chunk goes when neither the log nor a
 * reader on it or before it needs it. As long as the log keeps its beginning, readers may start there and the
 * whole can be gathered; once the beginning is dropped, what stays in memory is what the slowest reader has
 * not read.
 *
 * Threads: one writer; each cursor has one owner, on any thread. Appending and reading take no lock.
 * log_cursor_start and log_drop_beginning must not run at the same time (the owner's lock sees to it).
 */
#ifndef ROLTER_CACHE_BYTE_LOG_H
#define ROLTER_CACHE_BYTE_LOG_H

#include <stdatomic.h>

#include "base/buf.h"

struct log_chunk;

struct byte_log {
    struct log_chunk *first; /* NULL once the beginning is dropped */
    struct log_chunk *tail;  /* the writer's */
    bool dropped;            /* first is NULL */
    _Atomic uint64_t total;  /* bytes ever appended */
    _Atomic size_t live;     /* bytes of chunks in memory */
};

struct log_cursor {
    struct log_chunk *chunk; /* NULL: closed */
    size_t at;
    uint64_t offset; /* bytes before this place */
};

void log_init(struct byte_log *l);
/* Readers must have closed their cursors. */
void log_fini(struct byte_log *l);

/* The writer's. */
void log_append(struct byte_log *l, const char *p, size_t n);
/* No reader can start at the beginning any more. Idempotent. */
void log_drop_beginning(struct byte_log *l);
/* All of it, while the beginning is there. False when <b> is full. */
bool log_gather(const struct byte_log *l, struct buf *b);
/* Where the next byte will stand; the writer's own thread. */
void log_cursor_end(const struct byte_log *l, struct log_cursor *ret);

/* A reader's. False when the beginning is dropped. */
bool log_cursor_start(const struct byte_log *l, struct log_cursor *ret);
/* The next bytes that stand together; empty when there are none yet. They live until the cursor passes them.
 */
struct span log_peek(struct log_cursor *c);
void log_advance(struct log_cursor *c, size_t n);
/* Idempotent. */
void log_cursor_close(struct log_cursor *c);

static inline uint64_t log_total(const struct byte_log *l)
{
    return atomic_load_explicit(&l->total, memory_order_acquire);
}

/* Bytes that stay in memory. */
static inline size_t log_live(const struct byte_log *l)
{
    return atomic_load_explicit(&l->live, memory_order_relaxed);
}

#endif
