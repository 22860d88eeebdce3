/* SPDX-License-Identifier: Apache-2.0
 *
 * Which requests may be looked up by meaning, and the text that is embedded for them. Pure functions over a
 * parsed body; they decide before anything is asked of anybody, so that a request which they turn away costs
 * no embedding.
 *
 * The text is role, name and text parts of the user and assistant turns, or the prompt of a legacy
 * completion, its words joined by single spaces. All that is not text splits the partition instead
 * (semantic_partition.h).
 */
#ifndef ROLTER_CACHE_SEMANTIC_TEXT_H
#define ROLTER_CACHE_SEMANTIC_TEXT_H

#include "dialect/dialect.h"

/* Longer conversations are not embedded: no embedding model reads as much. */
enum { SEMANTIC_TEXT_MAX = 128 * 1024 };

/* NULL and the text (in <a>) when the request may be looked up; else one static word that says why not, with
 * *ret_text untouched. The words: dialect, odd, shape, role, part, tools, member, name, system, prefill,
 * empty, too_long. O(bytes of the body). */
const char *semantic_text(enum dialect_id id, const struct json_doc *d, struct arena *a,
                          struct span *ret_text) MUST_CHECK;

/* The member that holds the conversation ("messages" or "prompt"); NULL for dialects that are never looked
 * up.
 */
const char *semantic_text_member(enum dialect_id id);
/* Whether a turn belongs to the partition rather than to the text. */
bool semantic_turn_is_instruction(const struct json_doc *d, uint32_t turn);

#endif
