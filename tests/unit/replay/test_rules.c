/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "rules.h"
#include "trace_unit.h"

enum { N = 3 };

struct scene {
    struct trace trace;
    struct model *model;
    struct rng rng;
};

/* Requests of 4 blocks of 100 tokens; <loads> of them are put on each replica first, at time 0. */
static void scene_init(struct scene *s, const unsigned *loads)
{
    uint64_t ids[4];
    trace_init(&s->trace, 100);
    for (uint64_t k = 0; k < 200; k++) {
        for (uint64_t i = 0; i < 4; i++)
            ids[i] = 10 * k + i;
        trace_unit_add(&s->trace, 0, 400, 100, ids, 4);
    }
    trace_finish(&s->trace);
    s->model = model_new(&s->trace, &(struct model_options){N, 1000, 100, 1000});
    rng_seed(&s->rng, 1);
    struct model_event e;
    for (unsigned r = 0, k = 1; r < N; r++)
        for (unsigned i = 0; i < loads[r]; i++)
            model_submit(s->model, r, k++, 0);
    while (model_next(s->model, 0, &e))
        ;
}

static unsigned pick(struct scene *s, enum rule_id id, unsigned a, unsigned b, unsigned c)
{
    const uint32_t matched[N] = {a, b, c};
    return rule_pick(id, &(struct rule_view){s->model, &s->trace.requests[0], matched, N, 1000, 0, &s->rng});
}

static void scene_fini(struct scene *s)
{
    model_free(s->model);
    trace_fini(&s->trace);
}

static void test_sglang(void **state)
{
    struct scene s;
    scene_init(&s, (const unsigned[]){5, 3, 1});
    assert_int_equal(pick(&s, RULE_SGLANG, 201, 0, 0), 0); /* more than half matches */
    assert_int_equal(pick(&s, RULE_SGLANG, 200, 0, 0), 2); /* not more: the least loaded */
    assert_int_equal(pick(&s, RULE_SGLANG, 300, 301, 0), 1);
    scene_fini(&s);
    scene_init(&s, (const unsigned[]){34, 3, 1});
    assert_int_equal(pick(&s, RULE_SGLANG, 400, 0, 0), 2); /* 33 ahead and more than 1.1 times */
    scene_fini(&s);
    scene_init(&s, (const unsigned[]){33, 3, 1});
    assert_int_equal(pick(&s, RULE_SGLANG, 400, 0, 0), 0); /* 32 is not over 32 */
    scene_fini(&s);
}

static void test_lmetric(void **state)
{
    struct scene s;
    /* Backlogs of 400 tokens for each request there. (400 b + miss) (n + 1): */
    scene_init(&s, (const unsigned[]){1, 0, 0});
    assert_int_equal(pick(&s, RULE_LMETRIC, 400, 0, 0) == 0, false); /* 800 against 400 */
    assert_int_equal(pick(&s, RULE_LMETRIC, 0, 0, 1), 2);
    scene_fini(&s);
    scene_init(&s, (const unsigned[]){1, 1, 2});
    assert_int_equal(pick(&s, RULE_LMETRIC, 0, 100, 400), 1); /* 1600, 1400, 2400 */
    scene_fini(&s);
}

static void test_llmd(void **state)
{
    struct scene s;
    scene_init(&s, (const unsigned[]){3, 2, 1}); /* waiting 2, 1, 0 */
    assert_int_equal(pick(&s, RULE_LLMD, 0, 0, 0), 2);
    assert_int_equal(pick(&s, RULE_LLMD, 200, 0, 0), 2);   /* 1.5 against 2 */
    assert_int_equal(pick(&s, RULE_LLMD, 300, 0, 0), 0);   /* 2.25 against 2 */
    assert_int_equal(pick(&s, RULE_LLMD, 300, 200, 0), 1); /* 2.25, 1.5 + 1, 2 */
    scene_fini(&s);
}

static void test_exact(void **state)
{
    struct scene s;
    scene_init(&s, (const unsigned[]){4, 2, 0}); /* 0, 0.125, 0.25 for the load */
    assert_int_equal(pick(&s, RULE_EXACT, 0, 0, 0), 2);
    assert_int_equal(pick(&s, RULE_EXACT, 110, 0, 0), 0);  /* 0.275 against 0.25 */
    assert_int_equal(pick(&s, RULE_EXACT, 110, 80, 0), 1); /* 0.275, 0.325, 0.25 */
    scene_fini(&s);
}

static void test_ties_go_everywhere(void **state)
{
    struct scene s;
    scene_init(&s, (const unsigned[]){0, 0, 0});
    for (int id = 0; id < RULE_COUNT; id++) {
        unsigned count[N] = {0};
        for (int i = 0; i < 300; i++)
            count[pick(&s, (enum rule_id)id, 0, 0, 0)]++;
        for (int i = 0; i < N; i++)
            assert_in_range(count[i], 60, 140);
    }
    scene_fini(&s);
}

/* The history beside a list of who was sent what. */
static void test_history(void **state)
{
    enum { REPLICAS = 5, REQUESTS = 400 };
    struct trace t;
    struct rng r;
    static bool sent[REPLICAS][4096];
    trace_init(&t, 16);
    trace_unit_random(&t, 7, REQUESTS, 9, 10, 1);
    struct rule_history *h = rule_history_new(&t, REPLICAS);
    rng_seed(&r, 7);
    for (size_t i = 0; i < t.n; i++) {
        const struct trace_request *q = &t.requests[i];
        const uint32_t *blocks = trace_blocks(&t, q);
        uint32_t matched[REPLICAS];
        rule_history_match(h, q, matched);
        for (unsigned k = 0; k < REPLICAS; k++) {
            uint32_t n = 0;
            while (n < q->n && sent[k][blocks[n]])
                n++;
            assert_int_equal(matched[k], n * 16 < q->input ? n * 16 : q->input);
        }
        unsigned to = (unsigned)rng_below(&r, REPLICAS);
        rule_history_add(h, q, to);
        for (uint32_t n = 0; n < q->n; n++)
            sent[to][blocks[n]] = true;
    }
    rule_history_free(h);
    trace_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sglang),
        cmocka_unit_test(test_lmetric),
        cmocka_unit_test(test_llmd),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_ties_go_everywhere),
        cmocka_unit_test(test_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
