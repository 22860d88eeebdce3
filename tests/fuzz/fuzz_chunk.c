/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunked bodies: the same data and verdict however they are cut, and complete exactly when a simple reader
 * that sees everything says so. First byte of the input: the size of the pieces.
 */
#include <stdlib.h>

#include "../unit/http/naive.h"

static enum http_chunk_event run(struct span in, size_t step, struct buf *data, size_t *ret_used)
{
    struct http_chunk c;
    enum http_chunk_event e = HTTP_CHUNK_MORE;
    http_chunk_init(&c);
    for (size_t from = 0; from < in.n; from += step) {
        size_t n = step < in.n - from ? step : in.n - from, at = 0;
        char *copy = malloc(n);
        CHECK(copy);
        memcpy(copy, in.p + from, n);
        do {
            size_t used = 0;
            struct span out = SPAN_NONE;
            e = http_chunk_feed(&c, copy + at, n - at, &used, &out);
            CHECK(used <= n - at);
            CHECK(e == HTTP_CHUNK_DATA ? out.n > 0 && out.p + out.n == copy + at + used : out.n == 0);
            buf_add_span(data, out);
            at += used;
        } while (e == HTTP_CHUNK_DATA);
        CHECK(e != HTTP_CHUNK_MORE || at == n);
        free(copy);
        *ret_used = from + at;
        if (e != HTTP_CHUNK_MORE)
            break;
    }
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 1)
        return 0;
    struct span in = span_of((const char *)bytes + 1, size - 1);
    struct buf whole, cut, naive;
    buf_init(&whole, size);
    buf_init(&cut, size);
    buf_init(&naive, size);
    size_t whole_used = 0, cut_used = 0, naive_used = 0;
    enum http_chunk_event e = run(in, in.n ? in.n : 1, &whole, &whole_used);
    CHECK(run(in, 1 + bytes[0] % 32, &cut, &cut_used) == e);
    CHECK(span_eq(buf_view(&whole), buf_view(&cut)));
    CHECK(e != HTTP_CHUNK_END || cut_used == whole_used);
    CHECK(naive_chunked(in, &naive, &naive_used) == (e == HTTP_CHUNK_END));
    if (e == HTTP_CHUNK_END)
        CHECK(naive_used == whole_used && span_eq(buf_view(&naive), buf_view(&whole)));
    buf_fini(&whole);
    buf_fini(&cut);
    buf_fini(&naive);
    return 0;
}
