/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks engines' /tokenize for a worker's requests. A question that is under way already is not sent again:
 * whoever asks the same waits for the same answer. An answer that comes when nobody waits any more is kept
 * all the same: the next turn of the conversation begins with it. At most TOKENIZER_CALLS_MAX questions are
 * under way at once. A provider that answered badly or late rests for a while.
 *
 * Owner and thread: one worker. Answers go into the token cache that all workers share.
 */
#ifndef ROLTER_GATEWAY_TOKENIZER_H
#define ROLTER_GATEWAY_TOKENIZER_H

#include "gateway/plan.h"
#include "gateway/token_cache.h"
#include "net/exchange.h"

enum { TOKENIZER_CALLS_MAX = 128 };

struct tokenizer;
struct tokenize_call;

/* Somebody who waits. The memory is the waiter's; it stays put until `done` ran or tokenizer_leave. */
struct tokenize_wait {
    struct list node;
    struct tokenize_call *call; /* NULL: does not wait */
    /* <ids> NULL: there was no answer that can be read. They live during the call. */
    void (*done)(struct tokenize_wait *w, const struct token_ids *ids);
};

struct tokenizer *tokenizer_new(struct pool *pool, struct token_cache *cache);
/* Ends what is under way. Nobody may wait any more. */
void tokenizer_free(struct tokenizer *t);

/* Whether the provider may be asked now. */
bool tokenizer_is_fit(const struct tokenizer *t, const struct plan_provider *p);
/* It was asked and took too long for somebody. */
void tokenizer_was_late(struct tokenizer *t, const struct provider *p);

/* Joins the question <key> if it is under way. */
bool tokenizer_join(struct tokenizer *t, uint64_t key, struct tokenize_wait *w);
/* Sends one; <w> may be NULL (nobody waits). Holds a reference to <plan>, <p>'s, until it ends. False: too
 * many are under way. */
bool tokenizer_ask(struct tokenizer *t, struct plan *plan, const struct plan_provider *p, uint64_t key,
                   struct span body, struct tokenize_wait *w);
/* Whom <w> waits for. */
const struct provider *tokenizer_asked(const struct tokenize_wait *w);
/* Waits no longer; the question goes on. */
void tokenizer_leave(struct tokenize_wait *w);

#endif
