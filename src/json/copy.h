/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying text up to the next byte that needs something done: JSON_COPY bytes are copied, the answer tells
 * how many of them were plain (JSON_COPY: all). Both <src> and <dst> have that many bytes.
 */
#ifndef ROLTER_JSON_COPY_H
#define ROLTER_JSON_COPY_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { JSON_COPY = 16 };

/* Up to a backslash. */
static inline unsigned json_copy_unescaped(char *dst, const char *src)
{
#if defined(__SSE2__)
    __m128i x = _mm_loadu_si128((const __m128i *)src);
    _mm_storeu_si128((__m128i *)dst, x);
    int hit = _mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
    return (unsigned)__builtin_ctz((unsigned)hit | 1u << JSON_COPY);
#else
    unsigned i = 0;
    memcpy(dst, src, JSON_COPY);
    while (i < JSON_COPY && src[i] != '\\')
        i++;
    return i;
#endif
}

/* Up to what a string must escape: quote, backslash, control characters. */
static inline unsigned json_copy_plain(char *dst, const char *src)
{
#if defined(__SSE2__)
    __m128i x = _mm_loadu_si128((const __m128i *)src);
    _mm_storeu_si128((__m128i *)dst, x);
    __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
    hit = _mm_or_si128(hit, _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1f)), x));
    return (unsigned)__builtin_ctz((unsigned)_mm_movemask_epi8(hit) | 1u << JSON_COPY);
#else
    unsigned i = 0;
    memcpy(dst, src, JSON_COPY);
    while (i < JSON_COPY && src[i] != '"' && src[i] != '\\' && (unsigned char)src[i] >= 0x20)
        i++;
    return i;
#endif
}

#endif
