/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/check.h"
#include "base/rng.h"
#include "engine.h"

enum { BLOCK = 4, ROOM = 64 };

struct job {
    struct engine_request r;
    uint32_t tokens[BLOCK * ROOM];
    uint64_t hashes[ROOM];
    uint32_t ids[ROOM];
    uint32_t heard; /* tokens that `progress` told */
    unsigned calls;
};

static void on_progress(void *arg, struct engine_request *r, uint32_t n)
{
    struct job *j = CONTAINER_OF(r, struct job, r);
    j->heard += n;
    j->calls++;
    assert_int_equal(j->heard, r->emitted);
}

static struct engine *make(struct engine_options o)
{
    struct engine_events ev = {.progress = on_progress};
    o.block_size = BLOCK;
    return engine_new(&o, &ev);
}

/* A prompt of <n> tokens that counts up from <first>; the output goes on counting. */
static void prepare(struct job *j, uint32_t first, uint32_t n, uint32_t output)
{
    *j = (struct job){.r = {.prompt_n = n, .output_n = output}};
    for (uint32_t i = 0; i < n + output; i++)
        j->tokens[i] = first + i;
    engine_hash_blocks(BLOCK, 0, j->tokens, n + output, j->hashes);
    j->r.hashes = j->hashes;
    j->r.tokens = j->tokens;
    j->r.block_ids = j->ids;
}

static void prefill_is_serial_and_decode_side_by_side(void **state)
{
    struct engine *e = make(
        (struct engine_options){.blocks = 100, .prefill_tps = 1000, .decode_tps = 100, .max_running = 8});
    struct job a, b;
    prepare(&a, 0, 10, 3);
    prepare(&b, 1000, 20, 2);
    assert_true(engine_submit(e, &a.r, 5000));
    assert_true(engine_submit(e, &b.r, 6000));
    assert_int_equal(engine_running(e), 1);
    assert_int_equal(engine_waiting(e), 1);
    assert_int_equal(engine_next_us(e), 15000); /* 10 tokens at 1 ms */
    engine_advance(e, 14999);
    assert_int_equal(a.heard, 0);
    engine_advance(e, 15000);
    assert_int_equal(a.heard, 1);
    assert_int_equal(engine_running(e), 2);
    engine_advance(e, 25000);
    assert_int_equal(a.heard, 2);
    engine_advance(e, 34999);
    assert_int_equal(a.heard, 2);
    engine_advance(e, 35000); /* a's last token and the end of b's prefill */
    assert_int_equal(a.r.state, ENGINE_DONE);
    assert_int_equal(b.heard, 1);
    engine_advance(e, 45000);
    assert_int_equal(b.r.state, ENGINE_DONE);
    assert_int_equal(engine_next_us(e), UINT64_MAX);
    assert_int_equal(blocks_pinned(engine_blocks(e)), 0);
    assert_int_equal(engine_totals(e)->output_tokens, 5);
    assert_int_equal(engine_totals(e)->finished, 2);
    engine_free(e);
}

static void a_late_clock_changes_nothing(void **state)
{
    struct engine_options o = {.blocks = 60, .prefill_tps = 3000, .decode_tps = 170, .max_running = 3};
    uint64_t end[2][12];
    for (int late = 0; late < 2; late++) {
        struct engine *e = make(o);
        struct job j[12];
        for (uint32_t i = 0; i < 12; i++) {
            prepare(&j[i], i % 3 * 1000, 5 + i, 1 + i % 5);
            assert_true(engine_submit(e, &j[i].r, i * 1000));
        }
        if (late)
            engine_advance(e, 1000000000);
        while (engine_next_us(e) != UINT64_MAX)
            engine_advance(e, engine_next_us(e));
        for (int i = 0; i < 12; i++) {
            assert_int_equal(j[i].r.state, ENGINE_DONE);
            end[late][i] = j[i].r.due_us;
        }
        engine_free(e);
    }
    assert_memory_equal(end[0], end[1], sizeof end[0]);
}

static void resident_blocks_spare_prefill(void **state)
{
    struct engine *e = make((struct engine_options){.blocks = 100, .prefill_tps = 1000, .max_running = 8});
    struct job a, b, c, d;
    prepare(&a, 0, 10, 4);
    engine_submit(e, &a.r, 0);
    engine_advance(e, 1000000);
    assert_int_equal(a.r.cached_n, 0);
    assert_int_equal(a.calls, 1); /* decode is infinitely fast: all at once */
    /* The conversation goes on: prompt and output of a, of which 13 tokens were computed: 3 full blocks. */
    prepare(&b, 0, 20, 1);
    engine_submit(e, &b.r, 1000000);
    assert_int_equal(engine_next_us(e), 1008000);
    engine_advance(e, 2000000);
    assert_int_equal(b.r.cached_n, 12);
    /* The same again: the last of five full blocks has the token that must be computed. */
    prepare(&c, 0, 20, 1);
    engine_submit(e, &c.r, 2000000);
    engine_advance(e, 3000000);
    assert_int_equal(c.r.cached_n, 16);
    /* Another salt shares nothing. */
    prepare(&d, 0, 20, 1);
    engine_hash_blocks(BLOCK, 7, d.tokens, 21, d.hashes);
    engine_submit(e, &d.r, 3000000);
    engine_advance(e, 4000000);
    assert_int_equal(d.r.cached_n, 0);
    assert_int_equal(engine_totals(e)->prompt_tokens, 70);
    assert_int_equal(engine_totals(e)->cached_tokens, 28);
    engine_restart(e);
    assert_int_equal(blocks_resident(engine_blocks(e)), 0);
    assert_int_equal(engine_totals(e)->prompt_tokens, 0);
    engine_free(e);
}

static void limits_make_requests_wait_and_refuse(void **state)
{
    struct engine *e =
        make((struct engine_options){.blocks = 8, .decode_tps = 10, .max_running = 2, .max_waiting = 1});
    struct job j[5];
    for (uint32_t i = 0; i < 5; i++)
        prepare(&j[i], i * 100, 4, 2);
    assert_true(engine_submit(e, &j[0].r, 0));
    assert_true(engine_submit(e, &j[1].r, 0));
    assert_true(engine_submit(e, &j[2].r, 0));
    assert_int_equal(engine_waiting(e), 1);
    assert_false(engine_submit(e, &j[3].r, 0));
    assert_int_equal(j[3].r.state, ENGINE_IDLE);
    assert_int_equal(engine_totals(e)->refused, 1);
    engine_abort(e, &j[2].r, 1000);
    assert_int_equal(engine_waiting(e), 0);
    /* Blocks: two run with two each; one that needs six waits until one of them ends. */
    prepare(&j[4], 5000, 20, 1);
    assert_true(engine_submit(e, &j[4].r, 2000));
    assert_int_equal(j[4].r.state, ENGINE_WAITING);
    engine_abort(e, &j[0].r, 3000);
    assert_int_equal(j[4].r.state, ENGINE_DONE); /* infinitely fast prefill, one token */
    engine_advance(e, 1000000);
    assert_int_equal(j[1].r.state, ENGINE_DONE);
    assert_int_equal(engine_totals(e)->aborted, 2);
    assert_int_equal(blocks_pinned(engine_blocks(e)), 0);
    engine_free(e);
}

static void choices_share_the_prompt(void **state)
{
    struct engine *e = make((struct engine_options){.blocks = 100, .max_running = 1});
    struct job a;
    prepare(&a, 0, 10, 3);
    a.r.choices = 3;
    assert_int_equal(engine_blocks_needed(e, &a.r), 2 + 3 * 2); /* 2 full; 2 + 3 tokens of each choice */
    engine_submit(e, &a.r, 0);
    assert_int_equal(a.r.state, ENGINE_DONE);
    assert_int_equal(engine_totals(e)->output_tokens, 9);
    struct job none;
    prepare(&none, 0, 10, 0);
    none.r.no_cache = true;
    engine_submit(e, &none.r, 0);
    assert_int_equal(none.r.state, ENGINE_DONE);
    assert_int_equal(none.calls, 1);
    assert_int_equal(none.r.cached_n, 0);
    engine_free(e);
}

/* Whatever comes, goes and is taken out: nothing is lost, nothing stays pinned. */
static void random_traffic_leaves_nothing_behind(void **state)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct rng r;
        rng_seed(&r, seed);
        struct engine *e = make((struct engine_options){.blocks = 40,
                                                        .prefill_tps = seed % 3 ? 20000 : 0,
                                                        .decode_tps = seed % 2 ? 2000 : 0,
                                                        .max_running = 4,
                                                        .max_waiting = 6});
        struct job j[16] = {0};
        uint64_t now = 0, accepted = 0;
        for (int i = 0; i < 3000; i++) {
            struct job *at = &j[rng_below(&r, 16)];
            now += rng_below(&r, 500);
            if (at->r.state == ENGINE_IDLE || at->r.state == ENGINE_DONE) {
                prepare(at, (uint32_t)rng_below(&r, 3) * 1000, 1 + (uint32_t)rng_below(&r, 60),
                        (uint32_t)rng_below(&r, 20));
                accepted += engine_submit(e, &at->r, now);
            } else if (rng_below(&r, 3) == 0) {
                engine_abort(e, &at->r, now);
            } else {
                engine_advance(e, now);
            }
            assert_true(engine_running(e) <= 4);
            assert_true(engine_waiting(e) <= 6);
        }
        engine_advance(e, UINT64_MAX / 2);
        const struct engine_totals *t = engine_totals(e);
        assert_int_equal(t->finished + t->aborted, accepted);
        assert_true(t->finished > 100 && t->cached_tokens > 0 && t->cached_tokens < t->prompt_tokens);
        assert_int_equal(blocks_pinned(engine_blocks(e)), 0);
        blocks_verify(engine_blocks(e));
        engine_free(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_is_serial_and_decode_side_by_side),
        cmocka_unit_test(a_late_clock_changes_nothing),
        cmocka_unit_test(resident_blocks_spare_prefill),
        cmocka_unit_test(limits_make_requests_wait_and_refuse),
        cmocka_unit_test(choices_share_the_prompt),
        cmocka_unit_test(random_traffic_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
