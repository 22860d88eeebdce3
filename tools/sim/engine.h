/* SPDX-License-Identifier: Apache-2.0
 *
 * Model of one engine replica: a waiting queue (first come, first served), prefill of one request at a time
 * at a token rate, decode of all running requests side by side at a token rate each, and a block cache that
 * spares the prefill of resident beginnings. Rates of 0 are infinitely fast.
 *
 * It has no clock, socket or text: time is an argument (microseconds, never going back), work is counts and
 * hashes. Events happen at their exact time however late engine_advance is called, so a coarse timer does not
 * slow the model. A request begins when a place (max_running), the prefill and enough blocks for prompt and
 * output are free; like vLLM, the prompt's last token is always computed, so a wholly resident prompt still
 * counts its last block as not cached.
 *
 * Owner: engine requests are embedded in the caller's objects and stay put until `progress` said is_done or
 * engine_abort returned. `progress` is called from engine_submit and engine_advance and must not call the
 * engine; a caller notes the request and acts afterwards. Thread: one. Complexity: O(1) per token event,
 * O(blocks) per request.
 */
#ifndef ROLTER_SIM_ENGINE_H
#define ROLTER_SIM_ENGINE_H

#include "base/list.h"
#include "blocks.h"

struct engine;

enum engine_state { ENGINE_IDLE, ENGINE_WAITING, ENGINE_PREFILL, ENGINE_DECODE, ENGINE_DONE };

struct engine_request {
    /* Set by the caller before engine_submit. Arrays live as long as the engine has the request. */
    uint32_t prompt_n;      /* tokens */
    uint32_t output_n;      /* tokens per choice; 0: done when the prompt is computed (embeddings) */
    uint32_t choices;       /* 0 counts as 1 */
    bool no_cache;          /* takes no blocks */
    const uint64_t *hashes; /* chained, of each full block of prompt and output: engine_hash_blocks */
    const uint32_t *tokens; /* of prompt and output, for the observer; may be NULL */
    uint32_t *block_ids;    /* room for engine_blocks_needed */

    /* Read by the caller. */
    uint8_t state;     /* enum engine_state */
    uint32_t cached_n; /* prompt tokens that were resident; known from the end of the prefill */
    uint32_t emitted;  /* output tokens so far (per choice) */

    /* ------ the engine's ------ */
    struct list node;
    struct block_lease lease;
    uint32_t filled; /* blocks of the lease that are full */
    uint64_t due_us; /* end of prefill, then the next token */
};

struct engine_options {
    uint32_t block_size, blocks;
    double prefill_tps, decode_tps; /* 0 = infinitely fast */
    uint32_t max_running;
    uint32_t max_waiting; /* 0 = no limit */
};

struct engine_events {
    /* <new_tokens> more tokens are out; r->state is ENGINE_DONE when it was the end. */
    void (*progress)(void *arg, struct engine_request *r, uint32_t new_tokens);
    void *arg;
    struct blocks_observer blocks;
};

struct engine_totals {
    uint64_t prompt_tokens, cached_tokens,
        output_tokens; /* of requests that began; queries and hits of the cache */
    uint64_t finished, aborted, refused;
};

struct engine *engine_new(const struct engine_options *o, const struct engine_events *ev);
void engine_free(struct engine *e);

/* Blocks that <r> needs by its counts. A request that needs more than options.blocks can never run. */
uint64_t engine_blocks_needed(const struct engine *e, const struct engine_request *r);
/* Chained hashes of the full blocks of <tokens>; <ret> has room for n / block_size. <salt> parts caches that
 * must not share (model, tenant). Never gives 0. */
uint32_t engine_hash_blocks(uint32_t block_size, uint64_t salt, const uint32_t *tokens, size_t n,
                            uint64_t *ret);

/* Takes a request in. False when it must wait and the waiting queue is full. */
bool engine_submit(struct engine *e, struct engine_request *r, uint64_t now_us);
/* Takes it out, wherever it is; no-op when idle or done. */
void engine_abort(struct engine *e, struct engine_request *r, uint64_t now_us);
/* Lets happen what is due by <now_us>. */
void engine_advance(struct engine *e, uint64_t now_us);
/* When something is due next, or UINT64_MAX. */
uint64_t engine_next_us(const struct engine *e);
/* Forgets all cached blocks and totals. No request may be in the engine. */
void engine_restart(struct engine *e);

/* Changes options.blocks. A waiting request that needs more than that never runs: the caller takes it out. */
void engine_resize(struct engine *e, uint32_t blocks, uint64_t now_us);

uint32_t engine_running(const struct engine *e); /* in prefill or decode */
uint32_t engine_waiting(const struct engine *e);
const struct engine_totals *engine_totals(const struct engine *e);
struct blocks *engine_blocks(struct engine *e);

#endif
