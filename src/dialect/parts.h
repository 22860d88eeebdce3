/* SPDX-License-Identifier: Apache-2.0
 *
 * What the dialects' files share besides the prompt writer. Inside of dialect/.
 */
#ifndef ROLTER_DIALECT_PARTS_H
#define ROLTER_DIALECT_PARTS_H

#include "dialect/dialect.h"

extern const struct dialect dialect_chat, dialect_completions, dialect_messages, dialect_responses,
    dialect_embeddings, dialect_rerank;

/* Reads a usage object in OpenAI's or Anthropic's words; other nodes, absent and null fields change nothing.
 */
void usage_read(const struct json_doc *d, uint32_t usage, struct usage *io);
/* The same for member `usage` of the root. */
void usage_at_root(const struct json_doc *d, struct usage *io);

#endif
