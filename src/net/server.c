/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening and accepting. Each worker has a TCP socket of its own on the same port (SO_REUSEPORT), and the
 * kernel spreads connections; a Unix socket has no such option, so its workers accept from one socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/server_impl.h"

enum { ERROR_BYTES = 256, BACKLOG = 4096, KEPT_BYTES = 8 << 20 };

static int fail(char *ret_error, const char *what, const char *where, int err)
{
    snprintf(ret_error, ERROR_BYTES, "cannot %s %s: %s", what, where, strerror(err));
    return -1;
}

/* --- accepting --- */

static void on_listener(uv_poll_t *h, int status, int flags);

static void on_accept_timer(uv_timer_t *t)
{
    struct server *s = t->data;
    for (int i = 0; i < LISTENERS; i++)
        if (s->listeners[i].fd >= 0)
            uv_poll_start(&s->listeners[i].poll, UV_READABLE, on_listener);
}

/* Out of descriptors or memory: the pending connection stays readable, so polling on would spin. */
static void pause_accepting(struct server *s)
{
    for (int i = 0; i < LISTENERS; i++)
        if (s->listeners[i].fd >= 0)
            uv_poll_stop(&s->listeners[i].poll);
    uv_timer_start(&s->accept_timer, on_accept_timer, ACCEPT_PAUSE_MS, 0);
}

static void on_listener(uv_poll_t *h, int status, int flags)
{
    struct listener *l = h->data;
    struct server *s = l->server;
    for (int i = 0; i < ACCEPTS_PER_TURN && !s->closing; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            conn_open(s, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            pause_accepting(s);
        else if (errno == ECONNABORTED || errno == EINTR)
            continue;
        return;
    }
}

/* --- listening --- */

/* Sockets that share a port ask nobody, so that a second process would take half of the first one's clients.
 * One that does not share is refused while any other listens. */
static bool port_is_free(const struct addrinfo *a)
{
    int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true; /* the caller's own socket will say so */
    bool taken = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                 bind(fd, a->ai_addr, a->ai_addrlen) < 0 && errno == EADDRINUSE;
    close(fd);
    return !taken;
}

static int listen_tcp_on(const struct server_options *o, const struct addrinfo *a, char *ret_error)
{
    int on = 1;
    char where[160];
    snprintf(where, sizeof where, "%.128s port %u", o->host, o->port);
    if (o->port_alone && !port_is_free(a))
        return fail(ret_error, "listen on", where, EADDRINUSE);
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(ret_error, "open a socket for", o->host, errno);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        (o->reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) < 0) ||
        bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        fail(ret_error, "listen on", where, errno);
        close(fd);
        return -1;
    }
    return fd;
}

static int listen_tcp(struct server *s, char *ret_error)
{
    const struct server_options *o = &s->o;
    char port[8];
    snprintf(port, sizeof port, "%u", o->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    int err = getaddrinfo(o->host, port, &hints, &found);
    if (err) {
        snprintf(ret_error, ERROR_BYTES, "cannot resolve %.128s: %s", o->host, gai_strerror(err));
        return -1;
    }
    int fd = -1;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
        fd = listen_tcp_on(o, a, ret_error);
    freeaddrinfo(found);
    if (fd < 0)
        return -1;
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    CHECK(getsockname(fd, (struct sockaddr *)&addr, &len) == 0);
    s->port = ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                               : ((struct sockaddr_in *)&addr)->sin_port);
    return fd;
}

/* A socket file that nobody listens on any more is removed; anything else stays and is an error. */
static int remove_stale(const char *path, const struct sockaddr_un *addr, char *ret_error)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : fail(ret_error, "use", path, errno);
    if (!S_ISSOCK(st.st_mode)) {
        snprintf(ret_error, ERROR_BYTES, "cannot listen on %.200s: it exists and is no socket", path);
        return -1;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(ret_error, "open a socket for", path, errno);
    int err = connect(fd, (const struct sockaddr *)addr, sizeof *addr) == 0 ? EADDRINUSE : errno;
    close(fd);
    if (err != ECONNREFUSED)
        return fail(ret_error, "listen on", path, err == EAGAIN ? EADDRINUSE : err);
    return unlink(path) < 0 ? fail(ret_error, "remove", path, errno) : 0;
}

static int listen_unix(struct server *s, char *ret_error)
{
    const char *path = s->o.unix_path;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof addr.sun_path)
        return fail(ret_error, "listen on", path, ENAMETOOLONG);
    memcpy(addr.sun_path, path, strlen(path));
    if (remove_stale(path, &addr, ret_error) < 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(ret_error, "open a socket for", path, errno);
    struct stat st;
    if (bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0 || listen(fd, BACKLOG) < 0 ||
        stat(path, &st) < 0) {
        fail(ret_error, "listen on", path, errno);
        close(fd);
        return -1;
    }
    s->owns_path = true;
    s->path_dev = st.st_dev;
    s->path_ino = st.st_ino;
    return fd;
}

static int open_listeners(struct server *s, char *ret_error)
{
    if (s->o.host && (s->listeners[LISTEN_TCP].fd = listen_tcp(s, ret_error)) < 0)
        return -1;
    if (s->o.unix_of) {
        int fd = s->o.unix_of->listeners[LISTEN_UNIX].fd;
        CHECK_MSG(fd >= 0 && !s->o.unix_path, "unix_of is a server with a Unix socket, instead of a path");
        s->listeners[LISTEN_UNIX].fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (s->listeners[LISTEN_UNIX].fd < 0)
            return fail(ret_error, "share", "the Unix socket", errno);
    } else if (s->o.unix_path && (s->listeners[LISTEN_UNIX].fd = listen_unix(s, ret_error)) < 0) {
        return -1;
    }
    return 0;
}

/* --- life --- */

static void close_sockets(struct server *s)
{
    for (int i = 0; i < LISTENERS; i++) {
        if (s->listeners[i].fd >= 0)
            close(s->listeners[i].fd);
        s->listeners[i].fd = -1;
    }
    struct stat st;
    if (s->owns_path && stat(s->o.unix_path, &st) == 0 && st.st_dev == s->path_dev &&
        st.st_ino == s->path_ino)
        unlink(s->o.unix_path);
    s->owns_path = false;
}

static void server_free(struct server *s)
{
    close_sockets(s);
    if (s->o.tls)
        tls_context_unref(s->o.tls);
    free((char *)(uintptr_t)s->o.host);
    free((char *)(uintptr_t)s->o.unix_path);
    kept_fini(&s->kept);
    free(s);
}

struct server *server_open(struct net_loop *l, const struct server_options *o, const struct server_events *ev,
                           void *arg, char *ret_error)
{
    CHECK(o->max_head_bytes > 0);
    struct server *s = MEM_NEW(struct server);
    s->magic = SERVER_MAGIC;
    s->loop = l;
    s->ev = *ev;
    s->arg = arg;
    s->o = *o;
    s->o.host = mem_strdup(o->host);
    s->o.unix_path = mem_strdup(o->unix_path);
    s->o.tls = o->tls ? tls_context_ref(o->tls) : NULL;
    list_init(&s->conns);
    for (int i = 0; i < DUE_COUNT; i++)
        list_init(&s->due[i]);
    kept_init(&s->kept, KEPT_BYTES);
    for (int i = 0; i < LISTENERS; i++)
        s->listeners[i] = (struct listener){.server = s, .fd = -1};
    if (open_listeners(s, ret_error) < 0) {
        server_free(s);
        return NULL;
    }
    s->due_ms[DUE_PROBE_0] = 10;
    s->due_ms[DUE_PROBE_1] = 100;
    s->due_ms[DUE_PROBE_2] = 1000;
    s->due_ms[DUE_PROBE_3] = 2000;
    CHECK(uv_timer_init(&l->uv, &s->due_timer) == 0 && uv_timer_init(&l->uv, &s->accept_timer) == 0);
    s->due_timer.data = s->accept_timer.data = s;
    s->handles = 2;
    due_apply_options(s);
    for (int i = 0; i < LISTENERS; i++) {
        struct listener *t = &s->listeners[i];
        if (t->fd < 0)
            continue;
        CHECK(uv_poll_init(&l->uv, &t->poll, t->fd) == 0);
        t->poll.data = t;
        s->handles++;
        CHECK(uv_poll_start(&t->poll, UV_READABLE, on_listener) == 0);
    }
    return s;
}

uint16_t server_port(const struct server *s)
{
    return s->port;
}

void server_update(struct server *s, const struct server_options *o)
{
    MAGIC_CHECK(s, SERVER_MAGIC);
    CHECK(o->max_head_bytes > 0);
    struct tls_context *old = s->o.tls;
    s->o.tls = o->tls ? tls_context_ref(o->tls) : NULL;
    if (old)
        tls_context_unref(old);
    s->o.max_head_bytes = o->max_head_bytes;
    s->o.head_ms = o->head_ms;
    s->o.body_ms = o->body_ms;
    s->o.idle_ms = o->idle_ms;
    s->o.write_ms = o->write_ms;
    due_apply_options(s);
}

void server_drain(struct server *s)
{
    MAGIC_CHECK(s, SERVER_MAGIC);
    s->draining = true;
    /* Closing an idle connection calls nobody, so the ring only loses the current node. One that has not
     * asked yet is kept: its request gets the owner's answer. */
    LIST_EACH(node, &s->conns)
    {
        struct conn *c = LIST_ITEM(node, struct conn, all);
        c->depth++;
        if (c->state == CONN_IDLE && !c->running)
            conn_settle(c);
        conn_leave(c);
    }
}

static void on_handle_closed(uv_handle_t *h)
{
    struct server *s = h->data;
    if (--s->handles == 0)
        server_free(s);
}

static void on_poll_closed(uv_handle_t *h)
{
    struct listener *l = h->data;
    h->data = l->server;
    on_handle_closed(h);
}

void server_close(struct server *s)
{
    MAGIC_CHECK(s, SERVER_MAGIC);
    CHECK(!s->closing);
    s->closing = true;
    s->magic = 0;
    while (!list_empty(&s->conns)) {
        struct conn *c = LIST_ITEM(s->conns.next, struct conn, all);
        if (c->state == CONN_GONE) {
            /* Inside its own on_gone, which closes it when it returns. */
            list_remove(&c->all);
            continue;
        }
        conn_gone(c);
    }
    for (int i = 0; i < LISTENERS; i++)
        if (s->listeners[i].fd >= 0)
            uv_close((uv_handle_t *)&s->listeners[i].poll, on_poll_closed);
    close_sockets(s); /* libuv has taken them out of its set */
    uv_close((uv_handle_t *)&s->due_timer, on_handle_closed);
    uv_close((uv_handle_t *)&s->accept_timer, on_handle_closed);
}

size_t server_connections(const struct server *s)
{
    return s->n_conns;
}

size_t server_unsent(const struct server *s)
{
    return s->n_unsent;
}

size_t server_requests_in_flight(const struct server *s)
{
    return s->n_in_flight;
}
