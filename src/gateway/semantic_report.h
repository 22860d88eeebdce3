/* SPDX-License-Identifier: Apache-2.0
 *
 * What an embedding call has to do with the gateway: where it goes, and what is written and charged for it.
 */
#ifndef ROLTER_GATEWAY_SEMANTIC_REPORT_H
#define ROLTER_GATEWAY_SEMANTIC_REPORT_H

#include "cache/embedder.h"
#include "gateway/semantic.h"

/* The source for a request's text. It holds the plan, and writes a row of its own for a call that is made:
 * path /v1/embeddings, cache_reason "embedding", the id, key and route of the request that came first. */
void semantic_source_of(struct request *r, const struct plan_semantic *m, struct embed_source *ret);

#endif
