/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"
#include "trace_unit.h"

#define LINE(at, in, out, ids)                                                                               \
    "{\"timestamp\":" at ",\"input_length\":" in ",\"output_length\":" out ",\"hash_ids\":" ids "}"

static bool add(struct trace *t, const char *line, struct trace_fault *f)
{
    return trace_add_line(t, span_str(line), f);
}

static void test_lines(void **state)
{
    struct trace t;
    struct trace_fault f;
    trace_init(&t, 512);
    assert_true(add(&t, LINE("27", "1025", "3", "[7, 9, 18446744073709551615]"), &f));
    assert_true(add(&t,
                    "{\"hash_ids\":[7,8], \"more\": {\"x\": [1]}, \"output_length\":0,\"input_length\":512,"
                    "\"timestamp\":1.5}\r",
                    &f));
    assert_true(add(&t, "", &f));
    assert_true(add(&t, "  \t\r", &f));
    assert_true(add(&t, LINE("27", "0", "5", "[]"), &f));
    trace_finish(&t);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.input_tokens, 1537);
    assert_int_equal(t.output_tokens, 8);
    /* In the order of time, equal times as they came; the id behind input_length is left out. */
    assert_int_equal(t.requests[0].at_us, 1500);
    assert_int_equal(t.requests[0].n, 1);
    assert_int_equal(t.requests[1].input, 1025);
    assert_int_equal(t.requests[2].input, 0);
    assert_int_equal(t.n_ids, 3);
    const uint32_t *blocks = trace_blocks(&t, &t.requests[1]);
    assert_int_equal(t.ids[blocks[0]], 7);
    assert_int_equal(t.ids[blocks[1]], 9);
    assert_true(t.ids[blocks[2]] == UINT64_MAX);
    assert_int_equal(trace_blocks(&t, &t.requests[0])[0], blocks[0]);
    assert_int_equal(trace_tokens(&t, &t.requests[1], 2), 1024);
    assert_int_equal(trace_tokens(&t, &t.requests[1], 3), 1025);
    trace_fini(&t);
}

static void test_faults(void **state)
{
    static const struct {
        const char *line;
        size_t column;
        const char *what;
    } cases[] = {
        {"[1]", 1, "not an object"},
        {"{\"timestamp\":1,", 16, NULL},
        {"nonsense", 1, NULL},
        {LINE("\"1\"", "1", "1", "[1]"), 14, "timestamp is not a number of milliseconds"},
        {LINE("-1", "1", "1", "[1]"), 14, "timestamp is not a number of milliseconds"},
        {LINE("1e300", "1", "1", "[1]"), 14, "timestamp is not a number of milliseconds"},
        {LINE("1", "1.5", "1", "[1]"), 31, "input_length is not a number of tokens"},
        {LINE("1", "4294967296", "1", "[1]"), 31, "input_length is not a number of tokens"},
        {LINE("1", "1", "null", "[1]"), 49, "output_length is not a number of tokens"},
        {LINE("1", "1", "1", "{}"), 62, "hash_ids is not a list"},
        {LINE("1", "513", "1", "[1]"), 64, "hash_ids has too few blocks for input_length"},
        {LINE("1", "1", "1", "[1, -2]"), 66, "an item of hash_ids is not a whole number"},
        {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1}", 1, "hash_ids is not a list"},
        {"{}", 1, "timestamp is not a number of milliseconds"},
    };
    struct trace t;
    trace_init(&t, 512);
    struct trace_fault f;
    assert_true(add(&t, LINE("1", "1", "1", "[5]"), &f));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f = (struct trace_fault){0};
        assert_false(add(&t, cases[i].line, &f));
        assert_int_equal(f.column, cases[i].column);
        if (cases[i].what)
            assert_string_equal(f.what, cases[i].what);
        assert_non_null(f.what);
        assert_int_equal(t.n, 1);
        assert_int_equal(t.n_blocks, 1);
        assert_int_equal(t.n_ids, 1);
        assert_int_equal(t.skipped, i + 1);
    }
    trace_fini(&t);
}

static void test_many_ids(void **state)
{
    struct trace t;
    uint64_t ids[50];
    trace_init(&t, 16);
    for (uint64_t k = 0; k < 400; k++) {
        for (uint64_t i = 0; i < 50; i++)
            ids[i] = (k * 25 + i) << 40; /* half of them are the line before's */
        trace_unit_add(&t, k, 800, 1, ids, 50);
    }
    trace_finish(&t);
    assert_int_equal(t.n_ids, 400 * 25 + 25);
    assert_int_equal(t.n_blocks, 400 * 50);
    for (size_t k = 0; k < t.n; k++)
        for (uint64_t i = 0; i < 50; i++)
            assert_true(t.ids[trace_blocks(&t, &t.requests[k])[i]] == (k * 25 + i) << 40);
    trace_fini(&t);
}

/* Files */

static void collect(void *arg, const char *text)
{
    buf_add_str(arg, text);
    buf_add_char(arg, '\n');
}

struct file {
    char path[64];
    struct trace trace;
    struct buf told;
    bool ok;
};

static void read_file(struct file *f, size_t limit)
{
    trace_init(&f->trace, 512);
    buf_init(&f->told, 1 << 20);
    f->ok = trace_read_file(&f->trace, f->path, limit, collect, &f->told);
    buf_add(&f->told, "", 1);
}

static void file_fini(struct file *f)
{
    trace_fini(&f->trace);
    buf_fini(&f->told);
}

static void write_file(struct file *f, const char *text, size_t n, bool is_zipped)
{
    strcpy(f->path, "/tmp/rolter-trace-XXXXXX");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    if (is_zipped) {
        gzFile z = gzdopen(fd, "wb");
        assert_int_equal(gzwrite(z, text, (unsigned)n), n);
        assert_int_equal(gzclose(z), Z_OK);
    } else {
        assert_int_equal(write(fd, text, n), n);
        close(fd);
    }
}

static void test_files(void **state)
{
    static const char text[] =
        LINE("0", "1", "1", "[1]") "\n\nbad\n" LINE("1", "2", "1", "[2]") "\n" LINE("2", "4", "1", "[3]");
    for (int zipped = 0; zipped < 2; zipped++) {
        struct file f;
        write_file(&f, text, sizeof text - 1, zipped);
        read_file(&f, 0);
        assert_true(f.ok);
        assert_int_equal(f.trace.n, 3);
        assert_int_equal(f.trace.input_tokens, 7);
        assert_int_equal(f.trace.lines, 5);
        assert_int_equal(f.trace.skipped, 1);
        char *expected = mem_printf("%s:3:1: ", f.path);
        assert_int_equal(strncmp(f.told.p, expected, strlen(expected)), 0);
        free(expected);
        file_fini(&f);
        read_file(&f, 2);
        assert_true(f.ok);
        assert_int_equal(f.trace.n, 2);
        file_fini(&f);
        unlink(f.path);
    }
}

static void test_many_bad_lines(void **state)
{
    struct file f;
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int i = 0; i < TRACE_FAULTS_SHOWN + 5; i++)
        buf_add_str(&b, "x\n");
    write_file(&f, b.p, b.n, false);
    read_file(&f, 0);
    assert_true(f.ok);
    assert_int_equal(f.trace.skipped, TRACE_FAULTS_SHOWN + 5);
    assert_non_null(strstr(f.told.p, ": 5 lines more\n"));
    file_fini(&f);
    buf_fini(&b);
    unlink(f.path);
}

static void test_broken_files(void **state)
{
    struct file f = {.path = "/tmp/rolter-no-such-trace"};
    read_file(&f, 0);
    assert_false(f.ok);
    assert_non_null(strstr(f.told.p, "No such file"));
    file_fini(&f);
    /* Compressed data that breaks off, after whole lines. */
    struct buf b;
    struct rng r;
    rng_seed(&r, 1);
    buf_init(&b, 1 << 22);
    for (int i = 0; i < 20000; i++)
        buf_printf(&b, LINE("%d", "1", "1", "[%u]") "\n", i, (unsigned)rng_below(&r, 1u << 30));
    write_file(&f, b.p, b.n, true);
    FILE *out = fopen(f.path, "r+");
    assert_int_equal(fseek(out, 0, SEEK_END), 0);
    assert_int_equal(ftruncate(fileno(out), ftell(out) - 1000), 0);
    fclose(out);
    read_file(&f, 0);
    assert_false(f.ok);
    assert_non_null(strstr(f.told.p, "ends too early"));
    file_fini(&f);
    unlink(f.path);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),          cmocka_unit_test(test_faults),
        cmocka_unit_test(test_many_ids),       cmocka_unit_test(test_files),
        cmocka_unit_test(test_many_bad_lines), cmocka_unit_test(test_broken_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
