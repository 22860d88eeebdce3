/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <math.h>

#include "text.h"
#include "vectors.h"

static void tokens_do_not_depend_on_pieces_and_keep_prefixes(void **state)
{
    const struct span text = SPAN("The quick brown fox jumps over the lazy dog, \xc3\xa4gain.");
    struct tokens whole, cut, longer;
    tokens_init(&whole, 1000);
    tokens_init(&longer, 1000);
    tokens_text(&whole, text.p, text.n);
    tokens_end(&whole);
    assert_int_equal(whole.n, tokens_count(text.n));
    for (size_t at = 0; at <= text.n; at++) {
        tokens_init(&cut, 1000);
        tokens_text(&cut, text.p, at);
        tokens_put(&cut, text.p + at, text.n - at);
        tokens_end(&cut);
        assert_int_equal(cut.n, whole.n);
        assert_memory_equal(cut.v, whole.v, whole.n * sizeof *whole.v);
        tokens_fini(&cut);
    }
    tokens_text(&longer, text.p, text.n);
    tokens_mark(&longer, TOKEN_END);
    tokens_role(&longer, SPAN("user"));
    tokens_text(&longer, "more", 4);
    tokens_end(&longer);
    assert_int_equal(longer.n, whole.n + 3);
    assert_memory_equal(longer.v, whole.v, whole.n * sizeof *whole.v);
    assert_true(longer.v[whole.n + 1] >= TOKEN_ROLE_FIRST && longer.v[whole.n + 1] < TOKEN_FIRST_TEXT);
    for (size_t i = 0; i < whole.n; i++)
        assert_true(whole.v[i] >= TOKEN_FIRST_TEXT && whole.v[i] < TOKEN_VOCABULARY);
    tokens_fini(&whole);
    tokens_fini(&longer);
}

static void tokens_stop_at_their_maximum(void **state)
{
    struct tokens t;
    tokens_init(&t, 3);
    tokens_text(&t, "0123456789abcdefXY", 18);
    tokens_end(&t);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.total, 5);
    tokens_clear(&t);
    tokens_text(&t, "a", 1);
    tokens_end(&t);
    assert_int_equal(t.n, 1);
    tokens_fini(&t);
}

static void a_reply_has_as_many_tokens_as_it_says(void **state)
{
    char a[400], b[400];
    text_write(a, 42, 0, 100);
    text_write(b, 42, 0, 30);
    text_write(b + 120, 42, 30, 100);
    assert_memory_equal(a, b, 400);
    text_write(b, 43, 0, 100);
    assert_memory_not_equal(a, b, 400);
    struct tokens t;
    tokens_init(&t, 1000);
    tokens_text(&t, a, 400);
    tokens_end(&t);
    assert_int_equal(t.n, 100);
    tokens_fini(&t);
}

static double near(const char *a, const char *b, unsigned dims)
{
    float x[VECTOR_DIMS_MAX], y[VECTOR_DIMS_MAX];
    vector_of_text(span_str(a), x, dims);
    vector_of_text(span_str(b), y, dims);
    double sum = 0;
    for (unsigned i = 0; i < dims; i++)
        sum += (double)x[i] * x[i];
    assert_true(fabs(sum - 1) < 1e-5);
    return vector_cosine(x, y, dims);
}

static void similar_texts_are_near(void **state)
{
    const char *a = "How do I reset the password of my account?";
    const char *b = "how can I reset my account's password";
    const char *c = "What is the exchange rate for euros today?";
    for (unsigned dims = 64; dims <= 1024; dims *= 4) {
        assert_true(near(a, a, dims) > 0.99999);
        assert_true(near(a, b, dims) > 0.8);
        assert_true(near(a, c, dims) < 0.4);
    }
    assert_true(near("", "", 3) > 0.99); /* no feature at all: still a vector of length 1 */
    float x[64], y[64];
    const uint32_t ids[] = {5, 6, 7, 8}, others[] = {5, 6, 7, 9};
    vector_of_tokens(ids, 4, x, 64);
    vector_of_tokens(others, 4, y, 64);
    assert_true(vector_cosine(x, y, 64) > 0.4 && vector_cosine(x, y, 64) < 0.99);
}

static void rerank_counts_shared_words(void **state)
{
    double all = rerank_score(SPAN("red apples"), SPAN("Apples that are RED"));
    double half = rerank_score(SPAN("green apples"), SPAN("apples that are red"));
    assert_true(all > 0.999 && half > 0.3 && half < 0.7);
    assert_true(rerank_score(SPAN("red apples"), SPAN("pears")) == 0);
    assert_true(rerank_score(SPAN(""), SPAN("pears")) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_do_not_depend_on_pieces_and_keep_prefixes),
        cmocka_unit_test(tokens_stop_at_their_maximum),
        cmocka_unit_test(a_reply_has_as_many_tokens_as_it_says),
        cmocka_unit_test(similar_texts_are_near),
        cmocka_unit_test(rerank_counts_shared_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
