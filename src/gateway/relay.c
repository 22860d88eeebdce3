/* SPDX-License-Identifier: Apache-2.0
 *
 * Relays a reply as it comes. The slices of one upstream read are collected and go out in one vectored write;
 * nothing is copied unless the client does not take it. A client that lags stops the upstream: above
 * QUEUE_HIGH unsent bytes reading pauses until the queue is empty.
 */
#include "gateway/applied.h"
#include "gateway/cached.h"
#include "net/http_reply.h"
#include "policy/delivery.h"

enum { QUEUE_HIGH = 65536, UPSTREAM_ID_MAX = 256 };

/* Whether the policy must see this reply before the client does. A stream that nobody asked for is no reason
 * to let it pass unseen. */
static bool must_hold(const struct request *r, const struct http_head *h)
{
    return UNLIKELY(r->plan->policy != NULL) && h->status >= 200 && h->status < 300 &&
           h->body != HTTP_BODY_NONE && !(r->is_event_stream && (r->stream || r->applied)) &&
           delivery_is_policed(r);
}

/* The reply is collected, up to what a request's body may have; its head waits with it. So does the request's
 * body: the client has seen nothing yet, and another attempt needs it when this reply breaks off. */
static void hold(struct request *r, const struct http_head *h)
{
    struct worker *w = r->worker;
    struct delivery *d = &r->delivery;
    d->held = true;
    d->status = h->status;
    d->head = arena_dup(r->arena, buf_view(&w->out));
    d->input.source = DELIVERY_LIVE;
    d->input.content_type = arena_dup(r->arena, http_field_get(h, HTTP_F_CONTENT_TYPE));
    d->input.encoded = r->reply_encoded;
    r->reply_body.max = r->plan->settings->server.max_body_bytes;
    buf_clear(&w->out);
    w->n_iov = 0;
}

static void iov_add(struct worker *w, const void *p, size_t n)
{
    w->iov[w->n_iov++] = (struct iovec){(void *)p, n};
}

/* Slot 0: the reply's head, or empty. Slot 1: the chunk's size line, or empty. Then body slices. */
enum { SLOT_HEAD, SLOT_CHUNK, SLOT_BODY };

static void iov_begin(struct worker *w)
{
    if (w->n_iov)
        return;
    iov_add(w, NULL, 0);
    iov_add(w, NULL, 0);
    w->iov_bytes = 0;
}

void relay_head(struct request *r, const struct http_head *h)
{
    struct worker *w = r->worker;
    struct buf *out = &w->out;
    buf_clear(out);
    w->n_iov = 0;
    iov_begin(w);
    reply_head_begin(r, out, h->status);
    reply_head_target(r, out, r->target, r->variant);
    reply_head_fields(r, out, h);
    r->status = h->status;
    struct span id = http_field_get(h, HTTP_F_X_REQUEST_ID);
    if (id.n > UPSTREAM_ID_MAX)
        id.n = UPSTREAM_ID_MAX;
    if (id.n)
        r->upstream_request_id = arena_dup(r->arena, id);
    r->usage_expected = h->status < 300;
    if (h->status >= 400)
        r->error = "upstream_status";
    usage_feed_begin(r, h);
    if (UNLIKELY(r->cached != NULL))
        capture_head(r, h);
    /* One that nobody asked for is held where more than guardrails must see it. */
    if (r->is_event_stream && h->status < 300 &&
        (r->stream || !policy_wants_whole(r->plan->policy, r->policy_ticket)))
        applied_begin(r);
    if (must_hold(r, h)) {
        hold(r, h);
        return;
    }
    if ((h->body == HTTP_BODY_LENGTH || h->body == HTTP_BODY_NONE) && !r->applied) {
        if (h->status != 204 && h->status != 304 && h->status >= 200) {
            BUF_LIT(out, "content-length: ");
            buf_add_u64(out, h->body == HTTP_BODY_LENGTH ? h->content_length : 0);
            BUF_LIT(out, "\r\n");
        }
        reply_head_end(r, out);
    } else {
        reply_head_stream(r, out);
    }
    w->iov[SLOT_HEAD] = (struct iovec){out->p, out->n};
}

/* The client lags, so it gets the rest from the flight's log. */
static bool is_behind(const struct request *r)
{
    return r->cached && r->cached->pump == PUMP_FLIGHT;
}

HOT void relay_body(struct request *r, const char *p, size_t n)
{
    struct worker *w = r->worker;
    if (n == 0)
        return;
    if (UNLIKELY(r->delivery.held)) {
        buf_add(&r->reply_body, p, n);
        return;
    }
    if (UNLIKELY(r->applied != NULL) && !is_behind(r)) {
        usage_feed(r, p, n, false);
        if (r->cached)
            capture_feed(r, p, n);
        applied_feed(r, p, n);
        return;
    }
    iov_begin(w);
    iov_add(w, p, n);
    w->iov_bytes += n;
    if (w->n_iov >= WORKER_IOV_MAX)
        relay_flush(r);
}

/* For the bill, the store and those who follow. */
HOT static void observe(struct request *r, unsigned body_end, bool whole)
{
    const struct iovec *iov = r->worker->iov;
    if (r->status >= 300)
        return;
    for (unsigned i = SLOT_BODY; i < body_end; i++)
        usage_feed(r, iov[i].iov_base, iov[i].iov_len, whole);
    if (UNLIKELY(r->cached != NULL))
        for (unsigned i = SLOT_BODY; i < body_end; i++)
            capture_feed(r, iov[i].iov_base, iov[i].iov_len);
}

/* What the guardrails let out takes the place of the upstream's bytes, which were observed when they came. */
static bool collect_applied(struct request *r, bool last)
{
    struct worker *w = r->worker;
    struct applied *a = r->applied;
    if (a->closed)
        return false;
    if (a->out.n) {
        iov_add(w, a->out.p, a->out.n);
        w->iov_bytes = a->out.n;
    }
    a->closed = last || a->refused;
    return true;
}

/* Sends what was collected; <last> closes the chunked body in the same write. */
HOT static void send_collected(struct request *r, bool last)
{
    struct worker *w = r->worker;
    const bool sees_all = !r->applied; /* what goes out is what came in */
    iov_begin(w);
    if (UNLIKELY(!sees_all) && !collect_applied(r, last)) {
        w->n_iov = 0;
        if (last && r->cached) {
            usage_feed_end(r);
            capture_end(r);
        }
        return;
    }
    const bool ends = last || (!sees_all && r->applied->closed);
    if (w->iov_bytes && !r->first_byte_us)
        r->first_byte_us = r->read_us ? r->read_us : net_now_us(&w->loop);
    unsigned body_end = w->n_iov;
    if (body_end > SLOT_BODY)
        r->last_byte = ((const char *)w->iov[body_end - 1].iov_base)[w->iov[body_end - 1].iov_len - 1];
    bool whole = last && body_end == SLOT_BODY + 1 && !r->reply_begun;
    bool store_first = UNLIKELY(r->cached != NULL) && last;
    if (store_first) { /* who asks again as soon as it has this reply must find it */
        if (sees_all)
            observe(r, body_end, whole);
        usage_feed_end(r);
        capture_end(r);
    }
    if (r->reply_chunked && w->iov_bytes) {
        size_t n = reply_chunk_head(w->chunk_head, w->iov_bytes);
        w->iov[SLOT_CHUNK] = (struct iovec){w->chunk_head, n};
    }
    if (r->reply_chunked) {
        if (w->iov_bytes)
            iov_add(w, ends ? "\r\n0\r\n\r\n" : "\r\n", ends ? 7 : 2);
        else if (ends)
            iov_add(w, "0\r\n\r\n", 5);
    }
    /* Slots that stayed empty are left out: the kernel takes them, but they cost. */
    struct iovec *from = w->iov;
    unsigned n = w->n_iov;
    if (!w->iov[SLOT_CHUNK].iov_len) {
        w->iov[SLOT_CHUNK] = w->iov[SLOT_HEAD];
        from++;
        n--;
    }
    if (!from->iov_len) {
        from++;
        n--;
    }
    w->n_iov = 0;
    r->reply_begun = true;
    if (n)
        request_write(r, from, n);
    /* After the bytes are on their way: reading the usage must not delay them. */
    if (!sees_all)
        buf_clear(&r->applied->out);
    else if (!store_first)
        observe(r, body_end, whole);
}

/* A reply that is captured, and that others may read: the client's pace is its own. */
static void flush_shared(struct request *r)
{
    bool pause;
    if (is_behind(r)) {
        observe(r, r->worker->n_iov, false);
        r->worker->n_iov = 0;
        pause = capture_publish(r);
    } else {
        send_collected(r, false);
        pause = capture_publish(r);
        if (r->conn && request_unsent(r) > QUEUE_HIGH) {
            pump_from_here(r);
            pause |= flight_set_lags(&r->cached->flight, true);
        }
    }
    request_drop_body(r);
    if (pause && r->exchange) {
        exchange_pause(r->exchange);
        r->was_paused = true;
    }
}

/* More than is held for anybody: what no policy has seen does not go out. */
static bool is_past_limit(const struct request *r)
{
    return r->delivery.held && r->reply_body.full;
}

static enum step refuse_large(struct request *r)
{
    r->withheld = true;
    metric_add(metric_plain(M_WITHHELD), 1);
    return request_refuse(r, 502, "reply_too_large", NULL,
                          "The upstream's reply is larger than what can be checked.");
}

HOT void relay_flush(struct request *r)
{
    if (UNLIKELY(is_past_limit(r))) {
        request_resume(r, refuse_large(r));
        return;
    }
    if (r->worker->n_iov == 0 && !(r->applied && !is_behind(r)))
        return;
    if (UNLIKELY(r->cached != NULL) && capture_is_on(r)) {
        flush_shared(r);
        return;
    }
    send_collected(r, false);
    request_drop_body(r);
    if (r->exchange && request_unsent(r) > QUEUE_HIGH) {
        exchange_pause(r->exchange);
        r->was_paused = true;
    }
}

/* An empty comment between two lines of an event stream means nothing to a reader, and makes the kernel of a
 * client that has gone altogether answer with a reset. */
void relay_probe(struct request *r)
{
    static const char comment[] = "2\r\n:\n\r\n";
    if (!r->reply_begun || r->upstream_complete || !r->reply_chunked || !r->is_event_stream ||
        r->reply_encoded || (r->applied && r->applied->closed) || r->last_byte != '\n')
        return;
    struct iovec iov = {(void *)comment, sizeof comment - 1};
    request_write(r, &iov, 1);
}

void relay_discard(struct request *r)
{
    r->worker->n_iov = 0;
    r->reply_chunked = r->reply_unframed = false;
    r->delivery.held = false;
    applied_over(r);
    usage_feed_discard(r);
    if (r->cached)
        capture_discard(r);
}

void relay_drained(struct request *r)
{
    if (UNLIKELY(r->cached != NULL) && r->cached->pump != PUMP_NONE)
        pump_more(r);
    else if (r->exchange)
        exchange_resume(r->exchange);
}

/* The upstream's bytes are billed and stored; what the policy makes of them is for the client alone. */
static void end_held(struct request *r)
{
    r->delivery.input.body = buf_view(&r->reply_body);
    if (r->sse_open) /* a stream that nobody asked for */
        usage_feed(r, r->reply_body.p, r->reply_body.n, false);
    usage_feed_end(r);
    if (r->cached && !is_past_limit(r)) {
        capture_feed(r, r->reply_body.p, r->reply_body.n);
        capture_end(r);
    }
    r->upstream_complete = !r->conn;
    request_resume(r, is_past_limit(r) ? refuse_large(r) : r->conn ? STEP_deliver : STEP_finish);
}

void relay_end(struct request *r)
{
    /* Before the last byte: who sends the next request as soon as it has this reply must not find the target
     * loaded with itself. */
    request_prefill_over(r, false);
    target_lease_end(&r->lease);
    if (UNLIKELY(r->delivery.held)) {
        end_held(r);
        return;
    }
    if (UNLIKELY(is_behind(r))) {
        observe(r, r->worker->n_iov, false);
        r->worker->n_iov = 0;
        usage_feed_end(r);
        capture_end(r);
        r->cached->ended = true;
        return; /* the pump sends the rest as the client takes it */
    }
    if (UNLIKELY(r->applied != NULL))
        applied_end(r);
    send_collected(r, true);
    r->upstream_complete = true;
    if (!r->cached)
        usage_feed_end(r);
    request_resume(r, STEP_finish);
}
