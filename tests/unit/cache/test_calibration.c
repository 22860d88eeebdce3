/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <math.h>

#include "cache/calibration.h"

static struct labelled_pairs read_pairs(struct arena *a, const char *csv)
{
    struct labelled_pairs p;
    char why[256] = "";
    if (!labelled_pairs_read(span_str(csv), a, &p, why))
        fail_msg("%s", why);
    return p;
}

static void expect_fault(const char *csv, const char *text)
{
    struct arena a;
    struct labelled_pairs p;
    char why[256] = "";
    arena_init(&a, NULL);
    assert_false(labelled_pairs_read(span_str(csv), &a, &p, why));
    if (!strstr(why, text))
        fail_msg("\"%s\" does not say \"%s\"", why, text);
    arena_reset(&a);
}

static void csv_is_read_as_it_is_written(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL);
    struct labelled_pairs p = read_pairs(&a, "\xef\xbb\xbfid,B,a,same,similarity\r\n"
                                             "1,\"x, \"\"y\"\"\nz\",u,1,0.5\r\n\r\n"
                                             "2,,v,no,\n"
                                             "3,w,\"\",TRUE,1");
    assert_int_equal(p.n, 3);
    assert_true(span_eq(p.at[0].b, SPAN("x, \"y\"\nz")) && span_eq(p.at[0].a, SPAN("u")) && p.at[0].same);
    assert_true(p.at[0].has_similarity && p.at[0].similarity == 0.5);
    assert_true(p.at[1].b.n == 0 && !p.at[1].same && !p.at[1].has_similarity);
    assert_true(p.at[2].same && p.at[2].a.n == 0 && p.at[2].similarity == 1);
    labelled_pairs_fini(&p);
    arena_reset(&a);
    expect_fault("", "head line");
    expect_fault("a,b\n1,2\n", "line 1");
    expect_fault("a,b,same\nx,y,1\nx,y,maybe\n", "line 3");
    expect_fault("a,b,same\n\"x\n\",y,1\nx\n", "line 4: has too few");
    expect_fault("a,b,same\n\"x,y,1\n", "line 2: a quotation mark");
    expect_fault("a,b,same,similarity\nx,y,1,high\n", "line 2: \"similarity\"");
}

static void curves_count_hits(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL);
    struct labelled_pairs p = read_pairs(&a, "a,b,same,similarity\n"
                                             "what is 2 + 2,what is 2 + 3,0,0.99\n"
                                             "reset my password,how do I reset my password,1,0.95\n"
                                             "open the jar,close the jar,0,0.93\n"
                                             "the capital of Peru,what is the capital of Peru,1,0.9\n"
                                             "red,blue,0,0.3\n");
    struct calibration c = calibration_at(&p, 0.9, false);
    assert_true(c.pairs == 5 && c.same == 2 && c.hits == 4 && c.right == 2);
    c = calibration_at(&p, 0.9, true);
    assert_true(c.hits == 2 && c.right == 2);
    assert_false(calibration_choose(&p, 0.1, false, &c)); /* the nearest pair is wrong */
    assert_true(calibration_choose(&p, 0.5, false, &c) == false);
    assert_true(calibration_choose(&p, 0.1, true, &c));
    assert_true(c.hits == 2 && c.right == 2 && c.threshold < 0.9);
    struct buf out;
    buf_init(&out, 1 << 20);
    calibration_print(&p, 0.1, &out);
    assert_true(span_find(buf_view(&out),
                          SPAN("the lexical guard keeps 2 of these and stops 3 of the other 3")) >= 0);
    assert_true(span_find(buf_view(&out), SPAN("no threshold keeps wrong hits at 10 %")) >= 0);
    buf_fini(&out);
    labelled_pairs_fini(&p);
    arena_reset(&a);
    assert_true(fabs(calibration_upper(0, 100) - 0.03699) < 1e-4);
    assert_true(fabs(calibration_upper(5, 100) - 0.11175) < 1e-4);
    assert_true(calibration_upper(0, 0) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_is_read_as_it_is_written),
        cmocka_unit_test(curves_count_hits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
