/* SPDX-License-Identifier: Apache-2.0
 *
 * The text that the offline replay picks by is what the gateway reads from the body that the live replay
 * sends.
 */
#include "unit.h"

#include "base/mem.h"
#include "dialect/dialect.h"
#include "prompt_text.h"
#include "trace_unit.h"

static void check_request(const struct prompt_text *p, const struct trace_request *r)
{
    struct buf body;
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    struct prompt_context c;
    buf_init(&body, 1 << 24);
    arena_init(&a, NULL);
    size_t n = prompt_text_bytes(p, r);
    buf_add_str(&body, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"");
    assert_true(buf_reserve(&body, n));
    assert_int_equal(prompt_text_write(p, r, body.p + body.n, n), n);
    body.n += n;
    buf_add_str(&body, "\"}],\"stream\":true}");
    assert_true(json_parse(&a, buf_view(&body), NULL, &d, &fault));
    dialect_prompt(DIALECT_CHAT, &d, &a, &c);
    char *text = mem_alloc(PROMPT_TEXT_MAX);
    size_t written = prompt_turn_write(p, r, text, PROMPT_TEXT_MAX);
    assert_false(c.is_raw);
    assert_true(span_eq(c.text, span_of(text, written)));
    assert_int_equal(c.len, prompt_turn_bytes(p, r));
    assert_true(c.digest == prompt_turn_digest(p, r));
    free(text);
    buf_fini(&body);
    arena_reset(&a);
}

static void test_as_the_gateway_reads_it(void **state)
{
    /* Around the cut: 16 blocks less "user: " and the line end. */
    static const unsigned inputs[] = {0, 1, 2, 511, 512, 513, 8188, 8190, 8191, 8192, 8193, 8704, 20000};
    static const uint32_t scales[] = {8, 64, 2048, 4096};
    uint64_t ids[40];
    for (unsigned i = 0; i < 40; i++)
        ids[i] = i * 977;
    struct trace t;
    trace_init(&t, 512);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        trace_unit_add(&t, i, inputs[i], 1, ids, 40);
    trace_finish(&t);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
        for (size_t i = 0; i < t.n; i++)
            check_request(&(struct prompt_text){&t, scales[s]}, &t.requests[i]);
    trace_fini(&t);
}

static void test_equal_ids_equal_text(void **state)
{
    const uint64_t a[] = {1, 2, 3}, b[] = {1, 2, 4};
    struct trace t;
    trace_init(&t, 512);
    trace_unit_add(&t, 0, 1500, 1, a, 3);
    trace_unit_add(&t, 1, 1536, 1, b, 3);
    trace_finish(&t);
    struct prompt_text p = {&t, 2048};
    static char x[8192], y[8192];
    assert_int_equal(prompt_text_write(&p, &t.requests[0], x, sizeof x), 6000);
    assert_int_equal(prompt_text_write(&p, &t.requests[1], y, sizeof y), 6144);
    assert_memory_equal(x, y, 4096);
    assert_memory_not_equal(x + 4096, y + 4096, 16);
    assert_int_equal(prompt_text_write(&p, &t.requests[1], x, 100), 100);
    assert_memory_equal(x, y, 100);
    /* The beginning of a block does not depend on how much of it is written. */
    char whole[64], part[64];
    block_text_write(whole, 77, 64);
    for (size_t n = 0; n <= 64; n++) {
        memset(part, 'Z', sizeof part);
        block_text_write(part, 77, n);
        assert_memory_equal(part, whole, n);
        for (size_t i = n; i < 64; i++)
            assert_int_equal(part[i], 'Z');
    }
    for (size_t i = 0; i < 64; i++)
        assert_true(i % 4 == 3 ? whole[i] == ' ' : whole[i] >= 'a' && whole[i] <= 'p');
    trace_fini(&t);
}

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, 64);
}

static void test_texts_differ(void **state)
{
    /* No two of many blocks begin with the same sixteen words. */
    enum { N = 20000 };
    char(*heads)[64] = mem_array(N, sizeof *heads);
    for (uint64_t i = 0; i < N; i++)
        block_text_write(heads[i], i, sizeof *heads);
    qsort(heads, N, sizeof *heads, by_bytes);
    for (size_t i = 1; i < N; i++)
        assert_memory_not_equal(heads[i - 1], heads[i], 64);
    free(heads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_the_gateway_reads_it),
        cmocka_unit_test(test_equal_ids_equal_text),
        cmocka_unit_test(test_texts_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
