/* SPDX-License-Identifier: Apache-2.0
 *
 * The scan with 64 bytes to an instruction. Only processors that have VBMI2 as well: those before it lower
 * their clock for such instructions.
 */
#include <stdint.h>

#include "json/parser.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define SCAN        json_scan_avx512
#define SCAN_TARGET __attribute__((target("avx512bw,avx512vl,bmi,bmi2")))
enum { FIRST = 32 };

struct block_seen {
    __m512i bytes;
};

static inline SCAN_TARGET __m512i load(const char *p)
{
    return _mm512_loadu_si512((const void *)p);
}

static inline SCAN_TARGET uint64_t stops(__m512i x)
{
    return _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8('"')) |
           _mm512_cmplt_epu8_mask(x, _mm512_set1_epi8(0x20));
}

static inline SCAN_TARGET uint64_t backslashes(__m512i x)
{
    return _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8('\\'));
}

static inline SCAN_TARGET uint32_t first_special(const char *p, struct block_seen *seen)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)p);
    seen->bytes = _mm512_or_si512(seen->bytes, _mm512_zextsi256_si512(x));
    return _mm256_cmpeq_epi8_mask(x, _mm256_set1_epi8('"')) |
           _mm256_cmplt_epu8_mask(x, _mm256_set1_epi8(0x20)) |
           _mm256_cmpeq_epi8_mask(x, _mm256_set1_epi8('\\'));
}

static inline SCAN_TARGET struct block_masks block_look(const char *p, struct block_seen *seen)
{
    __m512i x = load(p);
    seen->bytes = _mm512_or_si512(seen->bytes, x);
    return (struct block_masks){stops(x), backslashes(x)};
}

static inline SCAN_TARGET const char *block_skip(const char *p, const char *end, struct block_seen *seen)
{
    __m512i all = seen->bytes;
    for (; end - p >= BLOCK; p += BLOCK) {
        __m512i x = load(p);
        if (stops(x) | backslashes(x))
            break;
        all = _mm512_or_si512(all, x);
    }
    seen->bytes = all;
    return p;
}

/* As in parse_avx2.c: each of "\/bfnrt by its halves. */
static inline SCAN_TARGET uint64_t block_simple(const char *p)
{
    enum { H2 = 1, H5 = 2, H6 = 4, H7 = 8 };
    const __m128i upper = _mm_setr_epi8(0, 0, H2, 0, 0, H5, H6, H7, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i lower = _mm_setr_epi8(0, 0, H2 | H6 | H7, 0, H7, 0, H6, 0, 0, 0, 0, 0, H5, 0, H6, H2);
    __m512i x = load(p);
    __m512i half = _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(0x0f));
    __m512i a = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(upper), half);
    __m512i b = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(lower), x);
    return _mm512_test_epi8_mask(a, b);
}

static inline SCAN_TARGET int block_seen_wide(const struct block_seen *seen)
{
    return _mm512_movepi8_mask(seen->bytes) != 0;
}

#include "json/parse_body.h"

bool json_cpu_has_avx512(void)
{
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("bmi2");
}
#else

bool json_cpu_has_avx512(void)
{
    return false;
}

bool json_scan_avx512(struct json_parser *ps)
{
    return json_scan_base(ps);
}
#endif
