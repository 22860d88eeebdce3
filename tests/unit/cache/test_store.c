/* SPDX-License-Identifier: Apache-2.0
 *
 * The store with memory alone, and two of them (two gateways) with one real Redis.
 */
#include "unit.h"

#include "cache/store.h"
#include "cache_unit.h"
#include "redis/redis_rig.h"

enum { MEMORY = 64 << 20, MAX_ENTRY = 1 << 20 };

static struct net_loop loop;
static struct rig rig;
static struct lines lines;
static struct cache_store *store[2];
static struct store_port *port[2];

struct found {
    struct store_wait wait;
    struct store_budget budget;
    int n;
    struct cache_entry *e;
    uint64_t took_us;
};

static void on_found(struct store_wait *w, struct cache_entry *e)
{
    struct found *f = CONTAINER_OF(w, struct found, wait);
    f->n++;
    f->e = e;
}

/* An entry that is alive now; number, scope and body as in cache_unit.h. */
static struct cache_entry *entry_now(int gateway, uint64_t i, size_t bytes, unsigned life_ms,
                                     unsigned stale_ms)
{
    struct entry_facts f = facts_number(store_purges(store[gateway]), i, 7);
    f.created_ms = clock_wall_ms();
    f.expires_ms = f.created_ms + life_ms;
    f.stale_until_ms = f.expires_ms + stale_ms;
    char *body = mem_zalloc(bytes + sizeof i);
    memcpy(body, &i, sizeof i);
    struct cache_entry *e = entry_new(&f, span_of(body, bytes + sizeof i));
    free(body);
    assert_non_null(e);
    return e;
}

static void put(int gateway, uint64_t i, unsigned life_ms, unsigned stale_ms)
{
    struct cache_entry *e = entry_now(gateway, i, 2048, life_ms, stale_ms);
    store_put(port[gateway], e, clock_wall_ms());
    entry_unref(e);
}

/* The entry, or NULL; whether it was waited for in *ret_waited. */
static struct cache_entry *get(int gateway, uint64_t i, struct found *f)
{
    struct cache_digest key = key_number(i);
    struct cache_entry *e = NULL;
    memset(f, 0, sizeof *f);
    store_budget_begin(store[gateway], &f->budget);
    const uint64_t start = clock_mono_us();
    switch (store_get(port[gateway], &key, clock_wall_ms(), &f->budget, &f->wait, on_found, &e)) {
    case STORE_WAIT:
        RUN_UNTIL(&loop, f->n);
        e = f->e;
        break;
    case STORE_HIT:
        assert_non_null(e);
        break;
    case STORE_MISS:
        break;
    }
    f->took_us = clock_mono_us() - start;
    if (e)
        assert_int_equal(number_of(e), i);
    return e;
}

static bool has(int gateway, uint64_t i)
{
    struct found f;
    struct cache_entry *e = get(gateway, i, &f);
    entry_unref(e);
    return e != NULL;
}

static struct store_stats stats(int gateway)
{
    struct store_stats s;
    store_stats(store[gateway], &s);
    return s;
}

static void open_store(int gateway, const char *url, unsigned budget_ms)
{
    char why[256] = "";
    const struct store_options o = {.memory_bytes = MEMORY,
                                    .max_entry_bytes = MAX_ENTRY,
                                    .name_space = "t",
                                    .redis_url = url,
                                    .budget_ms = budget_ms,
                                    .tell = on_line,
                                    .tell_arg = &lines};
    store[gateway] = store_new(&o, why);
    assert_string_equal(why, "");
    port[gateway] = store_open(store[gateway], &loop);
}

static void close_store(int gateway)
{
    store_close(port[gateway]);
    store_free(store[gateway]);
    port[gateway] = NULL;
    store[gateway] = NULL;
}

/* Redis is asked from now on. */
static bool is_ready(int gateway)
{
    const uint64_t before = stats(gateway).redis_misses;
    return !has(gateway, 999999) && stats(gateway).redis_misses > before;
}

static void open_both(unsigned budget_ms)
{
    for (int i = 0; i < 2; i++)
        open_store(i, rig.url, budget_ms);
    RUN_UNTIL(&loop, is_ready(0) && is_ready(1));
}

/* What was written stands in Redis. */
static void wait_stored(int gateway, uint64_t n)
{
    RUN_UNTIL(&loop, stats(gateway).redis_stored + stats(gateway).redis_not_stored >= n);
    assert_int_equal(stats(gateway).redis_stored, n);
}

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
    for (int i = 0; i < 2; i++)
        close_store(i);
    rig_close(&rig);
    net_loop_fini(&loop);
    return 0;
}

static void test_memory_alone(void **state)
{
    (void)state;
    struct found f;
    open_store(0, NULL, 0);
    assert_null(get(0, 1, &f));
    put(0, 1, 60000, 0);
    struct cache_entry *e = get(0, 1, &f);
    assert_non_null(e);
    assert_int_equal(f.n, 0); /* at once */
    entry_unref(e);
    store_purge(store[0], PURGE_ROUTE, purge_name(SPAN("route")));
    assert_false(has(0, 1));
    put(0, 1, 60000, 0);
    const struct cache_digest key = key_number(1);
    store_remove(port[0], &key);
    assert_false(has(0, 1));
    assert_null(store_redis(port[0]));
    assert_false(stats(0).has_redis);
    assert_int_equal(stats(0).purges, 1);
}

/* One gateway's entry is another one's hit: from Redis once, then from memory. */
static void test_shared(void **state)
{
    (void)state;
    struct found f;
    open_both(2000);
    put(0, 1, 60000, 30000);
    wait_stored(0, 1);
    struct cache_entry *e = get(1, 1, &f);
    assert_non_null(e);
    assert_int_equal(f.n, 1);
    assert_true(f.budget.left_us < 2000000);
    assert_int_equal(e->body.n, 2048 + 8);
    assert_int_equal(e->facts.dialect, DIALECT_CHAT);
    entry_unref(e);
    e = get(1, 1, &f);
    assert_int_equal(f.n, 0);
    assert_int_equal(f.budget.left_us, 2000000);
    entry_unref(e);
    assert_int_equal(stats(1).redis_hits, 1);
    assert_int_equal(stats(1).memory.entries, 1);
    const struct cache_digest key = key_number(1);
    store_remove(port[1], &key);
    RUN_UNTIL(&loop, !has(1, 1)); /* the first lookups may go ahead of the removal's answer */
    assert_true(has(0, 1));       /* its memory has it still */
}

/* The life in Redis is the entry's, and what comes from there has what is left of it. */
static void test_life(void **state)
{
    (void)state;
    struct found f;
    struct answer a = {0};
    open_both(2000);
    put(0, 1, 60000, 30000);
    wait_stored(0, 1);
    char text[80] = "t:";
    const struct cache_digest key = key_number(1);
    for (int i = 0; i < 32; i++)
        snprintf(text + 2 + 2 * i, 3, "%02x", key.b[i]);
    ASK(&loop, store_redis(port[0]), &a, "PTTL", text);
    assert_in_range(a.integer, 80000, 90000);
    buf_fini(&a.text);

    const uint64_t before = clock_wall_ms();
    put(0, 2, 300, 100);
    wait_stored(0, 2);
    struct cache_entry *e = get(1, 2, &f);
    assert_non_null(e);
    assert_true(e->facts.expires_ms <= before + 400);
    entry_unref(e);
    RUN_UNTIL(&loop, !has(1, 2) && !has(0, 2)); /* over everywhere */
    assert_true(clock_wall_ms() >= before + 400);
}

/* A stale entry of memory is not served while Redis has one that another gateway renewed. */
static void test_renewed(void **state)
{
    (void)state;
    struct found f;
    open_both(2000);
    put(0, 1, 1, 60000);
    wait_stored(0, 1);
    const uint64_t over = clock_wall_ms() + 2;
    RUN_UNTIL(&loop, clock_wall_ms() > over);
    struct cache_entry *e = get(1, 1, &f);
    assert_non_null(e);
    assert_false(entry_is_fresh(e, clock_wall_ms()));
    entry_unref(e);
    put(0, 1, 60000, 60000);
    wait_stored(0, 2);
    e = get(1, 1, &f);
    assert_int_equal(f.n, 1);
    assert_true(entry_is_fresh(e, clock_wall_ms()));
    entry_unref(e);
}

/* Foreign and damaged values are misses. */
static void test_broken_values(void **state)
{
    (void)state;
    struct answer a = {0};
    open_both(2000);
    put(0, 1, 60000, 0);
    put(0, 2, 60000, 0);
    wait_stored(0, 2);
    char text[3][80];
    for (int k = 0; k < 3; k++) {
        const struct cache_digest key = key_number((uint64_t)k + 1);
        memcpy(text[k], "t:", 3);
        for (int i = 0; i < 32; i++)
            snprintf(text[k] + 2 + 2 * i, 3, "%02x", key.b[i]);
    }
    struct redis_client *c = store_redis(port[0]);
    ASK(&loop, c, &a, "COPY", text[1], text[0], "REPLACE"); /* another key's entry */
    assert_false(has(1, 1));
    ASK(&loop, c, &a, "SETRANGE", text[1], "100", "damage");
    assert_false(has(1, 2));
    ASK(&loop, c, &a, "SET", text[1], "{\"status\":200,\"body\":[1,2,3]}");
    assert_false(has(1, 2));
    ASK(&loop, c, &a, "SET", text[1], "");
    assert_false(has(1, 2));
    ASK(&loop, c, &a, "RPUSH", text[2], "x"); /* the wrong type */
    assert_false(has(1, 3));
    assert_int_equal(stats(1).redis_broken, 5);
    assert_int_equal(stats(1).redis_hits, 0);
    put(1, 3, 60000, 0); /* SET replaces whatever was there */
    wait_stored(1, 1);
    RUN_UNTIL(&loop, has(0, 3));
    buf_fini(&a.text);
}

/* A purge reaches the other gateway's memory, and what lies in Redis, within a second; also fills under way.
 */
static void test_purge_crosses(void **state)
{
    (void)state;
    open_both(2000);
    put(0, 1, 60000, 0);
    wait_stored(0, 1);
    assert_true(has(1, 1));
    struct cache_entry *filling =
        entry_now(1, 2, 10, 60000, 0); /* its upstream call began before the purge */
    const uint64_t start = clock_mono_ms();
    store_purge(store[0], PURGE_ROUTE, purge_name(SPAN("route")));
    assert_false(has(0, 1)); /* at once here: memory's and Redis' */
    RUN_UNTIL(&loop, !has(1, 1));
    assert_true(clock_mono_ms() - start < 1000);
    assert_int_equal(store_put(port[1], filling, clock_wall_ms()), MEMORY_OUTDATED);
    entry_unref(filling);
    put(1, 1, 60000, 0); /* stored anew: both agree on the generation */
    wait_stored(1, 1);
    assert_true(has(0, 1));
    store_purge(store[0], PURGE_SCOPE, 8); /* another scope's purge leaves it alone */
    store_purge(store[1], PURGE_ALL, 0);
    RUN_UNTIL(&loop, !has(0, 1));
}

/* Two gateways that purge the same name at the same time, again and again, end with one generation. */
static void test_purges_meet(void **state)
{
    (void)state;
    open_both(2000);
    for (int i = 0; i < 20; i++) {
        store_purge(store[i % 2], PURGE_KEY, purge_name(SPAN("key")));
        store_purge(store[1 - i % 2], PURGE_KEY, purge_name(SPAN("key")));
        turn(&loop);
    }
    const struct cache_owner owner = {purge_name(SPAN("route")), 7, purge_name(SPAN("key"))};
    const uint64_t quiet = clock_mono_ms() + 1000;
    RUN_UNTIL(&loop, clock_mono_ms() > quiet);
    assert_int_equal(purge_stamp(store_purges(store[0]), &owner),
                     purge_stamp(store_purges(store[1]), &owner));
    put(0, 1, 60000, 0);
    wait_stored(0, 1);
    assert_true(has(1, 1));
}

/* A gateway that starts after a purge does not serve what was purged before it, and one that finds an emptied
 * Redis brings its generations back. */
static void test_purge_outlives(void **state)
{
    (void)state;
    struct answer a = {0};
    open_both(2000);
    put(0, 1, 60000, 0);
    wait_stored(0, 1);
    store_purge(store[1], PURGE_ALL, 0);
    RUN_UNTIL(&loop, !has(0, 1));
    close_store(1);
    open_store(1, rig.url, 2000);
    for (int i = 0; i < 50; i++) {
        assert_false(has(1, 1));
        turn(&loop);
    }
    RUN_UNTIL(&loop, stats(1).redis_outdated > 0 || has(1, 1));
    assert_false(has(1, 1));
    ASK(&loop, store_redis(port[0]), &a, "FLUSHALL");
    put(0, 2, 60000, 0);
    close_store(1);
    open_store(1, rig.url, 2000);
    RUN_UNTIL(&loop, has(1, 2)); /* both go by the same generation again */
    buf_fini(&a.text);
}

/* A purge while Redis is away reaches the others when it is back. */
static void test_purge_while_away(void **state)
{
    (void)state;
    open_both(2000);
    put(0, 1, 60000, 0);
    wait_stored(0, 1);
    assert_true(has(1, 1));
    rig_kill(&rig);
    RUN_UNTIL(&loop, !stats(0).redis_up && !stats(1).redis_up);
    store_purge(store[0], PURGE_ALL, 0);
    assert_false(has(0, 1));
    assert_true(has(1, 1)); /* memory serves on */
    rig_start(&rig, NULL);
    RUN_UNTIL(&loop, !has(1, 1));
}

/* Frozen: one budget is spent, then lookups take no time; a request's second lookup has what is left. */
static void test_frozen(void **state)
{
    (void)state;
    struct found f;
    open_both(50);
    put(0, 1, 60000, 0);
    wait_stored(0, 1);
    kill(rig.pid, SIGSTOP);
    assert_null(get(1, 1, &f));
    assert_in_range(f.took_us, 0, 250000);
    const bool waited = f.n;
    if (waited)
        assert_true(f.budget.left_us < 5000);
    RUN_UNTIL(&loop, !redis_client_is_up(store_redis(port[1])));
    uint64_t slow = 0;
    for (int i = 0; i < 200; i++) {
        assert_null(get(1, 1, &f));
        assert_int_equal(f.n, 0); /* not waited for */
        slow += f.took_us > 1000;
    }
    assert_true(slow < 4); /* but for the machine's own pauses */
    put(1, 5, 60000, 0);   /* memory goes on */
    assert_true(has(1, 5));
    kill(rig.pid, SIGCONT);
    RUN_UNTIL(&loop, has(1, 1));
}

/* A lookup that is given up, and ports that close while something waits. */
static void test_cancel(void **state)
{
    (void)state;
    struct found f = {0}, g = {0};
    struct cache_entry *e;
    const struct cache_digest key = key_number(1);
    open_both(2000);
    store_budget_begin(store[0], &f.budget);
    store_budget_begin(store[0], &g.budget);
    assert_int_equal(store_get(port[0], &key, clock_wall_ms(), &f.budget, &f.wait, on_found, &e), STORE_WAIT);
    assert_int_equal(store_get(port[0], &key, clock_wall_ms(), &g.budget, &g.wait, on_found, &e), STORE_WAIT);
    store_cancel(&f.wait);
    store_cancel(&f.wait);
    RUN_UNTIL(&loop, g.n);
    assert_int_equal(f.n, 0);
    assert_int_equal(store_get(port[0], &key, clock_wall_ms(), &f.budget, &f.wait, on_found, &e), STORE_WAIT);
    close_store(0);
    turn(&loop);
    assert_int_equal(f.n, 0);
    f.budget.left_us = 900; /* less than a millisecond is nothing to wait for */
    assert_int_equal(store_get(port[1], &key, clock_wall_ms(), &f.budget, &f.wait, on_found, &e), STORE_MISS);
}

static void test_bad_options(void **state)
{
    (void)state;
    char why[256] = "";
    struct store_options o = {.name_space = ""};
    assert_null(store_new(&o, why));
    o.name_space = "a b";
    assert_null(store_new(&o, why));
    o.name_space = NULL;
    o.redis_url = "redis://";
    assert_null(store_new(&o, why));
    assert_string_not_equal(why, "");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_memory_alone), T(test_shared),         T(test_life),
        T(test_renewed),      T(test_broken_values),  T(test_purge_crosses),
        T(test_purges_meet),  T(test_purge_outlives), T(test_purge_while_away),
        T(test_frozen),       T(test_cancel),         cmocka_unit_test(test_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
