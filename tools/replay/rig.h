/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway's side of an offline replay, made of the very same code: a fleet with one target per replica,
 * one balancer per gateway, and for each request a pick, a lease, a report at its first token and an end.
 * Gateways share the fleet's loads and nothing else, or not even these, or placements as well. What a pick
 * sees is what the gateway would make of the request's text in a chat with one user turn. Thread: one owner.
 */
#ifndef ROLTER_REPLAY_RIG_H
#define ROLTER_REPLAY_RIG_H

#include "balance/balance.h"
#include "block_events.h"
#include "prompt_text.h"

struct rig;

struct rig_options {
    enum strategy_id strategy;
    struct strategy_settings settings;
    const struct rig_target {
        const char *name, *api_base, *model;
    } * targets;
    unsigned n_targets, gateways;
    bool own_loads; /* each gateway sees its own requests only */
    bool talks;     /* gateways tell each other their placements, which are heard so much later: */
    uint64_t sync_lag_us;
    uint64_t seed;
    const struct prompt_text *text;
    const uint64_t *digests; /* of each request's turn; NULL when the strategy does not read prompts */
    const struct rig_blocks {
        const uint64_t *keys; /* of all requests' turns, one after the other */
        const size_t *at;     /* where those of a request begin; one more than there are requests */
        const uint64_t *home;
    } * blocks;                       /* NULL when the strategy does not read blocks */
    uint64_t cache_tokens;            /* of each replica */
    struct kv_source *const *sources; /* what the replicas' engines say; NULL: they say nothing */
};

struct rig *rig_new(const struct rig_options *o);
/* All requests have ended. */
void rig_free(struct rig *g);
/* Where this gateway sends request <i>. Not charged yet. */
struct pick rig_pick(struct rig *g, unsigned gateway, size_t i, uint64_t now_us);
/* The request does not go there: as if the pick had not been made, as far as that can be. */
void rig_pick_undo(struct rig *g, unsigned gateway, const struct pick *p, uint64_t now_us);
/* It goes to <target> whatever the strategy thinks, which learns of it. <by_load>: it chose another for its
 * load. */
struct pick rig_pick_forced(struct rig *g, unsigned gateway, size_t i, unsigned target, bool by_load,
                            uint64_t now_us);
/* Its lease, from the pick to the end. */
void rig_charge(struct rig *g, size_t i, const struct pick *p, uint64_t now_us);
void rig_first_token(struct rig *g, size_t i, uint64_t now_us);
/* <took_ms>: from its pick on, for strategies that learn how long requests take. <hit>: tokens that its
 * engine reports as cached; -1: it reports nothing. */
void rig_end(struct rig *g, size_t i, double took_ms, int64_t hit, uint64_t now_us);
/* What the gateway does every second. */
void rig_tend(struct rig *g);

#endif
