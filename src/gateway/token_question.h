/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine's POST /tokenize must be asked so that it answers with the token ids of a request's prompt
 * (vLLM's API: a completion's prompt, or chat messages with what the template reads), and what the same
 * question is known by: a digest that is chained over the messages, so that the beginning of a conversation
 * is recognised in its next turn. Also the engine's answer. Pure: no sockets, no state.
 *
 * Messages that bring media, and items that no chat message can say, end the question: the ids are those of
 * what stands before, which is all that can be compared with an engine's blocks.
 */
#ifndef ROLTER_GATEWAY_TOKEN_QUESTION_H
#define ROLTER_GATEWAY_TOKEN_QUESTION_H

#include "balance/balance.h"
#include "base/arena.h"
#include "dialect/dialect.h"
#include "gateway/settings.h"

/* A shorter conversation: the first messages of this one. */
struct token_beginning {
    uint64_t key;
    size_t bytes; /* of its messages */
};

enum { TOKEN_BEGINNINGS_MAX = 64 };

struct token_question {
    enum dialect_id dialect;
    const struct json_doc *d;
    const struct json_members *params; /* set by the route where the body has none; may be NULL */
    struct token_ids given;            /* the body has ids itself: nothing is to be asked */
    uint64_t key;
    size_t bytes;
    uint32_t list, n;      /* the node of the messages, and how many of them are asked about */
    uint32_t prompt, lead; /* nodes: a single text; a system text before the messages */
    struct token_beginning beginning[TOKEN_BEGINNINGS_MAX]; /* longest first */
    unsigned n_beginnings;
};

/* Reads what is to be asked; <seed> parts questions of different routes. False: this body has no prompt that
 * an engine could be asked about. O(bytes of the body). */
bool token_question_read(enum dialect_id dialect, const struct json_doc *d, const struct json_members *params,
                         uint64_t seed, struct arena *a, struct token_question *ret);
/* Appends the body of the POST. <model>: the upstream model, as JSON text. */
void token_question_write(const struct token_question *q, struct span model, struct arena *a,
                          struct buf *out);

/* The ids of an engine's answer {"count": n, "tokens": [...]}, in <a>. False when it is none, or has no ids.
 */
bool token_answer_read(struct span body, struct arena *a, struct token_ids *ret);

#endif
