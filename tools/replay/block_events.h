/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model's caches tell about themselves, as engines do with KV events: blocks that a prefill stored,
 * blocks that went for them. It goes into the very index that the gateway keeps (kv_source.h) and, beside it,
 * into an exact view without tokens or digests, block by block. Both may hear of it some time later.
 *
 * Each trace block is an engine block of trace.block_tokens tokens whose ids are made from the trace's id.
 * Thread: one owner; one instance at a time. Complexity: O(block tokens) for the first time a block is seen,
 * else O(1) a block.
 */
#ifndef ROLTER_REPLAY_BLOCK_EVENTS_H
#define ROLTER_REPLAY_BLOCK_EVENTS_H

#include "balance/kv_source.h"
#include "model.h"

struct block_events;
struct rule_history;

struct block_events *block_events_new(const struct trace *t, unsigned replicas, uint64_t lag_us);
void block_events_free(struct block_events *e);

/* Takes <c> over: what happened to a replica at <us>. Times do not go back. */
void block_events_add(struct block_events *e, unsigned replica, struct model_change *c, uint64_t us);
/* What is known by <now_us>. */
void block_events_apply(struct block_events *e, uint64_t now_us);

struct kv_source *const *block_events_sources(const struct block_events *e);
struct rule_history *block_events_view(const struct block_events *e);

/* A prompt's token ids; how many. <out> has room for r->input. */
size_t block_events_ids(const struct trace *t, const struct trace_request *r, uint32_t *out);

#endif
