/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the HTTP server share and nobody else sees.
 *
 * Life of a connection:
 *
 *   IDLE -> HEAD -> OWNER -> BODY -> OPEN -> IDLE ...      states of enum conn_state
 *                     |        |       |
 *                     +--------+-------+--> (conn_finish) IDLE or CLOSING;  REJECTING -> CLOSING;  GONE ->
 * DEAD
 *
 * conn_run is the only place that moves a connection forward through its input; it never nests for one
 * connection, so a burst of pipelined requests that are answered at once is a loop and not a recursion.
 * Whoever is called by a callback holds <depth>, and the memory of a connection that died meanwhile goes when
 * the last holder leaves.
 */
#ifndef ROLTER_NET_SERVER_IMPL_H
#define ROLTER_NET_SERVER_IMPL_H

#include <stdatomic.h>

#include "base/arena.h"
#include "http/chunk.h"
#include "net/kept.h"
#include "net/server.h"

enum {
    SERVER_MAGIC = 0x53525652,
    CONN_MAGIC = 0x434f4e4e,
    /* Unread input of a client that pipelines: reading stops above this, so one read (64 KiB) more is the
       most. */
    HOLD_STOP_BYTES = 16384,
    /* A pipelined request waits while this much of the replies before it is unsent. */
    QUEUE_STOP_BYTES = 65536,
    LINGER_MS = 3000, /* for a client to read the answer to what it should not have sent */
    ACCEPT_PAUSE_MS = 100,
    ACCEPTS_PER_TURN = 64,
};

/* One list per kind: entries of a kind have the same duration, so each list is sorted by itself. */
enum due_kind {
    DUE_NONE,
    DUE_NOW, /* tell the owner in the next turn that the client has gone */
    DUE_HEAD,
    DUE_BODY,
    DUE_IDLE,
    DUE_WRITE,
    DUE_PROBE_0, /* has a half-closed client gone? after 10 ms, 100 ms, 1 s, and every 2 s */
    DUE_PROBE_1,
    DUE_PROBE_2,
    DUE_PROBE_3,
    DUE_COUNT
};

struct due {
    struct list node;
    uint64_t at; /* ms */
    uint8_t kind;
};

struct listener {
    uv_poll_t poll;
    struct server *server;
    int fd; /* -1: none */
};

enum { LISTEN_TCP, LISTEN_UNIX, LISTENERS };

struct server {
    unsigned magic;
    struct net_loop *loop;
    struct server_events ev;
    void *arg;
    struct server_options o; /* strings are ours */
    uint16_t port;
    bool draining, closing, firing;
    bool owns_path;              /* we bound unix_path, so we unlink it... */
    uint64_t path_dev, path_ino; /* ...when it is still the same socket */
    struct listener listeners[LISTENERS];
    uv_timer_t accept_timer, due_timer;
    unsigned handles;  /* not closed yet */
    uint64_t armed_at; /* of due_timer; 0 = not armed */
    unsigned due_ms[DUE_COUNT];
    struct list due[DUE_COUNT];
    struct list conns;
    _Atomic size_t n_conns;  /* read by other threads too */
    _Atomic size_t n_unsent; /* so is this: connections with <unsent> */
    size_t n_in_flight;
    struct kept kept;
    struct http_head scratch; /* where heads are parsed before their size is known */
};

enum conn_state {
    CONN_IDLE,      /* between requests, nothing read */
    CONN_HEAD,      /* part of a head is in the hold */
    CONN_OWNER,     /* on_head was called, the owner has not said what it wants */
    CONN_BODY,      /* reading the body */
    CONN_OPEN,      /* body complete, the owner answers */
    CONN_REJECTING, /* inside on_reject */
    CONN_CLOSING,   /* sends what is queued and drops what comes */
    CONN_GONE,      /* inside on_gone */
    CONN_DEAD
};

enum body_from {
    BODY_KEPT,  /* a buffer of server->kept, or nothing yet */
    BODY_ARENA, /* behind its head */
    BODY_READ,  /* the loop's read buffer, which the connection keeps */
};

struct conn {
    unsigned magic;
    uint8_t state;
    bool running;     /* inside conn_run */
    bool writing;     /* inside stream_writev */
    bool in_flight;   /* the owner has a request: exactly one of finish, abort, on_reject, on_gone ends it */
    bool reply_begun; /* of this request */
    bool fresh;       /* no head was complete yet */
    bool eof;         /* the client closed its sending side */
    bool broken;      /* nothing can be sent any more; DUE_NOW is set */
    bool reading;
    bool dirty; /* closing while the client may still be sending */
    bool body_begun;
    bool unsent;       /* the stream has a queue */
    uint8_t body_from; /* enum body_from */
    uint16_t depth;
    struct server *s;
    struct stream *st;
    struct list all;
    void *user;
    struct due read_due, write_due;
    struct arena arena; /* head; small body; the owner's request */
    struct http_head *head;

    /* Input: either <in>, the loop's read buffer during one read callback, or <hold>. Never both. */
    const char *in;
    size_t in_n;
    char *hold;
    size_t hold_at, hold_n, hold_cap;
    size_t scanned; /* by the head parser */

    char *body;
    char *read_buf; /* of the loop, where the body stands (BODY_READ) */
    size_t body_n, body_cap, body_max;
    uint64_t body_left;
    struct http_chunk chunk;

    uint64_t sent;  /* bytes given to the stream */
    uint64_t taken; /* ...of which the client had taken this many when DUE_WRITE was set */
};

static inline bool conn_is_alive(const struct conn *c)
{
    return c->state < CONN_GONE;
}

/* conn.c */
struct conn *conn_open(struct server *s, int fd);
void conn_run(struct conn *c);
/* Deadlines and reading as the state wants them; called when conn_run is through. */
void conn_settle(struct conn *c);
/* The client has gone: tells the owner if it has a request, and frees. */
void conn_gone(struct conn *c);
enum conn_die { CONN_DIE_CLOSE, CONN_DIE_RESET, CONN_DIE_GRACEFUL };
void conn_die(struct conn *c, enum conn_die how);
void conn_release_request(struct conn *c);
/* Whether reply bytes wait for the client. */
void conn_set_unsent(struct conn *c, bool unsent);
/* Frees a dead connection when the last holder leaves. */
void conn_leave(struct conn *c);

/* conn_input.c */
struct span conn_input(const struct conn *c);
void conn_consume(struct conn *c, size_t n);
/* Keeps <p> behind what is held. False when memory is gone. */
bool conn_hold(struct conn *c, const char *p, size_t n);
void conn_hold_free(struct conn *c);
/* Takes what there is of the body; true when something changed (complete: on_body was called; refused). */
bool conn_feed_body(struct conn *c);
void conn_free_body(struct conn *c);
/* Whether the body of a request that the owner did not want lies complete in the input: *ret_n bytes. */
bool conn_may_skip_body(const struct conn *c, size_t *ret_n);

/* conn_write.c */
void conn_interim(struct conn *c); /* 100 Continue */
void conn_reject(struct conn *c, int status, const char *text);
void conn_begin_close(struct conn *c, bool dirty);
void conn_on_queue_empty(struct conn *c);
void conn_on_due(struct conn *c, enum due_kind kind);

/* conn_due.c */
void due_init(struct due *d);
void due_set(struct server *s, struct due *d, enum due_kind kind);
void due_clear(struct due *d);
void due_apply_options(struct server *s);
void due_on_timer(uv_timer_t *t);

#endif
