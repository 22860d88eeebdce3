/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 server side: listener, connections, request heads and bodies, keep-alive, pipelining, time-outs
 * and limits (G13, R38, R39). It reads a request, hands it to the owner through callbacks, and the owner
 * answers with raw bytes that it frames itself (http_reply.h helps).
 *
 * One request at a time per connection: the next pipelined one is looked at when the reply of this one is
 * finished. Broken requests are answered here (400, 408, 413, 431, 501, 505 through on_reject) and the
 * connection is closed. A client that half-closes is still there (R36): it gets an interim `100 Continue`
 * (HTTP/1.1, before the reply has begun) as a probe; if the kernel then reports a reset, it has gone. A
 * client that resets is gone at once. Thread: the loop's. Memory: a connection without a request in flight
 * holds no buffer.
 */
#ifndef ROLTER_NET_SERVER_H
#define ROLTER_NET_SERVER_H

#include "http/head.h"
#include "net/stream.h"

struct server;
struct conn;

struct server_options {
    const char *host;      /* NULL: no TCP listener */
    uint16_t port;         /* 0: the kernel chooses; see server_port */
    const char *unix_path; /* NULL: no Unix socket; the path is unlinked first if it is a stale socket */
    /* Instead of unix_path: accept from the Unix socket that this server (of another loop) has opened, so
     * that all workers serve it. It stays open during server_open. NULL: none. */
    const struct server *unix_of;
    bool reuse_port; /* several workers listen on the same port */
    bool port_alone; /* with reuse_port: refused when another socket listens there, even one that would share
                      */
    struct tls_context *tls;
    size_t max_head_bytes;
    unsigned head_ms; /* a request's head, from its first byte (first request: from the connection) */
    unsigned body_ms; /* between two reads of a body */
    unsigned idle_ms; /* between two requests */
    unsigned
        write_ms; /* a client that takes nothing for this long while bytes are queued is gone; 0 = idle_ms */
};

struct server_events {
    /* A head is complete. The owner either refuses (writes a reply, conn_finish) or calls conn_want_body. The
     * head and its slices live until conn_finish. */
    void (*on_head)(struct conn *c, void *arg);
    /* The body is complete (also when there is none). conn_body gives it; it lives until conn_finish or
     * conn_drop_body. */
    void (*on_body)(struct conn *c, void *arg);
    /* The request could not be read; if on_head was called for it, it is over when this returns. <status> is
     * what to answer; <text> one sentence. The owner writes the reply (or nothing); the connection is closed
     * afterwards by the server. Head may be unknown (conn_head is NULL). */
    void (*on_reject)(struct conn *c, void *arg, int status, const char *text);
    /* The client has gone while a request was in flight, or its body broke after the reply had begun. No call
     * on <c> after this one returns. */
    void (*on_gone)(struct conn *c, void *arg);
    /* The queue of unsent reply bytes is empty again. */
    void (*on_drain)(struct conn *c, void *arg);
    /* The client has closed its sending side while a reply that has begun is not finished. Writing anything
     * (a comment of an event stream) lets the kernel find out whether it has gone altogether. May be NULL. */
    void (*on_half_closed)(struct conn *c, void *arg);
};

/* A callback may call anything of its connection, of other connections and of the server, server_close
 * included; it must not touch the connection after it ended the request. */

/* Listens and accepts. NULL with a text in ret_error (256 bytes). <o> and its strings are copied. */
struct server *server_open(struct net_loop *l, const struct server_options *o, const struct server_events *ev,
                           void *arg, char *ret_error);
uint16_t server_port(const struct server *s);
/* Changes limits, time-outs and the TLS context for what comes next (hot reload); host, port, path stay. */
void server_update(struct server *s, const struct server_options *o);
/* Idle connections are closed, and every connection closes after its current request. The listener stays
 * (R38). */
void server_drain(struct server *s);
/* Stops listening and closes every connection at once; on_gone for requests in flight. The memory goes in a
 * later turn of the loop. */
void server_close(struct server *s);
/* Any thread, while the server is open. */
size_t server_connections(const struct server *s);
/* Connections with reply bytes that wait in this process for the client to take them. */
size_t server_unsent(const struct server *s);
size_t server_requests_in_flight(const struct server *s);

const struct http_head *conn_head(const struct conn *c);
/* The body is wanted, up to <max> bytes: more gives on_reject 413. Answers Expect: 100-continue. on_body or
 * on_reject may come before this returns, except inside on_head, where they come after it. */
void conn_want_body(struct conn *c, size_t max);
/* The body's bytes; a NUL that is not counted follows them. */
struct span conn_body(const struct conn *c);
/* Gives the body's memory back before the request ends (long streams). */
void conn_drop_body(struct conn *c);
/* The memory that a request stands in: its head, the owner's part of the arena, its body. */
struct conn_memory {
    struct arena arena;
    char *body, *read_buf;
};
/* Takes it away from the connection, so that what points into it stays valid until conn_memory_free whatever
 * becomes of the connection: from inside on_gone, or right before conn_finish. */
void conn_take_memory(struct conn *c, struct conn_memory *ret);
/* On the thread of the loop that the connection was on. */
void conn_memory_free(struct conn_memory *m, struct net_loop *l);
/* Writes reply bytes as they are. 0 or negative (on_gone follows). */
int conn_writev(struct conn *c, const struct iovec *iov, unsigned n);
size_t conn_queued(const struct conn *c);
/* The reply is complete, or its framing tells that it is not (then <keep> is false). <keep> false, a client
 * that asked for it, an unread body, or a drain closes the connection after what is queued. The owner must
 * not touch the request afterwards; a pipelined request may call on_head before this returns. */
void conn_finish(struct conn *c, bool keep);
/* The reply broke in the middle and nothing in it would tell: the connection is reset (R36). What the client
 * has not taken yet is lost. */
void conn_abort(struct conn *c);
/* A place for the owner's request object; NULL again when the request is over. */
void conn_set_user(struct conn *c, void *user);
void *conn_user(const struct conn *c);
/* The arena that holds the head: the owner may put the rest of its request there. It is reset by conn_finish.
 */
struct arena *conn_arena(struct conn *c);
/* Whether the reply must say Connection: close (asked by the client, HTTP/1.0, drain, a body that
 * was not read). */
bool conn_will_close(const struct conn *c);
struct net_loop *conn_loop(const struct conn *c);
void *conn_server_arg(const struct conn *c);
const char *conn_peer(struct conn *c, char *out, size_t n);
/* Whether the peer's address is a loopback one (or the connection is a Unix socket). */
bool conn_is_loopback(struct conn *c);

#endif
