/* SPDX-License-Identifier: Apache-2.0
 *
 * One embedding: a vector that many may hold, and the reading of a provider's reply to POST /v1/embeddings.
 * Thread: immutable once made; the count of references is atomic.
 */
#ifndef ROLTER_CACHE_EMBEDDING_H
#define ROLTER_CACHE_EMBEDDING_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/buf.h"

struct embedding {
    _Atomic unsigned refs;
    unsigned dims;
    float x[];
};

struct embedding *embedding_new(unsigned dims);
struct embedding *embedding_ref(struct embedding *e);
/* NULL is allowed. */
void embedding_unref(struct embedding *e);

/* The request's body for one text. */
void embedding_write_request(struct buf *b, struct span model, struct span text);

/* data[0].embedding of a reply, and usage.prompt_tokens (or total_tokens; UINT64_MAX when there is none).
 * NULL with *ret_why, a static word, when there is none to use: json, shape, empty, number, too_long,
 * direction. */
struct embedding *embedding_read(struct span body, uint64_t *ret_tokens, const char **ret_why) MUST_CHECK;

#endif
