/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of packed vectors, and the search in them. Inside of cache/vectors*.c.
 *
 * A block's slots are filled in order and never change, but for `dead`; whoever fills the next one holds the
 * index's lock, and readers stop at the count that they saw under it.
 */
#ifndef ROLTER_CACHE_VECTOR_BLOCK_H
#define ROLTER_CACHE_VECTOR_BLOCK_H

#include <stdatomic.h>

#include "cache/vector_dot.h"
#include "cache/vectors.h"

/* What a search reads of every slot. |floats - scale * bytes| is at most <error>; <norm> is the length of
 * scale * bytes. */
struct slot_head {
    uint64_t expires_ms;
    double length; /* of the floats: 1, nearly */
    float scale, error, norm;
    atomic_bool dead;
};

struct slot_tail {
    unsigned char id[VECTORS_KEY_BYTES];
    uint64_t created_ms;
    char *note;
    size_t note_bytes;
};

struct vector_block {
    atomic_uint refs;
    unsigned cap;
    unsigned n;     /* written; read under the index's lock only */
    unsigned width; /* dimensions, filled up to a multiple of VECTOR_STEP */
    size_t bytes;   /* notes included; written under the index's lock */
    struct slot_head *heads;
    struct slot_tail *tails;
    int8_t *packed;
    float *floats;
};

/* A vector ready to be stored or searched with. */
struct packed_vector {
    unsigned width;
    double length;
    float scale, error, norm;
    int8_t *packed;
    float *floats;
    void *memory;
};

unsigned vector_width(unsigned dims);
/* False when <x> has no direction. packed_vector_fini frees it. */
bool packed_vector_init(struct packed_vector *p, const float *x, unsigned dims);
void packed_vector_fini(struct packed_vector *p);

struct vector_block *vector_block_new(unsigned cap, unsigned width);
void vector_block_ref(struct vector_block *b);
void vector_block_unref(struct vector_block *b);
/* The next slot; there is one. */
void vector_block_add(struct vector_block *b, const struct packed_vector *p, const struct vectors_entry *e);
/* Copies a slot of another block into the next one of this. */
void vector_block_copy(struct vector_block *b, const struct vector_block *from, unsigned slot);

static inline bool vector_block_is_live(const struct vector_block *b, unsigned slot, uint64_t now_ms)
{
    return b->heads[slot].expires_ms > now_ms &&
           !atomic_load_explicit(&b->heads[slot].dead, memory_order_relaxed);
}

/* A search under way over blocks from the newest to the oldest. */
enum { VECTOR_BEST_MAX = 16 };
struct vector_search {
    const struct packed_vector *query;
    const struct vector_dot *dot;
    double threshold;
    uint64_t now_ms;
    unsigned left; /* entries that may still be compared */
    unsigned want; /* matches, at most VECTOR_BEST_MAX */
    unsigned n;
    struct {
        float similarity;
        const struct vector_block *block;
        unsigned slot;
    } best[VECTOR_BEST_MAX];
    unsigned seen, doubtful; /* compared; those that the bytes could not decide */
};

/* Slots <n> - 1 down to 0 of <b>. */
void vector_search_block(struct vector_search *s, const struct vector_block *b, unsigned n);

#endif
