/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact key of a request (C3, C4): SHA-256 over everything that can change the reply, each part framed,
 * the body in its canonical form (cache/canon.h). Left out are the root members user, metadata,
 * safety_identifier and prompt_cache_key, and nothing else of the body. The same in every process: a golden
 * value in the tests fails when the form changes, and then ENTRY_LAYOUT_VERSION goes up.
 *
 * Cost: one pass over the body's index, about what SHA-256 of the body costs; no copy of it. Threads: any.
 */
#ifndef ROLTER_CACHE_KEY_H
#define ROLTER_CACHE_KEY_H

#include "cache/canon.h"
#include "cache/digest.h"
#include "cache/purge.h"

/* Who shares entries. The short form (digest_short) is what rows show and purges take. */
struct cache_scope {
    struct cache_digest digest;
};
/* Callers with this virtual key; <key_digest> is SHA-256 of the key, NULL the scope of all anonymous
 * callers. */
void key_scope_of_key(const uint8_t key_digest[32], struct cache_scope *ret);
/* All callers of this route. */
void key_scope_of_route(struct span route, struct cache_scope *ret);

/* What a route makes of a request: a digest of it stands in the key, so that another upstream, another model
 * or another parameter never gets the old replies. Not in it: weights, strategies, times. */
struct key_param {
    struct span name, value; /* the value as JSON text */
    bool caller_wins;        /* what the body says stands against it */
};
struct key_target {
    struct span variant; /* or empty */
    struct span provider, api_base, model;
    const struct key_param *params;
    unsigned n_params;
};
/* The order of targets does not matter. <extras> are further texts that change what goes up, such as header
 * lines that are added to each request. */
void key_targets(const struct key_target *t, unsigned n, const struct span *extras, unsigned n_extras,
                 struct cache_digest *ret);

struct key_header {
    struct span name, value;
};
/* Whether a request header that goes up belongs into the key: anthropic-*, openai-*, and what the
 * configuration forwards (<is_forwarded>), but for names that only trace requests. */
bool key_header_counts(struct span name, bool is_forwarded);

struct key_input {
    enum dialect_id dialect;
    struct span path;
    struct span query;
    struct span route; /* public name */
    const struct cache_scope *scope;
    const struct cache_digest *targets;
    const struct key_header *headers; /* those that count, in the order of the request */
    unsigned n_headers;
    const struct json_doc *doc;
    const struct span *overridden; /* root members that the route sets whatever the caller says */
    unsigned n_overridden;
    const struct span
        *defaulted; /* those that the route sets where they are absent: null is not absent there */
    unsigned n_defaulted;
};

enum { KEY_HEADERS_MAX = 100 };

/* NULL when the request may be looked up and its reply stored (C5, R56); else why not, one static word:
 * dialect, previous_response_id, conversation, background, store, item_reference, hosted_tool, or one of
 * canon_refuses. Looks at the body alone. */
const char *key_refuses(enum dialect_id dialect, const struct json_doc *d);

/* What of the body is in the exact key, for whoever hashes it: the key and explain must never differ in it.
 */
struct canon key_canon(const struct key_input *in, struct arena *a, canon_put_fn *put, void *arg);
/* The key of a request that key_refuses lets pass. */
void key_exact(const struct key_input *in, struct arena *a, struct cache_digest *ret);

/* All of the key but scope and body, framed, in order of name: for other digests that must agree with it. */
void key_add_surroundings(struct digest_writer *w, const struct key_input *in);

#endif
