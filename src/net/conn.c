/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of a connection: from bytes to requests and back to idle.
 */
#include "net/server_impl.h"

#include <stdlib.h>

#include "base/mem.h"

_Static_assert(sizeof(struct conn) <= 512, "an idle connection is small");

/* --- death --- */

void conn_leave(struct conn *c)
{
    CHECK(c->depth > 0);
    if (--c->depth == 0 && c->state == CONN_DEAD) {
        c->magic = 0;
        free(c);
    }
}

void conn_release_request(struct conn *c)
{
    if (c->in_flight) {
        c->in_flight = false;
        c->s->n_in_flight--;
    }
    conn_free_body(c);
    arena_reset(&c->arena);
    c->head = NULL;
    c->user = NULL;
    c->reply_begun = c->body_begun = false;
}

HOT void conn_set_unsent(struct conn *c, bool unsent)
{
    if (c->unsent == unsent)
        return;
    c->unsent = unsent;
    if (unsent)
        c->s->n_unsent++;
    else
        c->s->n_unsent--;
}

void conn_die(struct conn *c, enum conn_die how)
{
    if (c->state == CONN_DEAD)
        return;
    c->depth++;
    conn_set_unsent(c, false);
    c->state = CONN_DEAD;
    due_clear(&c->read_due);
    due_clear(&c->write_due);
    list_remove(&c->all);
    c->s->n_conns--;
    if (how == CONN_DIE_GRACEFUL)
        stream_close_gracefully(c->st, LINGER_MS);
    else
        stream_close(c->st, how == CONN_DIE_RESET);
    c->st = NULL;
    conn_release_request(c);
    conn_hold_free(c);
    conn_leave(c);
}

void conn_gone(struct conn *c)
{
    if (!conn_is_alive(c))
        return;
    c->depth++;
    c->state = CONN_GONE;
    if (c->in_flight)
        c->s->ev.on_gone(c, c->s->arg);
    conn_die(c, CONN_DIE_RESET);
    conn_leave(c);
}

/* --- requests --- */

/* Moves <s> from the bytes it was parsed from to their copy; slices of static text stay. */
static void rebase(struct span *s, const char *from, size_t n, const char *to)
{
    if ((uintptr_t)s->p - (uintptr_t)from <= n)
        s->p = to + (s->p - from);
}

static struct http_head *keep_head(struct conn *c, const struct http_head *h, const char *p)
{
    size_t struct_bytes = offsetof(struct http_head, fields) + h->n_fields * sizeof(struct http_field);
    struct http_head *copy = arena_alloc(&c->arena, struct_bytes);
    char *text = arena_alloc(&c->arena, h->bytes);
    memcpy((void *)copy, h, struct_bytes);
    memcpy(text, p, h->bytes);
    rebase(&copy->method, p, h->bytes, text);
    rebase(&copy->target, p, h->bytes, text);
    rebase(&copy->path, p, h->bytes, text);
    rebase(&copy->query, p, h->bytes, text);
    for (unsigned i = 0; i < h->n_fields; i++) {
        rebase(&copy->fields[i].name, p, h->bytes, text);
        rebase(&copy->fields[i].value, p, h->bytes, text);
    }
    return copy;
}

static bool is_queue_full(const struct conn *c)
{
    return stream_queued(c->st) > QUEUE_STOP_BYTES;
}

/* Whether a request was there (or a broken one). */
static bool take_head(struct conn *c)
{
    struct server *s = c->s;
    struct span in = conn_input(c);
    if (in.n == 0 || is_queue_full(c))
        return false;
    enum http_reject why = HTTP_OK_SO_FAR;
    switch (http_parse_request(&s->scratch, in.p, in.n, &c->scanned, s->o.max_head_bytes, &why)) {
    case HTTP_MORE:
        c->state = CONN_HEAD;
        return false;
    case HTTP_BAD:
        conn_reject(c, http_reject_status(why), http_reject_text(why));
        return true;
    case HTTP_DONE:
        break;
    }
    c->head = keep_head(c, &s->scratch, in.p);
    conn_consume(c, c->head->bytes);
    c->scanned = 0;
    c->fresh = false;
    due_clear(&c->read_due);
    c->state = CONN_OWNER;
    c->in_flight = true;
    s->n_in_flight++;
    s->ev.on_head(c, s->arg);
    return true;
}

static bool step(struct conn *c)
{
    if (c->broken)
        return false;
    switch ((enum conn_state)c->state) {
    case CONN_IDLE:
    case CONN_HEAD:
        return take_head(c);
    case CONN_BODY:
        return conn_feed_body(c);
    case CONN_OWNER:
    case CONN_OPEN:
    case CONN_REJECTING:
    case CONN_CLOSING:
    case CONN_GONE:
    case CONN_DEAD:
        return false;
    }
    UNREACHABLE();
}

void conn_run(struct conn *c)
{
    if (c->running)
        return;
    c->depth++;
    c->running = true;
    while (step(c))
        ;
    c->running = false;
    if (conn_is_alive(c)) {
        if (c->in_n && !c->hold_n && c->state != CONN_CLOSING) {
            if (!conn_hold(c, c->in, c->in_n))
                conn_gone(c);
        }
        c->in_n = 0;
        if (conn_is_alive(c))
            conn_settle(c);
    }
    conn_leave(c);
}

static void set_reading(struct conn *c, bool on)
{
    if (on == c->reading)
        return;
    c->reading = on;
    if (on)
        stream_read_start(c->st);
    else
        stream_read_stop(c->st);
}

static void settle_between(struct conn *c)
{
    if (is_queue_full(c)) {
        /* The next request waits until the replies before it are taken; DUE_WRITE watches. */
        due_clear(&c->read_due);
        set_reading(c, !c->eof && c->hold_n < HOLD_STOP_BYTES);
        return;
    }
    bool over = c->state == CONN_IDLE && !c->fresh && c->s->draining;
    if (c->eof || over) {
        conn_begin_close(c, false);
        return;
    }
    enum due_kind kind = c->state == CONN_HEAD || c->fresh ? DUE_HEAD : DUE_IDLE;
    if (c->read_due.kind != kind)
        due_set(c->s, &c->read_due, kind);
    set_reading(c, true);
}

void conn_settle(struct conn *c)
{
    if (c->hold_n == 0)
        conn_hold_free(c);
    if (c->broken || c->state >= CONN_REJECTING)
        return;
    if (c->state == CONN_IDLE || c->state == CONN_HEAD) {
        settle_between(c);
    } else if (c->state == CONN_BODY) {
        /* A body that ended early will never be complete. */
        due_set(c->s, &c->read_due, c->eof ? DUE_NOW : DUE_BODY);
        set_reading(c, !c->eof);
    } else {
        /* Reading goes on to notice a reset; where it cannot, the kernel is asked now and then. */
        set_reading(c, !c->eof && c->hold_n < HOLD_STOP_BYTES);
        if (c->reading)
            due_clear(&c->read_due);
        else if (c->read_due.kind < DUE_PROBE_0)
            due_set(c->s, &c->read_due, c->eof ? DUE_PROBE_0 : DUE_PROBE_3);
    }
}

static bool is_request(const struct conn *c)
{
    return c->state == CONN_OWNER || c->state == CONN_BODY || c->state == CONN_OPEN;
}

void conn_finish(struct conn *c, bool keep)
{
    MAGIC_CHECK(c, CONN_MAGIC);
    if (!conn_is_alive(c) || c->state == CONN_REJECTING)
        return; /* ends anyway when on_gone or on_reject returns */
    CHECK_MSG(is_request(c), "finish belongs to a request");
    c->depth++;
    size_t skip = 0;
    bool read_all = c->state == CONN_OPEN || (c->state == CONN_OWNER && conn_may_skip_body(c, &skip));
    if (skip)
        conn_consume(c, skip);
    bool is_last = !c->head->keep_alive; /* the client knows and sends no more */
    keep = keep && read_all && !is_last && !c->s->draining && !c->broken;
    conn_release_request(c);
    c->state = CONN_IDLE;
    if (!keep)
        conn_begin_close(c, !(read_all && is_last && conn_input(c).n == 0));
    else
        conn_run(c);
    conn_leave(c);
}

void conn_abort(struct conn *c)
{
    MAGIC_CHECK(c, CONN_MAGIC);
    if (!conn_is_alive(c))
        return;
    CHECK_MSG(is_request(c) || c->state == CONN_REJECTING, "abort belongs to a request");
    conn_die(c, CONN_DIE_RESET);
}

bool conn_will_close(const struct conn *c)
{
    size_t skip;
    if (!c->head || !c->head->keep_alive || c->s->draining || c->state >= CONN_REJECTING)
        return true;
    return c->state == CONN_BODY || (c->state == CONN_OWNER && !conn_may_skip_body(c, &skip));
}

/* --- events of the stream --- */

static void on_read(struct stream *st, void *arg, const char *p, size_t n)
{
    struct conn *c = arg;
    if (c->broken || c->state >= CONN_CLOSING)
        return;
    if (c->hold_n || c->running) {
        /* The parts must stand together; <running>: a stream that hands out bytes from within read_start. */
        if (!conn_hold(c, c->in, c->in_n) || !conn_hold(c, p, n)) {
            conn_gone(c);
            return;
        }
        c->in_n = 0;
    } else {
        c->in = p;
        c->in_n = n;
    }
    conn_run(c);
}

static void on_eof(struct stream *st, void *arg)
{
    struct conn *c = arg;
    if (c->eof || !conn_is_alive(c))
        return;
    c->eof = true;
    if (c->reading)
        stream_read_stop(st);
    c->reading = false;
    if (c->state == CONN_CLOSING)
        return;
    if (c->state == CONN_BODY) {
        conn_gone(c);
        return;
    }
    c->depth++;
    if (is_request(c) && !c->broken) {
        /* A client that only closed its sending side gets its reply. One that closed altogether answers
         * whatever it is sent with a reset, so it is sent something that changes nothing. */
        if (!c->reply_begun && c->head->minor >= 1)
            conn_interim(c);
        else if (c->reply_begun && c->s->ev.on_half_closed)
            c->s->ev.on_half_closed(c, c->s->arg);
    }
    if (conn_is_alive(c))
        conn_run(c);
    conn_leave(c);
}

static void on_error(struct stream *st, void *arg, int err)
{
    struct conn *c = arg;
    if (c->writing)
        c->broken = true; /* the writer sees it */
    else
        conn_gone(c);
}

static void on_drain(struct stream *st, void *arg)
{
    struct conn *c = arg;
    if (!conn_is_alive(c) || c->broken)
        return;
    c->depth++;
    conn_on_queue_empty(c);
    conn_leave(c);
}

static const struct stream_events events = {
    .on_read = on_read, .on_eof = on_eof, .on_error = on_error, .on_drain = on_drain};

struct conn *conn_open(struct server *s, int fd)
{
    struct conn *c = MEM_NEW(struct conn);
    c->st = stream_accept(s->loop, fd, s->o.tls, &events, c);
    if (!c->st) {
        free(c);
        return NULL;
    }
    c->magic = CONN_MAGIC;
    c->s = s;
    c->fresh = true;
    due_init(&c->read_due);
    due_init(&c->write_due);
    arena_init(&c->arena, &s->loop->chunks);
    list_push(&s->conns, &c->all);
    s->n_conns++;
    c->depth++;
    conn_settle(c);
    if (c->state != CONN_DEAD) {
        conn_leave(c);
        return c;
    }
    conn_leave(c);
    return NULL;
}

/* --- inspection --- */

const struct http_head *conn_head(const struct conn *c)
{
    return c->head;
}

void conn_set_user(struct conn *c, void *user)
{
    c->user = user;
}

void *conn_user(const struct conn *c)
{
    return c->user;
}

struct arena *conn_arena(struct conn *c)
{
    return &c->arena;
}

struct net_loop *conn_loop(const struct conn *c)
{
    return c->s->loop;
}

void *conn_server_arg(const struct conn *c)
{
    return c->s->arg;
}

const char *conn_peer(struct conn *c, char *out, size_t n)
{
    CHECK(c->st && n > 0);
    return stream_peer_name(c->st, out, n);
}

bool conn_is_loopback(struct conn *c)
{
    char text[128];
    struct span peer = span_str(conn_peer(c, text, sizeof text));
    return span_eq(peer, SPAN("unix")) || span_starts(peer, SPAN("127.")) ||
           span_starts(peer, SPAN("[::1]")) || span_starts(peer, SPAN("[::ffff:127."));
}
