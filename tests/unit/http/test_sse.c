/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "http/sse.h"
#include "naive.h"

enum { MAX = 1 << 20 };

static const struct {
    const char *name;
    struct span in;
    const char *events; /* as naive_record() writes them */
    bool open;
} streams[] = {
    {"one event", SPAN("data: a\n\n"), "0:1:a0:\n", false},
    {"no space", SPAN("data:a\n\n"), "0:1:a0:\n", false},
    {"one space only is taken", SPAN("data:  a\n\n"), "0:2: a0:\n", false},
    {"all fields", SPAN("event: e\nid: 7\nretry: 10\ndata: a\n\n"), "1:e1:a1:7\n", false},
    {"fields behind data", SPAN("data: a\nid: 7\nevent: e\n\n"), "1:e1:a1:7\n", false},
    {"last type and id count", SPAN("event: e\nevent: fg\nid: 1\nid: 2\ndata: a\n\n"), "2:fg1:a1:2\n", false},
    {"two data lines", SPAN("data: a\ndata: b\n\n"), "0:3:a\nb0:\n", false},
    {"three data lines among others", SPAN("data: a\n: c\ndata:\nid: 1\nx: y\ndata: b\n\n"),
     "0:4:a\n\nb1:1\n", false},
    {"CR", SPAN("data: a\rdata: b\r\rdata: c\r\r"), "0:3:a\nb0:\n0:1:c0:\n", false},
    {"CR LF", SPAN("data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n"), "0:3:a\nb0:\n0:1:c0:\n", false},
    {"mixed ends", SPAN("data: a\r\n\ndata: b\r\r\ndata: c\n\r"), "0:1:a0:\n0:1:b0:\n0:1:c0:\n", false},
    {"LF CR LF is one blank line more", SPAN("data: a\n\r\ndata: b\n\n"), "0:1:a0:\n0:1:b0:\n", false},
    {"comments", SPAN(": hi\n\n:\n\ndata: a\n: between\n\n"), "0:1:a0:\n", false},
    {"comments only", SPAN(": ping\n: ping\n"), "", false},
    {"cut comment", SPAN("data: a\n\n: pi"), "0:1:a0:\n", true},
    {"blank lines", SPAN("\n\n\r\n\rdata: a\n\n\n\n"), "0:1:a0:\n", false},
    {"no data, no event", SPAN("event: e\nid: 1\n\ndata: a\n\n"), "0:1:a0:\n", false},
    {"empty data line is data", SPAN("data:\n\ndata\n\ndata: \n\n"), "0:0:0:\n0:0:0:\n0:0:0:\n", false},
    {"two empty data lines", SPAN("data\ndata\n\n"), "0:1:\n0:\n", false},
    {"name without colon", SPAN("data: a\nevent\nid\n\n"), "0:1:a0:\n", false},
    {"empty type takes the type back", SPAN("event: e\nevent:\ndata: a\n\n"), "0:1:a0:\n", false},
    {"names are exact", SPAN("Data: a\ndata : b\n data: c\ndatax: d\ndat: e\nevents: f\nidd: g\ndata: h\n\n"),
     "0:1:h0:\n", false},
    {"colons in values", SPAN("data: {\"a\": 1}\n\n"), "0:8:{\"a\": 1}0:\n", false},
    {"BOM",
     SPAN("\xef\xbb\xbf"
          "data: a\n\n"),
     "0:1:a0:\n", false},
    {"two BOMs",
     SPAN("\xef\xbb\xbf\xef\xbb\xbf"
          "data: a\ndata: b\n\n"),
     "0:1:b0:\n", false},
    {"half a BOM",
     SPAN("\xef\xbb"
          "data: a\ndata: b\n\n"),
     "0:1:b0:\n", false},
    {"BOM alone", SPAN("\xef\xbb\xbf"), "", false},
    {"half a BOM alone", SPAN("\xef\xbb"), "", true},
    {"BOM later",
     SPAN("data: a\n\n\xef\xbb\xbf"
          "data: b\n\n"),
     "0:1:a0:\n", false},
    {"unterminated line", SPAN("data: a\n\ndata: b"), "0:1:a0:\n0:1:b0:\n", true},
    {"unterminated event", SPAN("data: a\n\ndata: b\n"), "0:1:a0:\n0:1:b0:\n", true},
    {"unterminated, two lines", SPAN("event: e\ndata: a\ndata: b"), "1:e3:a\nb0:\n", true},
    {"unterminated, no data", SPAN("data: a\n\nevent: e\n"), "0:1:a0:\n", true},
    {"nothing", SPAN(""), "", false},
    {"OpenAI", SPAN("data: {\"x\":1}\n\ndata: {\"x\":2}\n\ndata: [DONE]\n\n"),
     "0:7:{\"x\":1}0:\n0:7:{\"x\":2}0:\n0:6:[DONE]0:\n", false},
    {"Anthropic", SPAN("event: ping\ndata: {\"type\": \"ping\"}\n\nevent: message_stop\ndata: {}\n\n"),
     "4:ping16:{\"type\": \"ping\"}0:\n12:message_stop2:{}0:\n", false},
    {"long lines", SPAN("data: 0123456789abcdef0123456789abcdef\r\nevent: 0123456789abcdef0\r\n\r\n"),
     "17:0123456789abcdef032:0123456789abcdef0123456789abcdef0:\n", false},
};

/* Feeds from heap copies of the exact size: reads behind a piece are seen by a sanitizer. */
static void feed_copy(struct sse *s, const char *p, size_t n, struct buf *out)
{
    char *copy = malloc(n ? n : 1);
    memcpy(copy, p, n);
    sse_feed(s, copy, n, naive_record, out);
    free(copy);
}

/* In pieces that end at <cuts>. */
static bool split(struct span in, const size_t *cuts, size_t n_cuts, size_t max, struct buf *out,
                  bool *ret_broken)
{
    struct sse s;
    sse_init(&s, max);
    size_t from = 0;
    for (size_t i = 0; i <= n_cuts; i++) {
        size_t to = i < n_cuts ? cuts[i] : in.n;
        feed_copy(&s, in.p + from, to - from, out);
        from = to;
    }
    bool open = sse_end(&s, naive_record, out);
    *ret_broken = s.broken;
    sse_fini(&s);
    return open;
}

static void check(const char *name, struct span in, const char *expected, bool open, const size_t *cuts,
                  size_t n_cuts)
{
    struct buf out;
    bool broken;
    buf_init(&out, MAX);
    bool got = split(in, cuts, n_cuts, MAX, &out, &broken);
    if (got != open || broken || !span_eq(buf_view(&out), span_str(expected)))
        fail_msg("%s, first cut of %zu at %zu: open %d, \"%.*s\"", name, n_cuts, n_cuts ? cuts[0] : 0, got,
                 SPAN_FMT(buf_view(&out)));
    buf_fini(&out);
}

static void table(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
        struct buf out;
        buf_init(&out, MAX);
        bool open = naive_sse(streams[i].in.p, streams[i].in.n, &out);
        if (open != streams[i].open || !span_eq(buf_view(&out), span_str(streams[i].events)))
            fail_msg("%s, naive: \"%.*s\"", streams[i].name, SPAN_FMT(buf_view(&out)));
        buf_fini(&out);
        check(streams[i].name, streams[i].in, streams[i].events, streams[i].open, NULL, 0);
    }
}

static void every_two_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(streams); i++)
        for (size_t a = 0; a <= streams[i].in.n; a++)
            for (size_t b = a; b <= streams[i].in.n; b++)
                check(streams[i].name, streams[i].in, streams[i].events, streams[i].open, (size_t[]){a, b},
                      2);
}

static void byte_by_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
        size_t cuts[256];
        assert_true(streams[i].in.n < ARRAY_LEN(cuts));
        for (size_t k = 0; k < streams[i].in.n; k++)
            cuts[k] = k;
        check(streams[i].name, streams[i].in, streams[i].events, streams[i].open, cuts, streams[i].in.n);
    }
}

/* The maximum counts the same bytes however the stream is cut. */
static void maximum(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(streams); i++)
        for (size_t max = 1; max <= streams[i].in.n + 1; max++) {
            struct buf whole, cut;
            bool whole_broken, cut_broken;
            buf_init(&whole, MAX);
            bool open = split(streams[i].in, NULL, 0, max, &whole, &whole_broken);
            for (size_t a = 0; a <= streams[i].in.n; a++) {
                buf_init(&cut, MAX);
                bool cut_open = split(streams[i].in, &a, 1, max, &cut, &cut_broken);
                if (open != cut_open || whole_broken != cut_broken ||
                    !span_eq(buf_view(&whole), buf_view(&cut)))
                    fail_msg("%s, at most %zu, cut at %zu", streams[i].name, max, a);
                buf_fini(&cut);
            }
            buf_fini(&whole);
        }
}

static void too_large(void **state)
{
    (void)state;
    struct sse s;
    struct buf out;
    buf_init(&out, MAX);
    sse_init(&s, 64);
    sse_feed(&s, "data: a\n\ndata: ", 15, naive_record, &out);
    for (int i = 0; i < 1000; i++) /* never ends, never grows */
        sse_feed(&s, "0123456789", 10, naive_record, &out);
    assert_true(s.broken && s.hold.cap == 0);
    sse_feed(&s, "\n\ndata: b\n\n", 11, naive_record, &out);
    assert_true(span_eq(buf_view(&out), SPAN("0:1:a0:\n")));
    assert_true(sse_end(&s, naive_record, &out));
    sse_fini(&s);

    sse_init(&s, 64); /* comments do not add up */
    for (int i = 0; i < 1000; i++)
        sse_feed(&s, ": ping\n", 7, naive_record, &out);
    assert_false(s.broken || sse_end(&s, naive_record, &out));
    sse_fini(&s);
    buf_fini(&out);
}

struct place {
    const char *from, *to;
    unsigned in_place, elsewhere;
};

static void note_place(void *arg, const struct sse_event *e)
{
    struct place *p = arg;
    if (e->data.p >= p->from && e->data.p + e->data.n <= p->to)
        p->in_place++;
    else
        p->elsewhere++;
}

static void in_place(void **state)
{
    (void)state;
    static const char text[] =
        "event: e\ndata: a\n\ndata: b\r\n\r\n: c\n\ndata: d\n\ndata: e\ndata: f\n\ndata: g";
    struct place place = {text, text + sizeof text, 0, 0};
    struct sse s;
    sse_init(&s, 1000);
    sse_feed(&s, text, sizeof text - 1 - strlen("data: e\ndata: f\n\ndata: g"), note_place, &place);
    assert_int_equal(place.in_place, 3);
    assert_int_equal(place.elsewhere, 0);
    assert_int_equal(s.hold.cap + s.joined.cap, 0); /* nothing allocated */
    const char *rest = strstr(text, "data: e");
    sse_feed(&s, rest, strlen(rest), note_place, &place);
    assert_true(sse_end(&s, note_place, &place));
    assert_int_equal(place.in_place, 3);
    assert_int_equal(place.elsewhere, 2);
    sse_fini(&s);
}

static void nul_bytes(void **state)
{
    (void)state;
    check("NUL in an id", SPAN("id: 1\nid: 2\0\ndata: a\n\n"), "0:1:a1:1\n", false, NULL, 0);
    struct buf out;
    bool broken;
    buf_init(&out, MAX);
    assert_false(split(SPAN("data: a\0b\n\n"), NULL, 0, MAX, &out, &broken));
    assert_true(span_eq(buf_view(&out), SPAN("0:3:a\0b0:\n")));
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),     cmocka_unit_test(every_two_cuts), cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(maximum),   cmocka_unit_test(too_large),      cmocka_unit_test(in_place),
        cmocka_unit_test(nul_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
