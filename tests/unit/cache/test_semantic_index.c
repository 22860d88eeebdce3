/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared copy of the semantic index in a real redis-server: two gateways, each with a memory of its own.
 */
#include "unit.h"

#include <math.h>

#include "base/rng.h"
#include "cache/semantic_index.h"
#include "cache/semantic_record.h"
#include "redis/redis_rig.h"

enum { DIMS = 16, WINDOW = 300, LIFE = 60000 };

static struct net_loop loop;
static struct resolver *resolver;
static struct rig rig;
static struct redis_client *client;
static struct semantic_port gateway[2];
static const struct cache_digest here = {{1}}, elsewhere = {{2}};

static int setup(void **state)
{
    (void)state;
    assert_int_equal(net_loop_init(&loop, 0), 0);
    resolver = resolver_new(&loop);
    rig_open(&rig, NULL);
    char why[256] = "";
    const struct redis_options o = {.url = rig.url, .consumer = "test", .answer_ms = 2000};
    struct redis_server *s = redis_server_new(&o, why);
    assert_string_equal(why, "");
    client = redis_client_new(s, &loop, resolver);
    redis_server_unref(s);
    RUN_UNTIL(&loop, redis_client_is_up(client));
    for (int i = 0; i < 2; i++)
        gateway[i] = (struct semantic_port){semantic_index_new(SIZE_MAX), client, "test:cache"};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_close(&rig);
    redis_client_free(client);
    for (int i = 0; i < 2; i++)
        semantic_index_free(gateway[i].index);
    resolver_free(resolver);
    net_loop_fini(&loop);
    return 0;
}

static int synced;
static void on_synced(struct semantic_sync *y)
{
    (void)y;
    synced++;
}

static void sync_now(int g, const struct cache_digest *partition)
{
    struct semantic_sync y = {.done = on_synced};
    synced = 0;
    assert_true(semantic_sync_start(&y, &gateway[g], partition, WINDOW, 2000));
    assert_int_equal(synced, 0);
    RUN_UNTIL(&loop, synced);
}

static struct embedding *vector_of(uint64_t n, unsigned dims)
{
    struct rng r;
    rng_seed(&r, n);
    struct embedding *e = embedding_new(dims);
    for (unsigned i = 0; i < dims; i++)
        e->x[i] = (float)rng_below(&r, 2000) - 1000;
    return e;
}

static void put(int g, const struct cache_digest *partition, uint64_t n, unsigned dims, uint64_t life)
{
    uint64_t now = clock_wall_ms();
    struct vectors_entry e = {.created_ms = now, .expires_ms = now + life, .note = SPAN("note")};
    memcpy(e.id, &n, sizeof(n));
    struct embedding *x = vector_of(n, dims);
    assert_true(semantic_index_put(&gateway[g], partition, WINDOW, x, &e, now));
    embedding_unref(x);
}

/* Whether gateway <g> finds entry <n>, as the best match of its own vector. */
static bool finds(int g, const struct cache_digest *partition, uint64_t n, unsigned dims)
{
    struct arena a;
    struct vectors_match m;
    arena_init(&a, NULL);
    struct embedding *x = vector_of(n, dims);
    unsigned found = vectors_find(semantic_index_vectors(gateway[g].index), partition->b, WINDOW, x->x, dims,
                                  0.999, clock_wall_ms(), &a, &m, 1);
    bool good = found && memcmp(m.entry.id, &n, sizeof(n)) == 0 && span_eq(m.entry.note, SPAN("note"));
    embedding_unref(x);
    arena_reset(&a);
    return good;
}

static struct semantic_index_stats stats(int g)
{
    struct semantic_index_stats s;
    semantic_index_stats(gateway[g].index, &s);
    return s;
}

static void entries_of_one_gateway_reach_the_other(void **state)
{
    (void)state;
    sync_now(1, &here); /* nothing there yet */
    put(0, &here, 1, DIMS, LIFE);
    assert_true(finds(0, &here, 1, DIMS));
    assert_false(finds(1, &here, 1, DIMS));
    sync_now(1, &here);
    assert_true(finds(1, &here, 1, DIMS));
    sync_now(1, &elsewhere);
    assert_false(finds(1, &elsewhere, 1, DIMS)); /* another partition is another stream */

    /* What was fetched once is not fetched again. */
    struct semantic_index_stats before = stats(1);
    sync_now(1, &here);
    assert_int_equal(stats(1).bytes, before.bytes);
    put(0, &here, 2, DIMS, LIFE);
    put(1, &here, 3, DIMS, LIFE);
    sync_now(1, &here);
    assert_true(finds(1, &here, 2, DIMS) && finds(1, &here, 3, DIMS));
    sync_now(0, &here);
    assert_true(finds(0, &here, 3, DIMS));
    /* Vectors of another dimension are an index of their own. */
    put(0, &here, 4, DIMS + 3, LIFE);
    sync_now(1, &here);
    assert_true(finds(1, &here, 4, DIMS + 3) && finds(1, &here, 1, DIMS));
}

static void a_gateway_that_starts_reads_back_in_pages(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < WINDOW + 50; n++)
        put(0, &here, n, DIMS, LIFE);
    struct answer a = {0};
    answer_init(&a);
    char key[160] = "test:cache:semantic:v5:{01";
    for (int i = 1; i < 32; i++)
        strcat(key, "00");
    strcat(key, "}");
    ASK(&loop, client, &a, "XLEN", key);
    assert_int_equal(a.integer, WINDOW); /* trimmed to the window */
    ASK(&loop, client, &a, "PTTL", key);
    assert_true(a.integer > LIFE / 2 && a.integer <= LIFE);
    sync_now(1, &here); /* the newest page */
    assert_true(finds(1, &here, WINDOW + 49, DIMS));
    assert_false(finds(1, &here, 50, DIMS));
    sync_now(1, &here); /* the rest */
    assert_true(finds(1, &here, 50, DIMS) && finds(1, &here, WINDOW + 49, DIMS));
    put(0, &here, 5000, DIMS, LIFE);
    sync_now(1, &here);
    assert_true(finds(1, &here, 5000, DIMS));
    buf_fini(&a.text);
}

static void lives_end_and_foreign_bytes_do_no_harm(void **state)
{
    (void)state;
    struct answer a = {0};
    answer_init(&a);
    put(0, &here, 1, DIMS, 30);
    put(0, &here, 2, DIMS, LIFE);
    uint64_t end = clock_wall_ms() + 40;
    char key[160] = "test:cache:semantic:v5:{01";
    for (int i = 1; i < 32; i++)
        strcat(key, "00");
    strcat(key, "}");
    ASK(&loop, client, &a, "XADD", key, "*", "r", "RSEM and nothing else");
    ASK(&loop, client, &a, "XADD", key, "*", "r", "");
    ASK(&loop, client, &a, "XADD", key, "*", "x", "1", "y", "2");
    RUN_UNTIL(&loop, clock_wall_ms() >= end);
    sync_now(1, &here);
    assert_true(finds(1, &here, 2, DIMS));
    assert_false(finds(1, &here, 1, DIMS)); /* a hit or a copy extends no life */
    assert_int_equal(stats(1).broken, 1);   /* others are no records at all */
    /* An older layout is never read. */
    ASK(&loop, client, &a, "RPUSH", "test:cache:semantic:v2:poison", "x");
    /* Another type under the key: a failure, no fault. */
    ASK(&loop, client, &a, "DEL", key);
    ASK(&loop, client, &a, "SET", key, "x");
    uint64_t failed = stats(1).failed;
    sync_now(1, &here);
    assert_int_equal(stats(1).failed, failed + 1);
    assert_true(finds(1, &here, 2, DIMS));
    buf_fini(&a.text);
}

static void without_redis_memory_goes_on(void **state)
{
    (void)state;
    put(0, &here, 1, DIMS, LIFE);
    rig_kill(&rig);
    RUN_UNTIL(&loop, !redis_client_is_up(client));
    struct semantic_sync y = {.done = on_synced};
    assert_false(semantic_sync_start(&y, &gateway[0], &here, WINDOW, 2000));
    semantic_sync_cancel(&y);
    put(0, &here, 2, DIMS, LIFE);
    assert_true(finds(0, &here, 1, DIMS) && finds(0, &here, 2, DIMS));
    /* A server that comes back empty. */
    rig_start(&rig, NULL);
    RUN_UNTIL(&loop, redis_client_is_up(client));
    sync_now(0, &here);
    put(0, &here, 3, DIMS, LIFE);
    sync_now(1, &here);
    assert_true(finds(0, &here, 1, DIMS) && finds(1, &here, 3, DIMS));
}

static void a_cancelled_sync_is_silent(void **state)
{
    (void)state;
    struct semantic_sync y = {.done = on_synced};
    synced = 0;
    assert_true(semantic_sync_start(&y, &gateway[0], &here, WINDOW, 2000));
    semantic_sync_cancel(&y);
    semantic_sync_cancel(&y);
    sync_now(0, &here);
    assert_int_equal(synced, 1);
}

static void records_survive_the_wire(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, SIZE_MAX);
    struct embedding *x = vector_of(7, 33), *got;
    struct vectors_entry e = {.created_ms = 1, .expires_ms = UINT64_MAX, .note = SPAN("abc")}, read;
    memset(e.id, 0xab, sizeof(e.id));
    semantic_record_write(&b, &e, x);
    assert_int_equal(b.n, SEMANTIC_RECORD_HEAD + 3 + 33 * 4);
    assert_true(semantic_record_read(buf_view(&b), &read, &got));
    assert_int_equal(got->dims, 33);
    assert_memory_equal(got->x, x->x, 33 * 4);
    assert_memory_equal(read.id, e.id, 32);
    assert_true(read.created_ms == 1 && read.expires_ms == UINT64_MAX && span_eq(read.note, e.note));
    embedding_unref(got);
    /* No byte may change, none be missing, none be more. */
    for (size_t i = 0; i < b.n; i++) {
        b.p[i] ^= 0x10;
        assert_false(semantic_record_read(buf_view(&b), &read, &got));
        b.p[i] ^= 0x10;
        assert_false(semantic_record_read(span_of(b.p, i), &read, &got));
    }
    buf_add_char(&b, 0);
    assert_false(semantic_record_read(buf_view(&b), &read, &got));
    buf_clear(&b);
    x->x[3] = NAN;
    semantic_record_write(&b, &e, x);
    assert_false(semantic_record_read(buf_view(&b), &read, &got));
    embedding_unref(x);
    buf_fini(&b);
}

static void expect_reply(const char *body, const char *why, unsigned dims, uint64_t tokens)
{
    uint64_t got_tokens;
    const char *got = NULL;
    struct embedding *e = embedding_read(span_str(body), &got_tokens, &got);
    if (!why) {
        assert_non_null(e);
        assert_int_equal(e->dims, dims);
        assert_int_equal(got_tokens, tokens);
    } else {
        assert_null(e);
        assert_string_equal(got, why);
    }
    embedding_unref(e);
}

static void replies_are_read_strictly(void **state)
{
    (void)state;
    expect_reply(
        "{\"data\":[{\"embedding\":[1,-2.5e0,3]}],\"usage\":{\"prompt_tokens\":4,\"total_tokens\":5}}", NULL,
        3, 4);
    expect_reply(
        "{\"data\":[{\"index\":0,\"embedding\":[0,1]},{\"embedding\":[]}],\"usage\":{\"total_tokens\":5}}",
        NULL, 2, 5);
    expect_reply("{\"data\":[{\"embedding\":[1]}]}", NULL, 1, UINT64_MAX);
    expect_reply("<html>", "json", 0, 0);
    expect_reply("", "json", 0, 0);
    expect_reply("{\"data\":[{\"embedding\":[NaN]}]}", "json", 0, 0);
    expect_reply("{\"data\":[{\"embedding\":[1,null]}]}", "number", 0, 0);
    expect_reply("{\"data\":[{\"embedding\":[1,\"2\"]}]}", "number", 0, 0);
    expect_reply("{\"data\":[{\"embedding\":[1e999]}]}", "number", 0, 0);
    expect_reply("{\"data\":[{\"embedding\":[1e300]}]}", "direction", 0, 0);
    expect_reply("{\"data\":[{\"embedding\":[0,0]}]}", "direction", 0, 0);
    expect_reply("{\"data\":[{\"embedding\":[]}]}", "empty", 0, 0);
    expect_reply("{\"data\":[{\"embedding\":\"AAAA\"}]}", "shape", 0, 0);
    expect_reply("{\"data\":[]}", "shape", 0, 0);
    expect_reply("{\"data\":{}}", "shape", 0, 0);
    expect_reply("{\"error\":{}}", "shape", 0, 0);
    expect_reply("[]", "shape", 0, 0);
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, "{\"data\":[{\"embedding\":[1");
    for (int i = 0; i < VECTORS_DIMS_MAX; i++)
        buf_add_str(&b, ",0");
    buf_add_str(&b, "]}]}");
    buf_add_char(&b, '\0');
    expect_reply(b.p, "too_long", 0, 0);
    buf_clear(&b);
    embedding_write_request(&b, SPAN("m\"1"), SPAN("a \"b\" \xc3\xa9"));
    assert_true(span_eq(buf_view(&b), SPAN("{\"model\":\"m\\\"1\",\"input\":\"a \\\"b\\\" \xc3\xa9\"}")));
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_survive_the_wire),
        cmocka_unit_test(replies_are_read_strictly),
        cmocka_unit_test_setup_teardown(entries_of_one_gateway_reach_the_other, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gateway_that_starts_reads_back_in_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(lives_end_and_foreign_bytes_do_no_harm, setup, teardown),
        cmocka_unit_test_setup_teardown(without_redis_memory_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cancelled_sync_is_silent, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
