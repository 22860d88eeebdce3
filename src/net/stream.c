/* SPDX-License-Identifier: Apache-2.0 */
#include "net/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/stream_impl.h"

enum { WRITEV_MAX = 64, SEND_GATHERED_MAX = 4096 };

_Static_assert((int)SEND_GATHERED_MAX <= (int)NET_GATHER_BYTES, "gathered in the loop's buffer");

_Static_assert(sizeof(struct iovec) == sizeof(uv_buf_t) &&
                   offsetof(struct iovec, iov_len) == offsetof(uv_buf_t, len),
               "libuv's buffers are vectors on Unix");

int stream_fd(const struct stream *s)
{
    uv_os_fd_t fd = -1;
    return uv_fileno(&s->u.handle, &fd) == 0 ? fd : -1;
}

/* The same while the socket is open, without asking each time. */
static int socket_of(struct stream *s)
{
    if (s->fd < 0)
        s->fd = stream_fd(s);
    return s->fd;
}

/* ---- life ---- */

static void stream_unhold(struct stream *s)
{
    if (--s->handles)
        return;
    stream_tls_free(s->tls);
    free(s->linger);
    free(s);
}

static void on_handle_closed(uv_handle_t *h)
{
    stream_unhold(h->data);
}

static void on_linger_closed(uv_handle_t *h)
{
    struct stream_linger *linger = CONTAINER_OF((uv_timer_t *)h, struct stream_linger, timer);
    stream_unhold(linger->stream);
}

/* The last step of every end. */
static void stream_drop(struct stream *s)
{
    if (s->linger && !uv_is_closing((uv_handle_t *)&s->linger->timer))
        uv_close((uv_handle_t *)&s->linger->timer, on_linger_closed);
    if (!uv_is_closing(&s->u.handle))
        uv_close(&s->u.handle, on_handle_closed);
}

static void stream_retire(struct stream *s)
{
    s->closed = true;
    s->on_connect = NULL;
    net_loop_undefer(&s->later);
}

void stream_close(struct stream *s, bool reset)
{
    if (s->closed)
        return;
    stream_retire(s);
    if (reset && !s->is_pipe) {
        const struct linger rst = {.l_onoff = 1, .l_linger = 0};
        setsockopt(stream_fd(s), SOL_SOCKET, SO_LINGER, &rst, sizeof rst);
    } else if (s->tls && !reset && !s->broken) {
        stream_tls_goodbye(s);
    }
    stream_drop(s);
}

static void on_linger_timeout(uv_timer_t *timer)
{
    stream_drop(CONTAINER_OF(timer, struct stream_linger, timer)->stream);
}

void stream_close_gracefully(struct stream *s, unsigned linger_ms)
{
    if (s->closed)
        return;
    if (s->broken || linger_ms == 0 || (s->eof && !s->out)) {
        stream_close(s, false);
        return;
    }
    stream_shutdown(s);
    stream_retire(s);
    s->linger = MEM_NEW(struct stream_linger);
    s->linger->stream = s;
    uv_timer_init(&s->loop->uv, &s->linger->timer);
    s->handles++;
    uv_timer_start(&s->linger->timer, on_linger_timeout, linger_ms, 0);
    if (!s->eof)
        stream_poll(s, true);
}

static struct stream *stream_new(struct net_loop *l, const struct stream_events *ev, void *arg, bool is_pipe)
{
    struct stream *s = MEM_NEW(struct stream);
    s->loop = l;
    s->ev = ev;
    s->arg = arg;
    s->is_pipe = is_pipe;
    s->fd = -1;
    s->handles = 1;
    list_init(&s->later.node);
    return s;
}

static void no_delay(struct stream *s)
{
    int on = 1;
    setsockopt(stream_fd(s), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

struct stream *stream_accept(struct net_loop *l, int fd, struct tls_context *tls,
                             const struct stream_events *ev, void *arg)
{
    struct sockaddr_storage addr;
    socklen_t n = sizeof addr;
    bool is_pipe = getsockname(fd, (struct sockaddr *)&addr, &n) == 0 && addr.ss_family == AF_UNIX;
    struct stream *s = stream_new(l, ev, arg, is_pipe);
    int err = is_pipe ? uv_pipe_init(&l->uv, &s->u.pipe, 0) : uv_tcp_init(&l->uv, &s->u.tcp);
    CHECK(err == 0);
    s->u.handle.data = s;
    err = is_pipe ? uv_pipe_open(&s->u.pipe, fd) : uv_tcp_open(&s->u.tcp, fd);
    if (err)
        close(fd);
    if (!err && !is_pipe)
        no_delay(s);
    if (!err && tls && !(s->tls = stream_tls_new(s, tls, NULL, 0)))
        err = UV_ENOMEM;
    if (err) {
        stream_close(s, true);
        return NULL;
    }
    return s;
}

void stream_set_owner(struct stream *s, const struct stream_events *ev, void *arg)
{
    s->ev = ev;
    s->arg = arg;
}

/* ---- telling ---- */

void stream_tell_error(struct stream *s, int err)
{
    if (s->on_connect) {
        stream_tell_connected(s, err);
        return;
    }
    s->broken = err;
    s->told = true;
    stream_poll(s, false);
    s->ev->on_error(s, s->arg, err);
}

void stream_tell_connected(struct stream *s, int err)
{
    stream_connect_fn *fn = s->on_connect;
    s->on_connect = NULL;
    if (err) {
        s->broken = err;
        s->told = true;
    }
    fn(s, s->arg, err);
    if (err)
        stream_close(s, true);
}

static void stream_run_later(struct net_post *p, struct net_loop *l)
{
    (void)l;
    struct stream *s = CONTAINER_OF(p, struct stream, later);
    if (s->broken && !s->told)
        stream_tell_error(s, s->broken);
    else if (!s->broken && s->tls && s->reading)
        stream_tls_resume(s);
}

void stream_later(struct stream *s)
{
    s->later.fn = stream_run_later;
    net_loop_defer(s->loop, &s->later);
}

void stream_break(struct stream *s, int err)
{
    if (s->broken || s->closed)
        return;
    s->broken = err;
    /* A peer that closes after its reply resets us while we still send. What it said before waits in the
     * socket, so reading goes on and tells the end. */
    if (s->polling && !s->eof && (err == UV_EPIPE || err == UV_ECONNRESET))
        return;
    stream_later(s);
}

/* ---- reading ---- */

/* libuv would read() into what it gets here. A socket's own call has the shorter way through the kernel, so
 * the bytes are taken here, and libuv, which gets no buffer, says no more than "no buffer" to on_read. What
 * is left in the socket shows in the next turn. */
HOT static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
    (void)hint;
    struct stream *s = h->data;
    do /* one byte is left for whoever keeps the buffer */
        s->loop->n_read = recv(socket_of(s), s->loop->read_buf, NET_READ_BYTES - 1, MSG_DONTWAIT);
    while (s->loop->n_read < 0 && errno == EINTR);
    if (s->loop->n_read < 0)
        s->loop->n_read = errno == EAGAIN ? UV_EAGAIN : uv_translate_sys_error(errno);
    *buf = (uv_buf_t){0};
}

/* A reset that came together with the last bytes looks like an end to libuv; the socket knows better. */
static int pending_error(struct stream *s)
{
    int err = 0;
    socklen_t n = sizeof err;
    getsockopt(stream_fd(s), SOL_SOCKET, SO_ERROR, &err, &n);
    return -err;
}

static void on_end(struct stream *s, int err)
{
    if (s->closed) {
        stream_drop(s);
        return;
    }
    s->polling = false;
    s->eof = true;
    if (err == UV_EOF)
        err = pending_error(s);
    if (s->broken)
        err = s->broken;
    if (err) {
        if (!s->told)
            stream_tell_error(s, err);
    } else if (s->tls) {
        stream_tls_eof(s);
    } else {
        s->ev->on_eof(s, s->arg);
    }
}

HOT static void on_read(uv_stream_t *u, ssize_t why, const uv_buf_t *buf)
{
    (void)buf;
    struct stream *s = u->data;
    ssize_t n = why == UV_ENOBUFS ? s->loop->n_read : why; /* anything else libuv found out by itself */
    if (n == UV_EAGAIN)
        return;
    if (n <= 0) {
        uv_read_stop(u);
        on_end(s, n ? (int)n : UV_EOF);
        return;
    }
    if (s->closed)
        return; /* lingering: dropped */
    if (s->tls) {
        stream_tls_feed(s, s->loop->read_buf, (size_t)n);
        return;
    }
    s->ev->on_read(s, s->arg, s->loop->read_buf, (size_t)n);
    if (!s->closed && s->ev->on_read_done)
        s->ev->on_read_done(s, s->arg);
}

void stream_poll(struct stream *s, bool on)
{
    if (on == s->polling || (on && s->eof))
        return;
    s->polling = on;
    if (!on)
        uv_read_stop(&s->u.stream);
    else if (uv_read_start(&s->u.stream, on_alloc, on_read))
        stream_break(s, UV_ENOTCONN);
}

void stream_read_start(struct stream *s)
{
    if (s->closed || s->broken)
        return;
    s->reading = true;
    if (s->tls && stream_tls_has_held(s->tls))
        stream_later(s);
    stream_poll(s, true);
}

void stream_read_stop(struct stream *s)
{
    s->reading = false;
    if (s->closed)
        return;
    stream_poll(s, false);
    if (s->broken && !s->told)
        stream_later(s);
}

/* ---- writing ---- */

static void close_sending_side(struct stream *s)
{
    shutdown(stream_fd(s), SHUT_WR);
}

static void on_written(uv_write_t *req, int status);

/* What waits for a slow reader may be for its eyes only: no copy outlives its way. */
static void forget(char *p, size_t n)
{
    if (n)
        explicit_bzero(p, n);
    free(p);
}

static void out_free(struct stream *s)
{
    forget(s->out->waiting.p, s->out->waiting.n);
    MEM_FREE(s->out);
}

/* Room for <more> without the copy that growing in place would leave. */
static void make_room(struct buf *b, size_t more)
{
    if (b->cap - b->n >= more)
        return;
    struct buf wider;
    buf_init(&wider, SIZE_MAX / 2);
    buf_reserve(&wider, b->n + (more > b->n ? more : b->n));
    buf_add(&wider, b->p, b->n);
    forget(b->p, b->n);
    *b = wider;
}

static void stream_fly(struct stream *s, char *p, size_t n)
{
    struct stream_out *o = s->out;
    o->flying = p;
    o->flying_bytes = n;
    o->req.data = s;
    uv_buf_t buf = {.base = p, .len = n};
    int err = uv_write(&o->req, &s->u.stream, &buf, 1, on_written);
    if (err) {
        forget(o->flying, n);
        out_free(s);
        stream_break(s, err);
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct stream *s = req->data;
    struct stream_out *o = s->out;
    forget(o->flying, o->flying_bytes);
    o->flying = NULL;
    /* <closed> alone may be lingering, whose queue still goes out. */
    if (status == 0 && o->waiting.n && !uv_is_closing(&s->u.handle)) {
        char *p = o->waiting.p;
        size_t n = o->waiting.n;
        buf_init(&o->waiting, SIZE_MAX / 2);
        stream_fly(s, p, n);
        return;
    }
    out_free(s);
    if (uv_is_closing(&s->u.handle))
        return;
    if (s->shut_wanted && status == 0)
        close_sending_side(s);
    if (s->closed) {
        if (status || s->eof)
            stream_drop(s);
    } else if (status) {
        stream_break(s, status);
    } else if (s->ev->on_drain) {
        s->ev->on_drain(s, s->arg);
    }
}

static void stream_queue(struct stream *s, const struct iovec *iov, unsigned n, size_t skip, size_t total)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    struct buf *to = s->out ? &s->out->waiting : &b;
    make_room(to, total - skip);
    for (unsigned i = 0; i < n; i++) {
        size_t cut = skip < iov[i].iov_len ? skip : iov[i].iov_len;
        buf_add(to, (const char *)iov[i].iov_base + cut, iov[i].iov_len - cut);
        skip -= cut;
    }
    if (s->out)
        return;
    s->out = MEM_NEW(struct stream_out);
    buf_init(&s->out->waiting, SIZE_MAX / 2);
    stream_fly(s, b.p, b.n);
}

/* What the socket takes at once, or a negative libuv code. libuv would do it with writev, whose way through
 * the kernel is longer; that of send is the shortest, and copying a few pages costs less than the difference.
 * No copy is left behind: it may be of what only the client may see. Nothing of ours is queued in libuv
 * (s->out). */
HOT static ssize_t send_now(struct stream *s, const struct iovec *iov, unsigned n, size_t total)
{
    const struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};
    const char *p = iov->iov_base;
    ssize_t r;
    int fd = socket_of(s);
    if (n > 1 && total <= SEND_GATHERED_MAX) {
        char *to = s->loop->gather;
        p = to;
        for (unsigned i = 0; i < n; to += iov[i].iov_len, i++)
            if (iov[i].iov_len)
                memcpy(to, iov[i].iov_base, iov[i].iov_len);
        n = 1;
    }
    do
        r = n == 1 ? send(fd, p, total, MSG_DONTWAIT | MSG_NOSIGNAL)
                   : sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        r = errno == EWOULDBLOCK || errno == ENOBUFS ? UV_EAGAIN : uv_translate_sys_error(errno);
    if (p == s->loop->gather)
        explicit_bzero(s->loop->gather, total);
    return r;
}

HOT int stream_send_raw(struct stream *s, const struct iovec *iov, unsigned n)
{
    size_t total = 0, sent = 0;
    for (unsigned i = 0; i < n; i++)
        total += iov[i].iov_len;
    if (total == 0)
        return 0;
    if (!s->out) {
        ssize_t r = send_now(s, iov, n, total);
        if (r < 0 && r != UV_EAGAIN) {
            stream_break(s, (int)r);
            return (int)r;
        }
        sent = r > 0 ? (size_t)r : 0;
    }
    if (sent < total)
        stream_queue(s, iov, n, sent, total);
    return 0;
}

HOT int stream_writev(struct stream *s, const struct iovec *iov, unsigned n)
{
    CHECK(n <= WRITEV_MAX);
    if (s->closed || s->on_connect)
        return UV_ENOTCONN;
    if (s->broken)
        return s->broken;
    return s->tls ? stream_tls_writev(s, iov, n) : stream_send_raw(s, iov, n);
}

HOT size_t stream_queued(const struct stream *s)
{
    return s->out ? uv_stream_get_write_queue_size(&s->u.stream) + s->out->waiting.n : 0;
}

void stream_shutdown(struct stream *s)
{
    if (s->closed || s->broken || s->shut_wanted)
        return;
    if (s->tls)
        stream_tls_goodbye(s);
    s->shut_wanted = true;
    if (!s->out)
        close_sending_side(s);
}

/* ---- connecting ---- */

static void on_connected(uv_connect_t *req, int status)
{
    struct stream *s = req->data;
    free(req);
    if (s->closed)
        return;
    if (status)
        stream_tell_connected(s, status);
    else if (s->tls)
        stream_tls_start(s);
    else
        stream_tell_connected(s, 0);
}

static uint16_t port_of(const struct sockaddr *a)
{
    return ntohs(a->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
                                          : ((const struct sockaddr_in *)a)->sin_port);
}

static struct stream *connect_unix(struct net_loop *l, const struct sockaddr_un *addr,
                                   stream_connect_fn *on_connect, const struct stream_events *ev, void *arg)
{
    struct stream *s = stream_new(l, ev, arg, true);
    s->on_connect = on_connect;
    CHECK(uv_pipe_init(&l->uv, &s->u.pipe, 0) == 0);
    s->u.handle.data = s;
    uv_connect_t *req = MEM_NEW(uv_connect_t);
    req->data = s;
    uv_pipe_connect(req, &s->u.pipe, addr->sun_path, on_connected); /* failures come through on_connected */
    return s;
}

struct stream *stream_connect(struct net_loop *l, const struct sockaddr *addr, struct tls_context *tls,
                              const char *server_name, stream_connect_fn *on_connect,
                              const struct stream_events *ev, void *arg)
{
    if (addr->sa_family == AF_UNIX) {
        CHECK(!tls);
        return connect_unix(l, (const struct sockaddr_un *)addr, on_connect, ev, arg);
    }
    CHECK(addr->sa_family == AF_INET || addr->sa_family == AF_INET6);
    struct stream *s = stream_new(l, ev, arg, false);
    s->on_connect = on_connect;
    int err = uv_tcp_init_ex(&l->uv, &s->u.tcp, addr->sa_family);
    if (err) { /* out of descriptors: the handle exists all the same once it is initialised without a socket
                */
        CHECK(uv_tcp_init(&l->uv, &s->u.tcp) == 0);
        s->u.handle.data = s;
        stream_break(s, err);
        return s;
    }
    s->u.handle.data = s;
    no_delay(s);
    if (tls && !(s->tls = stream_tls_new(s, tls, server_name, port_of(addr)))) {
        stream_break(s, STREAM_ERR_TLS);
        return s;
    }
    uv_connect_t *req = MEM_NEW(uv_connect_t);
    req->data = s;
    err = uv_tcp_connect(req, &s->u.tcp, addr, on_connected);
    if (err) {
        free(req);
        stream_break(s, err);
    }
    return s;
}

/* ---- asking ---- */

const char *stream_tls_error(const struct stream *s)
{
    return s->tls ? stream_tls_text(s->tls) : NULL;
}

struct net_loop *stream_loop(const struct stream *s)
{
    return s->loop;
}
