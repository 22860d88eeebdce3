/* SPDX-License-Identifier: Apache-2.0
 *
 * lookup: whether this request may be answered from the store, and if so, by what. It comes after everything
 * that may refuse a request (C13) and before anything is sent.
 */
#include "base/clock.h"
#include "dialect/complete.h"
#include "gateway/cached.h"

bool cached_is_on(const struct request *r)
{
    if (LIKELY(!r->plan->settings->cache.enabled))
        return false;
    enum tristate forced = r->key ? r->key->cache : TRI_UNSET;
    return forced == TRI_TRUE || r->route->cache.opted;
}

static unsigned key_headers(const struct request *r, struct key_header *out)
{
    const struct http_head *h = r->head;
    unsigned n = 0;
    for (unsigned i = 0; i < h->n_fields && n < KEY_HEADERS_MAX; i++) {
        const struct http_field *f = &h->fields[i];
        if (upstream_field_goes_up(r, f) && key_header_counts(f->name, upstream_field_is_forwarded(r, f)))
            out[n++] = (struct key_header){f->name, f->value};
    }
    return n;
}

void cached_key_input(const struct request *r, struct key_header headers[KEY_HEADERS_MAX],
                      struct key_input *ret)
{
    const struct cached *c = r->cached;
    *ret = (struct key_input){
        .dialect = r->dialect_id,
        .path = r->head->path,
        .query = r->head->query,
        .route = span_str(r->route->model),
        .scope = c->scope,
        .targets = &c->plan->targets,
        .headers = headers,
        .n_headers = key_headers(r, headers),
        .doc = &r->doc,
        .overridden = c->plan->overridden,
        .n_overridden = c->plan->n_overridden,
        .defaulted = c->plan->defaulted,
        .n_defaulted = c->plan->n_defaulted,
    };
}

const char *cached_bypass(const struct request *r)
{
    if (r->key && r->key->cache == TRI_FALSE)
        return "key";
    return r->cached->control.no_store ? "no_store" : key_refuses(r->dialect_id, &r->doc);
}

void cached_make_key(struct request *r, struct cache_purge *purge)
{
    struct cached *c = r->cached;
    static const struct cache_digest none;
    static _Thread_local struct cache_scope anonymous;
    if (memcmp(&anonymous.digest, &none, sizeof none) == 0)
        key_scope_of_key(NULL, &anonymous);
    c->scope = c->plan->per_route ? &c->plan->scope : r->key ? &r->key->scope : &anonymous;
    c->owner = (struct cache_owner){
        .route = c->plan->purge_id,
        .scope = digest_short(&c->scope->digest),
        .key = r->key ? r->key->purge_id : 0,
    };
    c->stamp = purge_stamp(purge, &c->owner);
    struct key_header headers[KEY_HEADERS_MAX];
    struct key_input in;
    cached_key_input(r, headers, &in);
    key_exact(&in, r->body_arena, &c->key);
}

static bool fits(const struct request *r, const struct cache_entry *e)
{
    struct span rest = e->facts.content_type, type;
    span_split(&rest, ';', &type);
    bool is_stream = span_eq_nocase(span_trim(type), SPAN("text/event-stream"));
    return e->facts.is_stream == r->stream && is_stream == r->stream && e->facts.dialect == r->dialect_id;
}

const char *cached_refuses(const struct request *r, const struct cache_entry *e, uint64_t now_ms)
{
    const struct cached *c = r->cached;
    if (!fits(r, e))
        return "content_type";
    if (e->facts.is_truncated && !c->plan->store_truncated)
        return "truncated";
    if (c->control.has_max_age && entry_age_secs(e, now_ms) > c->control.max_age_secs)
        return "max_age";
    return NULL;
}

enum step cached_serve(struct request *r, struct cache_entry *e, enum cache_kind kind, const char *reason)
{
    static const enum delivery_source sources[] = {DELIVERY_EXACT, DELIVERY_EXACT, DELIVERY_SEMANTIC,
                                                   DELIVERY_COALESCED};
    struct cached *c = r->cached;
    struct delivery *d = &r->delivery;
    c->entry = e;
    c->result = CACHE_HIT;
    c->kind = kind;
    c->reason = reason;
    d->status = 200;
    d->input.source = entry_is_fresh(e, clock_wall_ms()) ? sources[kind] : DELIVERY_STALE;
    d->input.content_type = e->facts.content_type;
    d->input.body = e->body;
    d->input.encoded = false; /* an attempt that was given up may have been */
    struct buf *out = &r->worker->out;
    buf_clear(out);
    reply_head_begin(r, out, 200);
    const struct entry_facts *f = &e->facts;
    cached_origin_fields(out, f->content_type, f->provider, f->target, f->model, f->variant);
    cached_fields(r, out);
    d->head = arena_dup(r->arena, buf_view(out));
    return STEP_deliver;
}

enum step cached_serve_stale(struct request *r)
{
    struct cached *c = r->cached;
    if (!c || !c->stale || r->reply_begun || !r->conn)
        return STEP_COUNT;
    struct cache_entry *e = c->stale;
    c->stale = NULL;
    request_end_attempt(r);
    capture_fail(r, "upstream_failed");
    r->target = NULL; /* what the row names is the entry's origin */
    r->variant = NULL;
    r->error = NULL;
    return cached_serve(r, e, CACHE_EXACT, "stale_if_error");
}

static enum step miss(struct request *r, const char *reason)
{
    struct cached *c = r->cached;
    c->result = CACHE_MISS;
    c->reason = reason;
    struct key_header headers[KEY_HEADERS_MAX];
    struct key_input in;
    cached_key_input(r, headers, &in);
    const char *told = strcmp(reason, "not_found") == 0 ? NULL : reason; /* it may find a better one */
    c->explained = explain_note(r->worker->cache->explain, r->id, "miss", told, &in, &c->key, r->body_arena,
                                clock_wall_ms());
    return STEP_fill;
}

/* The exact layer has spoken; <e> is a reference or NULL. */
static enum step found(struct request *r, struct cache_entry *e)
{
    struct cached *c = r->cached;
    uint64_t now = clock_wall_ms();
    const char *why_not = e ? cached_refuses(r, e, now) : "not_found";
    if (!why_not && entry_is_fresh(e, now)) {
        metric_add(metric_plain(M_CACHE_HITS), 1);
        return cached_serve(r, e, CACHE_EXACT, "exact");
    }
    if (!why_not) {
        uint64_t over = now - e->facts.expires_ms;
        if (over < c->plan->revalidate_ms) {
            c->revalidate = true;
            metric_add(metric_plain(M_CACHE_HITS), 1);
            return cached_serve(r, e, CACHE_EXACT, "stale_while_revalidate");
        }
        why_not = "expired";
        if (over < c->plan->if_error_ms) {
            c->stale = e;
            e = NULL;
        }
    }
    entry_unref(e);
    metric_add(metric_plain(M_CACHE_MISSES), 1);
    miss(r, why_not);
    return semantic_lookup(r);
}

static enum step bypass(struct request *r, const char *reason)
{
    struct cached *c = r->cached;
    c->result = CACHE_BYPASS;
    c->reason = reason;
    c->explained = explain_note(r->worker->cache->explain, r->id, "bypass", reason, NULL, NULL, r->body_arena,
                                clock_wall_ms());
    if (c->control.only_if_cached)
        return request_refuse(r, 504, "not_cached", NULL, "This request bypasses the cache (%s).", reason);
    return STEP_context;
}

static void on_store(struct store_wait *w, struct cache_entry *e)
{
    struct request *r = CONTAINER_OF(w, struct cached, wait)->request;
    request_resume(r, found(r, e));
}

enum step step_lookup(struct request *r)
{
    if (LIKELY(!cached_is_on(r)) || !r->worker->store)
        return STEP_context;
    struct cached *c = r->cached = ARENA_NEW(r->arena, struct cached);
    c->request = r;
    c->plan = &r->route->cache;
    cached_read_control(r->head, &c->control);
    const char *refused = cached_bypass(r);
    if (refused)
        return bypass(r, refused);
    cached_make_key(r, r->worker->cache->purge);
    c->asked = complete_asked(r->dialect_id, &r->doc);
    if (c->control.no_cache) {
        miss(r, "no_cache");
        semantic_refresh(r);
        return STEP_fill;
    }
    store_budget_begin(r->worker->cache->store, &c->budget);
    struct cache_entry *e = NULL;
    switch (store_get(r->worker->store, &c->key, clock_wall_ms(), &c->budget, &c->wait, on_store, &e)) {
    case STORE_HIT:
        return found(r, e);
    case STORE_MISS:
        return found(r, NULL);
    case STORE_WAIT:
        return STEP_PARKED;
    }
    UNREACHABLE();
}
