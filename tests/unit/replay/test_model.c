/* SPDX-License-Identifier: Apache-2.0
 *
 * The model beside a twin that is slow and simple: caches as arrays in the order of use, replicas with real
 * queues that begin a prefill when the one before has ended, time that goes from event to event.
 */
#include "unit.h"

#include <math.h>

#include "lru.h"
#include "model.h"
#include "trace_unit.h"

enum { REPLICAS = 3, CACHE_MAX = 40, REQUESTS = 300 };

struct twin_cache {
    uint32_t block[CACHE_MAX]; /* least recent first */
    unsigned n, cap;
};

static int twin_find(const struct twin_cache *c, uint32_t block)
{
    for (unsigned i = 0; i < c->n; i++)
        if (c->block[i] == block)
            return (int)i;
    return -1;
}

static void twin_drop(struct twin_cache *c, unsigned i)
{
    memmove(c->block + i, c->block + i + 1, (c->n - i - 1) * sizeof *c->block);
    c->n--;
}

static void twin_use(struct twin_cache *c, const uint32_t *blocks, uint32_t n)
{
    while (n-- > 0) {
        int at = twin_find(c, blocks[n]);
        if (at >= 0)
            twin_drop(c, (unsigned)at);
        else if (c->n == c->cap)
            twin_drop(c, 0);
        c->block[c->n++] = blocks[n];
    }
}

static uint32_t twin_match(const struct twin_cache *c, const uint32_t *blocks, uint32_t n)
{
    uint32_t i = 0;
    for (; i < n; i++)
        if (twin_find(c, blocks[i]) < 0)
            break;
    return i;
}

static void test_lru_is_its_twin(void **state)
{
    static const unsigned caps[] = {1, 2, 3, 7, CACHE_MAX};
    struct rng r;
    rng_seed(&r, 5);
    for (size_t k = 0; k < sizeof caps / sizeof *caps; k++) {
        struct lru *l = lru_new(caps[k]);
        struct twin_cache twin = {.cap = caps[k]};
        for (int step = 0; step < 20000; step++) {
            uint32_t blocks[12], n = (uint32_t)rng_below(&r, 13);
            /* Few numbers that repeat, and huge ones that meet in the table. */
            for (uint32_t i = 0; i < n; i++)
                blocks[i] = (uint32_t)rng_below(&r, 70) << (rng_below(&r, 8) ? 0 : 25);
            assert_int_equal(lru_match(l, blocks, n), twin_match(&twin, blocks, n));
            if (step % 3)
                lru_use(l, blocks, n), twin_use(&twin, blocks, n);
            assert_int_equal(lru_count(l), twin.n);
            for (uint32_t b = 0; b < 70; b++)
                assert_int_equal(lru_has(l, b), twin_find(&twin, b) >= 0);
        }
        lru_free(l);
    }
}

static void test_beginnings_stay(void **state)
{
    struct lru *l = lru_new(4);
    const uint32_t prompt[] = {1, 2, 3, 4, 5, 6}, other[] = {1, 9};
    lru_use(l, prompt, 6);
    assert_int_equal(lru_match(l, prompt, 6), 4);
    lru_use(l, other, 2);
    assert_int_equal(lru_match(l, prompt, 6), 3);
    lru_free(l);
}

/* The twin of the whole model. */

struct twin_request {
    unsigned replica;
    bool was_given, has_begun, has_first, has_ended;
    uint64_t begin_us, first_us, end_us;
    uint32_t hit;
};

struct twin {
    const struct trace *trace;
    struct model_options o;
    struct twin_cache cache[REPLICAS];
    struct twin_request request[REQUESTS];
    uint64_t free_us[REPLICAS];
};

static void twin_begin(struct twin *t, size_t i, uint64_t now_us)
{
    const struct trace_request *r = &t->trace->requests[i];
    struct twin_request *x = &t->request[i];
    struct twin_cache *c = &t->cache[x->replica];
    uint64_t hit = (uint64_t)twin_match(c, trace_blocks(t->trace, r), r->n) * t->trace->block_tokens;
    x->hit = hit < r->input ? (uint32_t)hit : r->input;
    x->has_begun = true;
    x->begin_us = now_us;
    x->first_us =
        now_us + (t->o.prefill_tps > 0 ? (uint64_t)llround((r->input - x->hit) * 1e6 / t->o.prefill_tps) : 0);
    x->end_us = x->first_us + (uint64_t)llround(r->output * t->o.decode_ms * 1000);
    twin_use(c, trace_blocks(t->trace, r), r->n);
}

/* One pass over everything that could happen at exactly <now_us>; true when something did. */
static bool twin_step(struct twin *t, uint64_t now_us)
{
    bool any = false;
    for (size_t i = 0; i < t->trace->n; i++) {
        struct twin_request *x = &t->request[i];
        if (x->has_begun && !x->has_first && x->first_us == now_us)
            x->has_first = any = true;
        if (x->has_first && !x->has_ended && x->end_us == now_us)
            x->has_ended = any = true;
    }
    for (unsigned replica = 0; replica < t->o.replicas; replica++) {
        bool busy = false;
        size_t next = SIZE_MAX;
        for (size_t i = t->trace->n; i-- > 0;) {
            const struct twin_request *x = &t->request[i];
            if (!x->was_given || x->replica != replica)
                continue;
            busy |= x->has_begun && !x->has_first;
            next = x->has_begun ? next : i;
        }
        if (!busy && next != SIZE_MAX)
            twin_begin(t, next, now_us), any = true;
    }
    return any;
}

static uint64_t twin_next_us(const struct twin *t)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < t->trace->n; i++) {
        const struct twin_request *x = &t->request[i];
        uint64_t us = !x->has_begun   ? UINT64_MAX
                      : !x->has_first ? x->first_us
                      : !x->has_ended ? x->end_us
                                      : UINT64_MAX;
        least = us < least ? us : least;
    }
    return least;
}

static void twin_advance(struct twin *t, uint64_t until_us)
{
    for (uint64_t us; (us = twin_next_us(t)) <= until_us && us != UINT64_MAX;)
        while (twin_step(t, us))
            ;
}

static void check_counts(const struct twin *t, const struct model *m)
{
    for (unsigned k = 0; k < t->o.replicas; k++) {
        unsigned in_flight = 0, waiting = 0;
        uint64_t busy = 0;
        for (size_t i = 0; i < t->trace->n; i++) {
            const struct twin_request *x = &t->request[i];
            const struct trace_request *r = &t->trace->requests[i];
            if (!x->was_given || x->replica != k || x->has_ended)
                continue;
            in_flight++;
            waiting += !x->has_begun;
            if (x->has_begun)
                busy += (r->input + r->output + t->trace->block_tokens - 1) / t->trace->block_tokens;
        }
        assert_int_equal(model_in_flight(m, k), in_flight);
        assert_int_equal(model_waiting(m, k), waiting);
        assert_int_equal(model_busy_blocks(m, k), busy);
    }
}

static void compare(uint64_t seed, const struct model_options *o)
{
    struct trace trace;
    static struct twin t;
    static struct model_served served[REQUESTS];
    struct model_event e;
    struct rng r;
    trace_init(&trace, 16);
    trace_unit_random(&trace, seed, REQUESTS, 6, 12, 60);
    t = (struct twin){.trace = &trace, .o = *o};
    for (unsigned k = 0; k < o->replicas; k++)
        t.cache[k].cap = o->blocks;
    struct model *m = model_new(&trace, o);
    rng_seed(&r, seed);
    uint64_t last = 0;
    for (size_t i = 0; i < trace.n; i++) {
        uint64_t now = trace.requests[i].at_us;
        unsigned to = (unsigned)rng_below(&r, o->replicas);
        for (; model_next(m, now, &e); last = e.us)
            assert_true(e.us >= last);
        twin_advance(&t, now);
        check_counts(&t, m);
        served[i] = model_submit(m, to, i, now);
        t.request[i] = (struct twin_request){.replica = to, .was_given = true};
        while (twin_step(&t, now))
            ;
        for (; model_next(m, now, &e); last = e.us)
            assert_true(e.us >= last);
        check_counts(&t, m);
    }
    twin_advance(&t, UINT64_MAX);
    while (model_next(m, UINT64_MAX, &e))
        ;
    check_counts(&t, m);
    uint64_t hits = 0;
    for (size_t i = 0; i < trace.n; i++) {
        assert_int_equal(served[i].hit, t.request[i].hit);
        assert_int_equal(served[i].begin_us, t.request[i].begin_us);
        assert_int_equal(served[i].first_us, t.request[i].first_us);
        assert_int_equal(served[i].end_us, t.request[i].end_us);
        hits += served[i].hit;
    }
    assert_true(hits > 0);
    model_free(m);
    trace_fini(&trace);
}

static void test_model_is_its_twin(void **state)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        compare(seed, &(struct model_options){1 + seed % REPLICAS, 20, 1000, 2});
        compare(seed, &(struct model_options){REPLICAS, CACHE_MAX, 3777, 0.25});
    }
    compare(99, &(struct model_options){2, 5, 0, 1});
    compare(98, &(struct model_options){2, 9, 300, 0});
}

static void test_backlog(void **state)
{
    struct trace t;
    trace_init(&t, 512);
    const uint64_t ids[] = {1, 2, 3, 4};
    trace_unit_add(&t, 0, 2048, 10, ids, 4);
    trace_unit_add(&t, 0, 2048, 10, ids, 4);
    trace_finish(&t);
    struct model *m = model_new(&t, &(struct model_options){2, 100, 1000, 30});
    struct model_served a = model_submit(m, 0, 0, 0), b = model_submit(m, 0, 1, 0);
    assert_int_equal(a.first_us, 2048000);
    assert_int_equal(a.end_us, 2348000);
    /* The second finds what the first has left: its prefill begins when that has ended, and is free. */
    assert_int_equal(b.begin_us, 2048000);
    assert_int_equal(b.hit, 2048);
    assert_int_equal(b.first_us, 2048000);
    assert_true(fabs(model_backlog(m, 0, 1000000) - 1048) < 1e-6);
    assert_true(model_backlog(m, 1, 0) == 0);
    model_free(m);
    trace_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lru_is_its_twin),
        cmocka_unit_test(test_beginnings_stay),
        cmocka_unit_test(test_model_is_its_twin),
        cmocka_unit_test(test_backlog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
