/* SPDX-License-Identifier: Apache-2.0
 *
 * Trace lines: whatever the bytes, a line is either refused with a place inside of it and changes nothing, or
 * it gives a request that, written again, reads the same.
 */
#include <stdlib.h>

#include "base/buf.h"
#include "base/check.h"
#include "trace.h"

static void write_again(const struct trace *t, const struct trace_request *r, struct buf *b)
{
    buf_printf(b, "{\"timestamp\":%llu.%03llu,\"input_length\":%u,\"output_length\":%u,\"hash_ids\":[",
               (unsigned long long)(r->at_us / 1000), (unsigned long long)(r->at_us % 1000), r->input,
               r->output);
    for (uint32_t i = 0; i < r->n; i++)
        buf_printf(b, "%s%llu", i ? "," : "", (unsigned long long)t->ids[trace_blocks(t, r)[i]]);
    buf_add_str(b, "]}");
}

static void check_request(const struct trace *t, const struct trace_request *r)
{
    struct trace again;
    struct trace_fault f;
    struct buf b;
    buf_init(&b, 1 << 26);
    trace_init(&again, t->block_tokens);
    write_again(t, r, &b);
    CHECK(!b.full && trace_add_line(&again, buf_view(&b), &f) && again.n == 1);
    const struct trace_request *q = &again.requests[0];
    CHECK(q->at_us == r->at_us && q->input == r->input && q->output == r->output && q->n == r->n);
    CHECK((uint64_t)r->n * t->block_tokens >= r->input);
    for (uint32_t i = 0; i < r->n; i++)
        CHECK(again.ids[trace_blocks(&again, q)[i]] == t->ids[trace_blocks(t, r)[i]]);
    trace_fini(&again);
    buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 1)
        return 0;
    struct trace t;
    struct span rest = span_of((const char *)bytes + 1, size - 1), line;
    trace_init(&t, 1 + bytes[0] * 8);
    while (span_split(&rest, '\n', &line)) {
        struct trace_fault f = {0};
        size_t n = t.n, blocks = t.n_blocks, skipped = t.skipped;
        uint32_t ids = t.n_ids;
        bool ok = trace_add_line(&t, line, &f);
        CHECK(t.n - n <= (size_t)ok && t.skipped - skipped == (size_t)!ok);
        if (!ok)
            CHECK(f.what && f.column >= 1 && f.column <= line.n + 1 && t.n_blocks == blocks &&
                  t.n_ids == ids);
        else if (t.n > n)
            check_request(&t, &t.requests[n]);
    }
    trace_finish(&t);
    uint64_t input = 0;
    for (size_t i = 0; i < t.n; i++) {
        CHECK(i == 0 || t.requests[i - 1].at_us <= t.requests[i].at_us);
        CHECK(t.requests[i].first + t.requests[i].n <= t.n_blocks);
        input += t.requests[i].input;
    }
    CHECK(input == t.input_tokens);
    trace_fini(&t);
    return 0;
}
