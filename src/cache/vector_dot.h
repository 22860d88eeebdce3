/* SPDX-License-Identifier: Apache-2.0
 *
 * Dot products of packed vectors, AVX2 where the processor has it. Inside of cache/vectors.c, its test and
 * its benchmark. Lengths are multiples of VECTOR_STEP; pointers are aligned to 32 bytes; what is behind the
 * real dimensions is zero.
 */
#ifndef ROLTER_CACHE_VECTOR_DOT_H
#define ROLTER_CACHE_VECTOR_DOT_H

#include <stdint.h>

enum { VECTOR_STEP = 32 };

struct vector_dot {
    /* Bytes in -127..127; exact while <n> is at most 131072. */
    int32_t (*bytes)(const int8_t *a, const int8_t *b, unsigned n);
    /* Within 1e-5 of the exact sum for unit vectors. */
    float (*floats)(const float *a, const float *b, unsigned n);
    /* Summed in double precision. */
    double (*exact)(const float *a, const float *b, unsigned n);
};

extern const struct vector_dot vector_dot_plain;
/* The fastest that this processor runs. */
const struct vector_dot *vector_dot_best(void);

#endif
