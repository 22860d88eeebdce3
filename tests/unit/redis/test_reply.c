/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/buf.h"
#include "redis/reply.h"

/* Replies as text: s"", +, -, :, _, [..]. */
static void show(struct buf *b, const struct redis_reply *r)
{
    switch (r->type) {
    case REDIS_STRING:
        buf_printf(b, "\"%.*s\"", SPAN_FMT(r->text));
        break;
    case REDIS_STATUS:
        buf_printf(b, "+%.*s", SPAN_FMT(r->text));
        break;
    case REDIS_ERROR:
        buf_printf(b, "-%.*s", SPAN_FMT(r->text));
        break;
    case REDIS_INTEGER:
        buf_printf(b, "%lld", (long long)r->integer);
        break;
    case REDIS_NIL:
        buf_add_char(b, '_');
        break;
    case REDIS_ARRAY:
        buf_add_char(b, '[');
        for (size_t i = 0; i < r->n; i++) {
            if (i)
                buf_add_char(b, ' ');
            show(b, r->items[i]);
        }
        buf_add_char(b, ']');
        break;
    }
}

static void drain(struct redis_reader *r, struct buf *b)
{
    const struct redis_reply *reply;
    while ((reply = redis_reader_next(r))) {
        show(b, reply);
        buf_add_char(b, ';');
    }
}

static const char MANY[] = "+OK\r\n-ERR no\r\n:-12\r\n$5\r\na\r\nbc\r\n$-1\r\n$0\r\n\r\n*0\r\n*-1\r\n"
                           "*3\r\n$1\r\nx\r\n*2\r\n:1\r\n$-1\r\n+y\r\n:7\r\n";
static const char MANY_SHOWN[] = "+OK;-ERR no;-12;\"a\r\nbc\";_;\"\";[];_;[\"x\" [1 _] +y];7;";

/* However the bytes are cut, the same comes out. */
static void test_every_cut(void **state)
{
    (void)state;
    const size_t n = sizeof MANY - 1;
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = i; k <= n; k++) {
            struct redis_reader *r = redis_reader_new(4096);
            struct buf b;
            buf_init(&b, 4096);
            assert_true(redis_reader_feed(r, MANY, i));
            drain(r, &b);
            assert_true(redis_reader_feed(r, MANY + i, k - i));
            drain(r, &b);
            assert_true(redis_reader_feed(r, MANY + k, n - k));
            drain(r, &b);
            assert_int_equal(b.n, strlen(MANY_SHOWN));
            assert_memory_equal(b.p, MANY_SHOWN, b.n);
            assert_false(redis_reader_is_broken(r));
            buf_fini(&b);
            redis_reader_free(r);
        }
    }
}

static void assert_broken(const char *bytes)
{
    struct redis_reader *r = redis_reader_new(4096);
    redis_reader_feed(r, bytes, strlen(bytes));
    assert_null(redis_reader_next(r));
    assert_true(redis_reader_is_broken(r));
    assert_null(redis_reader_next(r));
    assert_false(redis_reader_feed(r, "+OK\r\n", 5));
    redis_reader_free(r);
}

static void test_broken(void **state)
{
    (void)state;
    assert_broken("HTTP/1.1 400 Bad Request\r\n");
    assert_broken("*1000000000\r\n"); /* a size that a peer declares is not believed */
    assert_broken("*2\r\n*1000000000\r\n");
    assert_broken("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n");
}

/* Sizes that were declared are not waited for beyond the limit, nor many small objects taken. */
static void test_limits(void **state)
{
    (void)state;
    static char junk[1000];
    struct redis_reader *r = redis_reader_new(4096);
    memset(junk, 'x', sizeof junk);
    assert_true(redis_reader_feed(r, "$2000000000\r\n", 13));
    for (int i = 0; i < 4; i++) {
        assert_null(redis_reader_next(r));
        assert_true(redis_reader_feed(r, junk, sizeof junk));
    }
    assert_false(redis_reader_feed(r, junk, sizeof junk));
    redis_reader_free(r);

    r = redis_reader_new(4096);
    redis_reader_feed(r, "*400\r\n", 6);
    for (int i = 0; i < 400; i++) {
        redis_reader_feed(r, ":1\r\n", 4);
        assert_null(redis_reader_next(r));
    }
    assert_true(redis_reader_is_broken(r));
    redis_reader_free(r);
}

static void test_error_code(void **state)
{
    (void)state;
    const struct redis_reply e = {.type = REDIS_ERROR, .text = SPAN("WRONGTYPE Operation")};
    const struct redis_reply alone = {.type = REDIS_ERROR, .text = SPAN("ERR")};
    const struct redis_reply no = {.type = REDIS_STATUS, .text = SPAN("WRONGTYPE")};
    assert_true(redis_reply_is_error(&e, "WRONGTYPE"));
    assert_false(redis_reply_is_error(&e, "WRONG"));
    assert_true(redis_reply_is_error(&alone, "ERR"));
    assert_false(redis_reply_is_error(&no, "WRONGTYPE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_error_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
