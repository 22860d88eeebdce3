/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "gen.h"
#include "json/json.h"
#include "json/parser.h"

/* clang-format off */
#define TEXT(literal) {literal, sizeof(literal) - 1}

static const struct span good[] = {
    TEXT("0"), TEXT("-0"), TEXT("-1"), TEXT("12"), TEXT("1.5"), TEXT("-0.0"), TEXT("1e5"), TEXT("1E5"), TEXT("1e+05"),
    TEXT("1e-5"), TEXT("0e0"), TEXT("0.1e1"), TEXT("123456789012345678901234567890"), TEXT("1e99999"), TEXT("12345678"),
    TEXT("true"), TEXT("false"), TEXT("null"), TEXT(" true"), TEXT("null \t\r\n"), TEXT("\n\r\t null"),
    TEXT("\"\""), TEXT("\"a\""), TEXT("\"\\\"\""), TEXT("\"\\\\\""), TEXT("\"\\\\\\\"\""), TEXT("\"\\/\\b\\f\\n\\r\\t\""),
    TEXT("\"\\u0000\""), TEXT("\"\\u00e9\\u20AC\""), TEXT("\"\\ud83d\\ude00\""), TEXT("\"\\uDBFF\\uDFFF\""),
    TEXT("\"\\ud800\""), TEXT("\"\\udc00x\""), TEXT("\"\\ud800\\ud800\\udc00\""), TEXT("\"\\ud800\\n\""),
    TEXT("\"\x7f\""), TEXT("\"'\""), TEXT("\"\xc2\x80\""), TEXT("\"\xdf\xbf\""), TEXT("\"\xe0\xa0\x80\""),
    TEXT("\"\xed\x9f\xbf\""), TEXT("\"\xee\x80\x80\""), TEXT("\"\xef\xbf\xbf\""), TEXT("\"\xef\xbb\xbf\""),
    TEXT("\"\xf0\x90\x80\x80\""), TEXT("\"\xf4\x8f\xbf\xbf\""), TEXT("\"\xe2\x80\xa8\xe2\x80\xa9\""),
    TEXT("[]"), TEXT("[ ]"), TEXT("[[]]"), TEXT("[1]"), TEXT("[1,2]"), TEXT(" [ 1 , 2 ] "), TEXT("[[],[[]]]"),
    TEXT("[null,true,false,\"\",{}]"), TEXT("[1\n]"), TEXT("[\"a\",\"b\"]"),
    TEXT("{}"), TEXT("{ }"), TEXT("{\"a\":1}"), TEXT("{\"\":0}"), TEXT("{\"a\":1,\"a\":1}"), TEXT("{\"a\" : [ ] }"),
    TEXT("{\"a\":{\"b\":{}}}"), TEXT("{\"\\u0000\":1}"), TEXT("{\"a\":1,\n\"b\":2}"), TEXT("[{},{}]"),
};

static const struct span bad[] = {
    TEXT(""), TEXT(" "), TEXT("\xef\xbb\xbf{}"), TEXT("x"), TEXT("True"), TEXT("nul"), TEXT("nulll"), TEXT("tru"), TEXT("fals"),
    TEXT("NaN"), TEXT("Infinity"), TEXT("-Infinity"), TEXT("undefined"), TEXT("1 2"), TEXT("1,"), TEXT(",1"), TEXT("\"a\"b"),
    TEXT("+1"), TEXT("-"), TEXT("--1"), TEXT("01"), TEXT("-01"), TEXT("00"), TEXT("1."), TEXT(".5"), TEXT("-.5"), TEXT("1.e1"), TEXT("1e"),
    TEXT("1e+"), TEXT("1e1.5"), TEXT("0x10"), TEXT("1_000"), TEXT("1a"), TEXT("1.2.3"), TEXT("-a"), TEXT("2.e+3"), TEXT("0e+-1"),
    TEXT("\xef\xbc\x91"), TEXT("1\0"), TEXT("[1]\0"), TEXT("\0"),
    TEXT("\""), TEXT("\"a"), TEXT("\"\\"), TEXT("\"\\\""), TEXT("\"\\x41\""), TEXT("\"\\a\""), TEXT("\"\\ \""), TEXT("\"\\'\""),
    TEXT("\"\\0\""), TEXT("\"\\U0041\""), TEXT("\"\\u\""), TEXT("\"\\u004\""), TEXT("\"\\u004g\""), TEXT("\"\\u00 1\""), TEXT("\"\\u"),
    TEXT("\"\\u00"), TEXT("\"\\ud83d\\u\""), TEXT("\"\\ud83d\\x\""), TEXT("\"\\ud83d\\"), TEXT("\"\\\xc3\xa9\""),
    TEXT("\"\n\""), TEXT("\"\t\""), TEXT("\"\0\""), TEXT("\"\x1f\""), TEXT("\"\\\n\""), TEXT("'a'"), TEXT("\"a\"\""),
    TEXT("\"\x80\""), TEXT("\"\xc3\""), TEXT("\"\xc3\"x"), TEXT("\"\xc0\xaf\""), TEXT("\"\xc1\xbf\""), TEXT("\"\xe0\x9f\xbf\""),
    TEXT("\"\xed\xa0\x80\""), TEXT("\"\xed\xbf\xbf\""), TEXT("\"\xe4\xb8\""), TEXT("\"\xf0\x8f\xbf\xbf\""), TEXT("\"\xf4\x90\x80\x80\""),
    TEXT("\"\xf5\x80\x80\x80\""), TEXT("\"\xf0\x9f\x98\""), TEXT("\"\xff\""), TEXT("\"\xfe\""), TEXT("\"\xfc\x80\x80\x80\x80\x80\""),
    TEXT("["), TEXT("]"), TEXT("[1"), TEXT("[1,"), TEXT("[1,]"), TEXT("[,1]"), TEXT("[,]"), TEXT("[1,,2]"), TEXT("[1 2]"), TEXT("[1}"),
    TEXT("[1]]"), TEXT("[1],"), TEXT("[\"a\" \"b\"]"), TEXT("[1:2]"), TEXT("[[]"), TEXT("[}"), TEXT("[1\f]"), TEXT("[\xc2\xa0]"), TEXT("[\v1]"),
    TEXT("{"), TEXT("}"), TEXT("{]"), TEXT("{\"a\"}"), TEXT("{\"a\":}"), TEXT("{\"a\":1"), TEXT("{\"a\":1,"), TEXT("{\"a\":1,}"), TEXT("{,}"),
    TEXT("{a:1}"), TEXT("{'a':1}"), TEXT("{1:1}"), TEXT("{null:1}"), TEXT("{\"a\" 1}"), TEXT("{\"a\"::1}"), TEXT("{\"a\",1}"), TEXT("{\"a\":1 \"b\":2}"),
    TEXT("{\"a\":1]"), TEXT("{\"a\":1}}"), TEXT("{\"a\":1}#"), TEXT("{\"a\":1,,\"b\":2}"), TEXT("{\"a"), TEXT("{\"a\""), TEXT("{\"a\":"),
    TEXT("{[]:1}"), TEXT("{\"a\":1,\"b\"}"), TEXT("//x\n1"), TEXT("/**/1"), TEXT("[1,/**/2]"), TEXT("{\"a\":1/**/}"), TEXT("# x\n1"), TEXT("<a>"),
};
/* clang-format on */

/* The text lies in a block of its own, so that a sanitizer sees a read behind it; inside <pad> spaces the
 * scan goes by whole blocks. */
static bool parses(struct span s, size_t pad, struct json_fault *ret_fault)
{
    struct arena a;
    struct json_doc d;
    size_t n = s.n + 2 * pad;
    char *own = malloc(n ? n : 1);
    memset(own, ' ', n);
    if (s.n)
        memcpy(own + pad, s.p, s.n);
    arena_init(&a, NULL);
    bool ok = json_parse(&a, span_of(own, n), NULL, &d, ret_fault);
    if (ok)
        assert_int_equal(d.node[0].end, d.n);
    arena_reset(&a);
    free(own);
    return ok;
}

static void good_texts_are_read(void **state)
{
    struct json_fault fault;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        for (size_t pad = 0; pad <= 70; pad += 7) {
            if (!parses(good[i], pad, &fault))
                fail_msg("%.*s: %s at %zu", SPAN_FMT(good[i]), fault.what, fault.at);
        }
    }
}

static void bad_texts_are_refused(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        for (size_t pad = 0; pad <= 70; pad += 7) {
            struct json_fault fault = {SIZE_MAX, NULL};
            if (parses(bad[i], pad, &fault))
                fail_msg("accepted: %.*s", SPAN_FMT(bad[i]));
            assert_non_null(fault.what);
            assert_true(fault.at <= bad[i].n + 2 * pad);
        }
    }
}

static void no_text_at_all_is_refused(void **state)
{
    struct json_fault fault = {SIZE_MAX, NULL};
    struct arena a;
    struct json_doc d = {.n = 77};
    arena_init(&a, NULL);
    assert_false(json_parse(&a, SPAN_NONE, NULL, &d, &fault));
    assert_int_equal(fault.at, 0);
    assert_int_equal(d.n, 77);
    arena_reset(&a);
}

static void faults_name_the_place(void **state)
{
    static const struct {
        const char *text;
        size_t at;
        const char *what;
    } table[] = {
        {"", 0, "expected a value"},
        {"[1,]", 3, "expected a value"},
        {"  tru", 2, "expected a value"},
        {"{\"a\":1,}", 7, "expected a member's name"},
        {"{\"a\" 1}", 5, "expected ':'"},
        {"{\"a\":1 1}", 7, "expected ',' or '}'"},
        {"[1 1]", 3, "expected ',' or ']'"},
        {"[1] 1", 4, "expected the end of the text"},
        {"-x", 1, "expected a digit"},
        {"[1.e5]", 3, "expected a digit"},
        {"\"abc", 4, "string without end"},
        {"\"abc\\", 5, "string without end"},
        {"\"ab\nc\"", 3, "control character in a string"},
        {"[\"ab\\x\"]", 4, "unknown escape"},
        {"\"a\\u12x4\"", 2, "expected four hexadecimal digits behind \\u"},
        {"\"ab\xff\"", 3, "invalid UTF-8"},
        {"\"\xc3\xa9 0123456789012345678901234567890123456789012345678901234567890123456789 \xe4\xb8\"", 75,
         "invalid UTF-8"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct json_fault fault;
        assert_false(parses(span_str(table[i].text), 0, &fault));
        assert_string_equal(fault.what, table[i].what);
        assert_int_equal(fault.at, table[i].at);
    }
}

/* Where it is asked for, bytes that are no UTF-8 pass inside of strings, and are noted; nowhere else. */
static void any_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int odd; /* -1: a fault */
    } table[] = {
        {"\"ab\xff\"", JSON_ODD_INVALID_UTF8},
        {"[\"\xc3\", 1]", JSON_ODD_INVALID_UTF8},
        {"{\"\xe4\xb8\":\"\xc3\xa9\"}", JSON_ODD_INVALID_UTF8},
        {"\"\xc3\xa9\"", 0},
        {"\xff", -1},
        {"[1\xff]", -1},
        {"{\"a\":\x80}", -1},
        {"\"a\"\xff", -1},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct arena a;
        struct json_doc d;
        struct json_fault fault;
        const struct json_limits limits = {.any_bytes = true};
        arena_init(&a, NULL);
        if (table[i].odd < 0) {
            assert_false(json_parse(&a, span_str(table[i].text), &limits, &d, &fault));
        } else {
            assert_true(json_parse(&a, span_str(table[i].text), &limits, &d, &fault));
            assert_int_equal(d.odd, table[i].odd);
        }
        arena_reset(&a);
    }
}

/* A fault of each kind at each place of a long string. */
static void strings_are_checked_everywhere(void **state)
{
    char text[200];
    struct json_fault fault;
    for (size_t len = 2; len < 150; len++) {
        for (size_t at = 1; at <= len; at++) {
            text[0] = '"';
            memset(text + 1, 'a', len);
            text[len + 1] = '"';
            assert_true(parses(span_of(text, len + 2), 0, &fault));
            text[at] = '\n';
            assert_false(parses(span_of(text, len + 2), 0, &fault));
            assert_int_equal(fault.at, at);
            text[at] = (char)0xa9;
            assert_false(parses(span_of(text, len + 2), 0, &fault));
            assert_int_equal(fault.at, at);
            text[at] = '"';
            assert_false(parses(span_of(text, len + 2), 0, &fault));
            assert_int_equal(fault.at, at + 1);
            text[at] = '\\'; /* \a, or the closing quote */
            assert_false(parses(span_of(text, len + 2), 0, &fault));
            assert_int_equal(fault.at, at == len ? len + 2 : at);
            if (at < len) {
                text[at + 1] = 'n';
                assert_true(parses(span_of(text, len + 2), 0, &fault));
                text[at] = (char)0xc3;
                text[at + 1] = (char)0xa9;
                assert_true(parses(span_of(text, len + 2), 0, &fault));
            }
        }
    }
}

/* Runs of backslashes of every length at every place: the quote behind an even run closes. */
static void runs_of_backslashes_are_told_apart(void **state)
{
    char text[300];
    struct json_fault fault;
    for (size_t from = 1; from < 135; from++) {
        for (size_t run = 1; run < 140; run++) {
            text[0] = '"';
            memset(text + 1, 'a', from - 1);
            memset(text + from, '\\', run);
            text[from + run] = '"';
            assert_int_equal(parses(span_of(text, from + run + 1), 0, &fault), run % 2 == 0);
            text[from + run + 1] = '"';
            assert_int_equal(parses(span_of(text, from + run + 2), 0, &fault), run % 2 == 1);
        }
    }
}

/* Every sequence of two bytes, and of three and four from the interesting ones, in a text long enough for the
 * check by blocks, beside the check of one sequence. */
static void utf8_by_blocks_agrees_with_utf8_by_bytes(void **state)
{
    static const unsigned char some[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                         0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
                                         0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf8, 0xff};
    enum { N = ARRAY_LEN(some), AT = 30 };
    unsigned char text[100];
    for (unsigned k = 0; k < N * N * N * N; k++) {
        memset(text, 'a', sizeof(text));
        unsigned rest = k, i = 0;
        for (; i < 4; i++, rest /= N)
            text[AT + i] = some[rest % N];
        for (i = AT; i < AT + 4;) {
            unsigned len = json_utf8_len(text + i, sizeof(text) - i);
            if (len == 0)
                break;
            i += len;
        }
        size_t want = i < AT + 4 ? i : sizeof(text);
        if (json_utf8_valid(span_of((char *)text, sizeof(text))) != want)
            fail_msg("%02x %02x %02x %02x", text[AT], text[AT + 1], text[AT + 2], text[AT + 3]);
    }
    /* Cut at the end of a block and of the text. */
    for (size_t n = 64; n < 100; n++) {
        memset(text, 'a', sizeof(text));
        text[n - 1] = 0xc3;
        assert_int_equal(json_utf8_valid(span_of((char *)text, n)), n - 1);
        text[n - 2] = 0xe4;
        text[n - 1] = 0xb8;
        assert_int_equal(json_utf8_valid(span_of((char *)text, n)), n - 2);
    }
}

static bool scan(bool (*how)(struct json_parser *), struct span text, struct json_parser *ps, struct arena *a)
{
    *ps = (struct json_parser){
        .text = text.p, .end = text.p + text.n, .arena = a, .max_depth = 100, .max_nodes = 100000};
    ps->cap = (uint32_t)text.n + 1;
    ps->node = ARENA_ARRAY(a, struct json_node, ps->cap);
    return how(ps);
}

static void scanners_agree(bool (*other)(struct json_parser *))
{
    struct gen g = {0};
    rng_seed(&g.rng, 21);
    buf_init(&g.b, 1 << 20);
    for (int i = 0; i < 10000; i++) {
        struct arena a;
        struct json_parser x, y;
        struct span text = gen_doc(&g);
        if (i % 2)
            g.b.p[gen_below(&g, (unsigned)text.n)] = "\\\"\x01{,1x\xc3"[gen_below(&g, 8)];
        arena_init(&a, NULL);
        bool ok = scan(json_scan_base, text, &x, &a);
        assert_int_equal(ok, scan(other, text, &y, &a));
        if (ok) {
            assert_int_equal(x.n, y.n);
            assert_int_equal(x.odd, y.odd);
            for (uint32_t k = 0; k < x.n; k++) {
                assert_memory_equal(&x.node[k], &y.node[k], offsetof(struct json_node, flags) + 1);
                bool escaped = memchr(text.p + x.node[k].at, '\\', x.node[k].len) != NULL;
                assert_int_equal(x.node[k].type == JSON_STRING && escaped,
                                 (x.node[k].flags & JSON_ESCAPED) != 0);
            }
        } else {
            assert_ptr_equal(x.fault_at, y.fault_at);
            assert_string_equal(x.fault_what, y.fault_what);
        }
        arena_reset(&a);
    }
    buf_fini(&g.b);
}

static void avx2_agrees(void **state)
{
    if (!json_cpu_has_avx2())
        skip();
    scanners_agree(json_scan_avx2);
}

static void avx512_agrees(void **state)
{
    if (!json_cpu_has_avx512())
        skip();
    scanners_agree(json_scan_avx512);
}

struct fixture {
    struct arena a;
    struct json_doc d;
};

static void open_doc(struct fixture *f, struct span text)
{
    struct json_fault fault;
    arena_init(&f->a, NULL);
    assert_true(json_parse(&f->a, text, NULL, &f->d, &fault));
}

static bool parse_limited(struct span text, uint32_t depth, uint32_t nodes, struct json_fault *ret_fault)
{
    struct arena a;
    struct json_doc d;
    const struct json_limits limits = {depth, nodes};
    arena_init(&a, NULL);
    bool ok = json_parse(&a, text, &limits, &d, ret_fault);
    arena_reset(&a);
    return ok;
}

static void depth_is_bounded(void **state)
{
    struct json_fault fault;
    char text[600];
    for (size_t depth = 120; depth < 140; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        bool ok = parses(span_of(text, 2 * depth), 0, &fault);
        assert_int_equal(ok, depth <= 128);
        if (!ok) {
            assert_string_equal(fault.what, "nested too deep");
            assert_int_equal(fault.at, 128);
        }
    }
    assert_true(parse_limited(SPAN("[{\"a\":[]},[]]"), 3, 0, &fault));
    assert_false(parse_limited(SPAN("[{\"a\":[]},[]]"), 2, 0, &fault));
    assert_int_equal(fault.at, 6);
    assert_true(parse_limited(SPAN("1"), 1, 0, &fault));
}

static void nodes_are_bounded(void **state)
{
    struct json_fault fault;
    assert_true(parse_limited(SPAN("[1,2,{\"a\":3}]"), 0, 6, &fault));
    assert_false(parse_limited(SPAN("[1,2,{\"a\":3}]"), 0, 5, &fault));
    assert_string_equal(fault.what, "too many values");
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_add_str(&b, "[0");
    for (int i = 1; i < 2000; i++)
        buf_add_str(&b, i < 1000 ? ",            0" : ",0");
    buf_add_str(&b, "]");
    assert_true(parse_limited(buf_view(&b), 0, 2001, &fault));
    assert_false(parse_limited(buf_view(&b), 0, 2000, &fault));
    assert_false(parse_limited(buf_view(&b), 0, 257, &fault));
    buf_fini(&b);
}

static void small_documents_take_what_they_need(void **state)
{
    struct fixture f;
    open_doc(&f, SPAN("{\"a\":[1,2]}"));
    assert_true(f.a.used_bytes <= 5 * sizeof(struct json_node) + 16);
    arena_reset(&f.a);
}

static void nodes_stand_in_order(void **state)
{
    struct fixture f;
    open_doc(&f, SPAN(" {\"a\": [1, \"x\\n\"], \"b\":{}} "));
    assert_int_equal(f.d.n, 7);
    const struct json_node *n = f.d.node;
    assert_int_equal(n[0].type, JSON_OBJECT);
    assert_int_equal(n[0].end, 7);
    assert_int_equal(n[0].count, 2);
    assert_int_equal(n[1].flags, JSON_IS_NAME);
    assert_int_equal(n[2].type, JSON_ARRAY);
    assert_int_equal(n[2].end, 5);
    assert_int_equal(n[4].flags, JSON_ESCAPED);
    assert_true(span_eq(json_raw(&f.d, 0), SPAN("{\"a\": [1, \"x\\n\"], \"b\":{}}")));
    assert_true(span_eq(json_raw(&f.d, 2), SPAN("[1, \"x\\n\"]")));
    assert_true(span_eq(json_raw(&f.d, 4), SPAN("\"x\\n\"")));
    assert_int_equal(json_get(&f.d, 0, "b"), 6);
    arena_reset(&f.a);
}

/* An object of <n> members with the names of <first> and <second> at random places; other names differ late.
 */
static uint8_t odd_of(unsigned n, const char *first, const char *second, struct rng *r)
{
    struct fixture f;
    struct buf b;
    unsigned i = (unsigned)rng_below(r, n), j = (unsigned)rng_below(r, n);
    buf_init(&b, 1 << 26);
    buf_add_str(&b, "[{");
    for (unsigned k = 0; k < n; k++) {
        buf_add_str(&b, k ? "," : "");
        if (k == i)
            buf_printf(&b, "\"%s\":1", first);
        else if (k == j)
            buf_printf(&b, "\"%s\":{\"x\":1}", second);
        else
            buf_printf(&b, "\"member-%u-name\":[]", k);
    }
    buf_add_str(&b, "}]");
    open_doc(&f, buf_view(&b));
    uint8_t odd = i == j ? 255 : f.d.odd;
    arena_reset(&f.a);
    buf_fini(&b);
    return odd;
}

static void duplicate_names_are_seen(void **state)
{
    char bare[400], escaped[400];
    memset(bare, 'q', 300);
    memset(escaped, 'q', 300);
    strcpy(bare + 300, "A");
    strcpy(escaped + 300, "\\u0041");
    const struct {
        const char *a, *b;
        bool same;
    } pairs[] = {
        {"abc", "abc", true},           {"", "", true},
        {"role", "r\\u006fle", true},   {"\\u0041\\n", "A\\u000a", true},
        {"abc", "abd", false},          {"abc", "bbc", false},
        {"a", "\\u0061\\u0000", false}, {"", "\\u0000", false},
        {"axxb", "ayyb", false},        {bare, escaped, true},
        {escaped, bare + 1, false},     {bare, bare, true},
    };
    struct rng r;
    rng_seed(&r, 9);
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        for (unsigned n = 2; n < 300; n += n < 40 ? 1 : 37) {
            uint8_t odd = odd_of(n, pairs[i].a, pairs[i].b, &r);
            if (odd != 255)
                assert_int_equal(odd, pairs[i].same ? JSON_ODD_DUPLICATE : 0);
        }
    }
    /* So many that comparing each with each would not end before the test's time. */
    assert_int_equal(odd_of(400000, "a", "b", &r), 0);
    assert_int_equal(odd_of(400000, "a", "\\u0061", &r), JSON_ODD_DUPLICATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_texts_are_read),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(no_text_at_all_is_refused),
        cmocka_unit_test(faults_name_the_place),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(strings_are_checked_everywhere),
        cmocka_unit_test(runs_of_backslashes_are_told_apart),
        cmocka_unit_test(utf8_by_blocks_agrees_with_utf8_by_bytes),
        cmocka_unit_test(avx2_agrees),
        cmocka_unit_test(avx512_agrees),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(nodes_are_bounded),
        cmocka_unit_test(small_documents_take_what_they_need),
        cmocka_unit_test(nodes_stand_in_order),
        cmocka_unit_test(duplicate_names_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
