/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of KV-cache events as vLLM, SGLang and others publish them, in every form that was seen: batches
 * and events as arrays and as maps, hashes as numbers and as bytes, fields and slots that came later or that
 * are not known here. A batch is judged whole before its first event is given out; an event with a fault is
 * skipped by itself.
 */
#ifndef ROLTER_SIGNALS_KV_DECODE_H
#define ROLTER_SIGNALS_KV_DECODE_H

#include "signals/msgpack.h"

/* Of one event; more is a fault. */
enum { KV_EVENT_HASHES_MAX = 1 << 20, KV_EVENT_TOKENS_MAX = 1 << 22 };

enum kv_event_type { KV_EVENT_STORED, KV_EVENT_REMOVED, KV_EVENT_CLEARED };

/* Slices point into the payload. */
struct kv_event {
    enum kv_event_type type;
    const uint64_t *hash; /* the decoder's memory, until the next event */
    uint32_t n_hashes;
    bool lower_tier;   /* not in GPU memory */
    bool is_elsewhere; /* not in this engine's memory */
    int group;         /* -1: not said */
    struct span kind;  /* of the group's attention; empty: not said */
    /* stored only */
    bool has_before;
    uint64_t before;       /* hash of the block before the first one */
    bool before_is_number; /* 0, where older simulators mean that there is none */
    const uint32_t *token; /* n_hashes * block_size, and `overlap` more; none: only a place is told */
    uint32_t n_tokens, block_size;
    bool is_ragged;   /* which tokens belong to which hash cannot be told; a fault, unless nobody asks */
    unsigned overlap; /* 1: a block's name also depends on the first token of the next one */
    struct span adapter;
    bool adapter_unknown;  /* only a number of the engine's own is said */
    struct span salt;      /* of all blocks; empty: none, or in <extras> */
    struct msgpack extras; /* an array of n_hashes values, or nothing */
};

/* Memory for one event at a time. All zero is empty. */
struct kv_decoder {
    uint64_t *hash;
    uint32_t *token;
    uint32_t *seen; /* of hashes of one event */
    size_t cap_hash, cap_token, cap_seen;
};
void kv_decoder_fini(struct kv_decoder *d);

struct kv_batch {
    struct msgpack events;
    uint32_t left;
};
/* False when <payload> is no batch (R4). */
bool kv_batch_open(struct span payload, struct kv_batch *ret);

enum kv_next { KV_NEXT_END, KV_NEXT_EVENT, KV_NEXT_BAD /* skipped: ragged, of an unknown kind... (R4) */ };
enum kv_next kv_batch_next(struct kv_batch *b, struct kv_decoder *d, struct kv_event *ret);

/* What the engine mixed into one block's name besides tokens and adapter. */
enum kv_extra {
    KV_EXTRA_NONE,
    KV_EXTRA_SALT,
    KV_EXTRA_OTHER /* images and the like: nobody's prompt matches it */
};
/* The next of e->extras. <first>: the block is the first of its prompt, where alone a salt can stand. */
enum kv_extra kv_event_extra(struct kv_event *e, bool first, struct span *ret_salt);

#endif
