/* SPDX-License-Identifier: Apache-2.0
 *
 * Positions count up for ever; a line is four bytes of length and its bytes, both may wrap at the end of the
 * ring. Each side keeps a copy of the other side's position and looks at the real one only when the copy is
 * not enough, so that the two cores do not pull one cache line to and fro.
 */
#include "observe/row.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"

enum { LENGTH_BYTES = 4, RING_MIN = 64 };

struct row_ring {
    size_t mask; /* bytes - 1; a power of two */
    char *p;
    _Alignas(64) _Atomic size_t head; /* the producer's: next byte to write */
    size_t tail_seen;
    _Alignas(64) _Atomic size_t tail; /* the consumer's: next byte to read */
};

struct row_ring *row_ring_new(size_t bytes)
{
    CHECK(bytes <= SIZE_MAX / 4);
    size_t cap = RING_MIN;
    while (cap < bytes)
        cap *= 2;
    struct row_ring *r = aligned_alloc(64, sizeof *r);
    CHECK(r != NULL);
    *r = (struct row_ring){.mask = cap - 1, .p = mem_alloc(cap)};
    return r;
}

void row_ring_free(struct row_ring *r)
{
    if (!r)
        return;
    free(r->p);
    free(r);
}

static void copy_in(struct row_ring *r, size_t at, const void *p, size_t n)
{
    size_t i = at & r->mask, run = r->mask + 1 - i;
    if (run > n)
        run = n;
    memcpy(r->p + i, p, run);
    memcpy(r->p, (const char *)p + run, n - run);
}

static void copy_out(const struct row_ring *r, size_t at, void *p, size_t n)
{
    size_t i = at & r->mask, run = r->mask + 1 - i;
    if (run > n)
        run = n;
    memcpy(p, r->p + i, run);
    memcpy((char *)p + run, r->p, n - run);
}

bool row_ring_put(struct row_ring *r, struct span line)
{
    size_t cap = r->mask + 1, head = atomic_load_explicit(&r->head, memory_order_relaxed);
    if (line.n > UINT32_MAX || line.n > cap - LENGTH_BYTES)
        return false;
    size_t need = line.n + LENGTH_BYTES;
    if (need > cap - (head - r->tail_seen)) {
        r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
        if (need > cap - (head - r->tail_seen))
            return false;
    }
    uint32_t n = (uint32_t)line.n;
    copy_in(r, head, &n, LENGTH_BYTES);
    if (n)
        copy_in(r, head + LENGTH_BYTES, line.p, n);
    atomic_store_explicit(&r->head, head + need, memory_order_release);
    return true;
}

size_t row_ring_used(const struct row_ring *r)
{
    /* The tail first: read the other way round, a take in between would give a negative number. */
    size_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    return atomic_load_explicit(&r->head, memory_order_acquire) - tail;
}

size_t row_ring_take(struct row_ring *r, struct buf *out, size_t max)
{
    size_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed), taken = 0, lines = 0;
    while (tail != head) {
        uint32_t n;
        copy_out(r, tail, &n, LENGTH_BYTES);
        if (lines && (n > max || taken > max - n))
            break;
        if (!buf_reserve(out, n))
            break;
        if (n)
            copy_out(r, tail + LENGTH_BYTES, out->p + out->n, n);
        out->n += n;
        taken += n;
        tail += n + LENGTH_BYTES;
        lines++;
    }
    atomic_store_explicit(&r->tail, tail, memory_order_release);
    return lines;
}
