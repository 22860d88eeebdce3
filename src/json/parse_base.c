/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>

enum { BLOCK = 16 };

#if defined(__SSE2__)
#include <emmintrin.h>

struct block_seen {
    __m128i bytes;
};

static inline uint32_t block_special(const char *p, struct block_seen *seen)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
    hit = _mm_or_si128(hit, _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1f)), x));
    seen->bytes = _mm_or_si128(seen->bytes, x);
    return (uint32_t)_mm_movemask_epi8(hit);
}

static inline int block_seen_wide(const struct block_seen *seen)
{
    return _mm_movemask_epi8(seen->bytes) != 0;
}

static inline uint32_t block_backslash(const char *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
}

static inline uint32_t block_simple(const char *p)
{
    static const char simple[] = "\"\\/bfnrt";
    __m128i x = _mm_loadu_si128((const __m128i *)p), hit = _mm_setzero_si128();
    for (int i = 0; i < 8; i++)
        hit = _mm_or_si128(hit, _mm_cmpeq_epi8(x, _mm_set1_epi8(simple[i])));
    return (uint32_t)_mm_movemask_epi8(hit);
}
#else
struct block_seen {
    unsigned char bytes;
};

static inline uint32_t block_special(const char *p, struct block_seen *seen)
{
    uint32_t mask = 0;
    for (int i = 0; i < BLOCK; i++) {
        unsigned char c = (unsigned char)p[i];
        seen->bytes |= c;
        mask |= (uint32_t)(c == '"' || c == '\\' || c < 0x20) << i;
    }
    return mask;
}

static inline int block_seen_wide(const struct block_seen *seen)
{
    return seen->bytes > 0x7f;
}

static inline uint32_t block_backslash(const char *p)
{
    uint32_t mask = 0;
    for (int i = 0; i < BLOCK; i++)
        mask |= (uint32_t)(p[i] == '\\') << i;
    return mask;
}

static inline uint32_t block_simple(const char *p)
{
    uint32_t mask = 0;
    for (int i = 0; i < BLOCK; i++)
        mask |= (uint32_t)(p[i] != 0 && strchr("\"\\/bfnrt", p[i]) != NULL) << i;
    return mask;
}
#endif

static inline const char *block_skip(const char *p, const char *end, struct block_seen *seen)
{
    struct block_seen all = *seen;
    while (end - p >= BLOCK && block_special(p, &all) == 0)
        p += BLOCK;
    *seen = all;
    return p;
}

#define SCAN json_scan_base
#define SCAN_TARGET
#include "json/parse_body.h"
