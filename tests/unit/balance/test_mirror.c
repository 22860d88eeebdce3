/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "balance/block_chain.h"
#include "balance/block_table.h"
#include "balance/epoch.h"
#include "balance/mirror.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/rng.h"

/* Chains */

static uint32_t chain(const char *text, size_t n, size_t piece, uint64_t salt, uint64_t *keys, uint32_t cap)
{
    struct block_chain c;
    block_chain_begin(&c, salt, keys, cap);
    for (size_t at = 0; at < n; at += piece)
        block_chain_feed(&c, text + at, n - at < piece ? n - at : piece);
    assert_int_equal(c.bytes, n);
    return c.n;
}

static void test_cut_anywhere(void **state)
{
    char text[1000];
    uint64_t whole[16], pieces[16];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7 + i / 64);
    assert_int_equal(chain(text, sizeof text, sizeof text, 1, whole, 16), 15);
    for (size_t piece = 1; piece < 200; piece++) {
        assert_int_equal(chain(text, sizeof text, piece, 1, pieces, 16), 15);
        assert_memory_equal(whole, pieces, 15 * sizeof whole[0]);
    }
    assert_int_equal(chain(text, 63, 63, 1, pieces, 16), 0);
    assert_int_equal(chain(text, sizeof text, 100, 1, pieces, 4), 4); /* room for no more */
    assert_memory_equal(whole, pieces, 4 * sizeof whole[0]);
}

static void test_keys_tell_what_came_before(void **state)
{
    char a[640], b[640];
    uint64_t ka[10], kb[10];
    memset(a, 'x', sizeof a);
    memset(b, 'x', sizeof b);
    b[130] = 'y'; /* in the third block */
    chain(a, sizeof a, 640, 0, ka, 10);
    chain(b, sizeof b, 640, 0, kb, 10);
    for (unsigned i = 0; i < 10; i++)
        assert_true((ka[i] == kb[i]) == (i < 2));
    for (unsigned i = 1; i < 10; i++) /* equal text at another place is another block */
        assert_true(ka[i] != ka[i - 1]);
    chain(a, sizeof a, 640, 1, kb, 10);
    for (unsigned i = 0; i < 10; i++)
        assert_true(ka[i] != kb[i]);
}

/* The same on every machine and in every version: gateways that share placements rely on it. */
static void test_keys_are_fixed(void **state)
{
    char text[128];
    uint64_t k[2];
    for (unsigned i = 0; i < sizeof text; i++)
        text[i] = (char)i;
    chain(text, sizeof text, 128, 42, k, 2);
    assert_int_equal(k[0], 0xdf832b2dbbc0f72a);
    assert_int_equal(k[1], 0x638266ab441ed6c);
}

/* The table, as full as it gets: blocks that find no place where they belong are found all the same, and what
 * went is not. */
static void test_table_overfull(void **state)
{
    enum { ROOM = 2000, KEYS = 20000, HOLDER = 4 };
    struct block_table t;
    struct rng r;
    static uint32_t slot[KEYS];
    unsigned held = 0, most = 0;
    uint64_t holders;
    block_table_init(&t, ROOM);
    rng_seed(&r, 12);
    memset(slot, 0xff, sizeof slot);
    for (unsigned step = 0; step < 200000; step++) {
        bool fills = step / 20000 % 2 == 0; /* up to the brim, then down again */
        unsigned i = (unsigned)rng_below(&r, KEYS);
        uint64_t key = hash_mix(i, 3);
        block_table_prepare(&t, key);
        if (slot[i] == BLOCK_NONE && (fills || rng_below(&r, 20) == 0)) {
            slot[i] = block_table_add(&t, key, HOLDER, 77);
            held += slot[i] != BLOCK_NONE;
        } else if (slot[i] != BLOCK_NONE && !fills) {
            block_table_drop(&t, slot[i], HOLDER);
            slot[i] = BLOCK_NONE;
            held--;
        }
        most = held > most ? held : most;
        i = (unsigned)rng_below(&r, KEYS);
        assert_int_equal(block_table_find(&t, hash_mix(i, 3), &holders), slot[i]);
        assert_int_equal(holders, slot[i] == BLOCK_NONE ? 0 : HOLDER);
    }
    assert_true(most > ROOM + ROOM / 5); /* a fourth more places than it was made for */
    for (unsigned i = 0; i < KEYS; i++)
        if (slot[i] != BLOCK_NONE)
            block_table_drop(&t, slot[i], HOLDER);
    for (unsigned i = 0; i < t.n; i++)
        assert_true(t.buckets[i].strays == 0 && t.buckets[i].reach == 0 && t.buckets[i].marks == 0);
    free(t.memory);
}

/* Lanes */

static uint64_t *made_keys(uint64_t seed, uint32_t n)
{
    uint64_t *keys = calloc(n, sizeof *keys);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = hash_mix(i ? keys[i - 1] : 1, seed) | 1;
    return keys;
}

static uint32_t depth_of(struct mirror *m, uint32_t lane, const uint64_t *keys, uint32_t n)
{
    uint32_t depth, room;
    struct mirror_lane_set set;
    mirror_lane_set_init(&set, &lane, 1);
    mirror_enter();
    mirror_match(m, keys, n, &set, &depth, &room);
    mirror_leave();
    return depth;
}

static void test_lanes_by_identity(void **state)
{
    struct mirror *m = mirror_new();
    uint64_t who[] = {11, 12}, other[] = {12, 13, 11}, *k = made_keys(1, 50);
    uint32_t size[] = {100, 100, 400}, a[2], b[3];
    mirror_lanes_get(m, who, size, 2, a);
    assert_int_equal(mirror_record(m, a[1], k, 50).depth, 50);
    mirror_lanes_get(m, other, size, 3, b); /* 11 grows: what 12 knows moves along */
    assert_int_equal(a[1], b[0]);
    assert_int_equal(a[0], b[2]);
    assert_int_equal(depth_of(m, b[0], k, 50), 50);
    assert_int_equal(depth_of(m, b[1], k, 50), 0);
    assert_int_equal(depth_of(m, MIRROR_NO_LANE, k, 50), 0);
    struct mirror_stats s;
    mirror_stats(m, b[2], &s);
    assert_int_equal(s.room, 400);
    for (unsigned i = 0; i < 3; i++)
        mirror_lane_put(m, b[i]);
    mirror_lane_put(m, a[0]);
    mirror_lane_put(m, a[1]);
    mirror_lanes_get(m, who, size, 2, a); /* away for a while */
    assert_int_equal(depth_of(m, a[1], k, 50), 50);
    mirror_unref(m);
    free(k);
}

static void test_more_lanes_than_there_are(void **state)
{
    enum { N = MIRROR_LANES_MAX + 3 };
    struct mirror *m = mirror_new();
    uint64_t who[N], *k = made_keys(3, 4);
    uint32_t size[N], lane[N], depth[N], room[N];
    for (unsigned i = 0; i < N; i++) {
        who[i] = 1000 + i;
        size[i] = 8;
    }
    mirror_lanes_get(m, who, size, N, lane);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(lane[i] == MIRROR_NO_LANE, i >= MIRROR_LANES_MAX);
    mirror_record(m, lane[100], k, 4);
    mirror_record(m, lane[500], k, 3);
    assert_int_equal(mirror_record(m, MIRROR_NO_LANE, k, 4).generation, 0);
    mirror_enter();
    struct mirror_lane_set set;
    mirror_lane_set_init(&set, lane, N);
    mirror_match(m, k, 4, &set, depth, room);
    mirror_leave();
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(depth[i], i == 100 ? 4 : i == 500 ? 3 : 0);
    mirror_lane_put(m, lane[100]); /* the only idle one: its place, not what it knew */
    mirror_lanes_get(m, &who[N - 1], size, 1, &lane[N - 1]);
    assert_int_equal(lane[N - 1], lane[100]);
    assert_int_equal(depth_of(m, lane[N - 1], k, 4), 0);
    mirror_unref(m);
    free(k);
}

/* Targets that come and go for good do not fill the memory; the latest ones are still known. */
static void test_lanes_that_never_come_back(void **state)
{
    enum { ROUNDS = 200, EARLY = 10, BLOCKS = 20000 };
    struct mirror *m = mirror_new();
    uint64_t *k = made_keys(5, 40), early = 0;
    uint32_t size[2] = {BLOCKS, BLOCKS}, lane[2], last[2];
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t who[2] = {1000 + 2 * i, 1001 + 2 * i};
        mirror_lanes_get(m, who, size, 2, lane);
        assert_int_equal(depth_of(m, lane[0], k, 40), 0);
        mirror_record(m, lane[0], k, 40);
        if (i > 0) {
            mirror_lane_put(m, last[0]);
            mirror_lane_put(m, last[1]);
        }
        memcpy(last, lane, sizeof last);
        if (i == EARLY)
            early = mirror_memory(m);
    }
    assert_true(mirror_memory(m) <= early);
    uint64_t before = 1000 + 2 * (ROUNDS - 2);
    mirror_lanes_get(m, &before, size, 1, lane);
    assert_int_equal(depth_of(m, lane[0], k, 40), 40);
    mirror_unref(m);
    free(k);
}

static void test_reset_empties_in_steps(void **state)
{
    enum { N = 10000 };
    struct mirror *m = mirror_new();
    uint64_t who = 1, *k = made_keys(5, N);
    uint32_t size = N, lane;
    mirror_lanes_get(m, &who, &size, 1, &lane);
    mirror_record(m, lane, k, N);
    uint32_t before = mirror_generation(m, lane);
    mirror_reset(m, lane);
    assert_int_not_equal(mirror_generation(m, lane), before);
    assert_int_equal(depth_of(m, lane, k, N), 0);
    unsigned lost = 0;
    while (mirror_record(m, lane, k, N).depth == 0)
        lost++;
    assert_int_equal(lost, 2); /* 4096 blocks each */
    assert_int_equal(depth_of(m, lane, k, N), N);
    mirror_reset(m, lane);
    while (!mirror_tidy(m, 1024))
        ;
    assert_int_equal(mirror_record(m, lane, k, N).depth, N);
    mirror_lane_resize(m, lane, 100);
    while (!mirror_tidy(m, 1024))
        ;
    assert_int_equal(depth_of(m, lane, k, N), 100);
    mirror_unref(m);
    free(k);
}

/* Keys that collide, by chance or made so: whatever is recorded, the books stay in order. */
static void test_two_blocks_with_one_key(void **state)
{
    enum { LANES = 3, STEPS = 60000 };
    struct mirror *m = mirror_new();
    uint64_t who[LANES], k[12];
    uint32_t size[LANES], lane[LANES];
    struct rng r;
    rng_seed(&r, 8);
    for (unsigned i = 0; i < LANES; i++) {
        who[i] = i + 1;
        size[i] = 40;
    }
    mirror_lanes_get(m, who, size, LANES, lane);
    for (unsigned n = 0; n < STEPS; n++) {
        uint32_t depth[LANES], room[LANES], long_ = 1 + (uint32_t)rng_below(&r, 12);
        for (unsigned i = 0; i < long_; i++) /* no chain at all: any block behind any other */
            k[i] = hash_mix(rng_below(&r, 30), 5) | 1;
        struct mirror_receipt x = mirror_record(m, lane[rng_below(&r, LANES)], k, long_);
        assert_true(x.depth <= long_ && x.before <= x.depth);
        if (rng_below(&r, 4) == 0)
            mirror_withdraw(m, &x);
        mirror_enter();
        struct mirror_lane_set set;
        mirror_lane_set_init(&set, lane, LANES);
        mirror_match(m, k, long_, &set, depth, room);
        mirror_leave();
    }
    for (unsigned i = 0; i < LANES; i++)
        mirror_reset(m, lane[i]);
    while (!mirror_tidy(m, 1000))
        ;
    for (unsigned i = 0; i < LANES; i++) {
        struct mirror_stats s;
        mirror_stats(m, lane[i], &s);
        assert_int_equal(s.blocks, 0);
        assert_int_equal(s.ends, 0);
    }
    mirror_unref(m);
}

/* Bytes for each (block, holder) at the full size, prompts of 300 blocks. */
static void test_memory(void **state)
{
    enum { LANES = 8, SIZE = 65536, LONG = 300 };
    struct mirror *m = mirror_new();
    uint64_t who[LANES];
    uint32_t size[LANES], lane[LANES];
    for (unsigned i = 0; i < LANES; i++) {
        who[i] = i + 1;
        size[i] = SIZE;
    }
    mirror_lanes_get(m, who, size, LANES, lane);
    for (uint64_t p = 0; p < (uint64_t)LANES * SIZE / LONG * 3; p++) {
        uint64_t *k = made_keys(p + 10, LONG);
        assert_int_equal(mirror_record(m, lane[p % LANES], k, LONG).depth, LONG);
        free(k);
    }
    uint64_t blocks = 0;
    for (unsigned i = 0; i < LANES; i++) {
        struct mirror_stats s;
        mirror_stats(m, lane[i], &s);
        assert_true(s.blocks > SIZE - LONG);
        blocks += s.blocks;
    }
    double bytes = (double)mirror_bytes_used(m) / (double)blocks;
    printf("%.1f bytes for each block and holder\n", bytes);
    assert_true(bytes <= 32);
    mirror_unref(m);
}

/* Threads: writers on all lanes, a reader that checks what must always hold, a lane that moves and one that
 * is reset. At the end everything that was recorded last is there. */

enum { WRITERS = 3, T_LANES = 4, T_SIZE = 3000, T_PROMPTS = 64, T_LONG = 200 };

struct crowd {
    struct mirror *m;
    uint32_t lane[T_LANES];
    uint64_t keys[T_PROMPTS][T_LONG];
    atomic_bool stop;
    atomic_uint strange;
};

static void *writer(void *arg)
{
    struct crowd *c = arg;
    static atomic_uint next;
    struct rng r;
    rng_seed(&r, 77 + atomic_fetch_add(&next, 1));
    for (unsigned i = 0; i < (UNIT_SANITIZED ? 4000 : 60000); i++) {
        uint32_t lane = c->lane[rng_below(&r, T_LANES)], n = 1 + (uint32_t)rng_below(&r, T_LONG);
        struct mirror_receipt x = mirror_record(c->m, lane, c->keys[rng_below(&r, T_PROMPTS)], n);
        if (rng_below(&r, 5) == 0)
            mirror_withdraw(c->m, &x);
        if (rng_below(&r, 3000) == 0)
            mirror_reset(c->m, lane);
        if (rng_below(&r, 3000) == 0)
            mirror_lane_grow(c->m, lane, T_SIZE + i / 20);
    }
    return NULL;
}

static void *reader(void *arg)
{
    struct crowd *c = arg;
    struct rng r;
    rng_seed(&r, 5);
    while (!atomic_load(&c->stop)) {
        uint32_t depth[T_LANES], room[T_LANES], n = 1 + (uint32_t)rng_below(&r, T_LONG);
        mirror_enter();
        struct mirror_lane_set set;
        mirror_lane_set_init(&set, c->lane, T_LANES);
        mirror_match(c->m, c->keys[rng_below(&r, T_PROMPTS)], n, &set, depth, room);
        mirror_leave();
        for (unsigned i = 0; i < T_LANES; i++)
            if (depth[i] > n)
                atomic_fetch_add(&c->strange, 1);
    }
    return NULL;
}

static void test_threads(void **state)
{
    static struct crowd c;
    uint64_t who[T_LANES];
    uint32_t size[T_LANES];
    pthread_t w[WRITERS], rd;
    c.m = mirror_new();
    for (unsigned i = 0; i < T_LANES; i++) {
        who[i] = i + 1;
        size[i] = T_SIZE;
    }
    for (unsigned p = 0; p < T_PROMPTS; p++) /* groups of four share 50 blocks */
        for (unsigned i = 0; i < T_LONG; i++)
            c.keys[p][i] = hash_mix(i ? c.keys[p][i - 1] : 9, i < 50 ? p / 4 : 1000 + p) | 1;
    mirror_lanes_get(c.m, who, size, T_LANES, c.lane);
    assert_int_equal(pthread_create(&rd, NULL, reader, &c), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&w[i], NULL, writer, &c), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(w[i], NULL);
    atomic_store(&c.stop, true);
    pthread_join(rd, NULL);
    assert_int_equal(atomic_load(&c.strange), 0);
    while (!mirror_tidy(c.m, 100000))
        ;
    for (unsigned i = 0; i < T_LANES; i++) {
        assert_int_equal(mirror_record(c.m, c.lane[i], c.keys[i], T_LONG).depth, T_LONG);
        assert_int_equal(depth_of(c.m, c.lane[i], c.keys[i], T_LONG), T_LONG);
        mirror_reset(c.m, c.lane[i]);
    }
    while (!mirror_tidy(c.m, 100000))
        ;
    for (unsigned i = 0; i < T_LANES; i++) { /* the books are in order: nothing is left behind */
        struct mirror_stats s;
        mirror_stats(c.m, c.lane[i], &s);
        assert_int_equal(s.blocks, 0);
        assert_int_equal(s.ends, 0);
    }
    mirror_unref(c.m);
    epoch_drain();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_keys_tell_what_came_before),
        cmocka_unit_test(test_keys_are_fixed),
        cmocka_unit_test(test_table_overfull),
        cmocka_unit_test(test_lanes_by_identity),
        cmocka_unit_test(test_more_lanes_than_there_are),
        cmocka_unit_test(test_lanes_that_never_come_back),
        cmocka_unit_test(test_reset_empties_in_steps),
        cmocka_unit_test(test_two_blocks_with_one_key),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
