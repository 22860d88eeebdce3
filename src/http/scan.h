/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of the HTTP readers: the first byte of a kind in [p, end), or <end>. 16 bytes a step with
 * SSE2, 8 without; never reads outside [p, end). The loops are inlined, because lines and names are short.
 */
#ifndef ROLTER_HTTP_SCAN_H
#define ROLTER_HTTP_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Control characters (RFC 9110 5.5): all below space but the tab, and DEL. */
static inline bool scan_is_control(unsigned char c)
{
    return (c < 0x20 && c != '\t') || c == 0x7f;
}

static inline bool scan_is_plain_name(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-';
}

#ifdef __SSE2__

static inline const char *scan_control(const char *p, const char *end)
{
    const __m128i low = _mm_set1_epi8(0x1f), tab = _mm_set1_epi8('\t'), del = _mm_set1_epi8(0x7f);
    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i is_low = _mm_cmpeq_epi8(_mm_min_epu8(v, low), v);
        __m128i hit = _mm_or_si128(_mm_andnot_si128(_mm_cmpeq_epi8(v, tab), is_low), _mm_cmpeq_epi8(v, del));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask)
            return p + __builtin_ctz(mask);
    }
    while (p < end && !scan_is_control((unsigned char)*p))
        p++;
    return p;
}

static inline const char *scan_line_end(const char *p, const char *end)
{
    const __m128i cr = _mm_set1_epi8('\r'), lf = _mm_set1_epi8('\n');
    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(v, cr), _mm_cmpeq_epi8(v, lf));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask)
            return p + __builtin_ctz(mask);
    }
    while (p < end && *p != '\r' && *p != '\n')
        p++;
    return p;
}

/* The first byte that is no letter, digit or hyphen: what nearly all field names are made of. */
static inline const char *scan_plain_name(const char *p, const char *end)
{
    const __m128i before_a = _mm_set1_epi8('a' - 1), behind_z = _mm_set1_epi8('z' + 1);
    const __m128i before_0 = _mm_set1_epi8('0' - 1), behind_9 = _mm_set1_epi8('9' + 1);
    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i lower = _mm_or_si128(v, _mm_set1_epi8(0x20));
        /* Signed: bytes from 0x80 are below all of these. */
        __m128i letter = _mm_and_si128(_mm_cmpgt_epi8(lower, before_a), _mm_cmpgt_epi8(behind_z, lower));
        __m128i digit = _mm_and_si128(_mm_cmpgt_epi8(v, before_0), _mm_cmpgt_epi8(behind_9, v));
        __m128i plain = _mm_or_si128(_mm_or_si128(letter, digit), _mm_cmpeq_epi8(v, _mm_set1_epi8('-')));
        unsigned mask = (unsigned)_mm_movemask_epi8(plain) ^ 0xffffu;
        if (mask)
            return p + __builtin_ctz(mask);
    }
    while (p < end && scan_is_plain_name((unsigned char)*p))
        p++;
    return p;
}

#else

/* High bit of each byte of <v> that equals <c>; bits above the lowest hit may be wrong, so callers look at
 * the eight bytes one by one. */
static inline uint64_t scan_word_has(uint64_t v, unsigned char c)
{
    uint64_t x = v ^ (UINT64_C(0x0101010101010101) * c);
    return (x - UINT64_C(0x0101010101010101)) & ~x & UINT64_C(0x8080808080808080);
}

static inline const char *scan_control(const char *p, const char *end)
{
    for (; end - p >= 8; p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        /* Below space: also true for the tab, which the loop below sorts out. */
        uint64_t low = (v - UINT64_C(0x2020202020202020)) & ~v & UINT64_C(0x8080808080808080);
        if (low | scan_word_has(v, 0x7f))
            for (int i = 0; i < 8; i++)
                if (scan_is_control((unsigned char)p[i]))
                    return p + i;
    }
    while (p < end && !scan_is_control((unsigned char)*p))
        p++;
    return p;
}

static inline const char *scan_line_end(const char *p, const char *end)
{
    for (; end - p >= 8; p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        if (scan_word_has(v, '\r') | scan_word_has(v, '\n'))
            break;
    }
    while (p < end && *p != '\r' && *p != '\n')
        p++;
    return p;
}

static inline const char *scan_plain_name(const char *p, const char *end)
{
    while (p < end && scan_is_plain_name((unsigned char)*p))
        p++;
    return p;
}

#endif

#endif
