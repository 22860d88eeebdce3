/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces made of numbers, for tests.
 */
#ifndef ROLTER_TESTS_TRACE_UNIT_H
#define ROLTER_TESTS_TRACE_UNIT_H

#include "base/buf.h"
#include "base/rng.h"
#include "trace.h"

static inline void trace_unit_add(struct trace *t, uint64_t at_ms, unsigned input, unsigned output,
                                  const uint64_t *ids, unsigned n)
{
    struct buf b;
    struct trace_fault f;
    buf_init(&b, 1 << 20);
    buf_printf(&b, "{\"timestamp\": %llu, \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
               (unsigned long long)at_ms, input, output);
    for (unsigned i = 0; i < n; i++)
        buf_printf(&b, "%s%llu", i ? ", " : "", (unsigned long long)ids[i]);
    buf_add_str(&b, "]}");
    assert_true(trace_add_line(t, buf_view(&b), &f));
    buf_fini(&b);
}

/* Conversations that grow and sometimes share beginnings; id = conversation and place, as no id has two
 * parents. */
static inline void trace_unit_random(struct trace *t, uint64_t seed, unsigned requests,
                                     unsigned conversations, unsigned blocks_max, unsigned gap_max_ms)
{
    struct rng r;
    uint64_t at = 0, ids[64];
    rng_seed(&r, seed);
    for (unsigned k = 0; k < requests; k++) {
        unsigned n = (unsigned)rng_below(&r, blocks_max + 1);
        uint64_t who = rng_below(&r, conversations);
        for (unsigned i = 0; i < n; i++)
            ids[i] = i < 2 ? i : 1000 * (who + 1) + i;
        unsigned input = n ? (n - 1) * t->block_tokens + 1 + (unsigned)rng_below(&r, t->block_tokens) : 0;
        at += rng_below(&r, gap_max_ms + 1);
        trace_unit_add(t, at, input, (unsigned)rng_below(&r, 40), ids, n);
    }
    trace_finish(t);
}

#endif
