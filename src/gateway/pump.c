/* SPDX-License-Identifier: Apache-2.0
 *
 * The way out of a reply that is not relayed as it comes: a stored one, in pieces as the client takes them; a
 * followed stream, from the flight's log; the rest of a leader's stream whose client lags.
 */
#include "gateway/applied.h"
#include "gateway/cached.h"
#include "net/http_reply.h"

enum { QUEUE_HIGH = 65536, PIECE_MAX = 262144 };

static void over(struct request *r)
{
    r->cached->pump = PUMP_NONE;
    request_resume(r, STEP_finish);
}

static void entry_more(struct request *r)
{
    struct cached *c = r->cached;
    struct span body = c->entry->body;
    while (c->pumped < body.n && request_unsent(r) <= QUEUE_HIGH) {
        size_t n = body.n - c->pumped < PIECE_MAX ? body.n - c->pumped : PIECE_MAX;
        struct iovec iov = {(char *)(uintptr_t)body.p + c->pumped, n};
        c->pumped += n;
        request_write(r, &iov, 1);
    }
    if (c->pumped < body.n)
        return; /* until it drains */
    r->upstream_complete = true;
    over(r);
}

void pump_entry(struct request *r)
{
    struct cached *c = r->cached;
    struct span body = c->entry->body;
    struct buf *out = &r->worker->out;
    buf_clear(out);
    buf_add_span(out, r->delivery.head);
    reply_head_sized(r, out, body.n);
    size_t n = body.n < PIECE_MAX ? body.n : PIECE_MAX;
    struct iovec iov[2] = {{out->p, out->n}, {(char *)(uintptr_t)body.p, n}};
    r->status = r->delivery.status;
    r->first_byte_us = r->read_us ? r->read_us : net_now_us(&r->worker->loop);
    r->read_us = 0;
    r->reply_begun = true;
    c->pump = PUMP_ENTRY;
    c->pumped = n;
    request_write(r, iov, 2);
    entry_more(r);
}

void pump_follow(struct request *r, struct span fields)
{
    struct buf *out = &r->worker->out;
    buf_clear(out);
    reply_head_begin(r, out, 200);
    buf_add_span(out, fields);
    cached_fields(r, out);
    reply_head_stream(r, out);
    struct iovec iov = {out->p, out->n};
    r->status = 200;
    r->reply_begun = true;
    r->is_event_stream = true;
    r->cached->pump = PUMP_FLIGHT;
    applied_begin(r);
    request_write(r, &iov, 1);
}

void pump_from_here(struct request *r)
{
    r->cached->pump = PUMP_FLIGHT;
    flight_read_from_here(&r->cached->flight);
}

/* A piece of the log, framed as the reply is. */
static void send_piece(struct request *r, struct span p)
{
    char chunk_head[REPLY_CHUNK_HEAD_MAX];
    struct iovec iov[3];
    unsigned n = 0;
    if (r->reply_chunked)
        iov[n++] = (struct iovec){chunk_head, reply_chunk_head(chunk_head, p.n)};
    iov[n++] = (struct iovec){(char *)(uintptr_t)p.p, p.n};
    if (r->reply_chunked)
        iov[n++] = (struct iovec){(char *)(uintptr_t) "\r\n", 2};
    if (!r->first_byte_us)
        r->first_byte_us = net_now_us(&r->worker->loop);
    r->last_byte = p.p[p.n - 1];
    request_write(r, iov, n);
}

/* A piece of the upstream's stream: as it is, or what the guardrails let out of it. */
static void send_upstream_piece(struct request *r, struct span p)
{
    struct applied *a = r->applied;
    if (LIKELY(!a)) {
        send_piece(r, p);
        return;
    }
    applied_feed(r, p.p, p.n);
    if (a->out.n)
        send_piece(r, buf_view(&a->out));
    buf_clear(&a->out);
    if (a->refused && !a->closed && r->reply_chunked) {
        struct iovec iov = {(char *)(uintptr_t)REPLY_LAST_CHUNK, 5};
        request_write(r, &iov, 1);
    }
    a->closed = a->refused;
}

static void flight_over(struct request *r)
{
    if (!r->error && r->applied && !r->applied->refused) {
        applied_end(r);
        if (r->applied->out.n)
            send_piece(r, buf_view(&r->applied->out));
        buf_clear(&r->applied->out);
    }
    if (!r->error) {
        if (r->reply_chunked && !(r->applied && r->applied->closed)) {
            struct iovec iov = {(char *)(uintptr_t)REPLY_LAST_CHUNK, 5};
            request_write(r, &iov, 1);
        }
        r->upstream_complete = true;
    }
    over(r);
}

/* What this client has not read is gone. A leader goes on for the others. */
static void cut(struct request *r)
{
    r->cached->cut = true;
    if (!r->cached->flight.leads || !fill_goes_on(r)) {
        over(r);
        return;
    }
    struct conn *client = r->conn;
    request_detach(r);
    conn_abort(client);
}

static void flight_more(struct request *r)
{
    struct cached *c = r->cached;
    struct span p = SPAN_NONE;
    if (flight_is_cut(&c->flight)) {
        cut(r);
        return;
    }
    while (request_unsent(r) <= QUEUE_HIGH && (p = flight_peek(&c->flight)).n > 0) {
        if (p.n > PIECE_MAX)
            p.n = PIECE_MAX;
        send_upstream_piece(r, p);
        flight_advance(&c->flight, p.n);
    }
    bool lags = request_unsent(r) > QUEUE_HIGH;
    if (!lags && c->ended) {
        flight_over(r);
        return;
    }
    if (flight_set_lags(&c->flight, lags) && r->exchange)
        exchange_pause(r->exchange);
    if (!lags && c->flight.leads) {
        c->pump = PUMP_NONE;
        flight_stop_reading(&c->flight);
    }
}

void pump_more(struct request *r)
{
    switch (r->cached->pump) {
    case PUMP_NONE:
        break;
    case PUMP_ENTRY:
        entry_more(r);
        break;
    case PUMP_FLIGHT:
        flight_more(r);
        break;
    }
}
