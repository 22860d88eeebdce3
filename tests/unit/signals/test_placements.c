/* SPDX-License-Identifier: Apache-2.0
 *
 * Placements on their way: the queue between threads, the bytes of a batch, ids of a stream.
 */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/rng.h"
#include "signals/affinity_sync.h"
#include "signals/placement_codec.h"

enum { MANY = 5000 };

static void fill(uint64_t *keys, uint32_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        keys[i] = hash_mix(seed, i) | 1;
}

static void assert_same(const struct placement *a, const struct placement *b)
{
    assert_int_equal(a->target, b->target);
    assert_int_equal(a->before, b->before);
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->before ? a->after : 0, b->before ? b->after : 0);
    assert_memory_equal(a->keys, b->keys, a->n * sizeof *a->keys);
}

static void test_batch(void **state)
{
    static uint64_t keys[3][PLACEMENT_KEYS_MAX], got_keys[PLACEMENT_KEYS_MAX];
    struct placement p[3] = {{.target = 7, .n = 1, .keys = keys[0]},
                             {.target = UINT64_MAX, .after = 99, .before = 3, .n = 20, .keys = keys[1]},
                             {.target = 0,
                              .after = 1,
                              .before = PLACEMENT_BLOCKS_MAX - PLACEMENT_KEYS_MAX,
                              .n = PLACEMENT_KEYS_MAX,
                              .keys = keys[2]}};
    struct placement_batch b;
    struct placement got;
    struct buf bytes;
    buf_init(&bytes, PLACEMENT_BATCH_MAX);
    placement_batch_begin(&bytes, 0x1122334455667788);
    assert_true(placement_batch_open(buf_view(&bytes), &b) && b.rest.n == 0);
    for (unsigned i = 0; i < 3; i++) {
        fill(keys[i], p[i].n, i);
        assert_true(placement_batch_add(&bytes, &p[i]));
    }
    assert_true(placement_batch_open(buf_view(&bytes), &b));
    assert_int_equal(b.gateway, 0x1122334455667788);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(placement_batch_next(&b, &got, got_keys));
        assert_same(&p[i], &got);
    }
    assert_false(placement_batch_next(&b, &got, got_keys));
    /* What is cut off is no batch, except between two placements. */
    unsigned good = 0;
    for (size_t n = 0; n < bytes.n; n++)
        good += placement_batch_open(span_of(bytes.p, n), &b);
    assert_int_equal(good, 3);
    while (placement_batch_add(&bytes, &p[2])) {
    }
    assert_true(bytes.n <= PLACEMENT_BATCH_MAX && placement_batch_open(buf_view(&bytes), &b));
    buf_fini(&bytes);
}

static void refuse(struct buf *b, size_t at, char value)
{
    struct placement_batch x;
    char was = b->p[at];
    b->p[at] = value;
    assert_false(placement_batch_open(buf_view(b), &x));
    b->p[at] = was;
    assert_true(placement_batch_open(buf_view(b), &x));
}

static void test_bad_batches(void **state)
{
    uint64_t key = 5;
    struct buf b;
    buf_init(&b, PLACEMENT_BATCH_MAX);
    placement_batch_begin(&b, 1);
    assert_true(placement_batch_add(&b, &(struct placement){1, 9, 1, 1, &key}));
    refuse(&b, 0, 'X');
    refuse(&b, 3, 2);       /* another version */
    refuse(&b, 12 + 11, 1); /* behind too many blocks */
    refuse(&b, 12 + 12, 0); /* no block */
    refuse(&b, 12 + 12, 2); /* more than there are */
    refuse(&b, 12 + 14, 0); /* behind no block */
    refuse(&b, 12 + 22, 0); /* a key that none has */
    buf_fini(&b);
}

static void test_ids(void **state)
{
    uint64_t ms, seq;
    assert_true(affinity_sync_parse_id(SPAN("1700000000000-12"), &ms, &seq));
    assert_true(ms == 1700000000000 && seq == 12);
    assert_false(affinity_sync_parse_id(SPAN("1700000000000"), &ms, &seq));
    assert_false(affinity_sync_parse_id(SPAN("-"), &ms, &seq));
    assert_false(affinity_sync_parse_id(SPAN(""), &ms, &seq));
    assert_false(affinity_sync_parse_id(SPAN("1-x"), &ms, &seq));
}

static void test_queue_in_parts(void **state)
{
    static uint64_t keys[MANY], got_keys[PLACEMENT_KEYS_MAX];
    struct placement got, p = {.target = 3, .after = 8, .before = 2, .n = MANY, .keys = keys};
    struct placement_queue *q = placement_queue_new();
    uint64_t ms;
    assert_false(placement_queue_oldest(q, &ms));
    assert_false(placement_queue_pop(q, &got, got_keys));
    fill(keys, MANY, 1);
    assert_true(placement_queue_push(q, &p, 77));
    assert_true(placement_queue_oldest(q, &ms) && ms == 77);
    uint32_t at = 0;
    while (placement_queue_pop(q, &got, got_keys)) {
        struct placement part = {3, at ? keys[at - 1] : 8, 2 + at, got.n, keys + at};
        assert_same(&part, &got);
        at += got.n;
    }
    assert_int_equal(at, MANY);
    p.before = PLACEMENT_BLOCKS_MAX;
    assert_false(placement_queue_push(q, &p, 1));
    placement_queue_free(q);
}

static void test_a_full_queue_takes_no_more(void **state)
{
    static uint64_t keys[PLACEMENT_KEYS_MAX], got_keys[PLACEMENT_KEYS_MAX];
    struct placement got, p = {.target = 3, .n = 1000, .keys = keys};
    struct placement_queue *q = placement_queue_new();
    fill(keys, 1000, 1);
    for (unsigned round = 0; round < 5; round++) { /* also over the end of the ring */
        unsigned n = 0, back = 0;
        while (placement_queue_push(q, &p, 1))
            n++;
        assert_int_equal(n, PLACEMENT_QUEUE_WORDS / 1004);
        while (placement_queue_pop(q, &got, got_keys)) {
            assert_same(&p, &got);
            back++;
        }
        assert_int_equal(back, n);
    }
    placement_queue_free(q);
}

struct pusher {
    struct placement_queue *q;
    uint64_t id, pushed;
};

static void *push_many(void *arg)
{
    struct pusher *x = arg;
    uint64_t keys[40];
    struct rng rng;
    rng_seed(&rng, x->id);
    for (uint64_t i = 0; i < 20000;) {
        struct placement p = {x->id, i + 1, 1 + (uint32_t)i, 1 + (uint32_t)rng_below(&rng, 40), keys};
        fill(keys, p.n, x->id << 32 | i);
        if (!placement_queue_push(x->q, &p, i)) {
            sched_yield();
            continue;
        }
        i++;
        x->pushed += p.n;
    }
    return NULL;
}

static void test_threads(void **state)
{
    static uint64_t keys[PLACEMENT_KEYS_MAX];
    enum { THREADS = 3 };
    struct placement_queue *q = placement_queue_new();
    struct pusher x[THREADS];
    pthread_t thread[THREADS];
    uint64_t next[THREADS] = {0}, got[THREADS] = {0}, want[PLACEMENT_KEYS_MAX];
    struct placement p;
    for (unsigned i = 0; i < THREADS; i++) {
        x[i] = (struct pusher){.q = q, .id = i};
        pthread_create(&thread[i], NULL, push_many, &x[i]);
    }
    for (unsigned n = 0; n < THREADS * 20000;) {
        if (!placement_queue_pop(q, &p, keys)) {
            sched_yield();
            continue;
        }
        assert_true(p.target < THREADS && p.before == 1 + next[p.target] && p.after == p.before);
        fill(want, p.n, p.target << 32 | next[p.target]++);
        assert_memory_equal(want, keys, p.n * sizeof *keys);
        got[p.target] += p.n;
        n++;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(got[i], x[i].pushed);
    }
    placement_queue_free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_bad_batches),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_queue_in_parts),
        cmocka_unit_test(test_a_full_queue_takes_no_more),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
