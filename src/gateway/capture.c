/* SPDX-License-Identifier: Apache-2.0
 *
 * A leader's reply on its way into the store and to those who follow. The bytes are the upstream's own,
 * before any policy (C8). Whether they may be kept is judged while they pass; one that may not be kept still
 * goes whole to those who read it already.
 */
#include "base/clock.h"
#include "dialect/complete.h"
#include "gateway/cached.h"

enum { ENTRY_BYTES_MAX = 1 << 30 };

struct capture {
    struct complete *judge;
    struct span content_type;
    struct span fields; /* for followers' replies */
    bool begun;         /* something was fed */
    uint64_t bytes, max;
};

static bool leads(const struct request *r)
{
    return r->cached->flight.flight && r->cached->flight.leads;
}

bool capture_is_on(const struct request *r)
{
    return r->cached->capture != NULL;
}

static bool is_json(struct span content_type)
{
    struct span rest = content_type, type;
    span_split(&rest, ';', &type);
    return span_eq_nocase(span_trim(type), SPAN("application/json"));
}

/* What the head alone says against it. */
static enum complete_verdict judge_head(const struct request *r, const struct http_head *h)
{
    if (h->status != 200)
        return COMPLETE_STATUS;
    if (r->reply_encoded)
        return COMPLETE_ENCODED;
    if (r->stream ? !r->is_event_stream : !is_json(http_field_get(h, HTTP_F_CONTENT_TYPE)))
        return COMPLETE_CONTENT_TYPE;
    if (h->body != HTTP_BODY_LENGTH && h->body != HTTP_BODY_CHUNKED)
        return COMPLETE_CUT; /* ends with the connection: nothing proves its end */
    return COMPLETE_OK;
}

static void not_stored(const char *reason)
{
    reply_cache_count_not_stored(reason);
}

static void leave(struct request *r)
{
    if (r->cached->pump != PUMP_FLIGHT) /* else its own client still reads */
        flight_leave(&r->cached->flight);
}

static struct span upstream_model(const struct request *r)
{
    return r->target->model ? r->target->model_span : r->direct_model;
}

void capture_head(struct request *r, const struct http_head *h)
{
    struct cached *c = r->cached;
    if (!leads(r))
        return;
    enum complete_verdict v = judge_head(r, h);
    if (v != COMPLETE_OK) {
        not_stored(complete_word(v));
        /* What another attempt may do better is worth one to the others as well. */
        bool failed = h->status >= 500 || h->status == 429 || h->status == 408;
        flight_end(&c->flight, FLIGHT_RELEASED, failed ? "upstream_failed" : complete_word(v), NULL);
        flight_leave(&c->flight);
        return;
    }
    struct capture *k = c->capture = ARENA_NEW(r->arena, struct capture);
    const uint64_t max = r->plan->settings->cache.max_entry_bytes;
    k->max = max ? max : ENTRY_BYTES_MAX;
    k->content_type = arena_dup(r->arena, http_field_get(h, HTTP_F_CONTENT_TYPE));
    k->judge = complete_new(&(struct complete_options){
        .dialect = r->dialect_id,
        .is_stream = r->stream,
        .store_truncated = c->plan->store_truncated,
        .asked = c->asked,
        .max_bytes = k->max,
        .scratch = &r->worker->scratch,
    });
    struct buf b;
    buf_init(&b, 65536);
    cached_origin_fields(&b, k->content_type, r->target->provider->name, upstream_model(r), r->model,
                         r->variant ? span_str(r->variant->name) : SPAN_NONE);
    k->fields = arena_dup(r->arena, buf_view(&b));
    buf_fini(&b);
}

static void begin(struct request *r)
{
    struct capture *k = r->cached->capture;
    if (k->begun)
        return;
    k->begun = true;
    flight_begin(&r->cached->flight, k->fields, r->stream);
}

/* Nobody needs the whole any more. */
static void drop(struct request *r, enum complete_verdict v)
{
    if (!flight_captures(&r->cached->flight))
        return;
    not_stored(complete_word(v));
    if (v == COMPLETE_TOO_LARGE)
        metric_add(metric_plain(M_CACHE_TOO_LARGE), 1);
    flight_drop_capture(&r->cached->flight, complete_word(v));
}

void capture_feed(struct request *r, const char *p, size_t n)
{
    struct capture *k = r->cached->capture;
    if (!k || n == 0)
        return;
    begin(r);
    k->bytes += n;
    if (k->bytes > k->max)
        drop(r, COMPLETE_TOO_LARGE);
    else if (flight_captures(&r->cached->flight))
        complete_feed(k->judge, p, n);
    flight_append(&r->cached->flight, p, n);
    if (complete_so_far(k->judge) != COMPLETE_OK)
        drop(r, complete_so_far(k->judge));
}

bool capture_publish(struct request *r)
{
    return flight_publish(&r->cached->flight);
}

static struct cache_entry *make_entry(struct request *r, struct span body, bool truncated)
{
    struct cached *c = r->cached;
    uint64_t now = clock_wall_ms();
    uint64_t window =
        c->plan->revalidate_ms > c->plan->if_error_ms ? c->plan->revalidate_ms : c->plan->if_error_ms;
    struct entry_facts f = {
        .key = c->key,
        .dialect = r->dialect_id,
        .is_stream = r->stream,
        .is_truncated = truncated,
        .created_ms = now,
        .expires_ms = now + c->plan->ttl_ms,
        .stale_until_ms = now + c->plan->ttl_ms + window,
        .usage = r->usage,
        .owner = c->owner,
        .stamp = c->stamp,
        .content_type = c->capture->content_type,
        .route = span_str(r->route->model),
        .provider = r->target->provider->name,
        .target = upstream_model(r),
        .model = r->model,
        .variant = r->variant ? span_str(r->variant->name) : SPAN_NONE,
    };
    return entry_new(&f, body);
}

/* The entry when the reply is whole and may be kept, after it was stored; else NULL and the word. */
static struct cache_entry *judge_and_store(struct request *r, const char **ret_why)
{
    struct cached *c = r->cached;
    struct buf *body = &r->worker->whole;
    buf_clear(body);
    if (!flight_captures(&c->flight) || !flight_gather(&c->flight, body)) {
        *ret_why = complete_word(COMPLETE_TOO_LARGE);
        return NULL;
    }
    bool truncated = false;
    enum complete_verdict v = complete_end(c->capture->judge, true, buf_view(body), &truncated);
    struct cache_entry *e = v == COMPLETE_OK ? make_entry(r, buf_view(body), truncated) : NULL;
    if (!e) {
        *ret_why = v == COMPLETE_OK ? complete_word(COMPLETE_TOO_LARGE) : complete_word(v);
        not_stored(*ret_why);
        return NULL;
    }
    bool in_memory = store_put(r->worker->store, e, e->facts.created_ms) == MEMORY_STORED;
    if (in_memory || r->worker->semantic.redis)
        semantic_stored(r, e);
    if (!in_memory)
        return e;
    metric_add(metric_plain(M_CACHE_STORES), 1);
    explain_stored(r->worker->cache->explain, &c->key, &c->owner, c->stamp, e->facts.stale_until_ms);
    return e;
}

void capture_end(struct request *r)
{
    struct cached *c = r->cached;
    if (!c->capture)
        return;
    begin(r);
    const char *why = NULL;
    struct cache_entry *e = judge_and_store(r, &why);
    flight_end(&c->flight, FLIGHT_WHOLE, why, e);
    entry_unref(e);
    complete_free(c->capture->judge);
    c->capture = NULL;
    if (r->worker->whole.cap > WORKER_WHOLE_KEEP)
        buf_fini(&r->worker->whole);
    leave(r);
}

void capture_discard(struct request *r)
{
    struct capture *k = r->cached->capture;
    if (!k)
        return;
    CHECK(!k->begun);
    complete_free(k->judge);
    r->cached->capture = NULL;
}

void capture_fail(struct request *r, const char *reason)
{
    struct cached *c = r->cached;
    if (c->capture) {
        if (c->capture->begun && flight_captures(&c->flight))
            not_stored(r->client_gone ? reason : complete_word(COMPLETE_CUT));
        complete_free(c->capture->judge);
        c->capture = NULL;
    }
    if (!leads(r))
        return;
    flight_end(&c->flight, FLIGHT_BROKEN, reason, NULL);
    flight_leave(&c->flight);
}
