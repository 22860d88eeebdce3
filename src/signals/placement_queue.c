/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/placement_queue.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"

enum { MASK = PLACEMENT_QUEUE_WORDS - 1, HEAD_WORDS = 4 };

/* A record is a first word, n and before, and behind it the target, the key before, the time and the keys.
 * The first word is written last and is never 0, and the reader leaves zeros behind, so a record that is not
 * written yet looks like none. */
struct placement_queue {
    _Alignas(64) _Atomic uint64_t head; /* words reserved, ever */
    _Alignas(64) _Atomic uint64_t tail; /* words read, ever */
    _Alignas(64) _Atomic uint64_t word[PLACEMENT_QUEUE_WORDS];
};

struct placement_queue *placement_queue_new(void)
{
    struct placement_queue *q = aligned_alloc(64, sizeof *q);
    CHECK_MSG(q != NULL, "out of memory");
    memset(q, 0, sizeof *q);
    return q;
}

void placement_queue_free(struct placement_queue *q)
{
    free(q);
}

static void put(struct placement_queue *q, uint64_t at, uint64_t value)
{
    atomic_store_explicit(&q->word[at & MASK], value, memory_order_relaxed);
}

/* Reads a word and leaves 0. */
static uint64_t take(struct placement_queue *q, uint64_t at)
{
    uint64_t v = atomic_load_explicit(&q->word[at & MASK], memory_order_relaxed);
    atomic_store_explicit(&q->word[at & MASK], 0, memory_order_relaxed);
    return v;
}

static bool push_part(struct placement_queue *q, const struct placement *p, uint64_t now_ms)
{
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed), words = HEAD_WORDS + p->n;
    do {
        if (head + words - atomic_load_explicit(&q->tail, memory_order_acquire) > PLACEMENT_QUEUE_WORDS)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&q->head, &head, head + words, memory_order_relaxed,
                                                    memory_order_relaxed));
    put(q, head + 1, p->target);
    put(q, head + 2, p->after);
    put(q, head + 3, now_ms);
    for (uint32_t i = 0; i < p->n; i++)
        put(q, head + HEAD_WORDS + i, p->keys[i]);
    atomic_store_explicit(&q->word[head & MASK], (uint64_t)p->before << 32 | p->n, memory_order_release);
    return true;
}

bool placement_queue_push(struct placement_queue *q, const struct placement *p, uint64_t now_ms)
{
    if (p->n > PLACEMENT_BLOCKS_MAX || p->before > PLACEMENT_BLOCKS_MAX - p->n)
        return false;
    struct placement part = *p;
    for (uint32_t left = p->n; left > 0; left -= part.n) {
        part.n = left < PLACEMENT_KEYS_MAX ? left : PLACEMENT_KEYS_MAX;
        if (!push_part(q, &part, now_ms))
            return false;
        part.before += part.n;
        part.keys += part.n;
        part.after = part.keys[-1];
    }
    return true;
}

bool placement_queue_pop(struct placement_queue *q, struct placement *ret, uint64_t *keys)
{
    uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
    uint64_t first = atomic_load_explicit(&q->word[tail & MASK], memory_order_acquire);
    if (first == 0)
        return false;
    take(q, tail);
    *ret = (struct placement){.target = take(q, tail + 1),
                              .after = take(q, tail + 2),
                              .before = (uint32_t)(first >> 32),
                              .n = (uint32_t)first,
                              .keys = keys};
    take(q, tail + 3);
    CHECK(ret->n <= PLACEMENT_KEYS_MAX);
    for (uint32_t i = 0; i < ret->n; i++)
        keys[i] = take(q, tail + HEAD_WORDS + i);
    atomic_store_explicit(&q->tail, tail + HEAD_WORDS + ret->n, memory_order_release);
    return true;
}

bool placement_queue_oldest(struct placement_queue *q, uint64_t *ret_pushed_ms)
{
    uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
    if (atomic_load_explicit(&q->word[tail & MASK], memory_order_acquire) == 0)
        return false;
    *ret_pushed_ms = atomic_load_explicit(&q->word[(tail + 3) & MASK], memory_order_relaxed);
    return true;
}
