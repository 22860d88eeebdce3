/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes of a block cache as the payload of one KV-event publication (MessagePack), as vLLM and SGLang write
 * them. Blocks of one chain that are stored one after the other become one event, as the engines do.
 *
 * Formats: vLLM's maps (0.24 and later) and arrays (0.21 to 0.23), SGLang's maps and arrays. Hashes go out as
 * integers (SGLang: signed), or as 32 bytes whose last 8 are the integer. Owner: one; thread: one.
 * Complexity: O(tokens) per block. It knows no sockets and no sequence numbers.
 */
#ifndef ROLTER_SIM_EVENT_BATCH_H
#define ROLTER_SIM_EVENT_BATCH_H

#include "base/buf.h"
#include "blocks.h"

enum event_format { EVENT_VLLM_MAP, EVENT_VLLM_ARRAY, EVENT_SGLANG_MAP, EVENT_SGLANG_ARRAY };

struct event_style {
    enum event_format format;
    bool hash_bytes;
    uint32_t block_size, rank;
};

/* What parts caches beside the tokens. Empty: none. */
struct event_scope {
    struct span lora, salt;
    uint32_t lora_id; /* 1 ..; 0: no adapter */
};

struct event_batch {
    struct event_style style;
    struct buf events, payload;
    uint32_t n;
    uint64_t total; /* events of all batches that were ended */
    /* The store event that may still grow. */
    struct buf hashes, tokens, lora, salt;
    uint64_t parent, last;
    uint32_t lora_id;
};

void event_batch_init(struct event_batch *b, const struct event_style *style);
void event_batch_fini(struct event_batch *b);
/* Forgets what was added. */
void event_batch_drop(struct event_batch *b);

/* <c>->tokens must be there. */
void event_batch_stored(struct event_batch *b, const struct block_content *c, const struct event_scope *s);
void event_batch_removed(struct event_batch *b, uint64_t hash);
void event_batch_cleared(struct event_batch *b);

bool event_batch_empty(const struct event_batch *b);
/* Bytes so far, about; so that a caller can end a batch before it is too large. */
size_t event_batch_bytes(const struct event_batch *b);
/* The payload; the batch is empty then. <ts>: seconds since the epoch. Lives until the next call. */
struct span event_batch_end(struct event_batch *b, double ts);

#endif
