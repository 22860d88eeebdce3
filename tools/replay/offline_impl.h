/* SPDX-License-Identifier: Apache-2.0
 *
 * What the offline files share; inside of the offline replay only.
 */
#ifndef ROLTER_REPLAY_OFFLINE_IMPL_H
#define ROLTER_REPLAY_OFFLINE_IMPL_H

#include "offline.h"
#include "rig.h"
#include "rules.h"

struct offline {
    const struct options *o;
    const struct trace *trace;
    struct prompt_text text;
    uint64_t *digests; /* made when first needed; so are the next three */
    uint64_t *keys, *homes;
    size_t *keys_at;
    struct rig_blocks rig_blocks;
    struct rig_target targets[RULES_REPLICAS_MAX];
    unsigned n_targets;
    char names[RULES_REPLICAS_MAX][16], bases[RULES_REPLICAS_MAX][24]; /* for targets that nobody named */
};

/* Virtual time begins at a thousand seconds: clocks of our modules take 0 for never. */
#define OFFLINE_BEGIN_US 1000000000u

static inline uint64_t offline_at_us(const struct offline *f, uint64_t trace_us)
{
    return OFFLINE_BEGIN_US + (uint64_t)((double)trace_us / f->o->speed);
}

/* <blocks>: of each replica's cache; <sources>: what the engines say, or NULL. */
struct rig *offline_rig(struct offline *f, int strategy, uint64_t blocks, struct kv_source *const *sources);
/* Rows and the names of the replicas. */
void offline_start_run(const struct offline *f, struct run *r);

#endif
