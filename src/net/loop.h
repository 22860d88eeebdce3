/* SPDX-License-Identifier: Apache-2.0
 *
 * One event loop of one thread, and what everything on it shares: libuv loop, clock reading, a read buffer
 * that all streams of the loop read into, kept arena chunks, random numbers. Thread: everything of a loop
 * belongs to the thread that runs it; the one exception is net_loop_post.
 */
#ifndef ROLTER_NET_LOOP_H
#define ROLTER_NET_LOOP_H

#include <uv.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/rng.h"

enum { NET_READ_BYTES = 65536, NET_GATHER_BYTES = 16384 };

struct net_loop {
    uv_loop_t uv;
    unsigned index; /* worker number, 0-based; other threads use numbers behind the workers' */
    struct arena_pool chunks;
    struct rng rng;
    char *read_buf; /* NET_READ_BYTES; contents live during one read callback, unless somebody keeps it */
    ssize_t n_read; /* how many it has, 0: end, or a negative libuv code; of the read under way */
    char *spare;    /* read buffers that came back; each begins with the address of the next one */
    unsigned n_spare;
    char *plain_buf; /* the same for decrypted bytes */
    uv_async_t wake;
    uv_mutex_t post_lock;
    struct list posted;    /* under post_lock */
    struct list deferred;  /* calls of this thread for the next turn */
    struct buf cipher_out; /* encrypted bytes on their way to the socket; empty between callbacks */
    char *gather;          /* NET_GATHER_BYTES, for one write: a TLS record, or pieces that are small */
    void *user;            /* the worker object that runs on this loop */
};

/* Initialises in place. SIGPIPE and SIGXFSZ are ignored from here on in the whole process: broken sockets and
 * files past their limit are error codes.
 * Errors: a negative libuv code. */
int net_loop_init(struct net_loop *l, unsigned index);
/* Runs until net_loop_stop or nothing is left to do; waiting for posts alone does not count as something to
 * do. */
void net_loop_run(struct net_loop *l);
void net_loop_stop(struct net_loop *l);
/* All handles must be closed by their owners; runs the loop until their close callbacks are done. */
void net_loop_fini(struct net_loop *l);

/* Milliseconds and microseconds of the loop's clock (monotonic; read once per turn, so equal within a
 * callback). */
uint64_t net_now_ms(const struct net_loop *l);
/* Reads the clock anew: for time to first token and the like. */
uint64_t net_now_us(const struct net_loop *l);

/* Keeps the read buffer that <p> points into beyond the read callback: the loop goes on with another one, and
 * the caller gives this one back later. A read never fills it, so there is room for one byte behind what was
 * read. NULL when <p> does not point into it (decrypted bytes, held ones). */
char *net_loop_keep_read(struct net_loop *l, const char *p);
void net_loop_give_back(struct net_loop *l, char *buf);

/* A call that another thread asks this loop to make, or that its own thread puts off. The caller owns the
 * memory until <fn> has run. */
struct net_post {
    struct list node;
    void (*fn)(struct net_post *p, struct net_loop *l);
};
/* Safe from any thread; <fn> runs soon on the loop's thread, in order of posting. */
void net_loop_post(struct net_loop *l, struct net_post *p);
/* The same on the loop's own thread: <fn> runs in the next turn, never from inside this call. For callbacks
 * that a caller must not get before its call returned. <p>->node has been initialised with list_init; asking
 * again while it waits changes nothing. */
void net_loop_defer(struct net_loop *l, struct net_post *p);
/* Takes a deferred call back; nothing when it does not wait. */
void net_loop_undefer(struct net_post *p);

#endif
