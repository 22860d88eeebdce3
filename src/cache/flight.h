/* SPDX-License-Identifier: Apache-2.0
 *
 * Single flight (C9): identical requests at the same time make one upstream call. The first one leads: it
 * calls the upstream and appends what comes; the others follow. A follower of a stream reads what has come so
 * far and then what comes, at its own pace; a follower of a reply that is no stream gets it when it is whole.
 * The leader's client may leave: the leader goes on as long as somebody follows.
 *
 * A flight is also the capture of a reply for the store when nobody may follow (flight_alone).
 *
 * Bounded memory: while readers keep up, what stays is the capture (its owner drops it past the largest
 * entry). A reader that lags behind others by more than FLIGHT_LAG_MAX is cut off; when all of them lag, or
 * the quickest is FLIGHT_AHEAD_MAX behind because its thread has not come to it, the leader is told to pause
 * the upstream. So a slow reader stops nobody but itself.
 *
 * Threads: leader and followers live on different loops; each hears of news on its own loop, through
 * net_loop_post: at most one post a loop at a time, whoever many follow there. Locks: a table's shard, then a
 * flight's, then net_loop.post_lock; held for O(loops) steps, never across a callback.
 */
#ifndef ROLTER_CACHE_FLIGHT_H
#define ROLTER_CACHE_FLIGHT_H

#include "cache/byte_log.h"
#include "cache/entry.h"
#include "net/loop.h"

struct flight;
struct flight_table;

enum {
    FLIGHT_LAG_MAX = 8 << 20,  /* bytes that a reader may be behind the upstream */
    FLIGHT_AHEAD_MAX = 1 << 20 /* and that the upstream may be ahead of the quickest of them */
};

enum flight_state {
    FLIGHT_WAITING,  /* the upstream's reply has not begun */
    FLIGHT_OPEN,     /* it is coming */
    FLIGHT_WHOLE,    /* it came whole */
    FLIGHT_BROKEN,   /* it broke off in the middle */
    FLIGHT_RELEASED, /* there is nothing here for followers: each makes its own call */
};

/* Somebody who leads or follows; part of a request. */
struct flight_member {
    struct flight *flight; /* NULL: none */
    bool leads;
    /* Something changed: look again. Runs on the member's loop, never from inside a call of this module. */
    void (*on_news)(struct flight_member *m);

    /* private */
    struct list node; /* in its loop's port */
    struct net_loop *loop;
    struct log_cursor cursor;
    bool lags;
};

/* What a member sees. */
struct flight_view {
    enum flight_state state;
    bool is_stream;
    struct span head;          /* field lines for the reply; lives as long as the member */
    const char *reason;        /* static; why broken or released */
    struct cache_entry *entry; /* what it became when it came whole and may be stored: a reference for the
                                  caller; else NULL */
};

/* Loops have the indexes 0 to <n_loops> - 1. */
struct flight_table *flight_table_new(unsigned n_loops);
/* Nobody leads or follows any more; posts that did not run yet will not run either. */
void flight_table_free(struct flight_table *t);
/* Flights under way that can be joined. */
size_t flight_table_count(const struct flight_table *t);

/* Leads a new flight or follows the one that is under way. <m>->on_news is set; the rest is filled in.
 * <may_lead> false: follows or does nothing (then m->flight is NULL). */
void flight_join(struct flight_table *t, const struct cache_digest *key, struct net_loop *l, bool may_lead,
                 struct flight_member *m);
/* Leads one that nobody finds. */
void flight_alone(struct flight_table *t, struct net_loop *l, struct flight_member *m);
/* Leaves. A leader has ended its flight before. Idempotent. */
void flight_leave(struct flight_member *m);

/* --- the leader's --- */

/* The reply has begun. <head>: field lines for followers' replies. Followers of a stream may read from now
 * on. */
void flight_begin(struct flight_member *m, struct span head, bool is_stream);
/* More of the body; nobody hears of it before flight_publish. */
void flight_append(struct flight_member *m, const char *p, size_t n);
/* Tells followers. True when every reader lags: the upstream should pause until on_news. */
bool flight_publish(struct flight_member *m);
/* The whole is not wanted any more: nobody else can join, followers that have nothing are released, those
 * that read go on. Idempotent. */
void flight_drop_capture(struct flight_member *m, const char *reason);
bool flight_captures(const struct flight_member *m);
/* The captured body. False when it does not fit. */
bool flight_gather(const struct flight_member *m, struct buf *b);
/* The end. FLIGHT_WHOLE with an entry (a reference of its own is taken) or NULL: streams read to the end,
 * others are released for <reason> when there is no entry. FLIGHT_BROKEN: streams that have begun break off.
 * FLIGHT_RELEASED. */
void flight_end(struct flight_member *m, enum flight_state how, const char *reason,
                struct cache_entry *entry);
/* The leader's client has left. True: others follow, so the flight goes on. False: it is over. */
bool flight_goes_on(struct flight_member *m);
/* Whether anybody else follows (may change at once). */
bool flight_is_followed(const struct flight_member *m);

/* --- readers', the leader's client included --- */

void flight_look(struct flight_member *m, struct flight_view *ret);
/* A follower of a stream reads from its beginning, the leader's client from here on. */
void flight_read_from_here(struct flight_member *m);
struct span flight_peek(struct flight_member *m);
void flight_advance(struct flight_member *m, size_t n);
/* The leader's client has all there is: its bytes go out as they come again. */
void flight_stop_reading(struct flight_member *m);
/* The client does not take more at the moment, or does so again. True for a leader that should pause the
 * upstream until on_news. */
bool flight_set_lags(struct flight_member *m, bool lags);
/* Whether the leader should still wait with the upstream. */
bool flight_is_paused(struct flight_member *m);
/* Whether this reader was too slow for the others: what it has not read is gone. */
bool flight_is_cut(const struct flight_member *m);

#endif
