/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory store: what comes back, lives, purges, replacements, limits.
 */
#include "unit.h"

#include "cache/cache_unit.h"
#include "cache/memory.h"

struct rig {
    struct cache_purge *purge;
    struct cache_memory *memory;
};

static struct rig rig_new(uint64_t bytes)
{
    struct rig r = {.purge = purge_new()};
    r.memory = memory_new(&(struct memory_options){bytes, 65536, r.purge});
    return r;
}

static void rig_free(struct rig *r)
{
    memory_free(r->memory);
    purge_free(r->purge);
}

static enum memory_put_result put_at(struct rig *r, uint64_t i, uint64_t scope, size_t bytes, uint64_t now)
{
    struct cache_entry *e = entry_number(r->purge, i, scope, bytes);
    enum memory_put_result result = memory_put(r->memory, e, now);
    entry_unref(e);
    return result;
}

static bool has_at(struct rig *r, uint64_t i, uint64_t now)
{
    struct cache_digest key = key_number(i);
    struct cache_entry *e = memory_get(r->memory, &key, now);
    if (!e)
        return false;
    assert_int_equal(number_of(e), i);
    entry_unref(e);
    return true;
}

static void lives(void **state)
{
    (void)state;
    struct rig r = rig_new(1 << 20);
    struct memory_stats s;
    assert_false(has_at(&r, 1, T0));
    assert_int_equal(put_at(&r, 1, 1, 2048, T0), MEMORY_STORED);
    assert_true(has_at(&r, 1, T0));
    assert_true(has_at(&r, 1, T0 + 59999));
    assert_true(has_at(&r, 1, T0 + 89999)); /* stale, the caller decides */
    assert_false(has_at(&r, 1, T0 + 90000));
    assert_false(has_at(&r, 1, T0)); /* it is gone for good */
    assert_int_equal(put_at(&r, 1, 1, 2048, T0 + 90000), MEMORY_OUTDATED);
    memory_stats(r.memory, &s);
    assert_int_equal(s.entries, 0);
    assert_int_equal(s.hits, 2);
    assert_int_equal(s.stale_hits, 1);
    assert_int_equal(s.misses, 3);
    assert_int_equal(s.expired, 1);
    assert_int_equal(s.stored, 1);
    rig_free(&r);
}

static void replacing(void **state)
{
    (void)state;
    struct rig r = rig_new(1 << 20);
    struct cache_digest key = key_number(1);
    struct entry_facts f = facts_number(r.purge, 1, 1);
    struct cache_entry *first = entry_new(&f, SPAN("first")), *older, *younger, *got;
    f.created_ms++;
    younger = entry_new(&f, SPAN("second"));
    f.created_ms -= 2;
    older = entry_new(&f, SPAN("none"));
    assert_int_equal(memory_put(r.memory, first, T0), MEMORY_STORED);
    assert_int_equal(memory_put(r.memory, older, T0), MEMORY_OUTDATED);
    got = memory_get(r.memory, &key, T0);
    assert_ptr_equal(got, first);
    assert_int_equal(memory_put(r.memory, younger, T0), MEMORY_STORED);
    assert_true(span_eq(got->body, SPAN("first"))); /* who has it may go on with it */
    entry_unref(got);
    got = memory_get(r.memory, &key, T0);
    assert_ptr_equal(got, younger);
    entry_unref(got);
    assert_true(memory_remove(r.memory, &key));
    assert_false(memory_remove(r.memory, &key));
    assert_null(memory_get(r.memory, &key, T0));
    entry_unref(first);
    entry_unref(older);
    entry_unref(younger);
    rig_free(&r);
}

static void purged(void **state)
{
    (void)state;
    struct rig r = rig_new(1 << 20);
    struct memory_stats s;
    struct cache_entry *under_way = entry_number(r.purge, 3, 5, 10);
    put_at(&r, 1, 5, 10, T0);
    put_at(&r, 2, 6, 10, T0);
    purge_now(r.purge, PURGE_SCOPE, 5);
    assert_false(has_at(&r, 1, T0));
    assert_true(has_at(&r, 2, T0));
    assert_int_equal(memory_put(r.memory, under_way, T0), MEMORY_OUTDATED);
    put_at(&r, 1, 5, 10, T0); /* begun after the purge */
    assert_true(has_at(&r, 1, T0));
    purge_now(r.purge, PURGE_ALL, 0);
    for (int i = 0; i < 40; i++)
        memory_sweep(r.memory, T0, 1000);
    memory_stats(r.memory, &s);
    assert_int_equal(s.entries, 0);
    assert_int_equal(s.scopes, 0);
    assert_int_equal(s.purged, 3);
    entry_unref(under_way);
    rig_free(&r);
}

static void sweeping(void **state)
{
    (void)state;
    struct rig r = rig_new(64 << 20);
    struct memory_stats empty, s;
    memory_stats(r.memory, &empty);
    for (uint64_t i = 0; i < 2000; i++)
        put_at(&r, i, i % 5, 100, T0);
    unsigned freed = 0;
    for (int i = 0; i < 100; i++)
        freed += memory_sweep(r.memory, T0 + 89999, 1000);
    assert_int_equal(freed, 0);
    for (int i = 0; i < 100; i++)
        freed += memory_sweep(r.memory, T0 + 90000, 1000);
    assert_int_equal(freed, 2000);
    memory_stats(r.memory, &s);
    assert_int_equal(s.entries, 0);
    assert_int_equal(s.expired, 2000);
    rig_free(&r);
}

static void bounds(void **state)
{
    (void)state;
    struct rig none = rig_new(0), r = rig_new(1 << 20);
    struct memory_stats s;
    assert_int_equal(put_at(&none, 1, 1, 10, T0), MEMORY_TOO_LARGE);
    assert_false(has_at(&none, 1, T0));
    assert_int_equal(put_at(&r, 1, 1, 600 << 10, T0), MEMORY_TOO_LARGE);
    assert_int_equal(put_at(&r, 2, 1, 400 << 10, T0), MEMORY_STORED);
    for (uint64_t i = 10; i < 3000; i++) {
        assert_int_equal(put_at(&r, i, 1, 100 + i * 37 % 5000, T0), MEMORY_STORED);
        memory_stats(r.memory, &s);
        assert_true(s.bytes <= 1 << 20);
    }
    assert_true(s.bytes > (1 << 20) - 8192); /* it uses what it may */
    assert_int_equal(s.stored, s.entries + s.evicted);
    rig_free(&none);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lives),    cmocka_unit_test(replacing), cmocka_unit_test(purged),
        cmocka_unit_test(sweeping), cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
