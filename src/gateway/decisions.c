/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/decisions.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"

enum { WORDS = sizeof(struct decision) / 8 };
_Static_assert(sizeof(struct decision) % 8 == 0, "a record is made of words");

/* `number` is 2i + 1 while record i is being written, and 2i + 2 when it is there. */
struct slot {
    _Atomic uint64_t number;
    _Atomic uint64_t word[WORDS];
};

struct decision_ring {
    _Atomic uint64_t count;
    struct slot slot[DECISIONS_KEPT];
};

void decision_text(char *ret, size_t size, struct span text)
{
    size_t n = text.n < size ? text.n : size - 1;
    if (n < text.n)
        while (n > 0 && ((unsigned char)text.p[n] & 0xc0) == 0x80)
            n--;
    if (n)
        memcpy(ret, text.p, n);
    ret[n] = 0;
}

struct decision_ring *decision_ring_new(void)
{
    return MEM_NEW(struct decision_ring);
}

void decision_ring_free(struct decision_ring *r)
{
    free(r);
}

void decision_ring_put(struct decision_ring *r, const struct decision *d)
{
    uint64_t word, i = atomic_load_explicit(&r->count, memory_order_relaxed);
    struct slot *s = &r->slot[i % DECISIONS_KEPT];
    atomic_store_explicit(&s->number, 2 * i + 1, memory_order_relaxed);
    /* Stored with release, so that a reader that sees one of the words sees the odd number too. */
    for (unsigned k = 0; k < WORDS; k++) {
        memcpy(&word, (const char *)d + 8 * k, 8);
        atomic_store_explicit(&s->word[k], word, memory_order_release);
    }
    atomic_store_explicit(&s->number, 2 * i + 2, memory_order_release);
    atomic_store_explicit(&r->count, i + 1, memory_order_release);
}

uint64_t decision_ring_count(const struct decision_ring *r)
{
    return atomic_load_explicit(&r->count, memory_order_acquire);
}

bool decision_ring_read(const struct decision_ring *r, uint64_t i, struct decision *ret)
{
    const struct slot *s = &r->slot[i % DECISIONS_KEPT];
    uint64_t words[WORDS];
    if (atomic_load_explicit(&s->number, memory_order_acquire) != 2 * i + 2)
        return false;
    for (unsigned k = 0; k < WORDS; k++)
        words[k] = atomic_load_explicit(&s->word[k], memory_order_acquire);
    if (atomic_load_explicit(&s->number, memory_order_relaxed) != 2 * i + 2)
        return false;
    memcpy(ret, words, sizeof *ret);
    return true;
}

/* The newest record of a ring that was not taken yet. */
struct head {
    const struct decision_ring *ring;
    uint64_t next, oldest; /* it is record next - 1 */
    bool there;
    struct decision d;
};

static void head_read(struct head *h)
{
    h->there = h->next > h->oldest && decision_ring_read(h->ring, h->next - 1, &h->d);
}

unsigned decisions_newest(struct decision_ring *const *rings, unsigned n, struct decision *ret, unsigned max)
{
    struct head *head = mem_array(n, sizeof *head);
    unsigned taken = 0;
    for (unsigned i = 0; i < n; i++) {
        struct head *h = &head[i];
        h->ring = rings[i];
        h->next = decision_ring_count(rings[i]);
        h->oldest = h->next > DECISIONS_KEPT ? h->next - DECISIONS_KEPT : 0;
        head_read(h);
    }
    while (taken < max) {
        struct head *best = NULL;
        for (unsigned i = 0; i < n; i++)
            if (head[i].there && (!best || head[i].d.finished_us > best->d.finished_us))
                best = &head[i];
        if (!best)
            break;
        ret[taken++] = best->d;
        best->next--;
        head_read(best);
    }
    free(head);
    return taken;
}
