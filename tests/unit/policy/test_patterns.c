/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/buf.h"
#include "policy/pattern_prefix.h"
#include "policy/patterns.h"

static struct patterns *one(const char *text, bool for_streams)
{
    char why[PATTERN_WHY];
    struct span s = span_str(text);
    if (!pattern_check(s, for_streams, why))
        fail_msg("%s: %s", text, why);
    return patterns_new(&s, 1, for_streams);
}

static void faults_of_patterns_are_told(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"a(b", "missing )"},      {"[z-a]", "invalid character class range"},
        {"a**", "bad repetition"}, {"(?=x)", "invalid perl operator"},
        {"\\1", "invalid escape"}, {"a*", "empty text"},
        {"^", "empty text"},       {"\\b", "empty text"},
        {"(a|)", "empty text"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char why[PATTERN_WHY] = "";
        assert_false(pattern_check(span_str(cases[i].text), false, why));
        if (!strstr(why, cases[i].why))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].text, why, cases[i].why);
    }
}

static void a_large_program_is_refused(void **state)
{
    char why[PATTERN_WHY] = "";
    assert_false(pattern_check(SPAN("((a{100}){100}){10}b"), false, why));
    assert_non_null(strstr(why, "repetition size"));
    assert_false(pattern_check(SPAN("(?:[\\p{L}]{500}){2}"), false, why));
    assert_non_null(strstr(why, "larger"));
}

static void one_scan_tells_which_may_match(void **state)
{
    struct span text[70];
    char store[70][16];
    for (unsigned i = 0; i < 70; i++) {
        snprintf(store[i], sizeof store[i], "word%u!", i);
        text[i] = span_str(store[i]);
    }
    text[69] = SPAN("^start");
    struct patterns *p = patterns_new(text, 70, false);
    uint64_t bits[2];
    assert_true(patterns_scan(p, SPAN("nothing"), bits)); /* the anchored one is always asked by itself */
    assert_int_equal(bits[0], 0);
    assert_int_equal(bits[1], 1u << 5);
    assert_true(patterns_scan(p, SPAN("word3! and word66!"), bits));
    assert_int_equal(bits[0], 1u << 3);
    assert_int_equal(bits[1], 1u << 5 | 1u << 2);
    struct pattern_hit hit;
    assert_true(patterns_find(p, 66, SPAN("word3! and word66!"), 0, &hit));
    assert_int_equal(hit.at, 11);
    assert_int_equal(hit.end, 18);
    assert_false(patterns_find(p, 66, SPAN("word3! and word66!"), 12, &hit));
    assert_true(patterns_find(p, 69, SPAN("start start"), 0, &hit));
    assert_false(patterns_find(p, 69, SPAN("start start"), 1, &hit));
    patterns_free(p);
}

static void what_stands_before_is_context(void **state)
{
    struct patterns *p = one("\\b[0-9]{4}\\b", false);
    struct pattern_hit hit;
    assert_false(patterns_find(p, 0, SPAN("x1234"), 1, &hit));
    assert_true(patterns_find(p, 0, SPAN("-1234"), 1, &hit));
    patterns_free(p);
}

static void pending_is_what_may_become_a_match(void **state)
{
    static const struct {
        const char *pattern, *text, *held;
    } cases[] = {
        {"secret", "no", ""},
        {"secret", "my se", "se"},
        {"secret", "sese", "se"},
        {"secret", "secret", "secret"}, /* whole: found and then behind it */
        {"[0-9]{4,6}", "a 12", "12"},
        {"[0-9]{4,6}", "a 12345", "12345"}, /* may get longer */
        {"[0-9]{4,6}", "a 12345 ", ""},
        {"\\b[0-9]{4}\\b", "x12", ""},
        {"\\b[0-9]{4}\\b", "x 1234", "1234"}, /* a letter may follow */
        {"\\b[0-9]{4}\\b", "x 12345", ""},
        {"(?i)SeCret", "my sEc", "sEc"},
        {"a(?i)b|c", "A", ""},
        {"a(?i)bd|c", "aB", "aB"},
        {"end$", "the end", "end"},
        {"end$", "the end.", ""},
        {"^abc", "ab", "ab"},
        {"^abc", "xab", ""},
        {"(?m)^abc", "x\nab", "ab"},
        {"x\\Q.*\\Ey", "x.", "x."},
        {"x\\Q.*\\Ey", "xx.a", ""},
        {"gr\xc3\xbc\xc3\x9f{2}e", "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"a{b", "a{", "a{"},
        {"[]x]y", "]", "]"},
        {"[[:digit:]]{2}-x", "a12-", "12-"},
        {"(?:ab)+c", "xabab", "abab"},
        {"(?P<n>ab)+c", "xabaa", "a"},
        {"\\x{41}\\x42c", "AB", "AB"},
        {"\\pL1", "\xc3\xbc", "\xc3\xbc"},
        {"(?s)a.b", "a\n", "a\n"},
        {"a.b", "a\n", ""},
        {"a.*?b", "xxa123", "a123"},
        {"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,24}", "write to joe", "joe"},
        {"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,24}", "write to joe@example.com", "joe@example.com"},
        {"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,24}", "write to ", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct patterns *p = one(cases[i].pattern, true);
        struct span text = span_str(cases[i].text);
        size_t at = patterns_pending(p, 0, text, 0);
        if (strcmp(text.p + at, cases[i].held) != 0)
            fail_msg("%s on \"%s\": \"%s\" is held, not \"%s\"", cases[i].pattern, text.p, text.p + at,
                     cases[i].held);
        patterns_free(p);
    }
}

/* All texts of up to LONGEST letters: a beginning of a text that matches as a whole must be held, and, for
 * expressions without assertions, nothing else. */
enum { LONGEST = 6 };
static const char letters[] = "ab1-";

static bool next_text(char *text)
{
    size_t n = strlen(text);
    for (size_t i = n; i-- > 0;) {
        const char *at = strchr(letters, text[i]);
        if (at[1]) {
            text[i] = at[1];
            return true;
        }
        text[i] = letters[0];
    }
    if (n >= LONGEST)
        return false;
    text[n] = letters[0];
    text[n + 1] = '\0';
    return true;
}

static uint32_t number_of(const char *text, size_t n)
{
    uint32_t v = 1;
    for (size_t i = 0; i < n; i++)
        v = v * 4 + (uint32_t)(strchr(letters, text[i]) - letters);
    return v;
}

static void beginnings_are_exact(void **state)
{
    static const char *const patterns[] = {
        "ab1",
        "a+b",
        "(?:ab)+1",
        "a|b1-",
        "a{2,4}b",
        "(?:a|b1){1,2}-",
        "a?b?1",
        "[ab]{2}1*-",
        "(?:a*b){2}",
        "(?:a|ab)(?:1|b1)",
        "a(?:b(?:1-)?)?a",
        "(?i:A)b",
        "(?:a{2}){2}1",
        "-(?:a?b?){2}-",
        "a(?:b|1)*?-",
        "[^a]a[^b]",
        ".-.",
    };
    static bool wanted[1 << (2 * LONGEST + 3)];
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        struct buf whole_text;
        buf_init(&whole_text, 1000);
        buf_printf(&whole_text, "^(?:%s)$", patterns[i]);
        BUF_LIT(&whole_text, "\0");
        struct patterns *whole = one(whole_text.p, false), *p = one(patterns[i], true);
        memset(wanted, 0, sizeof wanted);
        char text[LONGEST + 2] = "a";
        struct pattern_hit hit;
        do {
            size_t n = strlen(text);
            if (!patterns_find(whole, 0, span_of(text, n), 0, &hit))
                continue;
            for (size_t k = 1; k <= n; k++)
                wanted[number_of(text, k)] = true;
        } while (next_text(text));
        strcpy(text, "a");
        do {
            size_t n = strlen(text);
            bool held = patterns_pending(p, 0, span_of(text, n), 0) == 0;
            if (wanted[number_of(text, n)] && !held)
                fail_msg("%s: \"%s\" is not held", patterns[i], text);
            if (held && n <= LONGEST - 4 && !wanted[number_of(text, n)])
                fail_msg("%s: \"%s\" is held", patterns[i], text);
        } while (next_text(text));
        patterns_free(whole);
        patterns_free(p);
        buf_fini(&whole_text);
    }
}

static void what_cannot_be_cut_is_refused_for_streams_only(void **state)
{
    char why[PATTERN_WHY];
    assert_true(pattern_check(SPAN("a\\Cb"), false, why));
    assert_false(pattern_check(SPAN("a\\Cb"), true, why));
    assert_non_null(strstr(why, "streams"));
}

static void anchors_are_seen(void **state)
{
    static const char *const with[] = {"^a", "a$", "\\Aa", "a\\z", "(?:x|^a)", "\\C"};
    static const char *const without[] = {"a", "[$^]", "\\^a\\$", "\\Q^$\\E", "\\bx\\B", "[^a]"};
    for (size_t i = 0; i < ARRAY_LEN(with); i++)
        assert_true(pattern_has_anchor(span_str(with[i])));
    for (size_t i = 0; i < ARRAY_LEN(without); i++)
        assert_false(pattern_has_anchor(span_str(without[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_of_patterns_are_told),
        cmocka_unit_test(a_large_program_is_refused),
        cmocka_unit_test(one_scan_tells_which_may_match),
        cmocka_unit_test(what_stands_before_is_context),
        cmocka_unit_test(pending_is_what_may_become_a_match),
        cmocka_unit_test(beginnings_are_exact),
        cmocka_unit_test(what_cannot_be_cut_is_refused_for_streams_only),
        cmocka_unit_test(anchors_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
