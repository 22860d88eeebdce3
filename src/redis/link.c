/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection: dial, greet, send, read, notice that it does not answer, try again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#include "base/mem.h"
#include "net/stream.h"
#include "redis/internal.h"

enum { IOV_MAX_LINK = 60, WHY_BYTES = 160, LATE_MS = 1 };

static const char ASKING[] = "*1\r\n$6\r\nASKING\r\n";

static uint64_t now_of(const struct redis_link *l)
{
    return net_now_ms(l->client->loop);
}

/* ---- the timer ---- */

static void on_timer(uv_timer_t *t);

void link_due(struct redis_link *l, uint64_t when_ms)
{
    if (l->state == LINK_CLOSED || (l->armed_ms && l->armed_ms <= when_ms))
        return;
    const uint64_t now = now_of(l);
    l->armed_ms = when_ms > now ? when_ms : now + LATE_MS;
    uv_timer_start(&l->timer, on_timer, l->armed_ms - now, 0);
}

/* ---- the end of a connection ---- */

static void drop_connection(struct redis_link *l)
{
    if (l->dial)
        dial_cancel(l->dial);
    if (l->stream)
        stream_close(l->stream, false);
    l->dial = NULL;
    l->stream = NULL;
    l->life++;
    l->doom = NULL;
    l->second_look = false;
}

static void finish_all(struct redis_client *c, struct list *calls, enum redis_outcome outcome)
{
    for (struct list *node; (node = list_pop(calls));) {
        struct redis_call *call = LIST_ITEM(node, struct redis_call, node);
        call->cancelled |= c->closed; /* a callback may have ended the client */
        call_finish(call, outcome, NULL);
    }
}

static void take_all(struct list *from, struct list *to)
{
    for (struct list *node; (node = list_pop(from));)
        list_push(to, node);
}

/* A quarter more or less, so that many gateways do not come back in one moment. */
static unsigned with_jitter(struct redis_link *l)
{
    return l->backoff_ms * 3 / 4 + (unsigned)rng_below(&l->client->loop->rng, l->backoff_ms / 2 + 1);
}

/* <outcome>: for what waited. <why>: a text for the log. */
static void link_lost(struct redis_link *l, enum redis_outcome outcome, const char *why)
{
    struct redis_client *c = l->client;
    struct list calls;
    const uint64_t now = now_of(l);
    const bool was_up = l->state == LINK_UP;

    list_init(&calls);
    take_all(&l->pending, &calls);
    take_all(&l->waiting, &calls);
    drop_connection(l);
    l->state = LINK_RESTING;
    l->failed = true;
    if (!was_up)
        metric_add(c->server->m_connect_failures, 1);
    if (was_up && now - l->up_ms >= REDIS_BACKOFF_MAX_MS)
        l->backoff_ms = 0;
    l->backoff_ms = l->backoff_ms ? l->backoff_ms * 2 : REDIS_BACKOFF_MS;
    if (l->backoff_ms > REDIS_BACKOFF_MAX_MS)
        l->backoff_ms = REDIS_BACKOFF_MAX_MS;
    l->retry_ms = now + with_jitter(l);
    link_due(l, l->retry_ms);
    server_link_down(l, why);
    finish_all(c, &calls, outcome);
    cluster_refresh(c);
}

static void on_timer_closed(uv_handle_t *h)
{
    struct redis_link *l = CONTAINER_OF((uv_timer_t *)h, struct redis_link, timer);
    struct redis_client *c = l->client;
    redis_reader_free(l->reader);
    if (l->origin.host)
        origin_fini(&l->origin);
    free(l);
    client_unhold(c);
}

void link_close(struct redis_link *l)
{
    struct list calls;
    if (l->state == LINK_CLOSED)
        return;
    list_init(&calls);
    take_all(&l->pending, &calls);
    take_all(&l->waiting, &calls);
    drop_connection(l);
    server_count_link(l, false);
    l->state = LINK_CLOSED;
    list_remove(&l->node);
    l->client->n_links--;
    uv_close((uv_handle_t *)&l->timer, on_timer_closed);
    finish_all(l->client, &calls, REDIS_LOST);
}

/* ---- replies ---- */

/* What an error says about the connection as a whole, or NULL. */
static const char *doom_of(const struct redis_reply *error)
{
    static const struct {
        const char *code, *text;
    } DOOMS[] = {
        {"LOADING", "it is loading its data"},
        {"READONLY", "it has become a replica"},
        {"MASTERDOWN", "it is a replica without its master"},
        {"NOAUTH", "it wants a password"},
    };
    for (size_t i = 0; i < ARRAY_LEN(DOOMS); i++)
        if (redis_reply_is_error(error, DOOMS[i].code))
            return DOOMS[i].text;
    return NULL;
}

static void greeted(struct redis_link *l)
{
    const uint64_t now = now_of(l);
    struct redis_client *c = l->client;
    if (l->was_up)
        metric_add(c->server->m_reconnects, 1);
    l->state = LINK_UP;
    l->was_up = true;
    l->failed = false;
    l->up_ms = now;
    link_due(l, now + REDIS_IDLE_MS);
    server_link_up(l);
    if (c->server->o.cluster && (!c->slots || c->map_stale))
        cluster_refresh(c);
    client_flush_soon(c);
}

static void on_greeting(struct redis_link *l, const struct redis_reply *reply)
{
    char why[WHY_BYTES];
    const bool last = --l->greet_left == 0;
    const bool ok = reply->type == REDIS_STATUS && span_eq(reply->text, last ? SPAN("PONG") : SPAN("OK"));
    if (ok && last) {
        greeted(l);
    } else if (!ok) {
        const struct span code = redis_reply_error_code(reply);
        const char *known = doom_of(reply);
        snprintf(why, sizeof why, "it refused the connection (%.*s)", (int)(code.n < 40 ? code.n : 40),
                 code.n ? code.p : "");
        link_lost(l, REDIS_LOST, known ? known : code.n ? why : "it does not speak Redis");
    }
}

static void note_error(struct redis_call *call, struct redis_link *l, const struct redis_reply *error)
{
    if (!l->doom)
        l->doom = doom_of(error);
    if (l->client->server->o.cluster && cluster_read_redirect(call, l, error))
        return;
    server_note_error(l->client->server, error);
}

static void on_reply(struct redis_link *l, const struct redis_reply *reply)
{
    if (list_empty(&l->pending)) {
        l->doom = "it sent a reply that nobody asked for";
        return;
    }
    struct redis_call *call = LIST_ITEM(l->pending.next, struct redis_call, node);
    const bool error = reply->type == REDIS_ERROR;
    if (error)
        note_error(call, l, reply);
    if (call->skip) {
        call->skip--;
        return;
    }
    if (call->redirect) {
        cluster_follow(call);
        return;
    }
    if (reply->type == REDIS_STATUS)
        server_note_stored(l->client->server);
    call_finish(call, error ? REDIS_REFUSED : REDIS_DONE, reply);
}

static void on_read(struct stream *s, void *arg, const char *p, size_t n)
{
    struct redis_link *l = arg;
    const struct redis_reply *reply;
    const unsigned life = l->life;
    (void)s;
    l->read_ms = now_of(l);
    redis_reader_feed(l->reader, p, n);
    while (l->life == life && !l->doom && (reply = redis_reader_next(l->reader))) {
        if (l->state == LINK_GREETING)
            on_greeting(l, reply);
        else
            on_reply(l, reply);
    }
    if (l->life != life)
        return;
    if (l->doom)
        link_lost(l, REDIS_LOST, l->doom);
    else if (redis_reader_is_broken(l->reader))
        link_lost(l, REDIS_LOST, "its replies cannot be read");
}

static void on_eof(struct stream *s, void *arg)
{
    (void)s;
    link_lost(arg, REDIS_LOST, "it closed the connection");
}

static void on_error(struct stream *s, void *arg, int err)
{
    (void)s;
    link_lost(arg, REDIS_LOST, err == STREAM_ERR_TLS ? "TLS failed" : uv_strerror(err));
}

static const struct stream_events EVENTS = {.on_read = on_read, .on_eof = on_eof, .on_error = on_error};

/* ---- connecting ---- */

static void greet(struct redis_link *l, struct stream *s)
{
    const struct redis_server *server = l->client->server;
    const struct iovec iov = {server->greeting.p, server->greeting.n};
    l->stream = s;
    l->state = LINK_GREETING;
    l->greet_left = server->greeting_replies;
    l->greet_due = now_of(l) + server->o.answer_ms;
    redis_reader_free(l->reader);
    l->reader = redis_reader_new(server->o.max_reply_bytes + NET_READ_BYTES);
    stream_set_owner(s, &EVENTS, l);
    stream_read_start(s);
    stream_writev(s, &iov, 1);
    link_due(l, l->greet_due);
}

static void on_dialed(void *arg, struct stream *s, enum exchange_fail why, const char *detail)
{
    struct redis_link *l = arg;
    l->dial = NULL;
    if (s)
        greet(l, s);
    else
        link_lost(l, REDIS_AWAY, detail ? detail : exchange_fail_name(why));
}

static void on_socket(struct stream *s, void *arg, int err)
{
    struct redis_link *l = arg;
    if (!err) {
        greet(l, s);
        return;
    }
    l->stream = NULL; /* closes by itself */
    link_lost(l, REDIS_AWAY, uv_strerror(err));
}

static void link_dial(struct redis_link *l)
{
    struct redis_client *c = l->client;
    const struct redis_server *s = c->server;
    l->state = LINK_DIALING;
    if (!s->url.path) {
        l->dial = dial_start(c->loop, c->resolver, &l->origin, c->tls, s->o.connect_ms, on_dialed, l);
        return;
    }
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, s->url.path, strlen(s->url.path) + 1);
    l->stream = stream_connect(c->loop, (const struct sockaddr *)&a, NULL, NULL, on_socket, &EVENTS, l);
}

struct redis_link *link_new(struct redis_client *c, const char *host, uint16_t port)
{
    struct redis_link *l = MEM_NEW(struct redis_link);
    l->client = c;
    l->origin = (struct net_origin){.host = mem_strdup(host), .port = port};
    list_init(&l->waiting);
    list_init(&l->pending);
    uv_timer_init(&c->loop->uv, &l->timer);
    c->handles++;
    list_push(&c->links, &l->node);
    c->n_links++;
    link_dial(l);
    return l;
}

/* ---- sending ---- */

/* At most a vector full; how many calls that were. */
static unsigned flush_some(struct redis_link *l)
{
    struct iovec iov[IOV_MAX_LINK];
    struct redis_call *sent[IOV_MAX_LINK];
    unsigned n_iov = 0, n = 0;
    while (!list_empty(&l->waiting) && n_iov + 2 <= IOV_MAX_LINK) {
        struct redis_call *call = LIST_ITEM(list_pop(&l->waiting), struct redis_call, node);
        if (call->asking)
            iov[n_iov++] = (struct iovec){(char *)ASKING, sizeof ASKING - 1};
        iov[n_iov++] = (struct iovec){call->bytes.p, call->bytes.n};
        list_push(&l->pending, &call->node);
        sent[n++] = call;
    }
    if (n)
        stream_writev(l->stream, iov, n_iov); /* a failure is told by on_error */
    for (unsigned i = 0; i < n && !l->client->server->o.cluster; i++) {
        l->client->queued_bytes -= sent[i]->n_bytes;
        sent[i]->n_bytes = 0;
        buf_fini(&sent[i]->bytes);
    }
    return n;
}

void link_flush(struct redis_link *l)
{
    while (l->state == LINK_UP && flush_some(l) > 0)
        ;
}

/* ---- deadlines ---- */

/* Whether a call has waited for longer than a working server takes. */
static bool is_overdue(const struct redis_call *call, uint64_t now)
{
    return now >= call->due_ms && now - call->made_ms >= call->client->server->o.answer_ms;
}

static bool any_overdue(const struct list *calls, uint64_t now)
{
    LIST_EACH(node, calls)
    if (is_overdue(LIST_ITEM(node, struct redis_call, node), now))
        return true;
    return false;
}

/* Calls whose own time is over, on a connection that is still good. Their places in the order stay. */
static void expire(struct redis_link *l, struct list *calls, uint64_t now)
{
    const unsigned life = l->life;
    LIST_EACH(node, calls)
    {
        struct redis_call *call = LIST_ITEM(node, struct redis_call, node);
        if (call->cancelled || call->internal || now < call->due_ms)
            continue;
        call->cancelled = true;
        metric_add(l->client->server->m_commands[REDIS_TIMEOUT], 1);
        if (call->fn)
            call->fn(call->arg, REDIS_TIMEOUT, NULL);
        if (l->life != life)
            return;
    }
}

static uint64_t next_due(const struct list *calls, uint64_t due)
{
    LIST_EACH(node, calls)
    {
        const struct redis_call *call = LIST_ITEM(node, struct redis_call, node);
        const uint64_t limit = call->made_ms + call->client->server->o.answer_ms;
        uint64_t at = call->due_ms;
        if (call->cancelled && at < limit)
            at = limit; /* it is waited for no more, but the server owes a sign of life */
        due = at < due ? at : due;
    }
    return due;
}

static void ping(struct redis_link *l, uint64_t now)
{
    struct redis_call *call = call_new(l->client, now, 0);
    call->internal = true;
    redis_format(&call->bytes, (const struct span[]){SPAN("PING")}, 1);
    call_send(call, l);
}

static bool is_late(const struct redis_link *l, uint64_t now)
{
    if (l->state == LINK_GREETING)
        return now >= l->greet_due;
    return any_overdue(&l->pending, now) || any_overdue(&l->waiting, now);
}

static void give_up(struct redis_link *l)
{
    char why[WHY_BYTES];
    snprintf(why, sizeof why, "no answer in %u ms", l->client->server->o.answer_ms);
    link_lost(l, REDIS_TIMEOUT, why);
}

/* True when the link has found its next state. */
static bool look(struct redis_link *l, uint64_t now)
{
    if (l->state == LINK_RESTING && now >= l->retry_ms) {
        link_dial(l);
        return true;
    }
    if (is_late(l, now)) {
        /* Timers run before sockets are read: when this loop was held up, the answer lies there. */
        if (l->second_look) {
            give_up(l);
            return true;
        }
        l->second_look = true;
        return false;
    }
    l->second_look = false;
    const unsigned life = l->life;
    expire(l, &l->pending, now);
    if (l->life == life)
        expire(l, &l->waiting, now);
    if (l->life != life || l->state != LINK_UP)
        return l->life != life;
    if (list_empty(&l->pending) && list_empty(&l->waiting) && now - l->read_ms >= REDIS_IDLE_MS)
        ping(l, now);
    if (l->client->map_stale)
        cluster_refresh(l->client);
    return false;
}

static void on_timer(uv_timer_t *t)
{
    struct redis_link *l = CONTAINER_OF(t, struct redis_link, timer);
    const uint64_t now = now_of(l);
    uint64_t due = UINT64_MAX;
    l->armed_ms = 0;
    look(l, now);
    if (l->state == LINK_CLOSED)
        return;
    if (l->state == LINK_RESTING)
        due = l->retry_ms;
    else if (l->state == LINK_GREETING)
        due = l->greet_due;
    else if (l->state == LINK_UP)
        due = now + REDIS_IDLE_MS;
    due = next_due(&l->pending, due);
    due = next_due(&l->waiting, due);
    if (due != UINT64_MAX)
        link_due(l, due);
}
