/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "json/parser.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define SCAN        json_scan_avx2
#define SCAN_TARGET __attribute__((target("avx2,bmi")))
enum { FIRST = 32 };

struct block_seen {
    __m256i bytes;
};

static inline SCAN_TARGET __m256i load(const char *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline SCAN_TARGET uint64_t both(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

static inline SCAN_TARGET __m256i is_stop(__m256i x)
{
    return _mm256_or_si256(_mm256_cmpeq_epi8(x, _mm256_set1_epi8('"')),
                           _mm256_cmpeq_epi8(_mm256_min_epu8(x, _mm256_set1_epi8(0x1f)), x));
}

static inline SCAN_TARGET __m256i is_backslash(__m256i x)
{
    return _mm256_cmpeq_epi8(x, _mm256_set1_epi8('\\'));
}

static inline SCAN_TARGET uint32_t first_special(const char *p, struct block_seen *seen)
{
    __m256i x = load(p);
    seen->bytes = _mm256_or_si256(seen->bytes, x);
    return (uint32_t)_mm256_movemask_epi8(_mm256_or_si256(is_stop(x), is_backslash(x)));
}

static inline SCAN_TARGET struct block_masks block_look(const char *p, struct block_seen *seen)
{
    __m256i x = load(p), y = load(p + 32);
    seen->bytes = _mm256_or_si256(seen->bytes, _mm256_or_si256(x, y));
    return (struct block_masks){both(is_stop(x), is_stop(y)), both(is_backslash(x), is_backslash(y))};
}

static inline SCAN_TARGET const char *block_skip(const char *p, const char *end, struct block_seen *seen)
{
    __m256i all = seen->bytes;
    for (; end - p >= BLOCK; p += BLOCK) {
        __m256i x = load(p), y = load(p + 32);
        __m256i hit = _mm256_or_si256(_mm256_or_si256(is_stop(x), is_backslash(x)),
                                      _mm256_or_si256(is_stop(y), is_backslash(y)));
        if (!_mm256_testz_si256(hit, hit))
            break;
        all = _mm256_or_si256(all, _mm256_or_si256(x, y));
    }
    seen->bytes = all;
    return p;
}

/* Each of "\/bfnrt by its halves: a bit for each upper half, and under each lower half the bits it goes with.
 * Bytes that are none of them come out as zero. */
static inline SCAN_TARGET __m256i not_simple(__m256i x)
{
    enum { H2 = 1, H5 = 2, H6 = 4, H7 = 8 };
    const __m128i upper = _mm_setr_epi8(0, 0, H2, 0, 0, H5, H6, H7, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i lower = _mm_setr_epi8(0, 0, H2 | H6 | H7, 0, H7, 0, H6, 0, 0, 0, 0, 0, H5, 0, H6, H2);
    __m256i half = _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(0x0f));
    __m256i a = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(upper), half);
    __m256i b = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(lower), x);
    return _mm256_cmpeq_epi8(_mm256_and_si256(a, b), _mm256_setzero_si256());
}

static inline SCAN_TARGET uint64_t block_simple(const char *p)
{
    return ~both(not_simple(load(p)), not_simple(load(p + 32)));
}

static inline SCAN_TARGET int block_seen_wide(const struct block_seen *seen)
{
    return _mm256_movemask_epi8(seen->bytes) != 0;
}

#include "json/parse_body.h"

bool json_cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi");
}
#else

bool json_cpu_has_avx2(void)
{
    return false;
}

bool json_scan_avx2(struct json_parser *ps)
{
    return json_scan_base(ps);
}
#endif
