/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/vector_dot.h"

#include <stdbool.h>

static int32_t bytes_plain(const int8_t *a, const int8_t *b, unsigned n)
{
    int32_t sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Eight sums, so that the compiler may use whatever vectors it has. */
static float floats_plain(const float *a, const float *b, unsigned n)
{
    float sum[8] = {0};
    for (unsigned i = 0; i < n; i += 8)
        for (unsigned k = 0; k < 8; k++)
            sum[k] += a[i + k] * b[i + k];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static double exact_plain(const float *a, const float *b, unsigned n)
{
    double sum[4] = {0};
    for (unsigned i = 0; i < n; i += 4)
        for (unsigned k = 0; k < 4; k++)
            sum[k] += (double)a[i + k] * b[i + k];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

const struct vector_dot vector_dot_plain = {bytes_plain, floats_plain, exact_plain};

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,fma")))

/* maddubs wants one side without sign: |a| * (b with a's sign). 2 * 127 * 127 fits its 16 bits. */
static inline AVX2 __m256i step_bytes(__m256i sum, const int8_t *a, const int8_t *b)
{
    __m256i x = _mm256_load_si256((const __m256i *)a), y = _mm256_load_si256((const __m256i *)b);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(y, x));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static AVX2 int32_t bytes_avx2(const int8_t *a, const int8_t *b, unsigned n)
{
    __m256i s0 = _mm256_setzero_si256(), s1 = s0;
    unsigned i = 0;
    for (; i + 64 <= n; i += 64) {
        s0 = step_bytes(s0, a + i, b + i);
        s1 = step_bytes(s1, a + i + 32, b + i + 32);
    }
    if (i < n)
        s0 = step_bytes(s0, a + i, b + i);
    s0 = _mm256_add_epi32(s0, s1);
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s0), _mm256_extracti128_si256(s0, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1));
    return _mm_cvtsi128_si32(h);
}

static AVX2 float floats_avx2(const float *a, const float *b, unsigned n)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
    for (unsigned i = 0; i < n; i += 32) {
        s0 = _mm256_fmadd_ps(_mm256_load_ps(a + i), _mm256_load_ps(b + i), s0);
        s1 = _mm256_fmadd_ps(_mm256_load_ps(a + i + 8), _mm256_load_ps(b + i + 8), s1);
        s2 = _mm256_fmadd_ps(_mm256_load_ps(a + i + 16), _mm256_load_ps(b + i + 16), s2);
        s3 = _mm256_fmadd_ps(_mm256_load_ps(a + i + 24), _mm256_load_ps(b + i + 24), s3);
    }
    s0 = _mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(s0), _mm256_extractf128_ps(s0, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_shuffle_ps(h, h, 1)));
}

static inline AVX2 __m256d step_exact(__m256d sum, const float *a, const float *b)
{
    return _mm256_fmadd_pd(_mm256_cvtps_pd(_mm_load_ps(a)), _mm256_cvtps_pd(_mm_load_ps(b)), sum);
}

static AVX2 double exact_avx2(const float *a, const float *b, unsigned n)
{
    __m256d s0 = _mm256_setzero_pd(), s1 = s0, s2 = s0, s3 = s0;
    for (unsigned i = 0; i < n; i += 16) {
        s0 = step_exact(s0, a + i, b + i);
        s1 = step_exact(s1, a + i + 4, b + i + 4);
        s2 = step_exact(s2, a + i + 8, b + i + 8);
        s3 = step_exact(s3, a + i + 12, b + i + 12);
    }
    s0 = _mm256_add_pd(_mm256_add_pd(s0, s1), _mm256_add_pd(s2, s3));
    __m128d h = _mm_add_pd(_mm256_castpd256_pd128(s0), _mm256_extractf128_pd(s0, 1));
    return _mm_cvtsd_f64(_mm_add_sd(h, _mm_unpackhi_pd(h, h)));
}

static const struct vector_dot vector_dot_avx2 = {bytes_avx2, floats_avx2, exact_avx2};

const struct vector_dot *vector_dot_best(void)
{
    bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return wide ? &vector_dot_avx2 : &vector_dot_plain;
}
#else

const struct vector_dot *vector_dot_best(void)
{
    return &vector_dot_plain;
}
#endif
