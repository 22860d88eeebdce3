/* SPDX-License-Identifier: Apache-2.0
 *
 * The map under the KV block index: walks over chains of blocks that come and go must say what a plain array
 * says, in whatever order the blocks were stored; ids that all fall into one bucket; and that room is used
 * again, in the order in which it was given back. While others come and go, readers find what stays, all of
 * it, and nothing that never was.
 */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "balance/epoch.h"
#include "balance/kv_ids.h"
#include "balance/kv_map.h"
#include "base/check.h"
#include "base/rng.h"

enum { CHAINS = 300, LENGTH = 200, SLOTS = 3 };

struct chain {
    uint64_t root;
    uint64_t digest[LENGTH], id[LENGTH];
    uint8_t held[LENGTH][SLOTS];
};

struct model {
    struct rng rng;
    struct kv_map *map;
    struct chain chain[CHAINS];
    size_t blocks; /* that somebody holds */
};

static unsigned below(struct model *x, unsigned n)
{
    return (unsigned)rng_below(&x->rng, n);
}

static struct model *model_new(uint64_t seed)
{
    struct model *x = calloc(1, sizeof *x);
    assert_non_null(x);
    rng_seed(&x->rng, seed);
    x->map = kv_map_new();
    for (unsigned c = 0; c < CHAINS; c++) {
        struct chain *k = &x->chain[c];
        uint64_t before = k->root = rng_u64(&x->rng);
        for (unsigned i = 0; i < LENGTH; i++) {
            k->digest[i] = rng_u64(&x->rng);
            before = k->id[i] = kv_behind(before, k->digest[i]);
        }
    }
    return x;
}

static bool is_held(const struct chain *k, unsigned block)
{
    for (unsigned s = 0; s < SLOTS; s++)
        if (k->held[block][s])
            return true;
    return false;
}

static void set(struct model *x, unsigned chain, unsigned block, unsigned slot, unsigned held)
{
    struct chain *k = &x->chain[chain];
    bool before = is_held(k, block);
    if (!before && held == 0)
        return;
    uint32_t node = kv_map_node(x->map, k->id[block]);
    assert_int_equal(kv_map_id(x->map, node), k->id[block]);
    assert_int_equal(kv_map_get(x->map, node, slot), k->held[block][slot]);
    kv_map_set(x->map, node, slot, held);
    k->held[block][slot] = (uint8_t)held;
    x->blocks += (size_t)is_held(k, block) - before;
    assert_int_equal(kv_map_blocks(x->map), x->blocks);
}

static uint64_t digest_of(void *arg, size_t block)
{
    const struct chain *k = arg;
    return k->digest[block];
}

static void ask(struct model *x, unsigned chain)
{
    struct chain *k = &x->chain[chain];
    struct kv_run run[KV_SLOTS];
    unsigned n = below(x, 8) ? LENGTH : below(x, LENGTH + 1);
    kv_map_walk(x->map, k->root, digest_of, k, n, (UINT64_C(1) << 2 * SLOTS) - 1, run);
    for (unsigned s = 0; s < SLOTS; s++) {
        unsigned blocks = 0, lower = 0;
        for (; blocks < n && k->held[blocks][s]; blocks++)
            lower += !(k->held[blocks][s] & KV_HELD_GPU);
        assert_int_equal(run[s].blocks, blocks);
        assert_int_equal(run[s].lower, lower);
    }
}

static void ask_all(struct model *x)
{
    for (unsigned c = 0; c < CHAINS; c++)
        ask(x, c);
}

/* Every second chain from its beginning to its end, the others backwards; by turns with all others; and with
 * some blocks away. */
static void test_layouts(void **state)
{
    (void)state;
    for (unsigned layout = 0; layout < 2; layout++) {
        struct model *x = model_new(7 + layout);
        for (unsigned i = 0; i < CHAINS * LENGTH; i++) {
            unsigned chain = layout ? i % CHAINS : i / LENGTH, block = layout ? i / CHAINS : i % LENGTH;
            block = chain % 2 ? LENGTH - 1 - block : block;
            set(x, chain, block, chain % SLOTS, KV_HELD_GPU);
            if (block % 3 == 0 || chain % 5 == 0)
                set(x, chain, block, (chain + 1) % SLOTS, chain % 7 ? KV_HELD_GPU : KV_HELD_LOWER);
        }
        ask_all(x);
        for (unsigned i = 0; i < CHAINS / 2; i++)
            set(x, below(x, CHAINS), below(x, LENGTH), below(x, SLOTS), 0);
        ask_all(x);
        kv_map_free(x->map);
        free(x);
    }
}

/* Parts of chains come and go; the table grows meanwhile. */
static void test_random(void **state)
{
    (void)state;
    struct model *x = model_new(3);
    for (unsigned op = 0; op < 30000; op++) {
        unsigned chain = below(x, CHAINS), from = below(x, 4) ? 0 : below(x, LENGTH), n = below(x, 60);
        unsigned slot = below(x, SLOTS), held = below(x, 3) == 0 ? 0 : below(x, 3) + 1;
        bool backwards = below(x, 2);
        unsigned to = from + n < LENGTH ? from + n : LENGTH;
        for (unsigned i = from; i < to; i++)
            set(x, chain, backwards ? from + to - 1 - i : i, slot, held);
        ask(x, below(x, 2) ? chain : below(x, CHAINS));
    }
    ask_all(x);
    for (unsigned i = 0; i < CHAINS * LENGTH * SLOTS; i++)
        set(x, i / SLOTS / LENGTH, i / SLOTS % LENGTH, i % SLOTS, 0);
    assert_int_equal(kv_map_blocks(x->map), 0);
    kv_map_free(x->map);
    free(x);
}

/* Nobody can choose ids; should many fall together all the same, each is still found. */
static void test_one_bucket(void **state)
{
    (void)state;
    enum { IDS = 300 };
    struct kv_map *m = kv_map_new();
    uint32_t node[IDS];
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < IDS; i++) {
            node[i] = kv_map_node(m, (uint64_t)(i + 1) << 32 | 0x3fffffff);
            kv_map_set(m, node[i], 0, KV_HELD_GPU);
        }
        for (unsigned i = 0; i < IDS; i += 2)
            kv_map_set(m, node[i], 0, 0);
        for (unsigned i = 1; i < IDS; i += 2)
            assert_int_equal(kv_map_node(m, (uint64_t)(i + 1) << 32 | 0x3fffffff), node[i]);
        assert_int_equal(kv_map_blocks(m), IDS / 2);
        for (unsigned i = 1; i < IDS; i += 2)
            kv_map_set(m, node[i], 0, 0);
        assert_int_equal(kv_map_blocks(m), 0);
    }
    kv_map_free(m);
}

/* Prompts that follow each other lie in one piece, also in room that others left, and need no more of it. */
static void test_room(void **state)
{
    (void)state;
    enum { PROMPT = 64, KEPT = 100, PROMPTS = 2000 };
    struct kv_map *m = kv_map_new();
    struct {
        uint64_t id[PROMPT];
    } *all = calloc(PROMPTS, sizeof *all);
    assert_non_null(all);
    size_t bytes = 0;
    for (uint64_t p = 0; p < PROMPTS; p++) {
        uint32_t last = 0;
        unsigned together = 0;
        for (unsigned i = 0; i < PROMPT; i++) {
            all[p].id[i] = kv_behind(i ? all[p].id[i - 1] : p + 1, i);
            uint32_t node = kv_map_node(m, all[p].id[i]);
            kv_map_set(m, node, 5, KV_HELD_GPU);
            together += node == last + 1 || last == node + 1;
            last = node;
        }
        assert_true(together >= PROMPT - 2);
        for (unsigned i = PROMPT; p >= KEPT && i-- > 0;)
            kv_map_set(m, kv_map_node(m, all[p - KEPT].id[i]), 5, 0);
        if (p == PROMPTS / 2)
            bytes = kv_map_bytes(m);
    }
    assert_int_equal(kv_map_bytes(m), bytes);
    free(all);
    kv_map_free(m);
}

/* Chain 0 is there all the time; chain 1 never from its block 50 on; the others come and go. */
struct race {
    struct model *x;
    atomic_bool over;
    atomic_uint walks;
};

static void *walks(void *arg)
{
    struct race *r = arg;
    while (!atomic_load(&r->over)) {
        struct kv_run run[KV_SLOTS];
        struct chain *k = r->x->chain;
        epoch_enter();
        kv_map_walk(r->x->map, k[0].root, digest_of, &k[0], LENGTH, 3, run);
        CHECK(run[0].blocks == LENGTH && run[0].lower == 0);
        kv_map_walk(r->x->map, k[1].root, digest_of, &k[1], LENGTH, 3, run);
        CHECK(run[0].blocks <= 50);
        epoch_leave();
        atomic_fetch_add(&r->walks, 1);
    }
    return NULL;
}

static void test_race(void **state)
{
    (void)state;
    struct race r = {.x = model_new(11)};
    struct model *x = r.x;
    pthread_t thread[2];
    for (unsigned i = 0; i < LENGTH; i++)
        set(x, 0, i % 2 ? i : LENGTH - 2 - i, 0, KV_HELD_GPU);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, walks, &r), 0);
    /* Until nearly all is there, so that the table grows often, and nodes are used again. */
    for (unsigned op = 0; op < 20000 || atomic_load(&r.walks) < 100; op++) {
        unsigned chain = 1 + below(x, CHAINS - 1), from = below(x, LENGTH), n = below(x, 60);
        unsigned to = chain == 1 ? 50 : LENGTH, held = below(x, 20000) < op;
        for (unsigned i = from; i < to && i < from + n; i++)
            set(x, chain, i, 0, held && below(x, 3) ? KV_HELD_GPU : 0);
    }
    atomic_store(&r.over, true);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    kv_map_free(x->map);
    free(x);
    epoch_drain();
}

int main(void)
{
    kv_ids_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts), cmocka_unit_test(test_random), cmocka_unit_test(test_one_bucket),
        cmocka_unit_test(test_room),    cmocka_unit_test(test_race),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
