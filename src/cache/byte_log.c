/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/byte_log.h"

#include <stdlib.h>

#include "base/mem.h"

enum { CHUNK_MIN = 2048, CHUNK_MAX = 65536 };

/* Referenced by whoever stands on it, by the chunk before it, by the log for its first and its last one. */
struct log_chunk {
    _Atomic(struct log_chunk *) next;
    struct byte_log *log;
    _Atomic unsigned refs;
    _Atomic size_t n; /* bytes that may be read */
    size_t cap;
    char bytes[];
};

static struct log_chunk *chunk_ref(struct log_chunk *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

/* A loop, not a recursion: a whole reply may go at once. */
static void chunk_unref(struct log_chunk *c)
{
    while (c && atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) == 1) {
        struct log_chunk *next = atomic_load_explicit(&c->next, memory_order_relaxed);
        atomic_fetch_sub_explicit(&c->log->live, c->cap, memory_order_relaxed);
        free(c);
        c = next;
    }
}

static struct log_chunk *chunk_new(struct byte_log *l, size_t cap, unsigned refs)
{
    struct log_chunk *c = mem_alloc(sizeof *c + cap);
    atomic_init(&c->next, NULL);
    atomic_init(&c->refs, refs);
    atomic_init(&c->n, 0);
    c->log = l;
    c->cap = cap;
    atomic_fetch_add_explicit(&l->live, cap, memory_order_relaxed);
    return c;
}

void log_init(struct byte_log *l)
{
    *l = (struct byte_log){0};
    l->first = l->tail = chunk_new(l, CHUNK_MIN, 2);
}

void log_fini(struct byte_log *l)
{
    log_drop_beginning(l);
    chunk_unref(l->tail);
    l->tail = NULL;
    CHECK_MSG(log_live(l) == 0, "a reader is still there");
}

static struct log_chunk *room(struct byte_log *l)
{
    struct log_chunk *t = l->tail;
    if (atomic_load_explicit(&t->n, memory_order_relaxed) < t->cap)
        return t;
    size_t cap = t->cap < CHUNK_MAX / 4 ? t->cap * 4 : CHUNK_MAX;
    struct log_chunk *c = chunk_new(l, cap, 2);
    atomic_store_explicit(&t->next, c, memory_order_release);
    chunk_unref(t);
    l->tail = c;
    return c;
}

void log_append(struct byte_log *l, const char *p, size_t n)
{
    uint64_t total = log_total(l) + n;
    while (n > 0) {
        struct log_chunk *c = room(l);
        size_t used = atomic_load_explicit(&c->n, memory_order_relaxed);
        size_t part = n < c->cap - used ? n : c->cap - used;
        memcpy(c->bytes + used, p, part);
        atomic_store_explicit(&c->n, used + part, memory_order_release);
        p += part;
        n -= part;
    }
    atomic_store_explicit(&l->total, total, memory_order_release);
}

void log_drop_beginning(struct byte_log *l)
{
    l->dropped = true;
    chunk_unref(l->first);
    l->first = NULL;
}

bool log_gather(const struct byte_log *l, struct buf *b)
{
    CHECK(!l->dropped);
    bool fits = true;
    for (const struct log_chunk *c = l->first; c; c = atomic_load_explicit(&c->next, memory_order_relaxed))
        fits &= buf_add(b, c->bytes, atomic_load_explicit(&c->n, memory_order_relaxed));
    return fits;
}

void log_cursor_end(const struct byte_log *l, struct log_cursor *ret)
{
    *ret = (struct log_cursor){.chunk = chunk_ref(l->tail),
                               .at = atomic_load_explicit(&l->tail->n, memory_order_relaxed),
                               .offset = log_total(l)};
}

bool log_cursor_start(const struct byte_log *l, struct log_cursor *ret)
{
    if (l->dropped)
        return false;
    *ret = (struct log_cursor){.chunk = chunk_ref(l->first)};
    return true;
}

struct span log_peek(struct log_cursor *c)
{
    for (;;) {
        size_t n = atomic_load_explicit(&c->chunk->n, memory_order_acquire);
        if (c->at < n)
            return span_of(c->chunk->bytes + c->at, n - c->at);
        struct log_chunk *next =
            n == c->chunk->cap ? atomic_load_explicit(&c->chunk->next, memory_order_acquire) : NULL;
        if (!next)
            return SPAN_NONE;
        chunk_ref(next); /* alive: this chunk's link holds it */
        chunk_unref(c->chunk);
        c->chunk = next;
        c->at = 0;
    }
}

void log_advance(struct log_cursor *c, size_t n)
{
    c->at += n;
    c->offset += n;
}

void log_cursor_close(struct log_cursor *c)
{
    chunk_unref(c->chunk);
    *c = (struct log_cursor){0};
}
