/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <pthread.h>

#include "base/rng.h"
#include "gateway/token_cache.h"

static struct token_ids ids_of(uint64_t key, size_t n, uint32_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint32_t)(key * 31 + i);
    return (struct token_ids){.id = out, .n = n};
}

static bool has(struct token_cache *c, uint64_t key, size_t n)
{
    struct arena a;
    struct token_ids got;
    arena_init(&a, NULL);
    bool ok = token_cache_get(c, key, &a, &got);
    if (ok) {
        assert_int_equal(got.n, n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(got.id[i], (uint32_t)(key * 31 + i));
    }
    arena_reset(&a);
    return ok;
}

static void keeps_the_recently_used(void **state)
{
    enum { MAX = 1 << 20, N = 100, KEYS = 20000 };
    struct token_cache *c = token_cache_new(MAX);
    uint32_t out[N];
    for (uint64_t key = 0; key < KEYS; key++) {
        struct token_ids ids = ids_of(key, N, out);
        token_cache_put(c, key, &ids);
        assert_true(has(c, key, N));
        assert_true(has(c, 7, N) == (key >= 7)); /* used all the time, so it stays */
        assert_true(token_cache_bytes(c) <= MAX);
    }
    assert_true(token_cache_bytes(c) > MAX / 2);
    assert_false(has(c, 8, N));
    struct token_ids other = ids_of(KEYS - 1, 3, out);
    token_cache_put(c, KEYS - 1, &other); /* replaces */
    assert_true(has(c, KEYS - 1, 3));
    /* None at all, and too many for a shard. */
    static uint32_t many[MAX / 16];
    struct token_ids none = {0}, huge = ids_of(5, ARRAY_LEN(many), many);
    token_cache_put(c, 3, &none);
    token_cache_put(c, 5, &huge);
    assert_false(has(c, 3, 0) || has(c, 5, huge.n));
    token_cache_free(c);
}

static void *churn(void *arg)
{
    struct token_cache *c = arg;
    struct rng r;
    rng_seed(&r, 3);
    uint32_t out[64];
    for (int i = 0; i < 20000; i++) {
        uint64_t key = rng_below(&r, 4096);
        size_t n = 1 + key % 64;
        if (!has(c, key, n)) {
            struct token_ids ids = ids_of(key, n, out);
            token_cache_put(c, key, &ids);
        }
    }
    return NULL;
}

static void many_threads(void **state)
{
    struct token_cache *c = token_cache_new(256 << 10);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, churn, c), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    assert_true(token_cache_bytes(c) <= 256 << 10);
    token_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_recently_used),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
