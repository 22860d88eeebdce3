/* SPDX-License-Identifier: Apache-2.0
 *
 * Other routers' rules, to stand beside ours in the table. They live in the replay only and see more than a
 * gateway can: an unbounded, exact history of what was sent where, and the model's true queues. Up to 64
 * replicas.
 *
 *   sglang  match ratio > 0.5 goes to the best match, everything else to the least requests in flight; all of
 * it to the least when the spread is over 32 and 1.1 times (SGLang's and vLLM's router, cache_aware) lmetric
 * least (tokens to prefill there, this prompt's misses included) x (requests in flight + 1) llmd    greatest
 * 3 x matched share + 2 x short queue + 2 x free cache (llm-d's default profile)
 *
 *   exact   greatest matched share + 0.25 x (1 - load / greatest load); matched is what the replica's cache
 * holds at that moment, not what was sent there
 *
 * Two bounds that no rule passes: pooled_lru, one cache as large as all together; ceiling, one without end.
 */
#ifndef ROLTER_REPLAY_RULES_H
#define ROLTER_REPLAY_RULES_H

#include "base/rng.h"
#include "model.h"

enum { RULES_REPLICAS_MAX = 64 };

enum rule_id {
    RULE_SGLANG,
    RULE_LMETRIC,
    RULE_LLMD,
    RULE_EXACT, /* the rule of our precise_cache_aware, with the caches themselves in view */
    RULE_COUNT
};

const char *rule_name(enum rule_id id);

/* One gateway's history. */
struct rule_history;
struct rule_history *rule_history_new(const struct trace *t, unsigned replicas);
void rule_history_free(struct rule_history *h);
/* Tokens of request <r> that each replica was sent before. <ret> has room for all replicas. */
void rule_history_match(const struct rule_history *h, const struct trace_request *r, uint32_t *ret);
void rule_history_add(struct rule_history *h, const struct trace_request *r, unsigned replica);

/* A history that is told what the caches hold: one block of a replica comes, or goes. */
void rule_history_set(struct rule_history *h, unsigned replica, uint32_t block, bool held);
bool rule_history_has(const struct rule_history *h, unsigned replica, uint32_t block);

struct rule_view {
    const struct model *model;
    const struct trace_request *request;
    const uint32_t *matched; /* tokens, of each replica */
    unsigned replicas;
    uint32_t cache_blocks;
    uint64_t now_us;
    struct rng *rng; /* ties are settled by chance */
};
unsigned rule_pick(enum rule_id id, const struct rule_view *v);

/* Tokens that hit in one cache of <blocks> that sees all requests in their order. */
uint64_t rule_pooled_hits(const struct trace *t, uint64_t blocks);

#endif
