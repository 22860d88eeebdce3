/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies, refusals, closing, and finding out whether a half-closed client is still there.
 */
#include "net/server_impl.h"

enum { WRITEV_MAX = 64 };

/* A failed write is told in the next turn, so that the owner is not called back in the middle of its own
 * work. */
static void conn_break(struct conn *c)
{
    c->broken = true;
    due_set(c->s, &c->read_due, DUE_NOW);
}

HOT static int send_parts(struct conn *c, const struct iovec *iov, unsigned n)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < n; i++)
        bytes += iov[i].iov_len;
    c->writing = true;
    int err = stream_writev(c->st, iov, n);
    c->writing = false;
    if (err < 0 || c->broken) {
        conn_break(c);
        return err < 0 ? err : UV_EPIPE;
    }
    c->sent += bytes;
    size_t queued = stream_queued(c->st);
    conn_set_unsent(c, queued > 0);
    if (queued && c->write_due.kind == DUE_NONE) {
        c->taken = c->sent - queued;
        due_set(c->s, &c->write_due, DUE_WRITE);
    }
    return 0;
}

HOT int conn_writev(struct conn *c, const struct iovec *iov, unsigned n)
{
    MAGIC_CHECK(c, CONN_MAGIC);
    if (!conn_is_alive(c) || c->broken)
        return UV_EPIPE;
    CHECK_MSG(c->in_flight || c->state == CONN_REJECTING, "a reply belongs to a request");
    c->reply_begun = true;
    for (unsigned at = 0; at < n; at += WRITEV_MAX) {
        int err = send_parts(c, iov + at, n - at < WRITEV_MAX ? n - at : WRITEV_MAX);
        if (err < 0)
            return err;
    }
    return 0;
}

HOT size_t conn_queued(const struct conn *c)
{
    return c->st ? stream_queued(c->st) : 0;
}

void conn_interim(struct conn *c)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec iov = {(void *)(uintptr_t)text, sizeof text - 1};
    send_parts(c, &iov, 1);
}

/* The request is over for its owner when on_reject returns; the client may still be sending. */
void conn_reject(struct conn *c, int status, const char *text)
{
    if (c->reply_begun) { /* a second answer cannot follow */
        conn_gone(c);
        return;
    }
    c->depth++;
    due_clear(&c->read_due);
    c->state = CONN_REJECTING;
    if (c->in_flight) {
        c->in_flight = false;
        c->s->n_in_flight--;
    }
    c->s->ev.on_reject(c, c->s->arg, status, text);
    if (c->state == CONN_REJECTING) {
        conn_release_request(c);
        conn_begin_close(c, true);
    }
    conn_leave(c);
}

/* The queue is empty. Closing with unread input would make the kernel reset the connection, and the client
 * could lose the answer that lies in its socket: so a client that may still be sending gets our FIN, and what
 * it sends is read and dropped for a while. */
static void close_now(struct conn *c)
{
    conn_die(c, c->dirty && !c->eof ? CONN_DIE_GRACEFUL : CONN_DIE_CLOSE);
}

void conn_begin_close(struct conn *c, bool dirty)
{
    if (c->broken) {
        conn_die(c, CONN_DIE_RESET);
        return;
    }
    c->state = CONN_CLOSING;
    c->dirty = dirty;
    c->in_n = 0;
    conn_hold_free(c);
    due_clear(&c->read_due);
    if (!c->eof && !c->reading) {
        c->reading = true;
        stream_read_start(c->st);
    }
    if (stream_queued(c->st) == 0)
        close_now(c);
}

void conn_on_queue_empty(struct conn *c)
{
    due_clear(&c->write_due);
    conn_set_unsent(c, false);
    if (c->state == CONN_CLOSING) {
        close_now(c);
        return;
    }
    if (c->in_flight)
        c->s->ev.on_drain(c, c->s->arg);
    /* A pipelined request may have waited for this. */
    if (conn_is_alive(c) && (c->state == CONN_IDLE || c->state == CONN_HEAD))
        conn_run(c);
}

static void on_write_due(struct conn *c)
{
    uint64_t taken = c->sent - stream_queued(c->st);
    if (taken == c->taken) {
        conn_gone(c);
        return;
    }
    c->taken = taken;
    if (taken != c->sent)
        due_set(c->s, &c->write_due, DUE_WRITE);
}

void conn_on_due(struct conn *c, enum due_kind kind)
{
    switch (kind) {
    case DUE_NOW:
        conn_gone(c);
        return;
    case DUE_HEAD:
        /* Whoever has sent nothing has asked nothing. */
        if (c->state == CONN_HEAD)
            conn_reject(c, 408, "The request head did not arrive in time.");
        else
            conn_die(c, CONN_DIE_CLOSE);
        return;
    case DUE_BODY:
        conn_reject(c, 408, "The request body did not arrive in time.");
        return;
    case DUE_WRITE:
        on_write_due(c);
        return;
    case DUE_IDLE:
        conn_die(c, CONN_DIE_CLOSE);
        return;
    case DUE_PROBE_0:
    case DUE_PROBE_1:
    case DUE_PROBE_2:
    case DUE_PROBE_3:
        if (stream_peer_is_gone(c->st))
            conn_gone(c);
        else
            due_set(c->s, &c->read_due, kind < DUE_PROBE_3 ? kind + 1 : DUE_PROBE_3);
        return;
    case DUE_NONE:
    case DUE_COUNT:
        break;
    }
    UNREACHABLE();
}
