/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the text is in the bodies of all dialects: the strings that a person, a model or a tool wrote, as
 * opposed to names, ids, URLs and encoded media. One walk for all dialects: engines mix their shapes, and a
 * text that is looked at once too often does no harm.
 *
 * Requests: messages, input, prompt, suffix, system, instructions, prediction, query, documents; in them
 * content, parts, tool calls' arguments and results. Replies: choices, content, output, output_text, results;
 * reasoning as well. Not looked at: tool schemas, metadata, media, signed thinking of requests.
 *
 * Pure; O(nodes).
 */
#ifndef ROLTER_POLICY_TEXTS_H
#define ROLTER_POLICY_TEXTS_H

#include "json/json.h"

struct text_slot {
    uint32_t node;     /* a string */
    bool system;       /* written by a system or developer role */
    bool json;         /* the string holds JSON text: the arguments of a tool call */
    uint32_t logprobs; /* the value that repeats this text token by token, or JSON_NODE_NONE */
};

struct text_list {
    struct arena *arena;
    struct text_slot *slot; /* in the order of the document */
    unsigned n, cap;
};

void texts_of_request(const struct json_doc *d, struct arena *a, struct text_list *ret);
void texts_of_reply(const struct json_doc *d, struct arena *a, struct text_list *ret);
/* The data of one event of a reply's stream. */
void texts_of_event(const struct json_doc *d, struct arena *a, struct text_list *ret);
/* Every string value of a document: tool-call arguments. */
void texts_of_value(const struct json_doc *d, struct arena *a, struct text_list *ret);

#endif
