/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cache/vector_dot.h"
#include "cache/vectors.h"

enum { NOW = 1000000, LIFE = 60000 };

static const unsigned char index_a[VECTORS_KEY_BYTES] = "a";
static const unsigned char index_b[VECTORS_KEY_BYTES] = "b";

static void name_id(unsigned char id[VECTORS_KEY_BYTES], uint64_t n)
{
    memset(id, 0, VECTORS_KEY_BYTES);
    memcpy(id, &n, sizeof(n));
}

static uint64_t id_of(const struct vectors_match *m)
{
    uint64_t n;
    memcpy(&n, m->entry.id, sizeof(n));
    return n;
}

static bool put(struct vectors *v, const unsigned char *index, unsigned window, const float *x, unsigned dims,
                uint64_t id, uint64_t expires)
{
    struct vectors_entry e = {.created_ms = NOW + id, .expires_ms = expires, .note = span_of((char *)&id, 8)};
    name_id(e.id, id);
    return vectors_put(v, index, window, x, dims, &e, NOW);
}

static void draw(struct rng *r, float *x, unsigned dims)
{
    for (unsigned i = 0; i < dims; i++) /* about normal */
        x[i] = (float)(rng_below(r, 1000) + rng_below(r, 1000) + rng_below(r, 1000)) - 1498.5f;
}

/* <x> turned towards <to>. */
static void lean(struct rng *r, float *x, const float *to, unsigned dims, float by)
{
    draw(r, x, dims);
    for (unsigned i = 0; i < dims; i++)
        x[i] = (1 - by) * x[i] + by * to[i];
}

static double cosine(const float *a, const float *b, unsigned dims)
{
    double ab = 0, aa = 0, bb = 0;
    for (unsigned i = 0; i < dims; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

static void dot_products_agree(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 3);
    const struct vector_dot *best = vector_dot_best();
    for (int round = 0; round < 400; round++) {
        unsigned n = VECTOR_STEP * (1 + (unsigned)rng_below(&r, 60));
        int8_t *p = aligned_alloc(64, (n + 63) / 64 * 64), *q = aligned_alloc(64, (n + 63) / 64 * 64);
        float *x = aligned_alloc(64, n * 4 + 64 - n * 4 % 64),
              *y = aligned_alloc(64, n * 4 + 64 - n * 4 % 64);
        int64_t want = 0;
        double sum = 0, length_x = 0, length_y = 0;
        for (unsigned i = 0; i < n; i++) {
            bool edge = round % 4 == 0;
            p[i] = edge ? (rng_below(&r, 2) ? 127 : -127) : (int8_t)((int)rng_below(&r, 255) - 127);
            q[i] = edge ? 127 : (int8_t)((int)rng_below(&r, 255) - 127);
            want += p[i] * q[i];
            x[i] = p[i];
            y[i] = q[i];
            length_x += x[i] * x[i];
            length_y += y[i] * y[i];
        }
        for (unsigned i = 0; i < n; i++) {
            x[i] /= (float)sqrt(length_x);
            y[i] /= (float)sqrt(length_y);
            sum += (double)x[i] * y[i];
        }
        assert_int_equal(best->bytes(p, q, n), want);
        assert_int_equal(vector_dot_plain.bytes(p, q, n), want);
        assert_true(fabs(best->exact(x, y, n) - sum) < 1e-12);
        assert_true(fabs(vector_dot_plain.exact(x, y, n) - sum) < 1e-12);
        assert_true(fabs(best->floats(x, y, n) - sum) < 1e-5);
        assert_true(fabs(vector_dot_plain.floats(x, y, n) - sum) < 1e-5);
        free(p);
        free(q);
        free(x);
        free(y);
    }
}

/* A list of everything that was put, searched in double precision. */
struct twin {
    unsigned n, dims;
    struct {
        float *x;
        uint64_t id, expires;
        bool dead;
    } at[3000];
};

static void twin_put(struct twin *t, const float *x, uint64_t id, uint64_t expires)
{
    for (unsigned i = 0; i < t->n; i++)
        if (t->at[i].id == id)
            t->at[i].dead = true;
    t->at[t->n].x = mem_alloc(t->dims * sizeof(float));
    memcpy(t->at[t->n].x, x, t->dims * sizeof(float));
    t->at[t->n].id = id;
    t->at[t->n].dead = false;
    t->at[t->n++].expires = expires;
}

static void twin_compare(struct twin *t, struct vectors *v, unsigned window, const float *x, double threshold,
                         uint64_t now)
{
    enum { MAX = 5 };
    struct vectors_match got[MAX];
    struct arena a;
    arena_init(&a, NULL);
    unsigned n = vectors_find(v, index_a, window, x, t->dims, threshold, now, &a, got, MAX);
    bool taken[3000] = {false};
    unsigned left = window, first = t->n;
    while (first > 0 && left) {
        first--;
        left -= !t->at[first].dead && t->at[first].expires > now;
    }
    for (unsigned m = 0; m < MAX; m++) {
        int best = -1;
        double most = threshold;
        for (unsigned i = t->n; i-- > first;) {
            double c = cosine(t->at[i].x, x, t->dims);
            if (taken[i] || t->at[i].dead || t->at[i].expires <= now || c < most || (best >= 0 && c <= most))
                continue;
            best = (int)i;
            most = c;
        }
        if (best < 0) {
            assert_int_equal(n, m);
            break;
        }
        taken[best] = true;
        assert_true(m < n);
        assert_true(fabs(got[m].similarity - most) < 1e-6);
        uint64_t note;
        memcpy(&note, got[m].entry.note.p, 8);
        assert_int_equal(got[m].entry.note.n, 8);
        assert_true(note == id_of(&got[m]) && got[m].entry.created_ms == NOW + note);
        if (id_of(&got[m]) != t->at[best].id) /* a tie within a float's precision */
            assert_true(m + 1 < n ? fabs(got[m].similarity - got[m + 1].similarity) < 1e-6 : true);
    }
    arena_reset(&a);
}

static void finds_what_a_full_search_finds(void **state)
{
    (void)state;
    static const struct {
        unsigned dims, window, n;
    } cases[] = {{1536, 256, 500},  {40, 600, 500}, {1, 16, 40}, {3, 64, 300},
                 {100, 1000, 2500}, {31, 10, 200},  {768, 1, 20}};
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        struct rng r;
        rng_seed(&r, 11 + c);
        struct twin *t = MEM_NEW(struct twin);
        unsigned dims = t->dims = cases[c].dims;
        struct vectors *v = vectors_new(SIZE_MAX);
        float *center = mem_array(dims, 4), *x = mem_array(dims, 4);
        draw(&r, center, dims);
        for (unsigned i = 0; i < cases[c].n; i++) {
            lean(&r, x, center, dims, (float)rng_below(&r, 100) / 100);
            uint64_t id = rng_below(&r, 10) ? i : rng_below(&r, 1 + i);
            uint64_t expires = rng_below(&r, 5) ? NOW + LIFE : NOW + 10;
            assert_true(put(v, index_a, cases[c].window, x, dims, id, expires));
            twin_put(t, x, id, expires);
            if (rng_below(&r, 12) == 0) {
                unsigned char key[VECTORS_KEY_BYTES];
                uint64_t gone = rng_below(&r, 1 + i);
                name_id(key, gone);
                vectors_remove(v, index_a, dims, key);
                for (unsigned k = 0; k < t->n; k++)
                    if (t->at[k].id == gone)
                        t->at[k].dead = true;
                assert_int_equal(vectors_expiry(v, index_a, dims, key, NOW), 0);
            }
            if (i % 10)
                continue;
            lean(&r, x, center, dims, (float)rng_below(&r, 100) / 100);
            double threshold = (double)rng_below(&r, 100) / 100;
            twin_compare(t, v, cases[c].window, x, threshold, NOW);
            if (t->n <= cases[c].window) /* else what expired may have pushed live ones out */
                twin_compare(t, v, cases[c].window, x, threshold, NOW + 20);
            twin_compare(t, v, cases[c].window / 2 + 1, x, threshold, NOW);
        }
        for (unsigned i = 0; i < t->n; i++)
            free(t->at[i].x);
        free(t);
        free(center);
        free(x);
        vectors_free(v);
    }
}

/* All vectors alike: the bytes decide nothing, and the newest of equals comes first. */
static void equal_vectors_give_the_newest(void **state)
{
    (void)state;
    struct vectors *v = vectors_new(SIZE_MAX);
    float x[100];
    struct rng r;
    rng_seed(&r, 5);
    draw(&r, x, 100);
    for (uint64_t i = 0; i < 300; i++)
        assert_true(put(v, index_a, 256, x, 100, i, NOW + LIFE));
    struct vectors_match m[3];
    struct arena a;
    arena_init(&a, NULL);
    assert_int_equal(vectors_find(v, index_a, 256, x, 100, 1.0, NOW, &a, m, 3), 3);
    for (uint64_t i = 0; i < 3; i++)
        assert_true(id_of(&m[i]) == 299 - i && m[i].similarity == 1.0);
    arena_reset(&a);
    vectors_free(v);
}

static unsigned count(struct vectors *v, const unsigned char *index, const float *x, unsigned dims,
                      uint64_t now)
{
    struct vectors_match m[8];
    struct arena a;
    arena_init(&a, NULL);
    unsigned n = vectors_find(v, index, 100, x, dims, 0.5, now, &a, m, 8);
    arena_reset(&a);
    return n;
}

static void indexes_dimensions_and_time_are_apart(void **state)
{
    (void)state;
    struct vectors *v = vectors_new(SIZE_MAX);
    float x[64] = {1, 2, 3};
    assert_true(put(v, index_a, 100, x, 3, 1, NOW + 50));
    assert_int_equal(count(v, index_a, x, 3, NOW), 1);
    assert_int_equal(count(v, index_b, x, 3, NOW), 0);
    assert_int_equal(count(v, index_a, x, 4, NOW), 0); /* one dimension more, another index */
    assert_int_equal(count(v, index_a, x, 3, NOW + 49), 1);
    assert_int_equal(count(v, index_a, x, 3, NOW + 50), 0);
    assert_true(put(v, index_a, 100, x, 4, 2, NOW + LIFE));
    assert_int_equal(count(v, index_a, x, 4, NOW), 1);
    assert_int_equal(count(v, index_a, x, 3, NOW), 1); /* and the first one is still there */
    /* A new life for an id replaces the old one. */
    assert_true(put(v, index_a, 100, x, 3, 1, NOW + LIFE));
    assert_int_equal(count(v, index_a, x, 3, NOW + 50), 1);
    struct vectors_stats s;
    unsigned char one[VECTORS_KEY_BYTES];
    name_id(one, 1);
    assert_int_equal(vectors_expiry(v, index_a, 3, one, NOW), NOW + LIFE);
    assert_int_equal(vectors_expiry(v, index_a, 3, one, NOW + LIFE), 0);
    assert_int_equal(vectors_expiry(v, index_b, 3, one, NOW), 0);
    assert_int_equal(vectors_count(v, index_a, 3), 2); /* the old life included */
    assert_int_equal(vectors_count(v, index_b, 3), 0);
    vectors_stats(v, &s);
    assert_int_equal(s.indexes, 2);
    vectors_clear(v);
    vectors_stats(v, &s);
    assert_true(s.indexes == 0 && s.entries == 0 && s.bytes == 0);
    assert_int_equal(count(v, index_a, x, 4, NOW), 0);
    vectors_free(v);
}

static void what_has_no_direction_is_refused(void **state)
{
    (void)state;
    struct vectors *v = vectors_new(SIZE_MAX);
    float *big = mem_array(VECTORS_DIMS_MAX + 1, sizeof(float));
    float zero[4] = {0}, nan_[4] = {1, NAN}, inf[4] = {1, INFINITY}, tiny[2] = {1e-30f, 0},
          huge[2] = {3e38f, 3e38f};
    big[0] = 1;
    assert_false(put(v, index_a, 10, zero, 4, 1, NOW + LIFE));
    assert_false(put(v, index_a, 10, nan_, 4, 1, NOW + LIFE));
    assert_false(put(v, index_a, 10, inf, 4, 1, NOW + LIFE));
    assert_false(put(v, index_a, 10, zero, 0, 1, NOW + LIFE));
    assert_false(put(v, index_a, 10, big, VECTORS_DIMS_MAX + 1, 1, NOW + LIFE));
    assert_false(put(v, index_a, 10, tiny, 2, 1, NOW)); /* expired */
    assert_true(vectors_is_direction(big, VECTORS_DIMS_MAX) && !vectors_is_direction(nan_, 4));
    assert_true(put(v, index_a, 10, tiny, 2, 1, NOW + LIFE));
    assert_true(put(v, index_b, 10, huge, 2, 2, NOW + LIFE));
    assert_int_equal(count(v, index_a, tiny, 2, NOW), 1);
    assert_int_equal(count(v, index_b, huge, 2, NOW), 1);
    assert_int_equal(count(v, index_a, zero, 2, NOW), 0);
    free(big);
    vectors_free(v);
}

static void memory_stays_within_its_limit(void **state)
{
    (void)state;
    enum { LIMIT = 2000000, DIMS = 256 };
    struct vectors *v = vectors_new(LIMIT);
    struct rng r;
    float x[DIMS];
    struct vectors_stats s;
    rng_seed(&r, 9);
    for (unsigned i = 0; i < 20000; i++) { /* many indexes */
        unsigned char index[VECTORS_KEY_BYTES];
        name_id(index, rng_below(&r, 500));
        draw(&r, x, DIMS);
        struct vectors_entry e = {.expires_ms = NOW + LIFE};
        name_id(e.id, i);
        assert_true(vectors_put(v, index, 64, x, DIMS, &e, NOW));
        vectors_stats(v, &s);
        assert_true(s.bytes <= LIMIT);
    }
    assert_true(s.evicted > 0 && s.entries > 300);
    vectors_clear(v);
    for (uint64_t i = 0; i < 5000; i++) { /* one large one keeps its newest part */
        draw(&r, x, DIMS);
        assert_true(put(v, index_a, 1000000, x, DIMS, i, NOW + LIFE));
        vectors_stats(v, &s);
        assert_true(s.bytes <= LIMIT);
        struct vectors_match m[1];
        struct arena a;
        arena_init(&a, NULL);
        assert_int_equal(vectors_find(v, index_a, 1000000, x, DIMS, 0.99, NOW, &a, m, 1), 1);
        assert_true(id_of(&m[0]) == i);
        arena_reset(&a);
    }
    assert_true(s.entries > 500);
    /* What has expired goes when something is written. */
    vectors_clear(v);
    assert_true(put(v, index_a, 10, x, DIMS, 1, NOW + 5));
    struct vectors_entry e = {.expires_ms = NOW + LIFE};
    assert_true(vectors_put(v, index_b, 10, x, DIMS, &e, NOW + 5));
    vectors_stats(v, &s);
    assert_int_equal(s.indexes, 1);
    vectors_free(v);
}

static void a_window_does_not_grow_memory(void **state)
{
    (void)state;
    struct vectors *v = vectors_new(SIZE_MAX);
    struct vectors_stats s;
    float x[96];
    struct rng r;
    rng_seed(&r, 21);
    size_t most = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        draw(&r, x, 96);
        /* A few ids again and again: their old slots are dead and must go. */
        assert_true(put(v, index_a, 100, x, 96, i < 10000 ? i : i % 50, NOW + LIFE));
        vectors_stats(v, &s);
        if (i == 1000)
            most = s.bytes;
        if (i > 1000)
            assert_true(s.bytes < 2 * most);
    }
    assert_true(s.entries < 300);
    vectors_free(v);
}

struct shared {
    struct vectors *v;
    atomic_bool stop;
    float base[64];
};

static void *search_all_the_time(void *arg)
{
    struct shared *s = arg;
    unsigned long found = 0;
    do {
        struct vectors_match m[4];
        struct arena a;
        arena_init(&a, NULL);
        unsigned n = vectors_find(s->v, index_a, 200, s->base, 64, 0.1, NOW, &a, m, 4);
        for (unsigned i = 0; i < n; i++) {
            uint64_t note;
            CHECK(m[i].entry.note.n == 8);
            memcpy(&note, m[i].entry.note.p, 8);
            CHECK(note == id_of(&m[i]));
            CHECK(i == 0 || m[i].similarity <= m[i - 1].similarity);
        }
        found += n;
        arena_reset(&a);
    } while (!atomic_load(&s->stop));
    return (void *)found;
}

static void threads_search_while_others_write(void **state)
{
    (void)state;
    struct shared s;
    struct rng r;
    rng_seed(&r, 1);
    s.v = vectors_new(300000);
    atomic_init(&s.stop, false);
    draw(&r, s.base, 64);
    assert_true(put(s.v, index_a, 200, s.base, 64, 99999, NOW + LIFE));
    pthread_t threads[3];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, search_all_the_time, &s), 0);
    for (uint64_t i = 0; i < 6000; i++) {
        float x[64];
        lean(&r, x, s.base, 64, 0.5f);
        assert_true(put(s.v, i % 3 ? index_a : index_b, 200, x, 64, i % 700, NOW + LIFE));
        if (i % 11 == 0) {
            unsigned char id[VECTORS_KEY_BYTES];
            name_id(id, i % 700);
            vectors_remove(s.v, index_a, 64, id);
        }
        if (i % 1000 == 999)
            vectors_clear(s.v);
    }
    atomic_store(&s.stop, true);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        void *found;
        pthread_join(threads[i], &found);
        assert_non_null(found);
    }
    vectors_free(s.v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dot_products_agree),
        cmocka_unit_test(finds_what_a_full_search_finds),
        cmocka_unit_test(equal_vectors_give_the_newest),
        cmocka_unit_test(indexes_dimensions_and_time_are_apart),
        cmocka_unit_test(what_has_no_direction_is_refused),
        cmocka_unit_test(memory_stays_within_its_limit),
        cmocka_unit_test(a_window_does_not_grow_memory),
        cmocka_unit_test(threads_search_while_others_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
