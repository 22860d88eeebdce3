/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of policy/: the rules on one text that comes in pieces. What comes out is what the rules would have
 * made of the whole text at once, however it was cut; what stays inside is only what may still become a
 * match.
 *
 * Each rule has a window, the part of its text that is not settled; what leaves it enters the next rule's.
 * Each piece belongs to a slot, and so does what becomes of it: a replacement goes to the slot in which the
 * match began. A text that is JSON (tool-call arguments) is cut at its quotes, and the rules see each string
 * value by itself, unescaped.
 *
 * Cost: two searches in a window for each rule and piece. A window of more than HOLD_FEW bytes is looked at
 * again only when it has grown by a sixteenth, so long ones cost no more than linear time.
 */
#ifndef ROLTER_POLICY_STREAM_TEXT_H
#define ROLTER_POLICY_STREAM_TEXT_H

#include "policy/guardrails.h"

/* A piece of text and what became of it. */
struct stream_slot {
    struct buf out;
    size_t inside; /* bytes that are still in some window */
    bool changed;  /* <out> says something else than the piece */
};

/* What several texts of one reply share. */
struct stream_rules {
    const struct guard_stage *st;
    const uint64_t *mask;
    bool block_on_budget;
    uint64_t left; /* of the scan budget */
    bool over_budget;
    uint64_t *noted; /* bits of rules that matched */
    unsigned redacted;
    const char *blocked; /* the rule that did, or NULL */
};

struct stream_chain;

struct stream_chain *stream_chain_new(struct stream_rules *r, bool json);
void stream_chain_free(struct stream_chain *c);
/* The text goes on with <text>, which belongs to <slot>. False when a rule has blocked: nothing more comes.
 */
bool stream_chain_feed(struct stream_chain *c, struct stream_slot *slot, struct span text);
/* The text is over: everything inside comes out. The next piece begins another text. */
bool stream_chain_end(struct stream_chain *c);

#endif
