/* SPDX-License-Identifier: Apache-2.0
 *
 * Asynchronous client of a Redis or Valkey server, or of a cluster of them. Plain TCP, TLS, Unix socket.
 *
 * `struct redis_server` is what all loops share: the address, and what is known about it (one line for each
 * change of its state, metrics). `struct redis_client` belongs to one loop and has one connection, to each
 * node in a cluster. Commands of one turn of the loop leave in one write; replies come in order.
 *
 * A server that is away costs nobody anything: a command is refused at once while there is no connection that
 * works. A connection works when it has answered within <answer_ms>; when a command is not answered within
 * that (or within its own, longer limit), the connection is given up, what waits for it ends at once, and
 * nothing is sent until a new connection has answered a probe in time. New connections are tried one at a
 * time, 100 ms after the loss, then after twice that, up to 5 s; a connection that works for 5 s sets it
 * back. An idle connection is probed each second. READONLY, LOADING, MASTERDOWN and NOAUTH are losses of the
 * connection, too.
 *
 * Nothing is ever sent twice, except for what a cluster redirects. What a caller gets are neutral outcomes: a
 * cache takes each of them for a miss.
 *
 * Threads: a server from all; a client from its loop's thread.
 */
#ifndef ROLTER_REDIS_REDIS_H
#define ROLTER_REDIS_REDIS_H

#include "net/loop.h"
#include "net/resolve.h"
#include "redis/reply.h"

enum redis_outcome {
    REDIS_DONE,
    REDIS_REFUSED, /* the server's answer is an error */
    REDIS_TIMEOUT, /* no answer in time; whether it was done is not known */
    REDIS_LOST,    /* the connection ended first; the same */
    REDIS_AWAY,    /* nothing was sent: no connection that works */
    REDIS_BUSY,    /* nothing was sent: too much waits already */
    REDIS_OUTCOME_COUNT
};
/* "ok", "refused", "timeout", "lost", "away", "busy" */
const char *redis_outcome_name(enum redis_outcome o);

struct redis_options {
    const char *url;      /* see redis/url.h */
    bool cluster;         /* it is a cluster; the URL names one of its nodes */
    const char *consumer; /* label of the metrics and word in the log: "cache", "budgets"... a literal */
    const char *const *ca_bundles; /* PEM files beside the system's roots, for rediss:// */
    size_t n_ca_bundles;
    unsigned connect_ms;    /* to look up, connect, shake hands; 0 = 1000 */
    unsigned answer_ms;     /* see above; 0 = 500 */
    unsigned max_calls;     /* unanswered commands of one client; 0 = 4096 */
    size_t max_queue_bytes; /* their bytes that the sockets have not taken; 0 = 64 MiB */
    size_t max_reply_bytes; /* 0 = 64 MiB */
    /* A change of state, one call for all loops, on the thread that saw it: "cache: redis://h:6379 is away:
     * no answer in 50 ms". Contains no secrets. May be NULL. */
    void (*tell)(void *arg, bool bad, const char *text);
    void *tell_arg;
};

struct redis_server;
struct redis_client;
struct redis_call;

/* Nothing is connected yet. NULL with a text in ret_error (256 bytes): the URL or a CA bundle cannot be used.
 * Reference counted; any thread. */
struct redis_server *redis_server_new(const struct redis_options *o, char *ret_error);
struct redis_server *redis_server_ref(struct redis_server *s);
void redis_server_unref(struct redis_server *s);
/* The URL without secrets. */
const char *redis_server_name(const struct redis_server *s);
/* Whether every connection of every loop works. */
bool redis_server_is_up(const struct redis_server *s);

/* Connects in the background and goes on trying. <resolver> outlives it. */
struct redis_client *redis_client_new(struct redis_server *s, struct net_loop *l, struct resolver *resolver);
/* Ends it; no callback comes any more, from calls under way neither. May be called in a callback. */
void redis_client_free(struct redis_client *c);
/* Whether a command would be sent now; in a cluster, to some node. */
bool redis_client_is_up(const struct redis_client *c);

/* <reply> is NULL unless the outcome is REDIS_DONE or REDIS_REFUSED; it lives during the call. */
typedef void redis_fn(void *arg, enum redis_outcome outcome, const struct redis_reply *reply);

struct redis_request {
    const struct span *argv;
    unsigned argc;
    unsigned key; /* which of argv is the key that decides on the node of a cluster; 0 = any node will do */
};

/* Sends one command, copied during the call. REDIS_DONE: it is on its way, and <fn> comes within <timeout_ms>
 * (0: answer_ms), never from inside this call; <fn> may be NULL. Anything else: nothing was sent and <fn>
 * does not come. *ret_call (may be NULL) is for redis_cancel, until <fn> is called. O(bytes). */
enum redis_outcome redis_command(struct redis_client *c, const struct redis_request *q, unsigned timeout_ms,
                                 redis_fn *fn, void *arg, struct redis_call **ret_call);
/* MULTI, the commands, EXEC, in one piece: all or none. The reply is EXEC's: an array of <n> replies. In a
 * cluster all keys belong to one slot ({tag}); the first command's decides. */
enum redis_outcome redis_transaction(struct redis_client *c, const struct redis_request *q, unsigned n,
                                     unsigned timeout_ms, redis_fn *fn, void *arg,
                                     struct redis_call **ret_call);
/* <fn> does not come any more. The command may be carried out all the same. Not after redis_client_free, with
 * which all calls go. */
void redis_cancel(struct redis_call *call);

#endif
