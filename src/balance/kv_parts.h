/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout of KV sources, for kv_source.c and kv_match.c only.
 */
#ifndef ROLTER_BALANCE_KV_PARTS_H
#define ROLTER_BALANCE_KV_PARTS_H

#include "balance/kv_source.h"

enum { KV_ADAPTERS = 2048, KV_SIZES = 4 };

struct kv_size {
    uint32_t block; /* tokens << 1 | overlap */
    uint64_t n;     /* stored, ever */
};

struct kv_stream_state {
    /* Set by the writer, read by picks. */
    _Atomic uint32_t place;    /* bank and slot + 1; 0 = holds nothing */
    _Atomic uint32_t block;    /* tokens << 1 | overlap; 0 = not known */
    _Atomic uint64_t alive_at; /* ms + 1; 0 = never */
    atomic_bool trusted;
    /* The writer's. */
    struct kv_blocks *blocks;
    struct kv_size size[KV_SIZES]; /* the most frequent first */
};

struct kv_source {
    struct kv_source *next; /* registry, with `refs` under its lock */
    unsigned refs;
    char *name;
    unsigned n;
    _Atomic uint64_t stale_ms;
    _Atomic uint64_t adapter[KV_ADAPTERS]; /* hashes of names */
    /* The writer's. */
    size_t max_blocks, held, all;
    _Atomic size_t held_shown; /* for other threads */
    struct kv_stream_state stream[];
};

/* The map of a place (0-based). */
struct kv_map *kv_bank(unsigned place);
bool kv_source_has_adapter(const struct kv_source *s, struct span name);

/* A reader's clock may be a little behind the writer's. */
static inline bool kv_stream_counts(const struct kv_source *s, const struct kv_stream_state *t,
                                    uint64_t now_ms)
{
    uint64_t at = atomic_load_explicit(&t->alive_at, memory_order_acquire);
    return at != 0 && now_ms < at + atomic_load_explicit(&s->stale_ms, memory_order_relaxed) &&
           atomic_load_explicit(&t->trusted, memory_order_acquire);
}

#endif
