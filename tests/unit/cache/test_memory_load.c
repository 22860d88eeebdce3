/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory store under load: many threads, scopes that push, hit ratio beside LRU, resident memory. The
 * large figures come from bench-cache-memory.
 */
#include "unit.h"

#include <pthread.h>
#include <unistd.h>

#include "cache/cache_unit.h"

#include "base/list.h"
#include "base/rng.h"
#include "cache/memory.h"

struct rig {
    struct cache_purge *purge;
    struct cache_memory *memory;
};

static struct rig rig_new(uint64_t bytes, uint64_t largest)
{
    struct rig r = {.purge = purge_new()};
    r.memory = memory_new(&(struct memory_options){bytes, largest, r.purge});
    return r;
}

static void rig_free(struct rig *r)
{
    memory_free(r->memory);
    purge_free(r->purge);
}

static void put(const struct rig *r, uint64_t i, uint64_t scope, size_t bytes)
{
    struct cache_entry *e = entry_number(r->purge, i, scope, bytes);
    assert_int_equal(memory_put(r->memory, e, T0), MEMORY_STORED);
    entry_unref(e);
}

static bool get(const struct rig *r, uint64_t i)
{
    struct cache_digest key = key_number(i);
    struct cache_entry *e = memory_get(r->memory, &key, T0);
    if (!e)
        return false;
    bool right = number_of(e) == i;
    entry_unref(e);
    assert_true(right);
    return true;
}

/* Threads. */

enum { THREADS = 4, THREAD_STEPS = 40000, THREAD_KEYS = 300 };

struct thread {
    pthread_t id;
    const struct rig *rig;
    uint64_t seed;
    uint64_t found, wrong;
};

static void one_step(struct thread *t, struct rng *r)
{
    uint64_t i = rng_below(r, THREAD_KEYS);
    struct cache_digest key = key_number(i);
    struct cache_entry *e;
    switch (rng_below(r, 64)) {
    case 0:
        memory_remove(t->rig->memory, &key);
        break;
    case 1:
        memory_sweep(t->rig->memory, T0 + rng_below(r, 95000), 100);
        break;
    case 2:
        if (rng_below(r, 50) == 0)
            purge_now(t->rig->purge, PURGE_SCOPE, i % 3);
        break;
    default:
        e = memory_get(t->rig->memory, &key, T0 + rng_below(r, 95000));
        if (e) {
            t->found++;
            t->wrong += number_of(e) != i;
        } else {
            e = entry_number(t->rig->purge, i, i % 3, 100 + rng_below(r, 4000));
            (void)memory_put(t->rig->memory, e, T0);
        }
        entry_unref(e);
    }
}

static void *steps(void *arg)
{
    struct thread *t = arg;
    struct rng r;
    rng_seed(&r, t->seed);
    for (int i = 0; i < THREAD_STEPS; i++)
        one_step(t, &r);
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    struct rig r = rig_new(400 << 10, 1024);
    struct thread t[THREADS];
    struct memory_stats s;
    for (int i = 0; i < THREADS; i++) {
        t[i] = (struct thread){.rig = &r, .seed = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&t[i].id, NULL, steps, &t[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(t[i].id, NULL), 0);
        assert_true(t[i].found > 0);
        assert_int_equal(t[i].wrong, 0);
    }
    memory_stats(r.memory, &s);
    assert_true(s.bytes <= 400 << 10 && s.evicted > 0 && s.purged > 0 && s.expired > 0);
    rig_free(&r);
}

/* Scopes. */

/* One scope asks for so much that it could fill the store many times. What a quieter one has, well below a
 * quarter of the store, stays; it was not even asked for again. */
static void no_scope_pushes_out_others(void **state)
{
    (void)state;
    struct rig r = rig_new(4 << 20, 4096);
    struct memory_stats s;
    unsigned kept = 0;
    for (uint64_t i = 0; i < 150; i++)
        put(&r, i, 1, 3000);
    for (uint64_t i = 1000; i < 20000; i++) {
        put(&r, i, 2, 3000);
        if (i % 2) /* it asks again for what it stored, so that it has a claim to the main queue, too */
            get(&r, i), get(&r, i);
    }
    for (uint64_t i = 0; i < 150; i++)
        kept += get(&r, i);
    assert_int_equal(kept, 150);
    memory_stats(r.memory, &s);
    assert_int_equal(s.scopes, 2);
    /* The rest is not kept free for the quiet one. */
    assert_true(s.bytes > (4 << 20) * 9 / 10);
    rig_free(&r);
}

/* Ten that push as hard as they can share the store evenly. */
static void equal_shares(void **state)
{
    (void)state;
    struct rig r = rig_new(4 << 20, 4096);
    unsigned has[10] = {0}, least = 1000, most = 0;
    for (uint64_t i = 0; i < 30000; i++) {
        put(&r, i, i % 10, 2000);
        get(&r, i);
    }
    for (uint64_t i = 0; i < 30000; i++)
        has[i % 10] += get(&r, i);
    for (int i = 0; i < 10; i++) {
        least = has[i] < least ? has[i] : least;
        most = has[i] > most ? has[i] : most;
    }
    assert_true(least > 50 && most <= least * 13 / 10);
    rig_free(&r);
}

/* Hit ratio. */

enum { OBJECTS = 4000, REQUESTS = 60000, OBJECT_BYTES = 1000 };

struct lru_node {
    struct list link;
    bool in;
};
static struct lru_node lru[OBJECTS];
static double zipf_sum[OBJECTS];

static uint64_t zipf(struct rng *r)
{
    double x = rng_unit(r) * zipf_sum[OBJECTS - 1];
    uint64_t i = 0;
    while (zipf_sum[i] < x)
        i++;
    return i;
}

static void better_than_lru(void **state)
{
    (void)state;
    static const double alphas[] = {0.7, 1.0};
    for (size_t a = 0; a < ARRAY_LEN(alphas); a++) {
        struct rig r = rig_new(400 << 10, 1024);
        struct list list;
        struct memory_stats s;
        struct rng rng;
        uint64_t hits = 0, lru_hits = 0, room = 0, n_lru = 0;
        double sum = 0;
        for (int i = 0; i < OBJECTS; i++)
            zipf_sum[i] = sum += 1 / __builtin_pow(i + 1, alphas[a]);
        /* LRU gets as many places as the full store has entries. */
        for (uint64_t i = 0; i < 2000; i++)
            put(&r, i + 100000, 1, OBJECT_BYTES);
        memory_stats(r.memory, &s);
        room = s.entries;
        memset(lru, 0, sizeof lru);
        list_init(&list);
        rng_seed(&rng, 3);
        for (int n = 0; n < REQUESTS; n++) {
            uint64_t i = zipf(&rng);
            if (get(&r, i))
                hits++;
            else
                put(&r, i, 1, OBJECT_BYTES);
            if (lru[i].in) {
                lru_hits++;
                list_remove(&lru[i].link);
            } else if (++n_lru > room) {
                LIST_ITEM(list_pop(&list), struct lru_node, link)->in = false;
                n_lru--;
            }
            lru[i].in = true;
            list_push(&list, &lru[i].link);
        }
        print_message("alpha %.1f: %.1f%% hits, LRU %.1f%%\n", alphas[a], 100.0 * (double)hits / REQUESTS,
                      100.0 * (double)lru_hits / REQUESTS);
        assert_true(hits > lru_hits);
        rig_free(&r);
    }
}

/* Memory. */

static size_t resident(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*u %lu", &pages), 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void resident_is_what_it_says(void **state)
{
    (void)state;
    if (UNIT_SANITIZED)
        skip();
    enum { BYTES = 64 << 20 };
    struct rig r = rig_new(BYTES, 1 << 20);
    struct rng rng;
    static char body[1 << 20];
    memset(body, 'x', sizeof body);
    rng_seed(&rng, 1);
    size_t before = resident();
    for (uint64_t i = 0; i < 3000; i++) {
        size_t bytes = (size_t)1024 << rng_below(&rng, 10);
        struct entry_facts f = facts_number(r.purge, i, i % 3);
        struct cache_entry *e = entry_new(&f, span_of(body, bytes + rng_below(&rng, bytes)));
        assert_int_equal(memory_put(r.memory, e, T0), MEMORY_STORED);
        entry_unref(e);
    }
    double share = (double)(resident() - before) / BYTES;
    print_message("resident: %.1f%% of memory_bytes\n", 100 * share);
    assert_true(share > 0.95 && share < 1.05);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resident_is_what_it_says),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(no_scope_pushes_out_others),
        cmocka_unit_test(equal_shares),
        cmocka_unit_test(better_than_lru),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
