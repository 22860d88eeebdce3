/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of decisions: what is kept, in which order it is told, and that a reader never sees half of a
 * record while a writer overwrites it.
 */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "gateway/decisions.h"

/* Padding included, so that records can be compared as bytes. */
static void number(struct decision *d, uint64_t n)
{
    char text[24];
    memset(d, 0, sizeof *d);
    d->started_ms = d->finished_us = d->prompt_tokens = n;
    d->status = (int)n;
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    DECISION_TEXT(d->request_id, span_str(text));
    DECISION_TEXT(d->error, span_str(text));
}

static void test_texts_are_cut_between_characters(void **state)
{
    char small[6];
    decision_text(small, sizeof small, SPAN("abcde"));
    assert_string_equal(small, "abcde");
    decision_text(small, sizeof small, SPAN("abcdef"));
    assert_string_equal(small, "abcde");
    decision_text(small, sizeof small, SPAN("abcd\xc3\xa9"));
    assert_string_equal(small, "abcd");
    decision_text(small, sizeof small, SPAN("\xf0\x9f\x98\x80\xf0\x9f\x98\x80"));
    assert_string_equal(small, "\xf0\x9f\x98\x80");
    decision_text(small, sizeof small, SPAN_NONE);
    assert_string_equal(small, "");
}

static void test_the_newest_come_first_over_all_rings(void **state)
{
    struct decision_ring *ring[] = {decision_ring_new(), decision_ring_new(), decision_ring_new()};
    static struct decision got[DECISIONS_KEPT];
    assert_int_equal(decisions_newest(ring, 3, got, DECISIONS_KEPT), 0);
    /* The third ring stays empty, the first one gets two of three. */
    for (uint64_t n = 1; n <= 900; n++) {
        struct decision d;
        number(&d, n);
        decision_ring_put(ring[n % 3 == 0], &d);
    }
    assert_int_equal(decision_ring_count(ring[0]), 600);
    assert_int_equal(decisions_newest(ring, 3, got, DECISIONS_KEPT), DECISIONS_KEPT);
    for (uint64_t i = 0; i < DECISIONS_KEPT; i++)
        assert_int_equal(got[i].finished_us, 900 - i);
    assert_int_equal(decisions_newest(ring, 3, got, 7), 7);
    assert_int_equal(got[6].finished_us, 894);
    /* What a ring has overwritten is gone; what it has not is there. */
    struct decision d;
    assert_false(decision_ring_read(ring[0], 600 - DECISIONS_KEPT - 1, &d));
    assert_true(decision_ring_read(ring[0], 600 - DECISIONS_KEPT, &d));
    assert_false(decision_ring_read(ring[0], 600, &d));
    for (unsigned i = 0; i < 3; i++)
        decision_ring_free(ring[i]);
}

static void test_a_ring_that_is_not_full(void **state)
{
    struct decision_ring *ring = decision_ring_new();
    struct decision d, got[4];
    number(&d, 5);
    decision_ring_put(ring, &d);
    assert_int_equal(decisions_newest(&ring, 1, got, 4), 1);
    assert_memory_equal(&got[0], &d, sizeof d);
    decision_ring_free(ring);
}

/* --- a writer that laps its readers all the time */

enum { WRITES = 200000 };
struct race {
    struct decision_ring *ring;
    atomic_bool over;
};

static void *write_all(void *arg)
{
    struct race *r = arg;
    for (uint64_t n = 1; n <= WRITES; n++) {
        struct decision d;
        number(&d, n);
        decision_ring_put(r->ring, &d);
    }
    atomic_store(&r->over, true);
    return NULL;
}

static void test_readers_see_whole_records(void **state)
{
    struct race r = {.ring = decision_ring_new()};
    static struct decision got[DECISIONS_KEPT];
    pthread_t writer;
    uint64_t seen = 0, last = 0;
    assert_int_equal(pthread_create(&writer, NULL, write_all, &r), 0);
    for (bool over = false; !over;) {
        over = atomic_load(&r.over);
        unsigned n = decisions_newest(&r.ring, 1, got, DECISIONS_KEPT);
        for (unsigned i = 0; i < n; i++) {
            struct decision whole;
            number(&whole, got[i].finished_us);
            assert_memory_equal(&got[i], &whole, sizeof whole);
            assert_true(i == 0 || got[i].finished_us == got[i - 1].finished_us - 1);
        }
        assert_true(n == 0 || got[0].finished_us >= last);
        last = n ? got[0].finished_us : last;
        seen += n;
    }
    pthread_join(writer, NULL);
    assert_int_equal(last, WRITES);
    assert_true(seen >= DECISIONS_KEPT);
    decision_ring_free(r.ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_are_cut_between_characters),
        cmocka_unit_test(test_the_newest_come_first_over_all_rings),
        cmocka_unit_test(test_a_ring_that_is_not_full),
        cmocka_unit_test(test_readers_see_whole_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
