/* SPDX-License-Identifier: Apache-2.0
 *
 * Token ids that a client sends along: "x-rolter-vllm-token-ids: 1, 2, 300". They only help to choose a
 * target, so a list with a fault is as good as none; it never refuses the request.
 */
#ifndef ROLTER_GATEWAY_TOKEN_IDS_H
#define ROLTER_GATEWAY_TOKEN_IDS_H

#include "balance/balance.h"
#include "base/arena.h"
#include "http/head.h"

/* Why there are no ids; enough for rows and for x-rolter-pick. */
#define TOKEN_IDS_NONE      "no_ids"
#define TOKEN_IDS_MALFORMED "bad_ids"
/* ... from an engine (step_tokenize.c): it was too slow; it said no, or something else; nobody can be asked;
 * this body has no prompt for it. */
#define TOKEN_IDS_LATE        "tokenize_timeout"
#define TOKEN_IDS_FAILED      "tokenize_failed"
#define TOKEN_IDS_UNAVAILABLE "tokenize_unavailable"
#define TOKEN_IDS_UNSUPPORTED "tokenize_unsupported"

/* Reads a comma-separated list of unsigned 32-bit numbers, white space around them allowed (R9), behind the
 * <*n> that are there already. False at an empty item, a sign, a number too large or anything else;
 * <out> has place for as many as <text> has commas, and one. O(bytes). */
bool token_ids_parse(struct span text, uint32_t *out, size_t *n);

/* All fields of that name in <h>, as one list in their order. *ret has the ids in <a>, or says why there are
 * none. */
void token_ids_from_head(const struct http_head *h, struct arena *a, struct token_ids *ret);

#endif
