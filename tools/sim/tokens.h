/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated engine's tokenizer: four bytes of text are one token, whose id is a hash of them; the rest of
 * a text is a shorter token. Deterministic, the same in every process, and stable for prefixes: what is
 * appended later changes at most the last token of a text, and nothing once the text was ended. Ids below
 * TOKEN_FIRST_TEXT are marks (turns, tools, media) that no text produces. Memory: a growable array that stops
 * at <max>; what is behind it is counted, not kept.
 */
#ifndef ROLTER_SIM_TOKENS_H
#define ROLTER_SIM_TOKENS_H

#include "base/span.h"

enum {
    TOKEN_BYTES = 4,
    TOKEN_VOCABULARY = 128000,
    TOKEN_FIRST_TEXT = 1000,
    TOKEN_END = 2, /* a turn ends */
    TOKEN_TOOLS,   /* the offered tools follow */
    TOKEN_CALL,    /* a tool call follows: its name, then its arguments */
    TOKEN_MEDIA,   /* an image, audio or file part follows */
    TOKEN_SEPARATOR,
    TOKEN_ROLE_FIRST = 16, /* 16 .. 271: a turn of a role begins */
};

struct tokens {
    uint32_t *v;
    size_t n;     /* tokens kept */
    size_t total; /* tokens seen */
    size_t cap, max;
    uint8_t held[TOKEN_BYTES]; /* bytes of a text that do not make a token yet */
    unsigned held_n;
};

void tokens_init(struct tokens *t, size_t max);
void tokens_fini(struct tokens *t);
void tokens_clear(struct tokens *t);
/* A piece of a text; the text goes on in the next call or ends with tokens_end. */
void tokens_text(struct tokens *t, const char *p, size_t n);
/* The same, fit for the JSON reader's `put` callbacks; <arg> is the struct tokens. */
void tokens_put(void *arg, const char *p, size_t n);
/* Ends the text: bytes that were held become a short token. */
void tokens_end(struct tokens *t);
/* Ends a text if one is open, then appends one id. */
void tokens_mark(struct tokens *t, uint32_t id);
/* Begins a turn of <role>. */
void tokens_role(struct tokens *t, struct span role);
/* How many tokens a text of <bytes> has. */
size_t tokens_count(size_t bytes);

#endif
