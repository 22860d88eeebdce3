/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet that an offline replay runs on: N replicas, each with a block cache (lru.h), a prefill that
 * serves one request after the other, first come first served, at a token rate over what is not cached, and a
 * decode at a time per token for all requests side by side that does not slow the prefill. Blocks of running
 * requests are not reserved. The cache is asked when a prefill begins and has the prompt when it ends.
 *
 * Time is an argument in microseconds of the replay's own clock. What a replica does depends only on the
 * order of its requests, so all times of a request are known when it is given; model_next then tells them in
 * their order, so that a caller's view (loads, charges) changes when it would. Complexity: O(blocks + log
 * requests under way) a request. Thread: one owner.
 */
#ifndef ROLTER_REPLAY_MODEL_H
#define ROLTER_REPLAY_MODEL_H

#include "trace.h"

struct model;

struct model_options {
    unsigned replicas;
    uint32_t blocks;    /* of each replica's cache */
    double prefill_tps; /* tokens a second; 0: infinitely fast */
    double decode_ms;   /* for one token */
    bool tells_changes; /* for model_take_change */
};
#define MODEL_PREFILL_TPS 8000.0
#define MODEL_DECODE_MS   30.0

/* What becomes of a request. */
struct model_served {
    uint64_t begin_us, first_us, end_us; /* prefill begins; first token; last token */
    uint32_t hit;                        /* tokens that were cached */
};

enum model_event_kind { MODEL_BEGIN, MODEL_FIRST, MODEL_END };
struct model_event {
    uint64_t us;
    enum model_event_kind kind;
    unsigned replica;
    size_t request; /* of the trace */
};

struct model *model_new(const struct trace *t, const struct model_options *o);
void model_free(struct model *m);
/* Gives request <i> to a replica. Times do not go back. */
struct model_served model_submit(struct model *m, unsigned replica, size_t i, uint64_t now_us);
/* Takes the next event that is due by <until_us>; equal times in the order begin, first, end, then by
 * request. */
bool model_next(struct model *m, uint64_t until_us, struct model_event *ret);

/* What a request's prefill changed in its replica's cache: of the block numbers that are there afterwards and
 * were not before, in the order of the prompt, and of those that went for them. */
struct model_change {
    uint32_t n_stored, n_removed;
    uint32_t block[]; /* first what was stored */
};
/* Of the request whose MODEL_FIRST was taken: then the cache of that moment has changed so. The caller frees
 * it. At most once per request. */
struct model_change *model_take_change(struct model *m, size_t request);

/* The state as of the events taken. */
unsigned model_in_flight(const struct model *m, unsigned replica);
unsigned model_waiting(const struct model *m, unsigned replica);     /* prefill not begun */
uint64_t model_busy_blocks(const struct model *m, unsigned replica); /* of prompts and outputs that run */
/* Tokens that the replica has yet to prefill at <now_us>, for what it was given. */
double model_backlog(const struct model *m, unsigned replica, uint64_t now_us);

#endif
