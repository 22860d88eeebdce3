/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>

#include "json/parser.h"

enum { FIRST = 16 };

#if defined(__SSE2__)
#include <emmintrin.h>

struct block_seen {
    __m128i bytes;
};

static inline __m128i load(const char *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline __m128i is_stop(__m128i x)
{
    return _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')),
                        _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1f)), x));
}

static inline __m128i is_backslash(__m128i x)
{
    return _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'));
}

static inline uint32_t first_special(const char *p, struct block_seen *seen)
{
    __m128i x = load(p);
    seen->bytes = _mm_or_si128(seen->bytes, x);
    return (uint32_t)_mm_movemask_epi8(_mm_or_si128(is_stop(x), is_backslash(x)));
}

static inline struct block_masks block_look(const char *p, struct block_seen *seen)
{
    struct block_masks m = {0, 0};
    for (int i = 0; i < BLOCK; i += 16) {
        __m128i x = load(p + i);
        seen->bytes = _mm_or_si128(seen->bytes, x);
        m.stop |= (uint64_t)(uint32_t)_mm_movemask_epi8(is_stop(x)) << i;
        m.backslash |= (uint64_t)(uint32_t)_mm_movemask_epi8(is_backslash(x)) << i;
    }
    return m;
}

static inline int block_seen_wide(const struct block_seen *seen)
{
    return _mm_movemask_epi8(seen->bytes) != 0;
}

static inline uint64_t block_simple(const char *p)
{
    static const char simple[] = "\"\\/bfnrt";
    uint64_t mask = 0;
    for (int i = 0; i < BLOCK; i += 16) {
        __m128i x = load(p + i), hit = _mm_setzero_si128();
        for (int k = 0; k < 8; k++)
            hit = _mm_or_si128(hit, _mm_cmpeq_epi8(x, _mm_set1_epi8(simple[k])));
        mask |= (uint64_t)(uint32_t)_mm_movemask_epi8(hit) << i;
    }
    return mask;
}
#else
struct block_seen {
    unsigned char bytes;
};

static inline struct block_masks look(const char *p, int n, struct block_seen *seen)
{
    struct block_masks m = {0, 0};
    for (int i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        seen->bytes |= c;
        m.stop |= (uint64_t)(c == '"' || c < 0x20) << i;
        m.backslash |= (uint64_t)(c == '\\') << i;
    }
    return m;
}

static inline uint32_t first_special(const char *p, struct block_seen *seen)
{
    struct block_masks m = look(p, FIRST, seen);
    return (uint32_t)(m.stop | m.backslash);
}

static inline struct block_masks block_look(const char *p, struct block_seen *seen)
{
    return look(p, BLOCK, seen);
}

static inline int block_seen_wide(const struct block_seen *seen)
{
    return seen->bytes > 0x7f;
}

static inline uint64_t block_simple(const char *p)
{
    uint64_t mask = 0;
    for (int i = 0; i < BLOCK; i++)
        mask |= (uint64_t)(p[i] != 0 && strchr("\"\\/bfnrt", p[i]) != NULL) << i;
    return mask;
}
#endif

static inline const char *block_skip(const char *p, const char *end, struct block_seen *seen)
{
    for (; end - p >= BLOCK; p += BLOCK) {
        struct block_seen all = *seen;
        struct block_masks m = block_look(p, &all);
        if (m.stop | m.backslash)
            break;
        *seen = all;
    }
    return p;
}

#define SCAN json_scan_base
#define SCAN_TARGET
#include "json/parse_body.h"
