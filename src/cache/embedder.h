/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks providers for embeddings. One for the process: texts that were embedded a short while ago are known,
 * and equal texts at the same time, on whatever worker, make one call. A source that fails again and again is
 * left alone for a while.
 *
 * Thread: any; each asker is told on its own loop. Lock: one, a leaf, held for O(1) steps. A call runs on the
 * loop of the asker that came first, with its pool.
 */
#ifndef ROLTER_CACHE_EMBEDDER_H
#define ROLTER_CACHE_EMBEDDER_H

#include "cache/embedding.h"
#include "net/call.h"
#include "net/loop.h"

struct embedder;
struct embed_wait;

/* After so many failures in a row a source rests for so long; then one call tries it. */
enum { EMBEDDER_FAILURES = 5, EMBEDDER_REST_MS = 5000 };

/* A call that was made, for its row. */
struct embed_report {
    int status;          /* 0: no reply */
    const char *error;   /* static word, or NULL */
    uint64_t tokens;     /* UINT64_MAX: not said */
    uint64_t started_ms; /* wall clock */
    uint64_t took_ms;
};

/* Where vectors come from. Everything is borrowed and lives until <release>. */
struct embed_source {
    struct span provider, api_base, model; /* what a vector belongs to */
    const struct net_origin *origin;
    struct span path;
    struct span headers; /* with authorization */
    unsigned timeout_ms; /* for a call */
    /* Called once, on the loop that asked: the call is over (with its report), or none was made for this
     * asker (NULL). */
    void (*release)(void *owner, const struct embed_report *report);
    void *owner;
};

/* <e> is a reference for the callee, or NULL with <why>, a static word: timeout, breaker, status, closed, an
 * exchange_fail_name, or one of embedding_read's. */
typedef void embed_fn(void *arg, struct embedding *e, const char *why);

/* <cache_bytes>: for vectors of known texts. */
struct embedder *embedder_new(size_t cache_bytes);
/* No call is under way any more. NULL is allowed. */
void embedder_free(struct embedder *e);

/* NULL: <done> has been called. Else it comes later on <l>, once. */
struct embed_wait *embedder_ask(struct embedder *e, struct net_loop *l, struct pool *p,
                                const struct embed_source *s, struct span text, embed_fn *done, void *arg);
/* The vector of a text if it is known: a reference, or NULL. Of <s> only what a vector belongs to counts. */
struct embedding *embedder_known(struct embedder *e, const struct embed_source *s, struct span text);
/* <done> does not come. The call goes on: what it brings is known then. */
void embedder_cancel(struct embed_wait *w);
/* Ends the calls that run on <l>, before its pool goes; others that wait for them get "closed". */
void embedder_close_loop(struct embedder *e, struct net_loop *l);

struct embedder_stats {
    uint64_t calls, failures, known, joined, refused; /* known: from memory; refused: by the breaker */
    size_t bytes, texts;
};
void embedder_stats(struct embedder *e, struct embedder_stats *ret);

#endif
