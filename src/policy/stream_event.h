/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of policy/: which texts an event of a reply's stream has, and of which running text each is a piece.
 * Pure; one walk for all dialects with event streams, like texts.h.
 */
#ifndef ROLTER_POLICY_STREAM_EVENT_H
#define ROLTER_POLICY_STREAM_EVENT_H

#include "dialect/dialect.h"

enum { EVENT_GROUPS_MAX = 32, EVENT_KEY_WHOLE = 0 };

struct event_text {
    uint32_t node;  /* a string */
    uint64_t key;   /* of the text that it continues; EVENT_KEY_WHOLE: a text of its own */
    uint64_t group; /* choice, block or output item that the text is part of */
    bool json;
    uint32_t logprobs; /* repeats the text; or JSON_NODE_NONE */
};

struct event_texts {
    struct arena *arena;
    struct event_text *text;
    unsigned n, cap;
    bool ends_all;    /* all texts are over */
    bool ends_groups; /* those of these groups are */
    uint64_t group[EVENT_GROUPS_MAX];
    unsigned n_groups;
    bool is_single;    /* nothing but one piece of text: it may go out in two events */
    uint32_t sequence; /* a Responses event's sequence_number, or JSON_NODE_NONE */
};

void event_texts(enum dialect_id dialect, const struct json_doc *d, struct arena *a, struct event_texts *ret);

#endif
