/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a stream, shared by stream.c (sockets, queue) and stream_tls.c (the layer between). Nobody else
 * includes this.
 */
#ifndef ROLTER_NET_STREAM_IMPL_H
#define ROLTER_NET_STREAM_IMPL_H

#include "net/stream.h"

struct stream_tls;

/* What the kernel did not take. Exists only while something is queued: one run of bytes that libuv is
 * sending, and what was written meanwhile, which goes out as one when that is done. */
struct stream_out {
    uv_write_t req;
    char *flying;
    size_t flying_bytes;
    struct buf waiting;
};

/* A stream that nobody owns any more and that waits for its peer to take the last bytes. */
struct stream_linger {
    uv_timer_t timer;
    struct stream *stream;
};

struct stream {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } u;
    struct net_loop *loop;
    const struct stream_events *ev;
    void *arg;
    stream_connect_fn *on_connect; /* until it was called */
    struct stream_out *out;
    struct stream_tls *tls; /* NULL: plain */
    struct stream_linger *linger;
    struct net_post later; /* stream_run_later */
    int broken;            /* the error that on_error will tell or has told; 0 = none */
    unsigned handles;      /* libuv handles still open; memory goes with the last */
    int fd;                /* the socket; -1: not asked yet */
    bool is_pipe;
    bool closed;      /* no callback from here on */
    bool told;        /* on_error was called */
    bool reading;     /* the owner wants bytes */
    bool polling;     /* libuv reads */
    bool eof;         /* the peer's sending side is closed */
    bool shut_wanted; /* shutdown when the queue is empty */
};

/* The socket, or -1. */
int stream_fd(const struct stream *s);
/* Sends as they are, below TLS. Like stream_writev. */
int stream_send_raw(struct stream *s, const struct iovec *iov, unsigned n);
/* Notes that nothing works any more; on_error comes later. */
void stream_break(struct stream *s, int err);
/* Hands on what a layer found out: calls the owner, who may close. */
void stream_tell_error(struct stream *s, int err);
void stream_tell_connected(struct stream *s, int err);
/* Makes libuv read or not, whatever the owner wants. */
void stream_poll(struct stream *s, bool on);
/* Makes stream_run_later run in the next turn. */
void stream_later(struct stream *s);

/* The TLS layer. <server_name> NULL: we are the server. */
struct stream_tls *stream_tls_new(struct stream *s, struct tls_context *ctx, const char *server_name,
                                  uint16_t port);
void stream_tls_free(struct stream_tls *t);
/* The socket is connected: the client says hello. */
void stream_tls_start(struct stream *s);
/* Bytes came from the socket; <p> lives during the call. */
void stream_tls_feed(struct stream *s, const char *p, size_t n);
/* The socket's sending side was closed by the peer. */
void stream_tls_eof(struct stream *s);
/* Goes on where stream_read_stop interrupted. */
void stream_tls_resume(struct stream *s);
bool stream_tls_has_held(const struct stream_tls *t);
int stream_tls_writev(struct stream *s, const struct iovec *iov, unsigned n);
/* Sends close_notify, as far as the kernel takes it. */
void stream_tls_goodbye(struct stream *s);
const char *stream_tls_text(const struct stream_tls *t);

#endif
