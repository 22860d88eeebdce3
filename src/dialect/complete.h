/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a reply with status 200 is whole and worth keeping (C5, C6): every choice or block has ended with a
 * terminal reason, the terminal event was there, nothing in it is an error, and it says something. `[DONE]`
 * alone proves nothing. What cannot be read with certainty is not kept: to refuse costs an upstream call, to
 * keep a broken reply costs a wrong answer again and again.
 *
 * A stream is fed in slices, cut anywhere, while it passes; a JSON reply is judged from its whole body at the
 * end. Pure: no sockets, no clock. Thread: one owner. Memory: one small object, an event's copy when it is
 * cut (at most <max_bytes>), the scratch arena during a call.
 */
#ifndef ROLTER_DIALECT_COMPLETE_H
#define ROLTER_DIALECT_COMPLETE_H

#include "dialect/dialect.h"

/* Verdicts and their words, as they stand in metrics and rows. The first ones are the caller's own. */
#define COMPLETE_VERDICTS(X)                                                                                 \
    X(OK, "ok")                                                                                              \
    X(STATUS, "status")             /* the caller: not 200 */                                                \
    X(TOO_LARGE, "too_large")       /* the caller: past max_entry_bytes */                                   \
    X(ENCODED, "encoded")           /* the caller: a content coding that is not undone */                    \
    X(CONTENT_TYPE, "content_type") /* the caller: neither JSON nor the stream that was asked for */         \
    X(CUT, "cut")                   /* framing broken, or the body ends with the connection */               \
    X(DIALECT, "dialect")           /* nothing is known of such replies */                                   \
    X(UNREADABLE, "unreadable")     /* not JSON, not the shape, an event too large, data behind the end */   \
    X(ERROR, "error")               /* an error under 200 */                                                 \
    X(NO_TERMINAL_EVENT, "no_terminal_event")                                                                \
    X(UNFINISHED, "unfinished")         /* a choice, block or item without its end */                        \
    X(UNKNOWN_REASON, "unknown_reason") /* a finish reason that nobody here knows */                         \
    X(CHOICES, "choices")               /* fewer choices or vectors than asked for */                        \
    X(LENGTH, "length")                                                                                      \
    X(CONTENT_FILTER, "content_filter")                                                                      \
    X(REFUSAL, "refusal")                                                                                    \
    X(PAUSED, "paused")                                                                                      \
    X(INCOMPLETE, "incomplete")                                                                              \
    X(FAILED, "failed")                                                                                      \
    X(EMPTY, "empty")

enum complete_verdict {
#define X(name, word) COMPLETE_##name,
    COMPLETE_VERDICTS(X)
#undef X
        COMPLETE_VERDICT_COUNT
};
const char *complete_word(enum complete_verdict v);

struct complete_options {
    enum dialect_id dialect;
    bool is_stream;
    bool store_truncated;  /* keeps what was cut by its length limit, and nothing else */
    unsigned asked;        /* choices or vectors that the request wants (complete_asked); 0 = not known */
    size_t max_bytes;      /* of an event; 0 = 64 MiB */
    struct arena *scratch; /* used and reset in each call; outlives the judge */
};

struct complete;

/* How many choices a request asks for (n, times the prompts of a legacy completion), or vectors. 1 where the
 * dialect knows one reply only; 0 when the body does not say it in a way that is understood. */
unsigned complete_asked(enum dialect_id dialect, const struct json_doc *request);

struct complete *complete_new(const struct complete_options *o);
/* NULL is allowed. */
void complete_free(struct complete *c);

/* Bytes of a stream; does nothing for a JSON reply. */
void complete_feed(struct complete *c, const char *p, size_t n);
/* COMPLETE_OK as long as nothing is known against the reply: once it is something else, it stays so, and
 * nobody needs to collect the body any more. */
enum complete_verdict complete_so_far(const struct complete *c);
/* The reply is over. <framed>: its framing said so, not the end of the connection. <body>: of a JSON reply;
 * not looked at for streams. *ret_truncated: it is kept although its length limit cut it. */
enum complete_verdict complete_end(struct complete *c, bool framed, struct span body,
                                   bool *ret_truncated) MUST_CHECK;

#endif
