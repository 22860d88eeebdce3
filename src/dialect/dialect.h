/* SPDX-License-Identifier: Apache-2.0
 *
 * API dialects: one table per dialect, one file each. Pure functions over a parsed body; no sockets.
 * Sources: the vendors' API references as of wire formats noted in each file.
 */
#ifndef ROLTER_DIALECT_DIALECT_H
#define ROLTER_DIALECT_DIALECT_H

#include "base/hash.h"
#include "http/sse.h"
#include "json/json.h"

enum dialect_id {
    DIALECT_CHAT,        /* POST /v1/chat/completions */
    DIALECT_COMPLETIONS, /* POST /v1/completions */
    DIALECT_MESSAGES,    /* POST /v1/messages */
    DIALECT_RESPONSES,   /* POST /v1/responses */
    DIALECT_EMBEDDINGS,  /* POST /v1/embeddings */
    DIALECT_RERANK,      /* POST /v1/rerank */
    DIALECT_COUNT
};

/* Usage as the upstream reports it; a field that did not appear is UINT64_MAX. */
struct usage {
    uint64_t prompt, completion, total, cache_read, cache_write;
};
void usage_init(struct usage *u);
bool usage_is_known(const struct usage *u);
/* Total falls back to the sum of prompt and completion. OpenAI's prompt includes cached tokens, Anthropic's
 * does not: `prompt` here is what the dialect reports, `cache_read`/`cache_write` stand beside it. */
uint64_t usage_total(const struct usage *u);

/* The conversation as text (A4 to A8, R20): bounded copy, length and digest of the whole. */
enum { PROMPT_TEXT_MAX = 32768 };
struct prompt_context {
    struct span
        text;     /* at most PROMPT_TEXT_MAX bytes, cut on a character boundary; in the arena or the body */
    uint64_t len; /* bytes of the whole prompt, tool traffic included */
    uint64_t digest; /* XXH3 over everything, media included */
    /* Measured bytes before the first user turn; <len> when there is none. */
    uint64_t head_len;
    uint64_t turn_len; /* of the first user turn, tool traffic behind it not included; 0 when there is none */
    bool is_raw;       /* a body of no known shape: the bounded raw body */
};

struct prompt_options {
    bool include_tools; /* A19: the tools schema first, at most half of the text, all of it in length and
                           digest */
    /* Gets every measured byte in order, in pieces cut anywhere (media is not among them); may be NULL. */
    void (*each)(void *arg, const char *p, size_t n);
    void *arg;
    /* <each> gets everything there is, and nothing is copied or hashed: <text> stays empty, the digest 0. For
     * a value of media <each> gets eight bytes that depend on it, which no length counts. */
    bool each_only;
};

struct prompt_writer;

struct dialect {
    const char *name; /* "chat", "completions"... */
    const char *path; /* "/v1/chat/completions" */
    bool has_stream;
    bool anthropic_errors;
    /* Writes the conversation of a request body, nothing when it has no known shape; dialect_prompt calls it.
     */
    void (*prompt)(struct prompt_writer *w);
    /* Usage from a complete JSON reply. */
    void (*reply_usage)(const struct json_doc *d, struct usage *io);
    /* Usage from one event of a stream: fields that appear replace those of earlier events (last value wins).
     */
    void (*event_usage)(const struct json_doc *d, struct usage *io);
};

const struct dialect *dialect_get(enum dialect_id id);
/* By path, or NULL. <path> as in the request, query taken off. */
const struct dialect *dialect_by_path(struct span path, enum dialect_id *ret);

/* Prompt context for every JSON request (A8): the dialect's reader, and the raw body for shapes it cannot
 * read. <options> may be NULL. O(bytes of the body); at most 2 * PROMPT_TEXT_MAX bytes of the arena. */
void dialect_prompt(enum dialect_id id, const struct json_doc *d, struct arena *a,
                    struct prompt_context *ret);
void dialect_prompt_with(enum dialect_id id, const struct json_doc *d, const struct prompt_options *options,
                         struct arena *a, struct prompt_context *ret);

/* Usage of a complete JSON reply from its bytes. Where the text's end tells (the last member of that name
 * stands at the root), the rest is not parsed; otherwise all of it is. Nothing is read from a text that is
 * not JSON behind that name. <a> is scratch. */
void dialect_reply_usage(enum dialect_id id, struct span body, struct arena *a, struct usage *io);

/* Whether an event's data can hold usage, from its bytes alone: spares parsing the others, those with
 * "usage": null among them. False means there is none; true may be a nested namesake. */
bool dialect_may_have_usage(enum dialect_id id, struct span data);

/* An error body in the caller's dialect (G10, R35). <code> and <param> may be NULL. <dialect> NULL = OpenAI's
 * shape. */
void dialect_error(struct buf *b, const struct dialect *dialect, int status, const char *code,
                   const char *param, struct span message, struct span request_id);
/* OpenAI's and Anthropic's `type` for a status. */
const char *dialect_error_type(const struct dialect *dialect, int status);

#endif
