/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "net/http_reply.h"
#include "net/kept.h"

static void whole_head(void **state)
{
    struct buf b;
    buf_init(&b, 4096);
    reply_begin(&b, 404, 1764565446000);
    assert_true(reply_field(&b, SPAN("x-a"), SPAN("b c")));
    reply_content_length(&b, 12);
    reply_connection_close(&b);
    assert_true(reply_end(&b));
    assert_true(span_eq(buf_view(&b), SPAN("HTTP/1.1 404 Not Found\r\ndate: Mon, 01 Dec 2025 05:04:06 GMT\r\n"
                                           "x-a: b c\r\ncontent-length: 12\r\nconnection: close\r\n\r\n")));
    buf_clear(&b);
    reply_begin(&b, 200, 1764565446999);
    reply_chunked(&b);
    reply_end(&b);
    assert_true(span_eq(buf_view(&b), SPAN("HTTP/1.1 200 OK\r\ndate: Mon, 01 Dec 2025 05:04:06 GMT\r\n"
                                           "transfer-encoding: chunked\r\n\r\n")));
    buf_fini(&b);
}

static void fields_of_outsiders(void **state)
{
    struct buf b;
    buf_init(&b, 30);
    assert_false(reply_field(&b, SPAN("a"), SPAN("b\r\nset-cookie: x")));
    assert_false(reply_field(&b, SPAN("a"), SPAN("b\0c")));
    assert_false(reply_field(&b, SPAN("a b"), SPAN("c")));
    assert_false(reply_field(&b, SPAN(""), SPAN("c")));
    assert_int_equal(b.n, 0);
    reply_field(&b, SPAN("a"), SPAN("0123456789012345678901234567890"));
    assert_false(reply_end(&b));
    buf_fini(&b);
}

static void dates(void **state)
{
    assert_true(span_eq(reply_date(0), SPAN("Thu, 01 Jan 1970 00:00:00 GMT")));
    assert_true(span_eq(reply_date(951827696789), SPAN("Tue, 29 Feb 2000 12:34:56 GMT")));
    assert_true(span_eq(reply_date(951827695000), SPAN("Tue, 29 Feb 2000 12:34:55 GMT")));
}

static void chunks(void **state)
{
    char out[REPLY_CHUNK_HEAD_MAX];
    assert_true(span_eq(span_of(out, reply_chunk_head(out, 1)), SPAN("1\r\n")));
    assert_true(span_eq(span_of(out, reply_chunk_head(out, 0x1a2b3c)), SPAN("1a2b3c\r\n")));
    assert_true(span_eq(span_of(out, reply_chunk_head(out, SIZE_MAX)), SPAN("ffffffffffffffff\r\n")));
}

static void kept_buffers(void **state)
{
    struct kept k;
    kept_init(&k, 100000);
    size_t cap, again_cap;
    char *p = kept_get(&k, 32769, &cap);
    assert_int_equal(cap, 65536);
    kept_put(&k, p, cap);
    assert_int_equal(k.bytes, 65536);
    assert_ptr_equal(kept_get(&k, 40000, &again_cap), p);
    assert_int_equal(k.bytes, 0);
    char *q = kept_get(&k, 65536, &cap);
    kept_put(&k, p, 65536);
    kept_put(&k, q, 65536); /* over the maximum: freed */
    assert_int_equal(k.bytes, 65536);
    p = kept_get(&k, 3 << 20, &cap);
    assert_int_equal(cap, 3 << 20);
    kept_put(&k, p, cap);
    p = kept_get(&k, 0, &cap);
    assert_int_equal(cap, KEPT_MIN_BYTES);
    kept_put(&k, p, cap);
    assert_int_equal(k.bytes, 65536 + KEPT_MIN_BYTES);
    kept_fini(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_head), cmocka_unit_test(fields_of_outsiders), cmocka_unit_test(dates),
        cmocka_unit_test(chunks),     cmocka_unit_test(kept_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
