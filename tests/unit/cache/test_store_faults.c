/* SPDX-License-Identifier: Apache-2.0
 *
 * What a lookup costs while Redis is slow, frozen, killed, full or talks nonsense: at most the budget once,
 * then next to nothing, and never an error.
 */
#include "unit.h"

#include "cache/store.h"
#include "cache_unit.h"
#include "redis/redis_rig.h"

enum { BUDGET_MS = 50, LOOKUPS = 1500 };

static struct net_loop loop;
static struct rig rig;
static struct stub stub;
static struct lines lines;
static struct cache_store *store;
static struct store_port *port;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(net_loop_init(&loop, 0), 0);
    rig_open(&rig, NULL);
    lines.n = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < lines.n; i++)
        print_message("             %s\n", lines.text[i]);
    store_close(port);
    store_free(store);
    port = NULL;
    store = NULL;
    stub_close(&stub);
    rig_close(&rig);
    net_loop_fini(&loop);
    return 0;
}

static void open_store(const char *url)
{
    char why[256] = "";
    const struct store_options o = {.memory_bytes = 64 << 20,
                                    .max_entry_bytes = 1 << 20,
                                    .redis_url = url,
                                    .budget_ms = BUDGET_MS,
                                    .tell = on_line,
                                    .tell_arg = &lines};
    store = store_new(&o, why);
    assert_string_equal(why, "");
    port = store_open(store, &loop);
}

struct lookup {
    struct store_wait wait;
    struct store_budget budget;
    bool done;
    struct cache_entry *e;
};

static void on_found(struct store_wait *w, struct cache_entry *e)
{
    struct lookup *l = CONTAINER_OF(w, struct lookup, wait);
    l->done = true;
    l->e = e;
}

/* Time that one lookup of an unknown key takes, in microseconds. */
static uint64_t look_up(uint64_t i)
{
    struct lookup l = {0};
    const struct cache_digest key = key_number(i);
    store_budget_begin(store, &l.budget);
    const uint64_t start = clock_mono_us();
    const enum store_answer a = store_get(port, &key, clock_wall_ms(), &l.budget, &l.wait, on_found, &l.e);
    if (a == STORE_WAIT)
        RUN_UNTIL(&loop, l.done);
    const uint64_t took = clock_mono_us() - start;
    entry_unref(l.e);
    turn(&loop);
    return took;
}

struct cost {
    unsigned dear;       /* lookups of more than a millisecond */
    uint64_t worst, p99; /* microseconds */
    uint64_t sum_dear;
};

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static struct cost measure(void)
{
    static uint64_t took[LOOKUPS];
    struct cost c = {0};
    for (unsigned i = 0; i < LOOKUPS; i++) {
        took[i] = look_up(1000 + i);
        c.dear += took[i] > 1000;
        c.sum_dear += took[i] > 1000 ? took[i] : 0;
    }
    qsort(took, LOOKUPS, sizeof *took, by_value);
    c.worst = took[LOOKUPS - 1];
    c.p99 = took[LOOKUPS * 99 / 100];
    print_message("             worst %.1f ms, p99 %.3f ms, %u of %d above 1 ms\n", (double)c.worst / 1e3,
                  (double)c.p99 / 1e3, c.dear, LOOKUPS);
    return c;
}

static struct store_stats stats(void)
{
    struct store_stats s;
    store_stats(store, &s);
    return s;
}

static void wait_ready(void)
{
    RUN_UNTIL(&loop, (look_up(1), stats().redis_misses > 0));
}

static void put(uint64_t i)
{
    struct entry_facts f = facts_number(store_purges(store), i, 7);
    f.created_ms = clock_wall_ms();
    f.expires_ms = f.stale_until_ms = f.created_ms + 60000;
    struct cache_entry *e = entry_new(&f, span_of((const char *)&i, sizeof i));
    store_put(port, e, f.created_ms);
    entry_unref(e);
}

static void assert_once(const struct cost *c)
{
    assert_true(c->worst < (BUDGET_MS + 150) * 1000);
    assert_true(c->p99 < 1000);
}

static void test_frozen(void **state)
{
    (void)state;
    open_store(rig.url);
    wait_ready();
    kill(rig.pid, SIGSTOP);
    const struct cost c = measure();
    assert_once(&c);
    kill(rig.pid, SIGCONT);
    const uint64_t misses = stats().redis_misses;
    RUN_UNTIL(&loop, (look_up(1), stats().redis_misses > misses));
    assert_int_equal(lines.n, 3);
}

static void test_killed_and_restarted(void **state)
{
    (void)state;
    open_store(rig.url);
    wait_ready();
    rig_kill(&rig);
    const struct cost c = measure();
    assert_once(&c);
    rig_start(&rig, NULL);
    const uint64_t misses = stats().redis_misses;
    RUN_UNTIL(&loop, (look_up(1), stats().redis_misses > misses));
    assert_int_equal(lines.n, 3);
}

/* Every answer comes three budgets late, from the start or from some moment on; then it is fast again. */
static void test_slow(void **state)
{
    (void)state;
    struct slow_way *way = slow_way_new(&rig, 3 * BUDGET_MS);
    stub_open(&stub, serve_slowly, way);
    open_store(stub.url);
    struct cost c = measure();
    assert_once(&c);
    assert_int_equal(stats().redis_misses, 0);
    assert_int_equal(lines.n, 1);
    way->delay_ms = 0;
    wait_ready();
    way->delay_ms = 3 * BUDGET_MS;
    c = measure();
    assert_once(&c);
    assert_true(c.dear < 5);
    assert_int_equal(lines.n, 3);
    way->delay_ms = 0;
    const uint64_t misses = stats().redis_misses;
    RUN_UNTIL(&loop, (look_up(1), stats().redis_misses > misses));
}

/* Full: entries stay in memory, reading goes on, lookups cost what they did. */
static void test_full(void **state)
{
    (void)state;
    struct answer a = {0};
    open_store(rig.url);
    wait_ready();
    put(1);
    RUN_UNTIL(&loop, stats().redis_stored == 1);
    ASK(&loop, store_redis(port), &a, "CONFIG", "SET", "maxmemory", "1");
    for (uint64_t i = 2; i < 50; i++)
        put(i);
    RUN_UNTIL(&loop, stats().redis_not_stored == 48);
    const struct cost c = measure();
    assert_true(c.worst < (BUDGET_MS + 150) * 1000);
    assert_int_equal(lines.n, 2);
    assert_int_equal(stats().memory.entries, 49);
    ASK(&loop, store_redis(port), &a, "CONFIG", "SET", "maxmemory", "0");
    put(2);
    RUN_UNTIL(&loop, stats().redis_stored == 2);
    assert_int_equal(lines.n, 3);
    buf_fini(&a.text);
}

static void test_nonsense(void **state)
{
    (void)state;
    stub_open(&stub, serve_garbage, "HTTP/1.1 400 Bad Request\r\n\r\n");
    open_store(stub.url);
    const struct cost c = measure();
    assert_once(&c);
    assert_true(lines.n < 30); /* each of them a change of state, ever more seldom */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_frozen), T(test_killed_and_restarted), T(test_slow), T(test_full), T(test_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
