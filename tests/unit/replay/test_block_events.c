/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model's caches tell: followed, it is what they hold; and the gateway's index, which hears the
 * same, finds just as much of each prompt.
 */
#include "unit.h"

#include "block_events.h"
#include "rules.h"
#include "trace_unit.h"

enum { REPLICAS = 3, REQUESTS = 1500, BLOCK = 16 };

/* In the order of submission: what each replica's cache holds when all that was given has been prefilled. */
static void changes_are_the_difference(void **state)
{
    static const uint32_t caps[] = {1, 5, 40, 1000};
    for (size_t k = 0; k < ARRAY_LEN(caps); k++) {
        struct trace t;
        struct rng r;
        static bool held[REPLICAS][4096];
        memset(held, 0, sizeof held);
        trace_init(&t, BLOCK);
        trace_unit_random(&t, 3 + k, REQUESTS, 7, 12, 20);
        struct model *m = model_new(
            &t, &(struct model_options){
                    .replicas = REPLICAS, .blocks = caps[k], .prefill_tps = 1000, .tells_changes = true});
        rng_seed(&r, k);
        for (size_t i = 0; i < t.n; i++) {
            const struct trace_request *q = &t.requests[i];
            unsigned to = (unsigned)rng_below(&r, REPLICAS);
            struct model_event e;
            uint32_t hit = model_submit(m, to, i, (i + 1) * UINT64_C(1000000000)).hit, n = 0;
            while (model_next(m, UINT64_MAX, &e)) { /* all of it, so that the cache is as told */
                if (e.kind != MODEL_FIRST)
                    continue;
                const uint32_t *blocks = trace_blocks(&t, q);
                while (n < q->n && held[to][blocks[n]])
                    n++;
                assert_int_equal(hit, trace_tokens(&t, q, n));
                struct model_change *c = model_take_change(m, i);
                for (uint32_t x = 0; x < c->n_stored + c->n_removed; x++) {
                    assert_int_equal(held[to][c->block[x]], x >= c->n_stored);
                    held[to][c->block[x]] = x < c->n_stored;
                }
                free(c);
                uint32_t count = 0;
                for (uint32_t b = 0; b < t.n_ids; b++)
                    count += held[to][b];
                assert_true(count <= caps[k]);
            }
        }
        model_free(m);
        trace_fini(&t);
    }
}

static void the_index_finds_what_the_caches_hold(void **state)
{
    static const uint32_t caps[] = {1, 5, 40, 1000};
    for (size_t k = 0; k < ARRAY_LEN(caps); k++) {
        struct trace t;
        struct rng r;
        trace_init(&t, BLOCK);
        trace_unit_random(&t, 30 + k, REQUESTS, 7, 12, 20);
        struct model *m = model_new(&t, &(struct model_options){.replicas = REPLICAS,
                                                                .blocks = caps[k],
                                                                .prefill_tps = 20000,
                                                                .decode_ms = 1,
                                                                .tells_changes = true});
        uint64_t lag_us = k * 5000;
        struct block_events *e = block_events_new(&t, REPLICAS, lag_us);
        uint32_t *ids = calloc(64 * BLOCK, sizeof *ids), found = 0;
        rng_seed(&r, k);
        for (size_t i = 0; i < t.n; i++) {
            const struct trace_request *q = &t.requests[i];
            uint64_t now = q->at_us + 1000;
            struct model_event ev;
            while (model_next(m, now, &ev))
                if (ev.kind == MODEL_FIRST)
                    block_events_add(e, ev.replica, model_take_change(m, ev.request), ev.us);
            block_events_apply(e, now);
            uint32_t matched[REPLICAS];
            rule_history_match(block_events_view(e), q, matched);
            struct kv_ask ask[REPLICAS];
            struct kv_share share[REPLICAS];
            for (unsigned x = 0; x < REPLICAS; x++)
                ask[x] = (struct kv_ask){block_events_sources(e)[x], "m"};
            struct token_ids tokens = {.id = ids, .n = block_events_ids(&t, q, ids)};
            assert_int_equal(tokens.n, q->input);
            bool any = kv_match(&tokens, SPAN_NONE, now / 1000, ask, REPLICAS, share);
            for (unsigned x = 0; any && x < REPLICAS; x++) {
                uint32_t full = matched[x] / BLOCK * BLOCK; /* the index knows whole blocks */
                assert_int_equal(share[x].tokens, full);
                found += full != 0;
            }
            model_submit(m, (unsigned)rng_below(&r, REPLICAS), i, now);
        }
        assert_true(found > (caps[k] > 1 ? 200 : 20));
        free(ids);
        block_events_free(e);
        model_free(m);
        trace_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_are_the_difference),
        cmocka_unit_test(the_index_finds_what_the_caches_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
