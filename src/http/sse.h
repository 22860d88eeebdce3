/* SPDX-License-Identifier: Apache-2.0
 *
 * Splitter of event streams (WHATWG server-sent events), bytes in, events out. Lines end in LF, CR or CRLF,
 * cut anywhere; an optional BOM at the start; comments and unknown fields are skipped; several data lines
 * join with LF; an event without a data line is not dispatched (one empty data line is data: the event comes
 * with data.n == 0). An event that lies whole in the fed bytes is handed out in place when it has one data
 * line; only cut or many-lined events are copied into a buffer. What is dispatched does not depend on the
 * cuts. Does not look at the bytes of values (no UTF-8 check), and does not reconnect: `retry` is skipped, an
 * id lives for its own event only. Thread: one owner. Memory: two buffers of at most <max_event_bytes>,
 * allocated when first needed, freed by sse_fini. Complexity: O(bytes), a cut event's bytes are looked at
 * twice.
 */
#ifndef ROLTER_HTTP_SSE_H
#define ROLTER_HTTP_SSE_H

#include "base/buf.h"

struct sse_event {
    struct span type; /* the event: field, or empty */
    struct span data;
    struct span id; /* the id: field of this event, or empty; one with a NUL in it is ignored */
};

struct sse_slice { /* of the bytes of the event: they may move */
    size_t at, n;
};

struct sse_fields {
    size_t n_data;                   /* data lines */
    struct sse_slice data, type, id; /* the first data line, the last of the others */
};

struct sse {
    bool broken; /* an event exceeded the maximum: nothing is dispatched any more */

    /* private */
    bool last_was_cr; /* a LF that comes now belongs to it */
    bool at_start;
    uint8_t bom;              /* bytes of the BOM that were seen */
    size_t max;               /* lines that count of one event, and the line that is being read */
    size_t line;              /* where in <hold> the line that is not complete yet starts */
    struct sse_fields fields; /* of the lines in <hold> */
    struct buf
        hold; /* the lines that count of an event that is cut, each with LF, then the incomplete line */
    struct buf joined; /* data of an event with several data lines */
};

typedef void sse_event_fn(void *arg, const struct sse_event *e);

void sse_init(struct sse *s, size_t max_event_bytes);
void sse_fini(struct sse *s);
/* Calls <on_event> for each event that becomes complete; the slices live during the call only. <on_event>
 * must not feed or end this stream. */
void sse_feed(struct sse *s, const char *p, size_t n, sse_event_fn *on_event, void *arg);
/* The stream ended. Dispatches what stands there as if the blank line had come and returns true when there
 * was something unterminated (a complete stream ends in a blank line) or the stream is broken. */
bool sse_end(struct sse *s, sse_event_fn *on_event, void *arg);

#endif
