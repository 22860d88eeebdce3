/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules for tests, and policies that have nothing but rules.
 */
#ifndef ROLTER_TESTS_POLICY_RIG_H
#define ROLTER_TESTS_POLICY_RIG_H

#include "unit.h"

#include "base/check.h"
#include "base/rng.h"
#include "policy/guardrails.h"
#include "policy/policy.h"
#include "policy/stream.h"

static inline struct rule_settings rig_rule(const char *pattern, enum rule_action action,
                                            const char *replacement)
{
    return (struct rule_settings){.name = pattern,
                                  .pattern = pattern,
                                  .stage = RULE_POST_CALL,
                                  .action = action,
                                  .replacement = replacement};
}

static inline struct rule_settings rig_builtin(const char *name, enum rule_action action)
{
    return (struct rule_settings){.name = name, .builtin = name, .stage = RULE_POST_CALL, .action = action};
}

static inline struct policy_settings rig_settings(struct rule_settings *rules, unsigned n)
{
    return (struct policy_settings){.guardrails = {.enabled = true,
                                                   .max_scan_bytes = 1 << 20,
                                                   .streaming_post_call = STREAM_APPLY,
                                                   .rules = rules,
                                                   .n_rules = n}};
}

static inline struct policy *rig_policy(const struct policy_settings *s)
{
    static const struct strings none;
    static const struct net_egress open;
    return policy_new(s, NULL, 0, &none, &open);
}

/* What the rules make of <text> as a whole; in the arena. NULL when they block it. */
static inline struct span rig_whole(const struct policy_settings *s, struct span text, struct arena *a)
{
    struct guardrails *g = guardrails_new(&s->guardrails);
    uint64_t *mask = guard_mask_new(&g->stage[RULE_POST_CALL], NULL);
    struct guard_result r;
    guardrails_apply(g, RULE_POST_CALL, mask, text, NULL, a, &r);
    struct span made = r.verdict == GUARD_CHANGED ? arena_dup(a, r.body)
                       : r.verdict == GUARD_SAME  ? text
                                                  : SPAN_NONE;
    free(mask);
    guardrails_free(g);
    return made;
}

#endif
