/* SPDX-License-Identifier: Apache-2.0
 *
 * Deterministic reply text: invented words of three letters, so that each token is exactly TOKEN_BYTES bytes
 * of ASCII and a reply that comes back in the next turn's prompt gives the same tokens.
 */
#ifndef ROLTER_SIM_TEXT_H
#define ROLTER_SIM_TEXT_H

#include "tokens.h"

/* Writes the tokens <from> .. <to> - 1 of the text of <seed>: TOKEN_BYTES each, no NUL. */
void text_write(char *out, uint64_t seed, size_t from, size_t to);

#endif
