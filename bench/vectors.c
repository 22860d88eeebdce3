/* SPDX-License-Identifier: Apache-2.0
 *
 * What a search among vectors of 1,536 floats costs: bench-vectors [milliseconds per figure, default 300].
 * Microseconds, the best and the median of the runs; "alike" is the worst case, in which the packed bytes
 * decide nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cache/vectors.h"

enum { DIMS = 1536, NOW = 1000, RUNS_MAX = 100000 };

static const unsigned char the_index[VECTORS_KEY_BYTES] = "bench";

static void draw(struct rng *r, float *x, const float *center, float by)
{
    for (unsigned i = 0; i < DIMS; i++) {
        float noise = (float)(rng_below(r, 1000) + rng_below(r, 1000)) - 999;
        x[i] = center ? (1 - by) * noise + by * center[i] : noise;
    }
}

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* <by>: how much all of them point the same way (0 = not at all). */
static void measure(unsigned n, float by, double threshold, const char *what, unsigned ms)
{
    struct rng r;
    rng_seed(&r, 4);
    struct vectors *v = vectors_new(SIZE_MAX);
    float *center = mem_array(DIMS, sizeof(float)), *x = mem_array(DIMS, sizeof(float));
    draw(&r, center, NULL, 0);
    for (uint64_t i = 0; i < n; i++) {
        struct vectors_entry e = {.expires_ms = UINT64_MAX};
        memcpy(e.id, &i, sizeof(i));
        draw(&r, x, center, by);
        CHECK(vectors_put(v, the_index, n, x, DIMS, &e, NOW));
    }
    draw(&r, x, center, by);
    double *took = mem_array(RUNS_MAX, sizeof(double));
    unsigned runs = 0, found = 0;
    uint64_t end = clock_ns() + (uint64_t)ms * 1000000;
    while (runs < RUNS_MAX && (runs < 5 || clock_ns() < end)) {
        struct vectors_match m[8];
        struct arena a;
        arena_init(&a, NULL);
        uint64_t from = clock_ns();
        found = vectors_find(v, the_index, n, x, DIMS, threshold, NOW, &a, m, 8);
        took[runs++] = (double)(clock_ns() - from) / 1000;
        arena_reset(&a);
    }
    qsort(took, runs, sizeof(*took), by_size);
    struct vectors_stats s;
    vectors_stats(v, &s);
    printf("%6u x %u  %-10s threshold %.2f: best %8.1f us  median %8.1f us  (%u found, %.1f MB)\n", n, DIMS,
           what, threshold, took[0], took[runs / 2], found, (double)s.bytes / 1e6);
    free(took);
    free(center);
    free(x);
    vectors_free(v);
}

int main(int argc, char **argv)
{
    unsigned ms = argc > 1 ? (unsigned)atoi(argv[1]) : 300;
    static const unsigned sizes[] = {256, 1000, 10000};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        measure(sizes[i], 0.3f, 0.92, "unlike", ms);
        measure(sizes[i], 0.65f, 0.92, "near", ms); /* cosines about 0.77, as of one topic */
        measure(sizes[i], 0.85f, 0.92, "alike", ms);
        measure(sizes[i], 1, 0.92, "same", ms);
    }
    return 0;
}
