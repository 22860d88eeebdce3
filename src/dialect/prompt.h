/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer that every dialect's prompt reader uses, and the shapes that several dialects share. Inside of
 * dialect/; everybody else calls dialect_prompt.
 *
 * Three kinds of content: text is copied (bounded), measured and hashed; measured content (tool traffic) is
 * measured and hashed; media is hashed. Bytes are hashed in the order of the calls. While there was nothing
 * but text and it fits, it is hashed in one go at the end; else a streaming hash takes over. Complexity:
 * O(bytes). Memory: one buffer in the arena of at most PROMPT_TEXT_MAX bytes (two when the first guess was
 * too small).
 */
#ifndef ROLTER_DIALECT_PROMPT_H
#define ROLTER_DIALECT_PROMPT_H

#include "dialect/dialect.h"

struct prompt_writer {
    const struct json_doc *doc;
    struct arena *arena;
    const struct prompt_options *options;

    char *text;
    size_t n, cap;
    size_t seen;     /* text[0..seen) is in <hash> and was given to options->each */
    size_t max;      /* most bytes that text may take now; PROMPT_TEXT_MAX, less while tools are written */
    bool is_cut;     /* some text did not fit: nothing is appended any more */
    bool is_hashing; /* <hash> has begun */
    bool has_user;   /* a user turn was seen */
    uint64_t len;    /* measured bytes */
    uint64_t head_len, turn_len;
    uint64_t media; /* with each_only: of the value that is being read */
    struct hash_stream hash;
};

void prompt_begin(struct prompt_writer *w, const struct json_doc *d, const struct prompt_options *o,
                  struct arena *a);
void prompt_end(struct prompt_writer *w, struct prompt_context *ret);

/* Text that stands in no node: "system", ": ". */
void prompt_literal(struct prompt_writer *w, struct span s);
/* The content of a string node as text; other nodes are nothing. */
void prompt_string(struct prompt_writer *w, uint32_t i);
/* A string's content, or any other value as compact JSON: length and digest. */
void prompt_measured(struct prompt_writer *w, uint32_t i);
/* The value as compact JSON: digest only. */
void prompt_media(struct prompt_writer *w, uint32_t i);
/* The `tools` array first, in at most half of the bounded text (A19). */
void prompt_tools(struct prompt_writer *w, uint32_t tools);

/* role, ": ", the content's text, newline. <content> is a string or an array of parts. */
void prompt_turn(struct prompt_writer *w, struct span role, uint32_t content);
/* Messages or input items, each a turn of its own. */
void prompt_items(struct prompt_writer *w, uint32_t list);
/* A bare string, or an array of strings, token ids or parts, without roles. */
void prompt_bare(struct prompt_writer *w, uint32_t i);

#endif
