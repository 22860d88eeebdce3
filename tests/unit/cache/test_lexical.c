/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/buf.h"
#include "base/mem.h"
#include "cache/lexical.h"

static const char *differ(const char *a, const char *b)
{
    struct arena arena;
    arena_init(&arena, NULL);
    struct span x = lexical_signature(span_str(a), &arena), y = lexical_signature(span_str(b), &arena);
    assert_true(x.n <= LEXICAL_SIGNATURE_MAX && y.n <= LEXICAL_SIGNATURE_MAX);
    const char *why = lexical_differ(x, y), *back = lexical_differ(y, x);
    if ((why == NULL) != (back == NULL))
        fail_msg("not symmetric: %s / %s", a, b);
    arena_reset(&arena);
    return why;
}

/* Calls <each> for the lines of a file of the test data; texts get the role word in front that they have in a
 * conversation. */
static unsigned each_line(const char *name, unsigned columns, void (*each)(char **column))
{
    char *path = mem_printf("%s/%s", ROLTER_TEST_DATA, name);
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    unsigned n = 0;
    assert_non_null(f);
    for (ssize_t len; (len = getline(&line, &cap, f)) > 0; n++) {
        char *column[3] = {line};
        line[len - 1] = '\0';
        for (unsigned i = 1; i < columns; i++) {
            column[i] = strchr(column[i - 1], '\t');
            assert_non_null(column[i]);
            *column[i]++ = '\0';
        }
        each(column);
    }
    free(line);
    fclose(f);
    free(path);
    return n;
}

static unsigned passed, kept;

static void check_miss(char **column)
{
    for (int with_role = 0; with_role < 2; with_role++) {
        char *a = mem_printf("%s%s", with_role ? "user " : "", column[1]);
        char *b = mem_printf("%s%s", with_role ? "user " : "", column[2]);
        if (!differ(a, b)) {
            print_message("passed, and must not (%s): %s / %s\n", column[0], column[1], column[2]);
            passed++;
        }
        free(a);
        free(b);
    }
}

static void no_must_miss_pair_passes(void **state)
{
    (void)state;
    assert_true(each_line("semantic_must_miss.tsv", 3, check_miss) >= 300);
    assert_int_equal(passed, 0);
}

static void check_hit(char **column)
{
    const char *why = differ(column[0], column[1]);
    kept += !why;
    if (why && getenv("ROLTER_TEST_VERBOSE"))
        print_message("%s: %s / %s\n", why, column[0], column[1]);
}

static void most_paraphrases_pass(void **state)
{
    (void)state;
    unsigned n = each_line("semantic_must_hit.tsv", 2, check_hit);
    assert_true(n >= 150);
    print_message("%u of %u paraphrases pass\n", kept, n);
    assert_true(kept * 10 >= n * 7);
}

static void expect(const char *a, const char *b, const char *why)
{
    const char *got = differ(a, b);
    if ((got == NULL) != (why == NULL) || (got && why && strcmp(got, why) != 0))
        fail_msg("%s instead of %s: %s / %s", got ? got : "agree", why ? why : "agree", a, b);
}

static void each_rule_speaks_for_itself(void **state)
{
    (void)state;
    expect("two hundred and five apples", "205 apples", NULL);
    expect("1,000,000 ants", "1 million ants", NULL);
    expect("1.5 million ants", "one million five hundred thousand ants", NULL);
    expect("the 3rd ant", "the third ant", NULL);
    expect("$20 for ants", "20 dollars for ants", NULL);
    expect("20% of ants", "20 percent of ants", NULL);
    expect("5km of ants", "5 kilometers of ants", NULL);
    expect("ants at 7pm", "ants at 7 PM", NULL);
    expect("5 ants", "6 ants", "number");
    expect("5 km", "5 miles", "unit");
    expect("ants on monday", "ants on friday", "date");
    expect("call f()", "call g()", "code");
    expect("who are the ants", "where are the ants", "question");
    expect("ants bite", "ants do not bite", "negation");
    expect("ants bite", "bees bite", "name");
    expect("in Turkey now", "in turkey now", "case");
    expect("open the jar", "close the jar", "direction");
    expect("jar of bees in a tub", "tub of bees in a jar", "order");
    expect("fix the jar", "draw the jar", "place");
    expect("fix the jar", "fix the red jar", "extra");
}

static void long_texts_end_in_a_digest(void **state)
{
    (void)state;
    struct buf a;
    buf_init(&a, SIZE_MAX);
    for (int i = 0; i < 3000; i++)
        buf_printf(&a, "word%d ", i);
    char *same = mem_printf("%.*slast", (int)a.n, a.p), *other = mem_printf("%.*sother", (int)a.n, a.p);
    expect(same, same, NULL);
    expect(same, other, "rest");
    free(same);
    free(other);
    buf_fini(&a);
}

static void names_what_only_one_has(void **state)
{
    (void)state;
    struct arena arena;
    struct span words[3];
    arena_init(&arena, NULL);
    struct span other = lexical_signature(SPAN("how much are 5 kilos of apples in Rome"), &arena);
    assert_int_equal(lexical_only(SPAN("how much are 5 kilos of apples in Rome"), other, &arena, words, 3),
                     0);
    assert_int_equal(lexical_only(SPAN("how much are 7 kilos of apples in Oslo"), other, &arena, words, 3),
                     2);
    assert_true(span_eq(words[0], SPAN("7")) && span_eq(words[1], SPAN("Oslo")));
    assert_int_equal(lexical_only(SPAN("why not 8 9 7 6"), other, &arena, words, 3), 3);
    assert_int_equal(lexical_only(SPAN(""), other, &arena, words, 3), 0);
    arena_reset(&arena);
}

static void foreign_signatures_are_refused(void **state)
{
    (void)state;
    char bytes[LEXICAL_SIGNATURE_MAX + 8] = {0};
    struct arena arena;
    arena_init(&arena, NULL);
    struct span s = lexical_signature(SPAN("some text"), &arena);
    assert_string_equal(lexical_differ(s, SPAN_NONE), "damaged");
    assert_string_equal(lexical_differ(s, span_of(bytes, 9)), "damaged");
    assert_string_equal(lexical_differ(span_of(bytes, sizeof(bytes)), s), "damaged");
    assert_non_null(lexical_differ(s, span_of(bytes, 16)));
    arena_reset(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_speaks_for_itself), cmocka_unit_test(long_texts_end_in_a_digest),
        cmocka_unit_test(names_what_only_one_has),     cmocka_unit_test(foreign_signatures_are_refused),
        cmocka_unit_test(no_must_miss_pair_passes),    cmocka_unit_test(most_paraphrases_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
