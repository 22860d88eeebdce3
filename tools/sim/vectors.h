/* SPDX-License-Identifier: Apache-2.0
 *
 * Deterministic embeddings and rerank scores. A text is a bag of features (words, pairs of words, letter
 * trigrams inside words); each feature adds its own fixed direction, so texts that share features point the
 * same way. No meaning is understood: it is enough for texts that say the same thing in nearly the same
 * words.
 */
#ifndef ROLTER_SIM_VECTORS_H
#define ROLTER_SIM_VECTORS_H

#include "base/span.h"

enum { VECTOR_DIMS_DEFAULT = 64, VECTOR_DIMS_MAX = 4096 };

/* Writes <dims> numbers of a vector of length 1. O(bytes * dims). */
void vector_of_text(struct span text, float *out, unsigned dims);
void vector_of_tokens(const uint32_t *tokens, size_t n, float *out, unsigned dims);
double vector_cosine(const float *a, const float *b, unsigned dims);

/* How much of the query's words (as features) the document has: 0 .. 1. */
double rerank_score(struct span query, struct span document);

#endif
