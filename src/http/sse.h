/* SPDX-License-Identifier: Apache-2.0
 *
 * Splitter of event streams (WHATWG server-sent events), bytes in, events out. Lines end in LF, CR or CRLF, cut
 * anywhere; an optional BOM at the start; comments are skipped; several data lines join with LF; an event without
 * data is not dispatched. An event that lies whole in the fed bytes is handed out in place when it has one data
 * line; only cut or many-lined events are copied into a buffer, bounded by <max_event_bytes>.
 * Thread: one owner. Memory: the buffer, freed by sse_fini.
 */
#ifndef ROLTER_HTTP_SSE_H
#define ROLTER_HTTP_SSE_H

#include "base/buf.h"

struct sse_event {
    struct span type; /* the event: field, or empty */
    struct span data;
    struct span id; /* the id: field of this event, or empty */
};

struct sse {
    struct buf hold; /* an event that is not complete yet */
    uint8_t state;
    bool broken; /* an event exceeded the maximum: nothing is dispatched any more */
    bool last_was_cr, at_start;
    struct sse_event event;
    size_t scan; /* how far `hold` was looked through */
};

typedef void sse_event_fn(void *arg, const struct sse_event *e);

void sse_init(struct sse *s, size_t max_event_bytes);
void sse_fini(struct sse *s);
/* Calls <on_event> for each event that becomes complete; the slices live during the call only. */
void sse_feed(struct sse *s, const char *p, size_t n, sse_event_fn *on_event, void *arg);
/* The stream ended. Dispatches what stands there as if the blank line had come and returns true when there was
 * something unterminated (a complete stream ends in a blank line). */
bool sse_end(struct sse *s, sse_event_fn *on_event, void *arg);

#endif
