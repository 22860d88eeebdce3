/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
 */
#include "base/check.h"
#include "json/parser.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

unsigned json_utf8_len(const unsigned char *p, size_t n)
{
    unsigned c = p[0];
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4 || n < 2)
        return 0;
    if (c < 0xe0)
        return (p[1] & 0xc0) == 0x80 ? 2 : 0;
    /* The second byte's range depends on the first: overlong forms, surrogates, the end of the code space. */
    unsigned low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    unsigned high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high || n < 3 || (p[2] & 0xc0) != 0x80)
        return 0;
    if (c < 0xf0)
        return 3;
    return n >= 4 && (p[3] & 0xc0) == 0x80 ? 4 : 0;
}

static size_t valid_plain(struct span s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    size_t i = 0;
    while (i < s.n) {
        uint64_t eight;
        if (s.n - i >= 8 && (memcpy(&eight, p + i, 8), !(eight & 0x8080808080808080))) {
            i += 8;
            continue;
        }
        unsigned len = json_utf8_len(p + i, s.n - i);
        if (len == 0)
            break;
        i += len;
    }
    return i;
}

#if defined(__x86_64__)
/* Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte" (2020): each pair of
 * neighbouring bytes is looked up by three half-bytes; a bit that is in all three answers is a fault of its
 * kind. */
enum {
    SHORT = 1,       /* a lead byte, then no continuation */
    LONG = 2,        /* an ASCII byte, then a continuation */
    OVER_3 = 4,      /* e0 80..9f */
    LARGE = 8,       /* f4 90.., f5.. */
    SURROGATE = 16,  /* ed a0.. */
    OVER_2 = 32,     /* c0, c1 */
    LARGE_1000 = 64, /* f5.. 80..8f; shares its bit with overlong forms of four bytes: f0 80..8f */
    OVER_4 = 64,
    TWO_CONT = 128, /* two continuations: right only in the third and fourth place of a sequence */
    CARRY = SHORT | LONG | TWO_CONT,
};

#define TABLE(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)
#define AVX2       __attribute__((target("avx2")))

static inline AVX2 __m256i high_half(__m256i x)
{
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(0x0f));
}

/* The faults of the 32 bytes <in>, behind the 32 bytes <before>. */
static inline AVX2 __m256i block_faults(__m256i in, __m256i before)
{
    const __m256i first_high =
        TABLE(LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG, (char)TWO_CONT, (char)TWO_CONT, (char)TWO_CONT,
              (char)TWO_CONT, SHORT | OVER_2, SHORT, SHORT | OVER_3 | SURROGATE, SHORT | LARGE | LARGE_1000);
    const char large = (char)(CARRY | LARGE | LARGE_1000);
    const __m256i first_low =
        TABLE((char)(CARRY | OVER_3 | OVER_2 | OVER_4), (char)(CARRY | OVER_2), (char)CARRY, (char)CARRY,
              (char)(CARRY | LARGE), large, large, large, large, large, large, large, large,
              (char)(CARRY | LARGE | LARGE_1000 | SURROGATE), large, large);
    const char ab = (char)(LONG | OVER_2 | TWO_CONT | SURROGATE | LARGE);
    const __m256i second_high =
        TABLE(SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, SHORT,
              (char)(LONG | OVER_2 | TWO_CONT | OVER_3 | LARGE_1000 | OVER_4),
              (char)(LONG | OVER_2 | TWO_CONT | OVER_3 | LARGE), ab, ab, SHORT, SHORT, SHORT, SHORT);
    __m256i joint = _mm256_permute2x128_si256(before, in, 0x21);
    __m256i prev1 = _mm256_alignr_epi8(in, joint, 15);
    __m256i prev2 = _mm256_alignr_epi8(in, joint, 14);
    __m256i prev3 = _mm256_alignr_epi8(in, joint, 13);
    __m256i pair = _mm256_and_si256(
        _mm256_and_si256(_mm256_shuffle_epi8(first_high, high_half(prev1)),
                         _mm256_shuffle_epi8(first_low, _mm256_and_si256(prev1, _mm256_set1_epi8(0x0f)))),
        _mm256_shuffle_epi8(second_high, high_half(in)));
    /* The top bit where a third or fourth byte must stand: there, and only there, TWO_CONT is right. */
    __m256i third = _mm256_subs_epu8(prev2, _mm256_set1_epi8(0xe0 - 0x80));
    __m256i fourth = _mm256_subs_epu8(prev3, _mm256_set1_epi8(0xf0 - 0x80));
    __m256i must = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8((char)0x80));
    return _mm256_xor_si256(must, pair);
}

static AVX2 bool is_valid_avx2(struct span s)
{
    __m256i before = _mm256_setzero_si256(), faults = _mm256_setzero_si256();
    bool wide_before = false;
    /* Ends with a block that is padded with at least one zero, so that a cut sequence shows. */
    for (size_t i = 0; i <= s.n; i += 32) {
        __m256i in;
        if (s.n - i >= 32) {
            in = _mm256_loadu_si256((const __m256i *)(s.p + i));
        } else {
            char pad[32] = {0};
            memcpy(pad, s.p + i, s.n - i);
            in = _mm256_loadu_si256((const __m256i *)pad);
        }
        bool wide = _mm256_movemask_epi8(in) != 0;
        if (wide || wide_before)
            faults = _mm256_or_si256(faults, block_faults(in, before));
        wide_before = wide;
        before = in;
    }
    return _mm256_testz_si256(faults, faults);
}
#endif

size_t json_utf8_valid(struct span s)
{
    if (!s.n)
        return 0;
#if defined(__x86_64__)
    if (s.n >= 64 && json_cpu_has_avx2() && is_valid_avx2(s))
        return s.n;
#endif
    return valid_plain(s);
}

bool json_is_utf8(struct span s)
{
    return json_utf8_valid(s) == s.n;
}
