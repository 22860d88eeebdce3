/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix index under many threads at a time. What can be said then: a prompt that is resident all the
 * while is found in full whatever others do around it; when all is quiet, every invariant holds, and without
 * evictions and withdrawals exactly what was recorded is there.
 */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "balance/epoch.h"
#include "balance/prefix_index.h"
#include "base/check.h"
#include "base/rng.h"

enum { THREADS = 4, SLOTS = 5, ROUNDS = 30000, ANCHORS = 20, LONGEST = 24, KEPT = 4000, DRAWN_OUT = 1200 };

struct shared {
    struct prefix_index *ix;
    uint32_t slot[SLOTS]; /* the last one has the anchors */
    char anchor[ANCHORS][LONGEST];
    uint32_t anchor_n[ANCHORS];
    bool quiet;   /* nothing is taken out */
    bool is_long; /* each letter stands for DRAWN_OUT bytes */
    atomic_uint short_matches;
};

struct record {
    char text[LONGEST];
    uint32_t n;
    unsigned slot;
};

struct worker {
    pthread_t thread;
    struct shared *shared;
    struct rng rng;
    struct record kept[KEPT]; /* what it recorded, if quiet */
    unsigned n_kept;
};

static uint32_t any_prompt(struct rng *r, char *ret)
{
    uint32_t n = 1 + (uint32_t)rng_below(r, LONGEST);
    for (uint32_t i = 0; i < n; i++)
        ret[i] = (char)('a' + rng_below(r, 2));
    return n;
}

struct long_text {
    char bytes[LONGEST * DRAWN_OUT];
};

static struct span drawn_out(const struct shared *s, const char *letters, uint32_t n, struct long_text *buf)
{
    if (!s->is_long)
        return span_of(letters, n);
    for (uint32_t i = 0; i < n * DRAWN_OUT; i++)
        buf->bytes[i] = (char)(letters[i / DRAWN_OUT] + (i % DRAWN_OUT ? i % 23 : 0));
    return span_of(buf->bytes, n * DRAWN_OUT);
}

static void look_at_anchor(struct worker *w)
{
    struct shared *s = w->shared;
    struct prefix_hit hits[SLOTS];
    struct long_text buf;
    unsigned i = (unsigned)rng_below(&w->rng, ANCHORS);
    struct span p = drawn_out(s, s->anchor[i], s->anchor_n[i], &buf);
    prefix_match(s->ix, p, s->slot, SLOTS, hits);
    if (hits[SLOTS - 1].bytes != p.n)
        atomic_fetch_add(&s->short_matches, 1);
}

static void record(struct worker *w, struct prefix_receipt *ret_receipt)
{
    struct shared *s = w->shared;
    struct record r = {.slot = (unsigned)rng_below(&w->rng, SLOTS - 1)};
    struct prefix_hit hits[SLOTS];
    r.n = any_prompt(&w->rng, r.text);
    struct long_text buf;
    struct span p = drawn_out(s, r.text, r.n, &buf);
    prefix_section_begin();
    prefix_match(s->ix, p, s->slot, SLOTS, hits);
    *ret_receipt = prefix_record(s->ix, s->slot[r.slot], p, rng_below(&w->rng, 2) ? &hits[r.slot] : NULL);
    prefix_section_end();
    if (s->quiet && w->n_kept < KEPT)
        w->kept[w->n_kept++] = r;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct shared *s = w->shared;
    struct prefix_receipt receipts[8] = {0};
    for (unsigned i = 0; i < (s->quiet ? KEPT : s->is_long ? ROUNDS / 10 : ROUNDS); i++) {
        unsigned what = (unsigned)rng_below(&w->rng, 1000), k = (unsigned)rng_below(&w->rng, 8);
        look_at_anchor(w);
        if (s->quiet || what < 800) {
            record(w, &receipts[k]);
        } else if (what < 995) {
            prefix_withdraw(s->ix, receipts[k]);
            receipts[k] = (struct prefix_receipt){0};
        } else if (what < 998) {
            prefix_reset(s->ix, s->slot[rng_below(&w->rng, SLOTS - 1)]);
        } else {
            uint32_t slot = prefix_slot_get(s->ix, 1000 + rng_below(&w->rng, 30));
            assert_int_not_equal(slot, PREFIX_NO_SLOT);
            prefix_record(s->ix, slot, span_of("abba", 1 + k % 4), NULL);
            prefix_slot_put(s->ix, slot);
        }
    }
    return NULL;
}

enum how { LOUD, QUIET, LONG_TEXTS };

static struct worker *run(struct shared *s, struct prefix_limits limits, enum how how)
{
    struct long_text buf;
    struct worker *w = test_calloc(THREADS, sizeof *w);
    struct rng rng;
    rng_seed(&rng, 99);
    *s = (struct shared){.ix = prefix_index_new(limits), .quiet = how == QUIET, .is_long = how == LONG_TEXTS};
    for (unsigned i = 0; i < SLOTS; i++)
        s->slot[i] = prefix_slot_get(s->ix, i);
    for (unsigned i = 0; i < ANCHORS; i++) {
        s->anchor_n[i] = any_prompt(&rng, s->anchor[i]);
        prefix_record(s->ix, s->slot[SLOTS - 1], drawn_out(s, s->anchor[i], s->anchor_n[i], &buf), NULL);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        w[i].shared = s;
        rng_seed(&w[i].rng, 7 + i);
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(w[i].thread, NULL);
    prefix_check(s->ix);
    assert_int_equal(atomic_load(&s->short_matches), 0);
    return w;
}

static void everything_at_once(enum how how)
{
    struct shared s;
    struct worker *w = run(&s, (struct prefix_limits){.max_nodes = 60, .max_bytes = 1 << 20}, how);
    while (!prefix_tidy(s.ix, 100))
        ;
    prefix_check(s.ix);
    for (unsigned i = 0; i < SLOTS; i++) {
        struct prefix_stats st;
        /* Another one's splits may have put a slot above its cap after its last recording. */
        prefix_record(s.ix, s.slot[i], SPAN("c"), NULL);
        prefix_stats(s.ix, s.slot[i], &st);
        assert_true(i == SLOTS - 1 || st.nodes <= 60);
        assert_true(i == SLOTS - 1 || st.evictions > 0);
    }
    prefix_index_unref(s.ix);
    epoch_drain();
    test_free(w);
}

static void test_everything_at_once(void **state)
{
    everything_at_once(LOUD);
}

static void test_long_texts_at_once(void **state)
{
    everything_at_once(LONG_TEXTS);
}

/* A slot's prompts at the end of a quiet run are those recorded, in whatever order. */
static void test_equal_to_one_after_the_other(void **state)
{
    struct shared s;
    struct worker *w = run(&s, PREFIX_LIMITS_DEFAULT, QUIET);
    struct prefix_index *serial = prefix_index_new(PREFIX_LIMITS_DEFAULT);
    uint32_t slot[SLOTS];
    for (unsigned i = 0; i < SLOTS; i++)
        slot[i] = prefix_slot_get(serial, i);
    for (unsigned i = 0; i < ANCHORS; i++)
        prefix_record(serial, slot[SLOTS - 1], span_of(s.anchor[i], s.anchor_n[i]), NULL);
    for (unsigned t = 0; t < THREADS; t++)
        for (unsigned i = 0; i < w[t].n_kept; i++)
            prefix_record(serial, slot[w[t].kept[i].slot], span_of(w[t].kept[i].text, w[t].kept[i].n), NULL);
    for (unsigned i = 0; i < SLOTS; i++) {
        struct prefix_stats a, b;
        prefix_stats(s.ix, s.slot[i], &a);
        prefix_stats(serial, slot[i], &b);
        assert_int_equal(a.prompts, b.prompts);
        assert_int_equal(a.nodes, b.nodes);
        assert_int_equal(a.warmth, b.warmth);
    }
    struct rng rng;
    rng_seed(&rng, 5);
    for (unsigned i = 0; i < 5000; i++) {
        struct prefix_hit a[SLOTS], b[SLOTS];
        char text[LONGEST];
        struct span p = span_of(text, any_prompt(&rng, text));
        prefix_match(s.ix, p, s.slot, SLOTS, a);
        prefix_match(serial, p, slot, SLOTS, b);
        for (unsigned k = 0; k < SLOTS; k++)
            assert_int_equal(a[k].bytes, b[k].bytes);
    }
    prefix_index_unref(serial);
    prefix_index_unref(s.ix);
    test_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_at_once),
        cmocka_unit_test(test_long_texts_at_once),
        cmocka_unit_test(test_equal_to_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
