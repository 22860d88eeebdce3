/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the streamed reply of one chat request: when content came first, what the usage says, whether the
 * stream ended as it should. Bytes in, findings out; no socket, no clock. Thread: one owner.
 */
#ifndef ROLTER_REPLAY_LIVE_REPLY_H
#define ROLTER_REPLAY_LIVE_REPLY_H

#include "dialect/dialect.h"
#include "http/sse.h"

struct live_reply {
    bool has_content; /* text, reasoning or a tool call has come */
    bool is_done;     /* [DONE] has come */
    bool is_error;    /* an event with an error in it */
    bool is_broken;   /* an event that is no JSON, or too long */
    struct usage usage;

    /* ------ private ------ */
    struct sse sse;
    struct arena arena;
};

void live_reply_init(struct live_reply *r);
void live_reply_fini(struct live_reply *r);
void live_reply_feed(struct live_reply *r, const char *p, size_t n);
/* The stream is over. NULL, or what is wrong with it (static text). */
const char *live_reply_end(struct live_reply *r);

#endif
