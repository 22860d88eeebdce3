/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define SCAN        json_scan_avx2
#define SCAN_TARGET __attribute__((target("avx2,bmi")))
enum { BLOCK = 32 };

struct block_seen {
    __m256i bytes;
};

static inline SCAN_TARGET uint32_t block_special(const char *p, struct block_seen *seen)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)p);
    __m256i hit = _mm256_or_si256(_mm256_cmpeq_epi8(x, _mm256_set1_epi8('"')),
                                  _mm256_cmpeq_epi8(x, _mm256_set1_epi8('\\')));
    hit = _mm256_or_si256(hit, _mm256_cmpeq_epi8(_mm256_min_epu8(x, _mm256_set1_epi8(0x1f)), x));
    seen->bytes = _mm256_or_si256(seen->bytes, x);
    return (uint32_t)_mm256_movemask_epi8(hit);
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
#include "json/parser.h"

bool json_cpu_has_avx2(void)
{
    return false;
}

bool json_scan_avx2(struct json_parser *ps)
{
    return json_scan_base(ps);
}
#endif
