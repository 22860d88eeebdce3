/* SPDX-License-Identifier: Apache-2.0
 *
 * A connected byte stream, plain or TLS, TCP or Unix socket. Writes go out at once as far as the kernel takes
 * them; the rest is queued and sent as the peer reads. Reading may be paused, so a slow reader on one side
 * stops the sender on the other.
 *
 * Owner: whoever opened it, until stream_close; the memory goes when libuv has let go of the handle, which is
 * after stream_close returned, and no callback comes after that call. Callbacks may call stream_close.
 * Thread: the loop's.
 */
#ifndef ROLTER_NET_STREAM_H
#define ROLTER_NET_STREAM_H

#include <sys/uio.h>

#include "base/span.h"
#include "net/loop.h"
#include "net/tls.h"

struct stream;

struct stream_events {
    /* Bytes came. <p> lives during the call. Called again and again until stream_read_stop. */
    void (*on_read)(struct stream *s, void *arg, const char *p, size_t n);
    /* All bytes of one read from the kernel were handed over (TLS may hand over several pieces): the moment
     * to flush what the reads produced. May be NULL. */
    void (*on_read_done)(struct stream *s, void *arg);
    /* The peer closed its sending side. Writing may still work (a half-closed client is still there). */
    void (*on_eof)(struct stream *s, void *arg);
    /* Reset, time-out, TLS failure: nothing works any more. <err>: negative libuv code, or STREAM_ERR_TLS. */
    void (*on_error)(struct stream *s, void *arg, int err);
    /* The queue of unsent bytes became empty after stream_writev had to queue. May be NULL. */
    void (*on_drain)(struct stream *s, void *arg);
};

enum { STREAM_ERR_TLS = -20001 };

/* Takes over a connected, non-blocking socket <fd> that was accepted. <tls> NULL = plain. NULL = out of
 * handles (the fd is closed). Reading starts with stream_read_start. TLS handshakes happen underneath. */
struct stream *stream_accept(struct net_loop *l, int fd, struct tls_context *tls,
                             const struct stream_events *ev, void *arg);

/* Connects to an IPv4, IPv6 or (plain only) Unix address. on_connect(err = 0) when bytes can be written (TLS:
 * handshake done and peer verified against <server_name>), else a negative code and the stream is closed by
 * itself after the call. Close early to cancel. */
typedef void stream_connect_fn(struct stream *s, void *arg, int err);
struct stream *stream_connect(struct net_loop *l, const struct sockaddr *addr, struct tls_context *tls,
                              const char *server_name, stream_connect_fn *on_connect,
                              const struct stream_events *ev, void *arg);

/* Hands the stream to another owner (pool <-> exchange). */
void stream_set_owner(struct stream *s, const struct stream_events *ev, void *arg);

void stream_read_start(struct stream *s);
void stream_read_stop(struct stream *s);

/* Sends the vectors in order: what the kernel takes now at once, a copy of the rest later. 0, or a negative
 * code when the stream is broken (on_error follows). At most 64 vectors. */
int stream_writev(struct stream *s, const struct iovec *iov, unsigned n);
/* Bytes queued and not yet taken by the kernel. */
size_t stream_queued(const struct stream *s);
/* Ends our sending side after what is queued (TLS: close_notify). */
void stream_shutdown(struct stream *s);
/* Closes and frees; queued bytes are dropped. <reset>: RST instead of FIN, so that the peer notices at once.
 */
void stream_close(struct stream *s, bool reset);
/* Sends what is queued for at most <linger_ms>, then closes; no callback comes after this call. */
void stream_close_gracefully(struct stream *s, unsigned linger_ms);

/* Whether the peer has gone for good (connection reset), asked of the kernel without reading. For half-closed
 * clients, on which nothing is read any more. */
bool stream_peer_is_gone(struct stream *s);
/* "127.0.0.1:5123" of the peer, or "unix". */
const char *stream_peer_name(struct stream *s, char *out, size_t n);
/* The text of the last TLS error of this stream, or NULL. */
const char *stream_tls_error(const struct stream *s);
struct net_loop *stream_loop(const struct stream *s);

#endif
