/* SPDX-License-Identifier: Apache-2.0
 *
 * What services answer: plugins and the guardrail webhook with an action, the PII sanitizer with a content.
 * Strict about what matters: an answer that cannot be understood is a failure and never an assent (D7).
 * Members that are not known are skipped. Pure; slices point into the answer or the arena. O(bytes).
 */
#ifndef ROLTER_POLICY_ANSWERS_H
#define ROLTER_POLICY_ANSWERS_H

#include "json/json.h"

enum action { ACTION_ALLOW, ACTION_BLOCK, ACTION_TRANSFORM, ACTION_ANNOTATE };

struct action_answer {
    enum action action;
    struct span reason;      /* of a block, or empty */
    struct span content;     /* of a transform: the text of a JSON object */
    struct span annotations; /* JSON text, or empty */
};

/* False with *ret_why (static text): no JSON object, no or an unknown or doubled "action", a transform
 * without an object as content. */
bool answer_action(struct span text, struct arena *a, struct action_answer *ret, const char **ret_why);

struct sanitizer_answer {
    struct span content; /* the text of a JSON object */
    struct span token;   /* restoration token, or empty */
    uint64_t entities;   /* how many findings it counts; of a restore: how many it restored */
};

/* Of the request leg, of a reply's sanitizing, and of a restore. */
bool answer_sanitizer(struct span text, struct arena *a, struct sanitizer_answer *ret, const char **ret_why);

#endif
