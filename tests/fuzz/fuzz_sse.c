/* SPDX-License-Identifier: Apache-2.0
 *
 * Event streams: fed at once, in pieces and byte by byte they give the events of a simple reader that sees
 * everything; with a small maximum the cuts do not matter either. First byte of the input: the size of the
 * pieces; second: the small maximum.
 */
#include <stdlib.h>

#include "../unit/http/naive.h"

struct outcome {
    struct buf events;
    bool open, broken;
};

static struct outcome run(struct span in, size_t step, size_t max)
{
    struct outcome o;
    struct sse s;
    sse_init(&s, max);
    buf_init(&o.events, 64 * in.n + 64);
    for (size_t from = 0; from < in.n; from += step) {
        size_t n = step < in.n - from ? step : in.n - from;
        char *copy = malloc(n);
        CHECK(copy);
        memcpy(copy, in.p + from, n);
        sse_feed(&s, copy, n, naive_record, &o.events);
        free(copy);
    }
    o.open = sse_end(&s, naive_record, &o.events);
    o.broken = s.broken;
    sse_fini(&s);
    return o;
}

static void check_same(struct span in, size_t step, size_t max, const struct outcome *as)
{
    struct outcome o = run(in, step, max);
    CHECK(o.open == as->open && o.broken == as->broken &&
          span_eq(buf_view(&o.events), buf_view(&as->events)));
    buf_fini(&o.events);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 3)
        return 0;
    struct span in = span_of((const char *)bytes + 2, size - 2);
    struct outcome naive = {.broken = false};
    buf_init(&naive.events, 64 * in.n + 64);
    naive.open = naive_sse(in.p, in.n, &naive.events);
    check_same(in, in.n, 2 * size, &naive);
    check_same(in, 1 + bytes[0] % 32, 2 * size, &naive);
    check_same(in, 1, 2 * size, &naive);
    buf_fini(&naive.events);

    size_t max = 1 + bytes[1] % 64;
    struct outcome whole = run(in, in.n, max);
    check_same(in, 1 + bytes[0] % 32, max, &whole);
    check_same(in, 1, max, &whole);
    buf_fini(&whole.events);
    return 0;
}
