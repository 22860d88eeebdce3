/* SPDX-License-Identifier: Apache-2.0 */
#include "vectors.h"

#include <math.h>

#include "base/hash.h"

enum { WORD_MAX = 64 };

/* One feature: 64 signs for 64 dimensions, then the next hash for the next 64. */
static void add_feature(float *out, unsigned dims, uint64_t feature, float weight)
{
    for (unsigned d = 0; d < dims; d += 64) {
        uint64_t bits = hash_mix(feature, d + 1);
        unsigned n = dims - d < 64 ? dims - d : 64;
        for (unsigned i = 0; i < n; i++, bits >>= 1)
            out[d + i] += bits & 1 ? weight : -weight;
    }
}

static void normalise(float *out, unsigned dims)
{
    double sum = 0;
    for (unsigned d = 0; d < dims; d++)
        sum += (double)out[d] * out[d];
    if (sum <= 0) {
        out[0] = 1;
        sum = 1;
    }
    float scale = (float)(1 / sqrt(sum));
    for (unsigned d = 0; d < dims; d++)
        out[d] *= scale;
}

static bool is_word_byte(unsigned char c)
{
    return c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The next word in lower case (ASCII), cut at WORD_MAX; 0 at the end. */
static size_t next_word(struct span *rest, char out[WORD_MAX])
{
    while (rest->n && !is_word_byte((unsigned char)*rest->p))
        rest->p++, rest->n--;
    size_t n = 0;
    for (; rest->n && is_word_byte((unsigned char)*rest->p); rest->p++, rest->n--)
        if (n < WORD_MAX)
            out[n++] = *rest->p >= 'A' && *rest->p <= 'Z' ? (char)(*rest->p + 32) : *rest->p;
    return n;
}

/* Short words carry little: "the", "is", "to" would make all texts alike. */
static float word_weight(size_t n)
{
    return n <= 2 ? 0.2f : n == 3 ? 0.4f : 1.0f;
}

void vector_of_text(struct span text, float *out, unsigned dims)
{
    memset(out, 0, dims * sizeof *out);
    char word[WORD_MAX];
    uint64_t before = 0;
    for (size_t n; (n = next_word(&text, word)) > 0;) {
        uint64_t h = hash_bytes(word, n);
        float w = word_weight(n);
        add_feature(out, dims, h, w);
        if (before)
            add_feature(out, dims, hash_mix(before, h), 0.3f * w);
        before = h;
        for (size_t i = 0; i + 3 <= n; i++)
            add_feature(out, dims, hash_bytes_seed(word + i, 3, 3), 0.35f * w);
    }
    normalise(out, dims);
}

void vector_of_tokens(const uint32_t *tokens, size_t n, float *out, unsigned dims)
{
    memset(out, 0, dims * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        add_feature(out, dims, tokens[i] + 1, 1);
        if (i)
            add_feature(out, dims, hash_mix(tokens[i - 1], tokens[i]), 0.3f);
    }
    normalise(out, dims);
}

double vector_cosine(const float *a, const float *b, unsigned dims)
{
    double ab = 0, aa = 0, bb = 0;
    for (unsigned d = 0; d < dims; d++) {
        ab += (double)a[d] * b[d];
        aa += (double)a[d] * a[d];
        bb += (double)b[d] * b[d];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static bool has_word(struct span document, const char *word, size_t n)
{
    char other[WORD_MAX];
    for (size_t m; (m = next_word(&document, other)) > 0;)
        if (m == n && memcmp(word, other, n) == 0)
            return true;
    return false;
}

double rerank_score(struct span query, struct span document)
{
    char word[WORD_MAX];
    double all = 0, found = 0;
    for (size_t n, i = 0; i < 256 && (n = next_word(&query, word)) > 0; i++) {
        double w = (double)word_weight(n);
        all += w;
        if (has_word(document, word, n))
            found += w;
    }
    return all > 0 ? found / all : 0;
}
