/* SPDX-License-Identifier: Apache-2.0
 *
 * What a lookup waits for while Redis is slow, frozen, killed, full or talks nonsense: the server at most
 * once a change of its state, then nothing, and never an error. (Times are bench-store's business.)
 */
#include "unit.h"

#include "cache/store.h"
#include "cache_unit.h"
#include "redis/redis_rig.h"

/* Longer than a busy machine keeps a healthy server from answering. */
enum { BUDGET_MS = 400, LOOKUPS = 1500 };

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

/* Looks an unknown key up; whether it had to wait for an answer. */
static bool look_up(uint64_t i)
{
    struct lookup l = {0};
    const struct cache_digest key = key_number(i);
    store_budget_begin(store, &l.budget);
    const enum store_answer a = store_get(port, &key, clock_wall_ms(), &l.budget, &l.wait, on_found, &l.e);
    if (a == STORE_WAIT)
        RUN_UNTIL(&loop, l.done);
    entry_unref(l.e);
    turn(&loop);
    return a == STORE_WAIT;
}

/* How many of many lookups had to wait; the others were answered at once. */
static unsigned count_waits(void)
{
    unsigned waited = 0;
    for (unsigned i = 0; i < LOOKUPS; i++)
        waited += look_up(1000 + i);
    print_message("             %u of %d waited\n", waited, LOOKUPS);
    return waited;
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

static void test_frozen(void **state)
{
    (void)state;
    open_store(rig.url);
    wait_ready();
    kill(rig.pid, SIGSTOP);
    assert_true(count_waits() <= 1);
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
    assert_true(count_waits() <= 1);
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
    assert_int_equal(count_waits(), 0); /* a connection that has never answered is not asked */
    assert_int_equal(stats().redis_misses, 0);
    assert_int_equal(lines.n, 1);
    way->delay_ms = 0;
    wait_ready();
    way->delay_ms = 3 * BUDGET_MS;
    assert_true(count_waits() < 5);
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
    /* Reading goes on. */
    assert_int_equal(count_waits(), LOOKUPS);
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
    /* Each of the lines is a change of state, ever more seldom; so many found a connection that looked well.
     */
    assert_true(count_waits() <= lines.n);
    assert_true(lines.n < 30);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_frozen), T(test_killed_and_restarted), T(test_slow), T(test_full), T(test_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
