/* SPDX-License-Identifier: Apache-2.0
 *
 * Guardrails: rules that look for patterns in the texts of a body and note, refuse or replace what they find.
 *
 * Rules run in order on each text; what one rule replaced is what the next one sees; the first rule that
 * blocks ends it. First all texts are joined and scanned for all rules together (patterns.h), so a body in
 * which nothing matches costs one pass. Of a body at most max_scan_bytes of text are looked at; the text that
 * crosses that line is looked at up to there, and what is behind it is refused or passes by `on_budget`.
 *
 * Thread: immutable, for many threads.
 */
#ifndef ROLTER_POLICY_GUARDRAILS_H
#define ROLTER_POLICY_GUARDRAILS_H

#include "base/buf.h"
#include "json/json.h"
#include "policy/patterns.h"
#include "policy/settings.h"

struct guard_rule {
    const char *name;
    struct span name_span;
    enum rule_action action;
    struct span replacement;
    bool include_system;
};

/* The rules of one stage. */
struct guard_stage {
    struct guard_rule *rule;
    unsigned n;
    struct patterns *patterns; /* NULL without rules */
    unsigned words;            /* of a bit set over the rules */
};

struct guardrails {
    struct guard_stage stage[2]; /* enum rule_stage */
    uint64_t max_scan_bytes;
    enum budget_mode on_budget;
    enum stream_mode streaming;
};

/* Pattern of a built-in entity, or NULL. */
const char *guard_builtin(const char *name);

/* NULL when the guardrails are off or have no rules. <s> outlives it. */
struct guardrails *guardrails_new(const struct guardrail_settings *s);
void guardrails_free(struct guardrails *g);

/* Which rules of a stage apply to a route: a bit set of stage[].words words, the caller's to free. <r> may be
 * NULL. */
uint64_t *guard_mask_new(const struct guard_stage *s, const struct route_rule_settings *r);
/* Whether any rule applies; with <acts> one that does more than take notes. */
bool guard_mask_any(const struct guard_stage *s, const uint64_t *mask, bool acts);

enum guard_verdict { GUARD_SAME, GUARD_CHANGED, GUARD_BLOCKED };

struct guard_result {
    enum guard_verdict verdict;
    struct span body;  /* GUARD_CHANGED; in the arena */
    const char *rule;  /* GUARD_BLOCKED: its name; "max_scan_bytes" for the budget */
    bool over_budget;  /* not all of it was looked at */
    unsigned redacted; /* matches that were replaced */
    uint64_t *noted;   /* rules that matched and did not block; bit set in the arena */
};

/* Looks at a request (pre_call) or a reply (post_call). <doc> NULL: <body> is not JSON and one text as a
 * whole. Memory: the arena, a few times the text. */
void guardrails_apply(const struct guardrails *g, enum rule_stage stage, const uint64_t *mask,
                      struct span body, const struct json_doc *doc, struct arena *a,
                      struct guard_result *ret);

#endif
