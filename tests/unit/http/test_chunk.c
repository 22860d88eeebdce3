/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "http/chunk.h"
#include "naive.h"

enum { MAX = 1 << 20 };

static char long_extension[] =
    "1;" /* 255 bytes behind the semicolon make 256 */
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\nx\r\n0\r\n\r\n";

static const struct {
    const char *name;
    struct span in;
    enum http_chunk_event event;
    const char *data; /* what came out before the verdict */
    size_t left_over; /* bytes behind the body */
} bodies[] = {
    {"one", SPAN("3\r\nabc\r\n0\r\n\r\n"), HTTP_CHUNK_END, "abc", 0},
    {"three", SPAN("3\r\nabc\r\n1\r\nd\r\n2\r\nef\r\n0\r\n\r\n"), HTTP_CHUNK_END, "abcdef", 0},
    {"empty", SPAN("0\r\n\r\n"), HTTP_CHUNK_END, "", 0},
    {"zeros", SPAN("0003\r\nabc\r\n0000\r\n\r\n"), HTTP_CHUNK_END, "abc", 0},
    {"hexadecimal", SPAN("a\r\n0123456789\r\nB\r\n0123456789a\r\n0\r\n\r\n"), HTTP_CHUNK_END,
     "01234567890123456789a", 0},
    {"two digits", SPAN("1A\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\n"), HTTP_CHUNK_END,
     "abcdefghijklmnopqrstuvwxyz", 0},
    {"line ends as data", SPAN("4\r\n\r\n\r\n\r\n0\r\n\r\n"), HTTP_CHUNK_END, "\r\n\r\n", 0},
    {"extensions", SPAN("1;\r\na\r\n1;x=y;z=\"\t\xff\"\r\nb\r\n0;end\r\n\r\n"), HTTP_CHUNK_END, "ab", 0},
    {"longest extension", {long_extension, sizeof long_extension - 1}, HTTP_CHUNK_END, "x", 0},
    {"trailers", SPAN("1\r\na\r\n0\r\nA: b\r\nC:\r\n\r\n"), HTTP_CHUNK_END, "a", 0},
    {"next message", SPAN("1\r\na\r\n0\r\n\r\nGET /"), HTTP_CHUNK_END, "a", 5},
    {"next line end", SPAN("0\r\n\r\n\r\n"), HTTP_CHUNK_END, "", 2},
    {"incomplete size", SPAN("1"), HTTP_CHUNK_MORE, "", 0},
    {"incomplete data", SPAN("5\r\nab"), HTTP_CHUNK_MORE, "ab", 0},
    {"largest size", SPAN("ffffffffffffffff\r\nab"), HTTP_CHUNK_MORE, "ab", 0},
    {"no last chunk", SPAN("2\r\nab\r\n"), HTTP_CHUNK_MORE, "ab", 0},
    {"no last line", SPAN("2\r\nab\r\n0\r\n"), HTTP_CHUNK_MORE, "ab", 0},
    {"no last LF", SPAN("2\r\nab\r\n0\r\n\r"), HTTP_CHUNK_MORE, "ab", 0},
    {"bad second size", SPAN("2\r\nab\r\nx"), HTTP_CHUNK_BAD, "ab", 0},
    {"bad end of data", SPAN("2\r\nabc"), HTTP_CHUNK_BAD, "ab", 0},
    {"17 digits", SPAN("00000000000000001"), HTTP_CHUNK_BAD, "", 0},
    {"trailer name", SPAN("0\r\n: a\r\n\r\n"), HTTP_CHUNK_BAD, "", 0},
};

struct outcome {
    enum http_chunk_event event;
    size_t used;
    struct buf data;
};

/* Feeds pieces of <step> bytes, the first of <first>, from copies of their size, until the verdict. */
static struct outcome run(struct span in, size_t first, size_t step)
{
    struct outcome o = {.event = HTTP_CHUNK_MORE};
    buf_init(&o.data, MAX);
    struct http_chunk c;
    http_chunk_init(&c);
    for (size_t from = 0, n = first; from < in.n || n == first; from += n, n = step) {
        n = n < in.n - from ? n : in.n - from;
        char *copy = malloc(n ? n : 1);
        memcpy(copy, in.p + from, n);
        size_t at = 0;
        do {
            size_t used = 0;
            struct span data = SPAN_NONE;
            o.event = http_chunk_feed(&c, copy + at, n - at, &used, &data);
            assert_true(used <= n - at);
            assert_true(data.n == 0 || (data.p >= copy + at && data.p + data.n <= copy + at + used));
            at += used;
            buf_add_span(&o.data, data);
        } while (o.event == HTTP_CHUNK_DATA);
        free(copy);
        o.used = from + at;
        if (o.event != HTTP_CHUNK_MORE)
            return o;
        assert_int_equal(at, n); /* MORE: all consumed */
        if (from + n >= in.n)
            break;
    }
    return o;
}

static void check(size_t i, size_t first, size_t step)
{
    struct outcome o = run(bodies[i].in, first, step);
    if (o.event != bodies[i].event || !span_eq(buf_view(&o.data), span_str(bodies[i].data)))
        fail_msg("%s, %zu, %zu: event %d, \"%.*s\"", bodies[i].name, first, step, o.event,
                 SPAN_FMT(buf_view(&o.data)));
    if (o.event == HTTP_CHUNK_END)
        assert_int_equal(bodies[i].in.n - o.used, bodies[i].left_over);
    buf_fini(&o.data);
}

static void every_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        for (size_t first = 0; first <= bodies[i].in.n; first++)
            check(i, first, bodies[i].in.n + 1);
        for (size_t step = 1; step < 8; step++)
            check(i, step, step);
    }
}

static void same_as_naive(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct buf data;
        buf_init(&data, MAX);
        size_t used = 0;
        bool whole = naive_chunked(bodies[i].in, &data, &used);
        assert_int_equal(whole, bodies[i].event == HTTP_CHUNK_END);
        if (whole) {
            assert_true(span_eq(buf_view(&data), span_str(bodies[i].data)));
            assert_int_equal(bodies[i].in.n - used, bodies[i].left_over);
        }
        buf_fini(&data);
    }
}

/* Limits are exact: 256 bytes of extension, 8 KiB of trailers with their line ends. */
static void limits(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    for (int over = 0; over <= 1; over++) {
        buf_clear(&b);
        buf_add_str(&b, "1;");
        for (int i = 0; i < 255 + over; i++)
            buf_add_char(&b, 'e');
        buf_add_str(&b, "\r\nx\r\n0\r\n\r\n");
        struct outcome o = run(buf_view(&b), b.n, 1);
        assert_int_equal(o.event, over ? HTTP_CHUNK_BAD : HTTP_CHUNK_END);
        buf_fini(&o.data);

        buf_clear(&b);
        buf_add_str(&b, "0\r\na:");
        for (int i = 0; i < 8192 - 6 + over; i++)
            buf_add_char(&b, 't');
        buf_add_str(&b, "\r\n\r\n");
        o = run(buf_view(&b), b.n, 1);
        assert_int_equal(o.event, over ? HTTP_CHUNK_BAD : HTTP_CHUNK_END);
        buf_fini(&o.data);
    }
    buf_fini(&b);
}

/* A verdict stays, and a failure leaves the outputs alone. */
static void verdicts_stay(void **state)
{
    (void)state;
    struct http_chunk c;
    struct span data = SPAN("x");
    size_t used = 99;
    http_chunk_init(&c);
    assert_int_equal(http_chunk_feed(&c, "z", 1, &used, &data), HTTP_CHUNK_BAD);
    assert_int_equal(http_chunk_feed(&c, "0\r\n\r\n", 5, &used, &data), HTTP_CHUNK_BAD);
    assert_true(used == 99 && data.n == 1);
    http_chunk_init(&c);
    assert_int_equal(http_chunk_feed(&c, "0\r\n\r\n", 5, &used, &data), HTTP_CHUNK_END);
    assert_int_equal(used, 5);
    assert_int_equal(http_chunk_feed(&c, "0\r\n\r\n", 5, &used, &data), HTTP_CHUNK_END);
    assert_int_equal(used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut),
        cmocka_unit_test(same_as_naive),
        cmocka_unit_test(limits),
        cmocka_unit_test(verdicts_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
