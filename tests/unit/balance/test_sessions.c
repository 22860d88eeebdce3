/* SPDX-License-Identifier: Apache-2.0
 *
 * The map of sessions: time, withdrawing, the bound and who goes first, a twin, threads.
 */
#include "unit.h"

#include <pthread.h>

#include "balance/session_map.h"
#include "base/hash.h"
#include "base/mem.h"

static uint64_t key(uint64_t i)
{
    return hash_bytes(&i, sizeof i);
}

static void test_time(void **state)
{
    struct session_map *m = session_map_new();
    assert_int_equal(session_map_find(m, key(1), 0), 0);
    session_map_record(m, key(1), 7, 1000);
    assert_int_equal(session_map_find(m, key(1), 1000), 7);
    assert_int_equal(session_map_find(m, key(1), 1000 + SESSION_TTL_MS), 7);
    assert_int_equal(session_map_find(m, key(1), 1001 + SESSION_TTL_MS), 0);
    /* Asking refreshed nothing; serving does. */
    session_map_record(m, key(1), 7, 200000);
    assert_int_equal(session_map_find(m, key(1), 200000 + SESSION_TTL_MS), 7);
    session_map_record(m, key(1), 8, 200001);
    assert_int_equal(session_map_find(m, key(1), 200001), 8);
    assert_int_equal(session_map_find(m, key(1), 199999), 8); /* another thread's clock, a bit behind */
    assert_int_equal(session_map_find(m, key(2), 200001), 0);
    assert_int_equal(session_map_count(m), 1);
    session_map_unref(m);
}

static void test_withdraw(void **state)
{
    struct session_map *m = session_map_new();
    struct session_receipt first = session_map_record(m, key(1), 7, 100);
    struct session_receipt second = session_map_record(m, key(1), 8, 200);
    session_map_withdraw(m, &second);
    assert_int_equal(session_map_find(m, key(1), 200), 7);
    session_map_withdraw(m, &second); /* no longer there: nothing happens */
    assert_int_equal(session_map_find(m, key(1), 200), 7);
    struct session_receipt third = session_map_record(m, key(1), 9, 300);
    session_map_record(m, key(1), 10, 400);
    session_map_withdraw(m, &third); /* somebody came after it */
    assert_int_equal(session_map_find(m, key(1), 400), 10);
    session_map_withdraw(m, &first);
    struct session_receipt only = session_map_record(m, key(2), 7, 100);
    session_map_withdraw(m, &only);
    assert_int_equal(session_map_find(m, key(2), 100), 0);
    assert_int_equal(session_map_count(m), 1);
    session_map_withdraw(m, &(struct session_receipt){0});
    /* What comes back does so with its own time. */
    struct session_receipt late = session_map_record(m, key(1), 11, SESSION_TTL_MS + 300);
    session_map_withdraw(m, &late);
    assert_int_equal(session_map_find(m, key(1), SESSION_TTL_MS + 401), 0);
    session_map_unref(m);
}

/* Two requests of a session at one target in the same millisecond: that one fails says nothing of the other.
 */
static void test_withdraw_of_two_at_once(void **state)
{
    struct session_map *m = session_map_new();
    struct session_receipt first = session_map_record(m, key(1), 7, 100);
    struct session_receipt second = session_map_record(m, key(1), 7, 100);
    session_map_withdraw(m, &first);
    assert_int_equal(session_map_find(m, key(1), 100), 7);
    session_map_withdraw(m, &second);
    session_map_withdraw(m, &first);
    assert_int_equal(session_map_find(m, key(1), 100), 0);
    session_map_unref(m);
}

/* Ids made so that their hashes end alike neither fill one shard nor make one long chain. */
static void test_hostile_keys(void **state)
{
    enum { KEYS = 50000 };
    struct session_map *m = session_map_new();
    for (uint64_t i = 1; i <= KEYS; i++)
        session_map_record(m, i << 20, i, 1);
    assert_int_equal(session_map_count(m), KEYS);
    for (uint64_t i = 1; i <= KEYS; i++)
        assert_int_equal(session_map_find(m, i << 20, 1), i);
    session_map_unref(m);
}

/* However many come, the bound holds; those used last stay, those not used go. */
static void test_bound(void **state)
{
    enum { KEPT = 1000, FLOOD = 3 * SESSIONS_MAX, EVERY = 50000 };
    struct session_map *m = session_map_new();
    for (uint64_t i = 0; i < KEPT; i++)
        session_map_record(m, key(i), i + 1, 1);
    for (uint64_t i = 0; i < FLOOD; i++) {
        session_map_record(m, key(1000000 + i), 5, 2);
        if (i % EVERY == 0)
            for (uint64_t k = 0; k < KEPT; k += 2)
                session_map_record(m, key(k), k + 1, 2);
    }
    assert_in_range(session_map_count(m), SESSIONS_MAX - SESSION_SHARDS, SESSIONS_MAX);
    for (uint64_t k = 0; k < KEPT; k++)
        assert_int_equal(session_map_find(m, key(k), 3), k % 2 ? 0 : k + 1);
    /* The latest are all there. */
    for (uint64_t i = FLOOD - 90000; i < FLOOD; i++)
        assert_int_equal(session_map_find(m, key(1000000 + i), 3), 5);
    session_map_unref(m);
}

/* Against an array of what each session should have. Few enough that none is evicted. */
static void test_twin(void **state)
{
    enum { N = 5000, ROUNDS = 300000 };
    struct session_map *m = session_map_new();
    uint64_t *target = mem_array(N, sizeof *target), *at = mem_array(N, sizeof *at), now = 1;
    struct rng rng;
    rng_seed(&rng, 5);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t k = rng_below(&rng, N);
        now += rng_below(&rng, 200);
        uint64_t expected = target[k] && now - at[k] <= SESSION_TTL_MS ? target[k] : 0;
        assert_int_equal(session_map_find(m, key(k), now), expected);
        struct session_receipt r = session_map_record(m, key(k), 1 + rng_below(&rng, 9), now);
        if (rng_below(&rng, 3) == 0) {
            session_map_withdraw(m, &r);
        } else {
            target[k] = r.target;
            at[k] = now;
        }
    }
    free(target);
    free(at);
    session_map_unref(m);
}

enum { THREADS = 4, EACH = 200000, KEYS = 40000 };

struct runner {
    struct session_map *m;
    uint64_t seed;
    bool is_mixed_up;
};

/* A session's target says whose it is, so a mix-up shows. */
static void *run(void *arg)
{
    struct runner *r = arg;
    struct rng rng;
    rng_seed(&rng, r->seed);
    for (int i = 0; i < EACH; i++) {
        uint64_t k = 1 + rng_below(&rng, KEYS * 4);
        uint64_t found = session_map_find(r->m, key(k), 1);
        if (found != 0 && found % 1000000 != k)
            r->is_mixed_up = true;
        struct session_receipt receipt =
            session_map_record(r->m, key(k), (1 + rng_below(&rng, 9)) * 1000000 + k, 1);
        if (i % 4 == 0)
            session_map_withdraw(r->m, &receipt);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct session_map *m = session_map_new();
    pthread_t threads[THREADS];
    struct runner runners[THREADS];
    for (int i = 0; i < THREADS; i++) {
        runners[i] = (struct runner){.m = session_map_ref(m), .seed = (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, run, &runners[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(runners[i].is_mixed_up);
        session_map_unref(m);
    }
    assert_in_range(session_map_count(m), 1, SESSIONS_MAX);
    session_map_unref(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_withdraw),
        cmocka_unit_test(test_withdraw_of_two_at_once),
        cmocka_unit_test(test_hostile_keys),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_twin),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
