/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix index by worked examples: sharing, eviction, withdrawing, resets, slots, bounds.
 */
#include "unit.h"

#include "balance/epoch.h"
#include "balance/prefix_index.h"
#include "base/check.h"
#include "base/rng.h"

static struct prefix_index *index_new(uint64_t max_nodes)
{
    return prefix_index_new((struct prefix_limits){.max_nodes = max_nodes, .max_bytes = 1 << 28});
}

static uint32_t match(struct prefix_index *ix, uint32_t slot, const char *prompt)
{
    struct prefix_hit hit;
    prefix_match(ix, span_str(prompt), &slot, 1, &hit);
    return hit.bytes;
}

static struct prefix_receipt record(struct prefix_index *ix, uint32_t slot, const char *prompt)
{
    return prefix_record(ix, slot, span_str(prompt), NULL);
}

static struct prefix_stats stats(struct prefix_index *ix, uint32_t slot)
{
    struct prefix_stats s;
    prefix_stats(ix, slot, &s);
    return s;
}

static void test_exact_to_the_byte(void **state)
{
    struct prefix_index *ix = index_new(1000);
    uint32_t slots[] = {prefix_slot_get(ix, 1), prefix_slot_get(ix, 2), prefix_slot_get(ix, 3),
                        PREFIX_NO_SLOT, prefix_slot_get(ix, 1)};
    struct prefix_hit hits[ARRAY_LEN(slots)];
    prefix_match(ix, SPAN("anything"), slots, ARRAY_LEN(slots), hits);
    for (unsigned i = 0; i < ARRAY_LEN(slots); i++)
        assert_int_equal(hits[i].bytes, 0);
    record(ix, slots[0], "system: be kind\nuser: one");
    record(ix, slots[1], "system: be kind\nuser: two");
    record(ix, slots[2], "system");
    prefix_match(ix, SPAN("system: be kind\nuser: one more"), slots, ARRAY_LEN(slots), hits);
    assert_int_equal(hits[0].bytes, 25);
    assert_int_equal(hits[1].bytes, 22);
    assert_int_equal(hits[2].bytes, 6);
    assert_int_equal(hits[3].bytes, 0);
    assert_int_equal(hits[4].bytes, 25);
    assert_int_equal(match(ix, slots[0], "system: be k"), 12);
    assert_int_equal(match(ix, slots[0], ""), 0);
    /* NUL and high bytes are bytes. */
    prefix_record(ix, slots[2], SPAN("\0\xff\0\x80"), NULL);
    prefix_match(ix, SPAN("\0\xff\0\x81"), slots, 3, hits);
    assert_int_equal(hits[2].bytes, 3);
    prefix_check(ix);
    prefix_index_unref(ix);
}

static void test_eviction_at_cap_3(void **state)
{
    struct prefix_index *ix = index_new(3);
    uint32_t s = prefix_slot_get(ix, 1);
    record(ix, s, "a");
    record(ix, s, "b");
    record(ix, s, "c");
    record(ix, s, "a"); /* is the newest now */
    match(ix, s, "b");  /* stays the oldest */
    assert_int_equal(stats(ix, s).nodes, 3);
    assert_int_equal(record(ix, s, "d").evicted, 1);
    assert_int_equal(match(ix, s, "a"), 1);
    assert_int_equal(match(ix, s, "b"), 0);
    assert_int_equal(match(ix, s, "c"), 1);
    assert_int_equal(match(ix, s, "d"), 1);
    assert_int_equal(stats(ix, s).nodes, 3);
    assert_int_equal(stats(ix, s).prompts, 3);
    assert_int_equal(stats(ix, s).evictions, 1);
    prefix_check(ix);
    prefix_index_unref(ix);
}

static void test_shared_prefix_survives(void **state)
{
    struct prefix_index *ix = index_new(2);
    uint32_t s = prefix_slot_get(ix, 1);
    record(ix, s, "share-a");
    assert_int_equal(stats(ix, s).nodes, 1);
    record(ix, s, "share-b");
    assert_int_equal(match(ix, s, "share-a"), 6);
    assert_int_equal(match(ix, s, "share-b"), 7);
    /* What parted has grown together again. */
    assert_int_equal(stats(ix, s).nodes, 1);
    /* Recording again adds nothing. */
    uint64_t bytes = stats(ix, s).bytes;
    record(ix, s, "share-b");
    assert_int_equal(stats(ix, s).bytes, bytes);
    assert_int_equal(stats(ix, s).warmth, 3);
    prefix_check(ix);
    prefix_index_unref(ix);
}

/* One slot's eviction takes nothing from another. */
static void test_slots_are_apart(void **state)
{
    struct prefix_index *ix = index_new(1);
    uint32_t a = prefix_slot_get(ix, 1), b = prefix_slot_get(ix, 2);
    record(ix, a, "one");
    record(ix, b, "one");
    record(ix, a, "two");
    assert_int_equal(match(ix, a, "one"), 0);
    assert_int_equal(match(ix, b, "one"), 3);
    assert_int_equal(stats(ix, b).evictions, 0);
    prefix_check(ix);
    prefix_index_unref(ix);
}

static void test_text_is_stored_once(void **state)
{
    enum { TARGETS = 100, LENGTH = 30000 };
    static char text[LENGTH];
    struct prefix_index *ix = index_new(1000);
    memset(text, 'x', sizeof text);
    uint32_t first = prefix_slot_get(ix, 0);
    prefix_record(ix, first, span_of(text, LENGTH), NULL);
    uint64_t before = prefix_memory(ix);
    for (unsigned i = 1; i < TARGETS; i++)
        prefix_record(ix, prefix_slot_get(ix, i), span_of(text, LENGTH), NULL);
    /* Lanes and the places for prompts, but not the text. */
    assert_true(prefix_memory(ix) - before < TARGETS * 2600);
    assert_true(stats(ix, TARGETS - 1).bytes > LENGTH);
    prefix_check(ix);
    prefix_index_unref(ix);
}

static void test_withdraw(void **state)
{
    struct prefix_index *ix = index_new(1000);
    uint32_t s = prefix_slot_get(ix, 1);
    record(ix, s, "resident");
    /* What was resident before stays. */
    struct prefix_receipt again = record(ix, s, "resident"), longer = record(ix, s, "resident and more");
    prefix_withdraw(ix, again);
    assert_int_equal(match(ix, s, "resident and more"), 17);
    prefix_withdraw(ix, longer);
    assert_int_equal(match(ix, s, "resident and more"), 8);
    assert_int_equal(stats(ix, s).warmth, 1);
    assert_int_equal(prefix_warmth(ix, s), 1);
    /* Another request has brought the same prompt meanwhile: it stays until that one is withdrawn, too. */
    struct prefix_receipt one = record(ix, s, "new"), two = record(ix, s, "new");
    prefix_withdraw(ix, one);
    assert_int_equal(match(ix, s, "new"), 3);
    prefix_withdraw(ix, two);
    assert_int_equal(match(ix, s, "new"), 0);
    /* Nothing recorded, nothing withdrawn. */
    prefix_withdraw(ix, record(ix, s, ""));
    prefix_withdraw(ix, record(ix, PREFIX_NO_SLOT, "x"));
    assert_int_equal(stats(ix, s).warmth, 1);
    prefix_check(ix);
    prefix_index_unref(ix);
}

/* Receipts of prompts that have gone by other ways do no harm, though their places are used again. */
static void test_withdraw_too_late(void **state)
{
    struct prefix_index *ix = index_new(1);
    uint32_t s = prefix_slot_get(ix, 1);
    struct prefix_receipt evicted = record(ix, s, "first");
    record(ix, s, "second");
    record(ix, s, "third");
    prefix_withdraw(ix, evicted);
    assert_int_equal(match(ix, s, "third"), 5);
    assert_int_equal(stats(ix, s).warmth, 2);
    struct prefix_receipt before = record(ix, s, "fourth");
    prefix_reset(ix, s);
    prefix_tidy(ix, SIZE_MAX);
    record(ix, s, "fifth");
    prefix_reset(ix, s); /* the lane of the beginning again */
    record(ix, s, "sixth");
    prefix_withdraw(ix, before);
    assert_int_equal(match(ix, s, "sixth"), 5);
    assert_int_equal(stats(ix, s).warmth, 1);
    prefix_check(ix);
    prefix_index_unref(ix);
}

static void test_reset(void **state)
{
    struct prefix_index *ix = index_new(100);
    uint32_t a = prefix_slot_get(ix, 1), b = prefix_slot_get(ix, 2);
    char text[32];
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof text, "prompt %d", i);
        record(ix, a, text);
        record(ix, b, text);
    }
    uint64_t evictions = stats(ix, a).evictions, before = prefix_memory(ix);
    assert_true(evictions > 0);
    prefix_reset(ix, a);
    assert_int_equal(match(ix, a, "prompt 299"), 0);
    assert_int_equal(match(ix, b, "prompt 299"), 10);
    assert_int_equal(stats(ix, a).warmth, 0);
    assert_int_equal(stats(ix, a).nodes, 0);
    assert_int_equal(stats(ix, a).evictions, evictions);
    assert_false(prefix_tidy(ix, 1));
    /* Recordings clear up by the way. */
    for (int i = 0; i < 100; i++)
        record(ix, b, "prompt 299");
    assert_true(prefix_tidy(ix, 0));
    assert_true(prefix_memory(ix) < before);
    prefix_check(ix);
    prefix_index_unref(ix);
}

/* More resets than lanes, each of a warm slot, without anything that clears up in between. */
static void test_many_resets(void **state)
{
    struct prefix_index *ix = index_new(100);
    uint32_t a = prefix_slot_get(ix, 1), b = prefix_slot_get(ix, 2);
    record(ix, b, "kept");
    for (int i = 0; i < 2000; i++) {
        for (int k = 0; k < 6; k++) {
            char text[16];
            snprintf(text, sizeof text, "%d", k);
            record(ix, a, text);
        }
        prefix_reset(ix, a);
        assert_int_equal(match(ix, a, "1"), 0);
    }
    assert_int_equal(match(ix, b, "kept"), 4);
    prefix_check(ix);
    prefix_index_unref(ix);
}

static void test_slots_by_identity(void **state)
{
    struct prefix_index *ix = index_new(100);
    uint32_t a = prefix_slot_get(ix, 77), b = prefix_slot_get(ix, 78);
    assert_int_not_equal(a, b);
    record(ix, a, "warm");
    /* A second owner, as after a reload; then both leave, and the target returns. */
    assert_int_equal(prefix_slot_get(ix, 77), a);
    prefix_slot_put(ix, a);
    prefix_slot_put(ix, a);
    assert_int_equal(prefix_slot_get(ix, 77), a);
    assert_int_equal(match(ix, a, "warm"), 4);
    /* Too many idle ones: the longest idle is forgotten. */
    prefix_slot_put(ix, a);
    for (uint64_t id = 1000; id < 1100; id++) {
        uint32_t s = prefix_slot_get(ix, id);
        record(ix, s, "x");
        prefix_slot_put(ix, s);
    }
    assert_int_equal(match(ix, prefix_slot_get(ix, 77), "warm"), 0);
    assert_int_equal(match(ix, prefix_slot_get(ix, 1099), "x"), 1);
    prefix_index_unref(ix);
}

static void test_more_targets_than_slots(void **state)
{
    struct prefix_index *ix = index_new(100);
    uint32_t slots[PREFIX_SLOTS_MAX + 1];
    static struct prefix_hit hits[PREFIX_SLOTS_MAX + 1];
    for (unsigned i = 0; i <= PREFIX_SLOTS_MAX; i++) {
        slots[i] = prefix_slot_get(ix, i);
        char text[16];
        snprintf(text, sizeof text, "abc%u", i);
        record(ix, slots[i], text);
    }
    assert_int_equal(slots[PREFIX_SLOTS_MAX], PREFIX_NO_SLOT);
    prefix_match(ix, SPAN("abc300"), slots, PREFIX_SLOTS_MAX + 1, hits);
    for (unsigned i = 0; i < PREFIX_SLOTS_MAX; i++) {
        char text[16];
        snprintf(text, sizeof text, "abc%u", i);
        uint32_t expected = 3;
        while (expected < 6 && text[expected] == "abc300"[expected])
            expected++;
        assert_int_equal(hits[i].bytes, expected);
    }
    assert_int_equal(hits[PREFIX_SLOTS_MAX].bytes, 0);
    prefix_check(ix);
    prefix_index_unref(ix);
}

static void test_long_prompts_are_cut(void **state)
{
    static char text[PREFIX_PROMPT_MAX + 100];
    memset(text, 'p', sizeof text);
    struct prefix_index *ix = index_new(100), *tiny = prefix_index_new((struct prefix_limits){1, 1});
    uint32_t s = prefix_slot_get(ix, 1), t = prefix_slot_get(tiny, 1);
    struct prefix_hit hit;
    prefix_record(ix, s, span_of(text, sizeof text), NULL);
    prefix_match(ix, span_of(text, sizeof text), &s, 1, &hit);
    assert_int_equal(hit.bytes, PREFIX_PROMPT_MAX);
    /* Of one that is larger than the cap the beginning is kept. */
    prefix_record(tiny, t, span_of(text, sizeof text), NULL);
    prefix_match(tiny, span_of(text, sizeof text), &t, 1, &hit);
    assert_in_range(hit.bytes, 1000, PREFIX_MAX_BYTES_MIN);
    assert_true(stats(tiny, t).bytes <= PREFIX_MAX_BYTES_MIN);
    prefix_index_unref(ix);
    prefix_index_unref(tiny);
}

/* A new limit holds from the next recording. */
static void test_limits_change(void **state)
{
    struct prefix_index *ix = index_new(100);
    uint32_t s = prefix_slot_get(ix, 1);
    for (char c[2] = "a"; c[0] <= 'z'; c[0]++)
        record(ix, s, c);
    prefix_limits_set(ix, (struct prefix_limits){.max_nodes = 5, .max_bytes = 1 << 20});
    record(ix, s, "A");
    assert_int_equal(stats(ix, s).nodes, 5);
    assert_int_equal(stats(ix, s).evictions, 22);
    prefix_index_unref(ix);
}

/* A cap that is much lower than before is reached by steps: no pick waits for a whole index to go. */
static void test_limits_come_down_by_steps(void **state)
{
    enum { PROMPTS = 20000, STEP = 2048, CAP = 100 };
    struct prefix_index *ix = index_new(1000000);
    uint32_t s = prefix_slot_get(ix, 1);
    char text[32];
    for (unsigned i = 0; i < PROMPTS; i++) {
        snprintf(text, sizeof text, "%u", i * 2654435761U);
        record(ix, s, text);
    }
    prefix_limits_set(ix, (struct prefix_limits){.max_nodes = CAP, .max_bytes = 1 << 28});
    unsigned steps = 0;
    for (uint64_t before = stats(ix, s).prompts; stats(ix, s).nodes > CAP; steps++) {
        snprintf(text, sizeof text, "new %u", steps);
        record(ix, s, text);
        assert_true(stats(ix, s).prompts + STEP >= before);
        before = stats(ix, s).prompts;
    }
    assert_in_range(steps, PROMPTS / STEP - 1, PROMPTS / STEP + 2);
    prefix_check(ix);
    prefix_index_unref(ix);
}

/* Endless prompts, none like the other: the index does not grow past its cap. */
static void test_memory_stays_flat(void **state)
{
    enum { WARM_UP = 20000, PROMPTS = 300000 };
    struct prefix_index *ix =
        prefix_index_new((struct prefix_limits){.max_nodes = 2000, .max_bytes = 400000});
    uint32_t slots[2] = {prefix_slot_get(ix, 1), prefix_slot_get(ix, 2)};
    struct rng rng;
    uint64_t most_early = 0, most_late = 0;
    rng_seed(&rng, 3);
    for (unsigned i = 0; i < PROMPTS; i++) {
        char text[256] = "system: you are helpful\nuser: ";
        size_t n = strlen(text), end = n + 8 + rng_below(&rng, 200);
        while (n < end)
            text[n++] = (char)('a' + rng_below(&rng, 20));
        prefix_record(ix, slots[i % 2], span_of(text, n), NULL);
        uint64_t memory = i % 100 == 0 ? prefix_memory(ix) : 0;
        if (i < WARM_UP)
            most_early = memory > most_early ? memory : most_early;
        else
            most_late = memory > most_late ? memory : most_late;
        assert_true(i % 100 || stats(ix, slots[i % 2]).bytes <= 400000);
    }
    assert_true(most_late <= most_early + most_early / 50);
    assert_true(stats(ix, slots[0]).evictions > PROMPTS / 4);
    prefix_check(ix);
    prefix_index_unref(ix);
    epoch_drain();
}

/* All 256 bytes at one place, coming and going, so that tables of children grow and shrink through all sizes.
 */
static void test_all_bytes(void **state)
{
    struct prefix_index *ix = index_new(100000);
    uint32_t s = prefix_slot_get(ix, 1), other = prefix_slot_get(ix, 2);
    struct prefix_receipt receipts[256];
    struct rng rng;
    bool there[256] = {0};
    rng_seed(&rng, 1);
    record(ix, other, "hub");
    for (unsigned i = 0, up = 1; i < 40000; i++) {
        unsigned b = (unsigned)rng_below(&rng, 256);
        char text[5] = {'h', 'u', 'b', (char)b, 'x'};
        up = i % 1500 < 750;
        if (!there[b] && up)
            receipts[b] = prefix_record(ix, s, span_of(text, 5), NULL);
        if (there[b] && !up)
            prefix_withdraw(ix, receipts[b]);
        there[b] = up;
        unsigned look = (unsigned)rng_below(&rng, 256);
        struct prefix_hit hit;
        text[3] = (char)look;
        prefix_match(ix, span_of(text, 5), &s, 1, &hit);
        bool any = stats(ix, s).prompts > 0;
        assert_int_equal(hit.bytes, there[look] ? 5 : any ? 3 : 0);
        if (i % 100 == 0)
            prefix_check(ix);
    }
    prefix_index_unref(ix);
}

/* An attempt that may fail puts nothing out; when it stands, the caps hold again (A14, A15). */
static void test_pending_puts_nothing_out(void **state)
{
    struct prefix_index *ix = index_new(3);
    uint32_t s = prefix_slot_get(ix, 1);
    record(ix, s, "a");
    record(ix, s, "b");
    record(ix, s, "c");
    struct prefix_receipt failed = prefix_record_pending(ix, s, SPAN("d"), NULL);
    assert_int_equal(failed.evicted, 0);
    assert_int_equal(match(ix, s, "d"), 1);
    prefix_withdraw(ix, failed);
    assert_int_equal(match(ix, s, "a"), 1);
    assert_int_equal(match(ix, s, "d"), 0);
    assert_int_equal(stats(ix, s).evictions, 0);
    struct prefix_receipt stands = prefix_record_pending(ix, s, SPAN("d"), NULL);
    assert_int_equal(prefix_settle(ix, stands), 1);
    assert_int_equal(match(ix, s, "a"), 0);
    assert_int_equal(match(ix, s, "b"), 1);
    assert_int_equal(stats(ix, s).nodes, 3);
    assert_int_equal(stats(ix, s).evictions, 1);
    assert_int_equal(prefix_settle(ix, stands), 0);
    assert_int_equal(prefix_settle(ix, (struct prefix_receipt){0}), 0);
    prefix_check(ix);
    prefix_index_unref(ix);
}

/* However many attempts are under way at once, the slot is not far above its caps. */
static void test_pending_is_bounded(void **state)
{
    struct prefix_index *ix = index_new(160);
    uint32_t s = prefix_slot_get(ix, 1);
    for (unsigned i = 0; i < 5000; i++) {
        char prompt[8] = {(char)(i % 251), (char)(i / 251), 'x'};
        prefix_record_pending(ix, s, span_of(prompt, 3), NULL);
        assert_true(stats(ix, s).nodes <= 160 + 160 / 16 + PREFIX_PENDING_NODES + 2);
    }
    assert_true(stats(ix, s).nodes > 160);
    record(ix, s, "last");
    assert_true(stats(ix, s).nodes <= 160);
    prefix_check(ix);
    prefix_index_unref(ix);
}

/* Prompts that part from one text at each of its bytes, in both orders: a walk goes through so many nodes and
 * no more, claims no byte that is not there, and all of it goes again. */
static void test_walks_are_bounded(void **state)
{
    enum { TEXT = 3000, NODES = 1024 };
    static char text[TEXT + 1];
    for (unsigned up = 0; up < 2; up++) {
        struct prefix_index *ix = index_new(10000);
        uint32_t s = prefix_slot_get(ix, 1), hit_all = prefix_slot_get(ix, 2);
        for (unsigned i = 0; i < TEXT; i++)
            text[i] = (char)('a' + i * 7 % 26);
        prefix_record(ix, s, span_of(text, TEXT), NULL);
        prefix_record(ix, hit_all, span_of(text, TEXT), NULL);
        for (unsigned i = 0; i < TEXT; i++) {
            unsigned at = up ? i : TEXT - 1 - i;
            char was = text[at];
            text[at] = '!';
            prefix_record(ix, s, span_of(text, at + 1), NULL);
            text[at] = was;
        }
        uint32_t slots[] = {s, hit_all};
        struct prefix_hit hits[2];
        prefix_section_begin();
        prefix_match(ix, span_of(text, TEXT), slots, 2, hits);
        for (unsigned i = 0; i < 2; i++)
            assert_in_range(hits[i].bytes, NODES, TEXT);
        assert_in_range(hits[0].bytes, NODES, NODES + 1);
        /* Recorded again from there, or from the beginning: no further than a walk goes. */
        prefix_record(ix, s, span_of(text, TEXT), &hits[0]);
        prefix_section_end();
        prefix_record(ix, s, span_of(text, TEXT), NULL);
        prefix_check(ix);
        prefix_reset(ix, s);
        assert_true(prefix_tidy(ix, SIZE_MAX));
        prefix_check(ix);
        prefix_match(ix, span_of(text, TEXT), slots, 2, hits);
        assert_int_equal(hits[0].bytes, 0);
        assert_int_equal(hits[1].bytes, TEXT);
        prefix_index_unref(ix);
    }
}

/* A generation that was read before the last one was raised resets nothing. */
static void test_late_generation(void **state)
{
    struct prefix_index *ix = index_new(100);
    uint32_t s = prefix_slot_get(ix, 1);
    prefix_slot_generation(ix, s, 5);
    prefix_slot_generation(ix, s, 6);
    record(ix, s, "since six");
    prefix_slot_generation(ix, s, 5);
    prefix_slot_generation(ix, s, 6);
    assert_int_equal(match(ix, s, "since six"), 9);
    prefix_slot_generation(ix, s, 7);
    assert_int_equal(match(ix, s, "since six"), 0);
    prefix_index_unref(ix);
}

/* What may stand above a cap for a while is worked out from the cap: the largest ones are no exception. */
static void test_largest_limits(void **state)
{
    struct prefix_index *ix =
        prefix_index_new((struct prefix_limits){.max_nodes = UINT64_MAX, .max_bytes = UINT64_MAX});
    uint32_t s = prefix_slot_get(ix, 1);
    prefix_record_pending(ix, s, SPAN("one"), NULL);
    struct prefix_receipt two = prefix_record_pending(ix, s, SPAN("two"), NULL);
    prefix_record(ix, s, SPAN("three"), NULL);
    assert_int_equal(two.evicted + prefix_settle(ix, two), 0);
    assert_int_equal(stats(ix, s).prompts, 3);
    prefix_limits_set(ix, (struct prefix_limits){.max_nodes = INT64_MAX, .max_bytes = INT64_MAX});
    prefix_record_pending(ix, s, SPAN("four"), NULL);
    assert_int_equal(stats(ix, s).prompts, 4);
    prefix_index_unref(ix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_to_the_byte),
        cmocka_unit_test(test_eviction_at_cap_3),
        cmocka_unit_test(test_shared_prefix_survives),
        cmocka_unit_test(test_slots_are_apart),
        cmocka_unit_test(test_text_is_stored_once),
        cmocka_unit_test(test_withdraw),
        cmocka_unit_test(test_withdraw_too_late),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_many_resets),
        cmocka_unit_test(test_slots_by_identity),
        cmocka_unit_test(test_more_targets_than_slots),
        cmocka_unit_test(test_long_prompts_are_cut),
        cmocka_unit_test(test_limits_change),
        cmocka_unit_test(test_limits_come_down_by_steps),
        cmocka_unit_test(test_memory_stays_flat),
        cmocka_unit_test(test_all_bytes),
        cmocka_unit_test(test_pending_puts_nothing_out),
        cmocka_unit_test(test_pending_is_bounded),
        cmocka_unit_test(test_walks_are_bounded),
        cmocka_unit_test(test_late_generation),
        cmocka_unit_test(test_largest_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
