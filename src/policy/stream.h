/* SPDX-License-Identifier: Apache-2.0
 *
 * Guardrails on a reply that is an event stream, while it flows (streaming_post_call = "apply"): bytes in,
 * bytes out. A match is found wherever frames cut it, in each text of the reply by itself: of each choice,
 * block, tool call. Events keep their order. One that is not touched stays byte for byte; it waits only while
 * the end of its text may still become a match. If a long event has words that are settled, they go out first
 * in a copy of the event, and the rest follows in another.
 *
 * What is made of an event does not depend on how its bytes were cut, so a replay from the cache is treated
 * like the live stream. Thread: one owner. Memory: what is held, at most about STREAM_HELD_MAX.
 */
#ifndef ROLTER_POLICY_STREAM_H
#define ROLTER_POLICY_STREAM_H

#include "dialect/dialect.h"
#include "policy/policy.h"

enum { STREAM_HELD_MAX = 4 << 20 };

struct policy_stream;

/* NULL when no rule looks at such a stream. <p> and <ticket> (may be NULL) outlive it. */
struct policy_stream *policy_stream_new(const struct policy *p, const char *route, enum dialect_id dialect,
                                        struct policy_ticket *ticket);
void policy_stream_free(struct policy_stream *s);

/* Appends to <out> what may go to the client. False when a rule has blocked: <out> then ends with the
 * dialect's error event, and nothing more comes, whatever is fed. */
bool policy_stream_feed(struct policy_stream *s, struct span bytes, struct buf *out);
/* The reply has ended. */
bool policy_stream_end(struct policy_stream *s, struct buf *out);
/* After a refusal: the row's reason. */
const char *policy_stream_reason(const struct policy_stream *s);

#endif
