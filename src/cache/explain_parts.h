/* SPDX-License-Identifier: Apache-2.0
 *
 * Digests of the parts of a request, path by path, and how two requests differ by them. Inside of cache/.
 */
#ifndef ROLTER_CACHE_EXPLAIN_PARTS_H
#define ROLTER_CACHE_EXPLAIN_PARTS_H

#include "cache/explain.h"

struct explain_part {
    uint64_t path_hash;
    uint32_t digest; /* of the value in its canonical form */
    uint16_t at, n;  /* of the path */
};

struct explain_parts {
    unsigned n;
    unsigned text_n;
    struct explain_part part[EXPLAIN_PARTS];
    char text[EXPLAIN_PARTS * EXPLAIN_PATH_MAX];
};

/* Bytes that are in use; the rest need not be kept. */
size_t explain_parts_bytes(const struct explain_parts *p);
void explain_parts_of(const struct key_input *in, struct arena *a, struct explain_parts *ret);
static inline struct span explain_path(const struct explain_parts *p, unsigned i)
{
    return span_of(p->text + p->part[i].at, p->part[i].n);
}

/* How many parts of <a> are in <b> alike. O(n log n); both are sorted. */
unsigned explain_common(const struct explain_parts *a, const struct explain_parts *b);
/* The paths that differ, deepest ones only, in order; slices of both. */
unsigned explain_difference(const struct explain_parts *a, const struct explain_parts *b,
                            struct span ret[EXPLAIN_DIFFERS]);

#endif
