/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout: "RSEM", version (4), id (32), created (8), expires (8), dims (4), note's bytes (4), sum over the
 * rest (8); note; floats.
 */
#include "cache/semantic_record.h"

#include "base/hash.h"
#include "cache/semantic_partition.h"

static void put(unsigned char *p, uint64_t v, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t get(const unsigned char *p, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint64_t sum_of(const unsigned char *head, struct span rest)
{
    return hash_bytes_seed(rest.p, rest.n, hash_bytes(head, SEMANTIC_RECORD_HEAD - 8));
}

void semantic_record_write(struct buf *b, const struct vectors_entry *e, const struct embedding *vector)
{
    unsigned char head[SEMANTIC_RECORD_HEAD] = "RSEM";
    put(head + 4, SEMANTIC_LAYOUT_VERSION, 4);
    memcpy(head + 8, e->id, sizeof(e->id));
    put(head + 40, e->created_ms, 8);
    put(head + 48, e->expires_ms, 8);
    put(head + 56, vector->dims, 4);
    put(head + 60, e->note.n, 4);
    size_t at = b->n;
    buf_add(b, head, sizeof(head));
    buf_add_span(b, e->note);
    for (unsigned i = 0; i < vector->dims; i++) {
        uint32_t bits;
        unsigned char bytes[4];
        memcpy(&bits, &vector->x[i], 4);
        put(bytes, bits, 4);
        buf_add(b, bytes, 4);
    }
    if (b->full)
        return;
    struct span rest = span_of(b->p + at + sizeof(head), b->n - at - sizeof(head));
    put((unsigned char *)b->p + at + 64, sum_of(head, rest), 8);
}

bool semantic_record_read(struct span bytes, struct vectors_entry *ret_entry, struct embedding **ret_vector)
{
    const unsigned char *p = (const unsigned char *)bytes.p;
    if (bytes.n < SEMANTIC_RECORD_HEAD || memcmp(p, "RSEM", 4) != 0 ||
        get(p + 4, 4) != SEMANTIC_LAYOUT_VERSION)
        return false;
    uint64_t dims = get(p + 56, 4), note = get(p + 60, 4);
    struct span rest = span_of(bytes.p + SEMANTIC_RECORD_HEAD, bytes.n - SEMANTIC_RECORD_HEAD);
    if (dims == 0 || dims > VECTORS_DIMS_MAX || note > VECTORS_NOTE_MAX || rest.n != note + 4 * dims ||
        get(p + 64, 8) != sum_of(p, rest))
        return false;
    struct embedding *e = embedding_new((unsigned)dims);
    for (unsigned i = 0; i < dims; i++) {
        uint32_t bits = (uint32_t)get((const unsigned char *)rest.p + note + 4 * i, 4);
        memcpy(&e->x[i], &bits, 4);
    }
    if (!vectors_is_direction(e->x, e->dims)) {
        embedding_unref(e);
        return false;
    }
    memcpy(ret_entry->id, p + 8, sizeof(ret_entry->id));
    ret_entry->created_ms = get(p + 40, 8);
    ret_entry->expires_ms = get(p + 48, 8);
    ret_entry->note = span_of(rest.p, note);
    *ret_vector = e;
    return true;
}
