/* SPDX-License-Identifier: Apache-2.0
 *
 * One row for each request (G15, reference 8.2), written as a JSON line. The worker formats it into its own
 * ring of bytes; the writer thread takes the lines out. A full ring drops the row and counts it; nobody
 * waits.
 */
#ifndef ROLTER_OBSERVE_ROW_H
#define ROLTER_OBSERVE_ROW_H

#include "base/buf.h"

/* Fields in the order in which they are written, under these names; `ts_ms` as `ts`. Empty strings give "".
 */
struct row {
    uint64_t ts_ms; /* wall clock, start of the request */
    struct span request_id, trace_id;
    struct span virtual_key;    /* name of the key, or empty */
    struct span virtual_key_id; /* short digest of the key, or empty */
    struct span path, model, provider, target, variant;
    struct span upstream_request_id;
    int status;
    bool stream, cache_hit, withheld, usage_unknown;
    uint64_t prompt_tokens, completion_tokens, total_tokens, cache_read_tokens, cache_write_tokens;
    double cost_usd;
    uint64_t saved_tokens;
    double saved_cost_usd;
    uint64_t latency_ms, ttft_ms, queue_ms;
    unsigned attempts;
    struct span pick_reason, pick_detail, cache_reason, cache_scope, error;
    struct span annotations; /* of guardrails, webhook, plugins: a JSON array as text */
};

/* One JSON object and a newline: `ts` in RFC 3339, booleans as 0 and 1, invalid UTF-8 as U+FFFD. When it does
 * not fit into <b> nothing is written and <b> is full. O(bytes), no system call. */
void row_format(struct buf *b, const struct row *r);

/* Single producer (a worker), single consumer (the writer). */
struct row_ring;
/* <bytes> is rounded up to a power of two; each line takes four bytes more than its own. */
struct row_ring *row_ring_new(size_t bytes);
void row_ring_free(struct row_ring *r);
/* False when it does not fit: the row is dropped. No lock, no system call. */
bool row_ring_put(struct row_ring *r, struct span line);
/* Bytes waiting, the four of each line included; either side may ask. */
size_t row_ring_used(const struct row_ring *r);
/* Takes whole lines, at most <max> bytes unless one line is longer; appends them to <out>. Returns how many
 * lines. A line that does not fit into <out> stays in the ring. */
size_t row_ring_take(struct row_ring *r, struct buf *out, size_t max);

#endif
