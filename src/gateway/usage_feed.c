/* SPDX-License-Identifier: Apache-2.0
 *
 * Usage of a reply while it passes. A stream's events are looked at only if their bytes can hold usage; a
 * JSON reply that came in one piece is read from that piece, one that came in several is collected, up to a
 * limit past which its usage is unknown.
 */
#include "gateway/request.h"

enum { EVENT_MAX = 1 << 20 };

static bool is_event_stream(const struct http_head *h)
{
    struct span t = http_field_get(h, HTTP_F_CONTENT_TYPE), part;
    return span_split(&t, ';', &part) && span_eq_nocase(span_trim(part), SPAN("text/event-stream"));
}

void usage_feed_begin(struct request *r, const struct http_head *h)
{
    if (h->status >= 300)
        return;
    r->is_event_stream = is_event_stream(h);
    struct span coding = http_field_get(h, HTTP_F_CONTENT_ENCODING);
    if (coding.n && !span_eq_nocase(coding, SPAN("identity"))) {
        r->reply_encoded = true; /* unreadable for us: unknown */
        return;
    }
    if (r->is_event_stream) {
        sse_init(&r->sse, EVENT_MAX);
        r->sse_open = true;
    }
}

static void read_reply(struct request *r, struct span text)
{
    dialect_reply_usage(r->dialect_id, text, &r->worker->scratch, &r->usage);
}

HOT static void on_event(void *arg, const struct sse_event *e)
{
    struct request *r = arg;
    struct arena *a = &r->worker->scratch;
    struct json_doc d;
    struct json_fault fault;
    if (!dialect_may_have_usage(r->dialect_id, e->data))
        return;
    if (json_parse(a, e->data, NULL, &d, &fault))
        r->dialect->event_usage(&d, &r->usage);
    arena_reset(a);
}

HOT void usage_feed(struct request *r, const char *p, size_t n, bool whole)
{
    if (r->sse_open) {
        sse_feed(&r->sse, p, n, on_event, r);
    } else if (r->reply_encoded) {
        return;
    } else if (whole) {
        read_reply(r, span_of(p, n));
        r->reply_body_whole = true;
    } else if (!r->reply_body.full) {
        buf_add(&r->reply_body, p, n);
    }
}

void usage_feed_end(struct request *r)
{
    if (r->sse_open)
        sse_end(&r->sse, on_event, r);
    else if (!r->reply_body_whole && !r->reply_encoded && !r->reply_body.full && r->reply_body.n)
        read_reply(r, buf_view(&r->reply_body));
}

void usage_feed_discard(struct request *r)
{
    if (r->sse_open)
        sse_fini(&r->sse);
    r->sse_open = false;
    r->reply_body_whole = r->reply_encoded = false;
    buf_clear(&r->reply_body);
    usage_init(&r->usage);
}
