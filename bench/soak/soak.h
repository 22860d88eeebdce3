/* SPDX-License-Identifier: Apache-2.0
 *
 * The soak's client: hostile and harmless requests at random, each reply checked against its request.
 *
 * soak_load.c  connections: sending, faults, reading, outcomes
 * soak_build.c requests as bytes
 * soak_reply.c replies as bytes, and whether they are those of their requests
 */
#ifndef ROLTER_BENCH_SOAK_H
#define ROLTER_BENCH_SOAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kind {
    K_CHAT, /* route, tool call whose name is the request's tag */
    K_CHAT_STREAM,
    K_MESSAGES,
    K_MESSAGES_STREAM,
    K_EMBED,
    K_DIRECT, /* provider/tag, text of a certain length */
    K_DIRECT_STREAM,
    K_MODELS,
    K_WRONG_KEY,
    K_NO_MODEL,
    K_BAD_JSON,
    K_HUGE,
    K_BROKEN, /* not HTTP */
    KIND_COUNT
};

enum outcome {
    O_NONE,
    O_COMPLETE, /* reply whole and right: one row with its status */
    O_ABORTED,  /* the client left: at most one row; exactly one when a reply's head had come */
    O_BROKEN,   /* the reply broke off: one row */
    O_LOST,     /* closed without a byte of a reply: at most one row */
    O_NO_ROW,   /* no whole head was sent, or it was not HTTP */
    O_WRONG,
};

enum { HEAD_SEEN = 8 }; /* added to an outcome: the head of a reply had come */

struct ask { /* a request that is under way */
    uint32_t n;
    enum kind kind;
    uint32_t tag; /* what the reply must name: the request's own number, or one that others ask for as well */
    uint32_t tokens; /* that were asked for, DIRECT kinds */
    bool keep;       /* another one follows: may not say Connection: close */
    bool close;      /* said it */
    size_t head_end; /* in the bytes to send */
};

struct bytes {
    char *p;
    size_t n, cap;
};
void bytes_add(struct bytes *b, const void *p, size_t n);
void bytes_printf(struct bytes *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct names {
    const char *list[64];
    unsigned n;
};

struct options {
    int port;
    uint32_t requests, seed;
    unsigned connections;
    uint32_t repeats; /* of the questions with a tool most are one of so many; 0: each is asked once */
    bool calm;  /* no faults, and every reply must be whole and 200 (or the refusal that was asked for) */
    bool plain; /* only what upstreams answer */
    const char *key, *out;
    struct names routes, embeds, providers;
};
extern struct options opt;

/* rng of the run */
uint64_t draw(void);
static inline uint32_t below(uint32_t n)
{
    return (uint32_t)((draw() >> 32) * n >> 32);
}
static inline bool chance(uint32_t per_mille)
{
    return below(1000) < per_mille;
}

/* Appends request <a->n> of <a->kind>; fills the rest of <a>. */
enum kind draw_kind(void);
void build(struct bytes *b, struct ask *a);

/* One reply, incremental. */
struct reply {
    bool head_seen, chunked, is_done, close, until_eof;
    int status;
    size_t scan;            /* in the input: what was looked at */
    size_t left;            /* of a body or a chunk */
    size_t body_at, body_n; /* the body stands together there; NUL behind it is not promised */
    bool in_chunk, after_chunk, in_trailer;
    char id[64];
};
/* Goes on in in[scan..n); false: not HTTP. When is_done, scan is behind the reply. */
bool reply_feed(struct reply *r, char *in, size_t n);
/* NULL, or what is wrong with the reply to <a>. */
const char *reply_check(const struct ask *a, const struct reply *r, const char *in);

#endif
