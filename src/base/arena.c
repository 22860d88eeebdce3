/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"

struct arena_chunk {
    struct arena_chunk *next;
    size_t bytes; /* whole allocation; only ARENA_CHUNK_BYTES ones go back to the pool */
};

enum { HEAD = 16 };
_Static_assert(sizeof(struct arena_chunk) <= HEAD, "chunk head fits its place");

void arena_pool_init(struct arena_pool *p, size_t keep)
{
    *p = (struct arena_pool){.keep = keep};
}

void arena_pool_fini(struct arena_pool *p)
{
    while (p->free) {
        struct arena_chunk *c = p->free;
        p->free = c->next;
        free(c);
    }
    p->n_free = 0;
}

void arena_init(struct arena *a, struct arena_pool *pool)
{
    *a = (struct arena){.pool = pool};
}

static void chunk_put(struct arena_pool *p, struct arena_chunk *c)
{
    if (p && c->bytes == ARENA_CHUNK_BYTES && p->n_free < p->keep) {
        c->next = p->free;
        p->free = c;
        p->n_free++;
        return;
    }
    free(c);
}

void arena_reset(struct arena *a)
{
    for (struct arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        chunk_put(a->pool, c);
    }
    a->chunks = NULL;
    a->at = a->end = NULL;
    a->used_bytes = 0;
}

void *arena_grow(struct arena *a, size_t n)
{
    struct arena_chunk *c;
    if (n > ARENA_CHUNK_BYTES - HEAD) {
        /* A block of its own, behind the current chunk so that the room left there is still used. */
        c = mem_alloc(n + HEAD);
        c->bytes = n + HEAD;
        if (a->chunks) {
            c->next = a->chunks->next;
            a->chunks->next = c;
        } else {
            c->next = NULL;
            a->chunks = c;
        }
        return (char *)c + HEAD;
    }
    if (a->pool && a->pool->free) {
        c = a->pool->free;
        a->pool->free = c->next;
        a->pool->n_free--;
    } else {
        c = mem_alloc(ARENA_CHUNK_BYTES);
        c->bytes = ARENA_CHUNK_BYTES;
    }
    c->next = a->chunks;
    a->chunks = c;
    a->at = (char *)c + HEAD + n;
    a->end = (char *)c + ARENA_CHUNK_BYTES;
    return (char *)c + HEAD;
}

void *arena_zalloc(struct arena *a, size_t n)
{
    void *p = arena_alloc(a, n);
    memset(p, 0, n);
    return p;
}

struct span arena_dup(struct arena *a, struct span s)
{
    char *p = arena_alloc(a, s.n + 1);
    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = 0;
    return span_of(p, s.n);
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    CHECK(n >= 0);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}
