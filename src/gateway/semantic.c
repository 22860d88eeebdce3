/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/semantic.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cache/embedder.h"
#include "cache/lexical.h"
#include "cache/semantic_index.h"
#include "cache/semantic_partition.h"
#include "cache/semantic_text.h"
#include "gateway/cached.h"
#include "gateway/semantic_report.h"

/* Of the best matches so many are tried, because replies may be gone and the guard may object. */
enum { MATCHES = 8 };

/* A lookup; on the heap, since one whose reply was stored before its vector came outlives the request. */
struct semantic {
    struct list node;        /* in worker->lookups */
    struct request *request; /* NULL: it is over */
    struct worker *worker;
    struct plan *plan; /* a reference */
    const struct plan_semantic *route;
    struct cache_digest partition;
    struct arena arena; /* text, signature, notes of matches */
    struct span text, signature;
    const char *reason; /* why no hit */

    struct embed_wait *wait;
    struct embedding *vector;
    struct semantic_sync sync;
    uint64_t sync_began_us;
    bool syncing;
    bool inside;  /* semantic_lookup is under way: an answer decides nothing yet */
    bool decided; /* while it was */
    bool parked;

    struct vectors_match match[MATCHES];
    unsigned n_matches, at;
    struct store_wait body; /* of match[at] */
    bool fetching;
    struct cache_entry *found; /* that may be served */
    double similarity;         /* its */

    struct cache_entry *shadow; /* that would have been served */
    struct cache_entry *stored; /* waits for the vector */
};

static bool is_racing(const struct semantic *s)
{
    return s->route->settings->lookup == SEMANTIC_RACE;
}

static void free_lookup(struct semantic *s)
{
    list_remove(&s->node);
    embedding_unref(s->vector);
    entry_unref(s->found);
    entry_unref(s->shadow);
    entry_unref(s->stored);
    arena_reset(&s->arena);
    plan_unref(s->plan);
    free(s);
}

/* --- what is found --- */

static void conclude(struct semantic *s);

/* NULL when <e> may be served to this request; else why not. */
static const char *may_not_serve(const struct request *r, const struct cache_entry *e)
{
    const struct cached *c = r->cached;
    uint64_t now = clock_wall_ms();
    if (!e || !entry_is_fresh(e, now))
        return "gone";
    if (e->facts.owner.scope != c->owner.scope || e->facts.owner.route != c->owner.route)
        return "scope"; /* cannot be: both are in the partition */
    return cached_refuses(r, e, now);
}

/* What the store has of match[at]: the reply, or the next match's turn. */
static void judge_body(struct semantic *s, struct cache_entry *e)
{
    const struct vectors_match *m = &s->match[s->at];
    const char *why = may_not_serve(s->request, e);
    if (!why) {
        s->found = e;
        s->similarity = m->similarity;
        s->reason = NULL;
        return;
    }
    /* Where Redis is away its replies are not gone. */
    struct redis_client *redis = s->worker->semantic.redis;
    if (!e && (!redis || redis_client_is_up(redis)))
        vectors_remove(semantic_index_vectors(s->worker->semantic.index), s->partition.b, s->vector->dims,
                       m->entry.id);
    entry_unref(e);
    if (!s->reason)
        s->reason = why;
    s->at++;
}

static void on_body(struct store_wait *w, struct cache_entry *e);

/* From match[at] on; comes to a conclusion, or waits for a body. */
static void try_matches(struct semantic *s)
{
    struct cached *c = s->request->cached;
    while (s->at < s->n_matches && !s->found) {
        const struct vectors_entry *m = &s->match[s->at].entry;
        const char *differ = s->route->settings->guard == SEMANTIC_GUARD_LEXICAL
                                 ? lexical_differ(s->signature, m->note)
                                 : NULL;
        if (differ) {
            metric_add(metric_series(M_SEMANTIC_GUARDED, differ, NULL, NULL), 1);
            if (!s->reason)
                s->reason = differ;
            s->at++;
            continue;
        }
        struct cache_digest key;
        struct cache_entry *e = NULL;
        memcpy(key.b, m->id, sizeof(key.b));
        if (store_get(s->worker->store, &key, clock_wall_ms(), &c->budget, &s->body, on_body, &e) ==
            STORE_WAIT) {
            s->fetching = true;
            return;
        }
        judge_body(s, e);
    }
    conclude(s);
}

static void on_body(struct store_wait *w, struct cache_entry *e)
{
    struct semantic *s = CONTAINER_OF(w, struct semantic, body);
    s->fetching = false;
    judge_body(s, e);
    try_matches(s);
}

/* The vector is there, and what other gateways have is known as far as it will be. */
static void search(struct semantic *s)
{
    const struct semantic_settings *o = s->route->settings;
    if (s->vector) {
        s->n_matches = vectors_find(semantic_index_vectors(s->worker->semantic.index), s->partition.b,
                                    o->max_candidates, s->vector->x, s->vector->dims, o->threshold,
                                    clock_wall_ms(), &s->arena, s->match, MATCHES);
        s->reason = s->n_matches ? NULL : "not_similar";
    }
    try_matches(s);
}

static bool is_shadowed(struct semantic *s)
{
    double ratio = s->route->settings->shadow_ratio;
    return ratio > 0 && (double)rng_below(&s->worker->loop.rng, 1u << 24) < ratio * (1 << 24);
}

/* Serves what was found; the next step. */
static enum step serve(struct semantic *s)
{
    struct cache_entry *e = s->found;
    s->found = NULL;
    metric_add(metric_plain(M_SEMANTIC_HITS), 1);
    return cached_serve(s->request, e, CACHE_SEMANTIC, "semantic");
}

/* Whether it is not too late for a match to be served instead of what the upstream may say. */
static bool may_still_serve(const struct request *r)
{
    return !r->reply_begun && !r->delivery.call && !r->client_gone && r->conn &&
           r->cached->result != CACHE_HIT;
}

/* A match has won the race: the upstream's call is given up. */
static void serve_instead(struct semantic *s)
{
    struct request *r = s->request;
    if (!may_still_serve(r)) {
        entry_unref(s->found);
        s->found = NULL;
        s->reason = "late";
        return;
    }
    request_timer_stop(r);
    tokenizer_leave(&r->tokenize);
    request_withdraw_pick(r);
    request_end_attempt(r);
    relay_discard(r); /* a reply that was held for the policy */
    r->usage_expected = false;
    capture_fail(r, "found");
    flight_leave(&r->cached->flight);
    r->target = NULL;
    r->variant = NULL;
    r->error = NULL;
    request_resume(r, serve(s));
}

static void conclude(struct semantic *s)
{
    if (s->vector && !s->found)
        metric_add(metric_plain(M_SEMANTIC_MISSES), 1);
    if (s->found && is_shadowed(s)) {
        s->shadow = s->found;
        s->found = NULL;
        s->reason = "shadow";
    }
    if (s->inside) {
        s->decided = true;
    } else if (s->parked) {
        s->parked = false;
        request_resume(s->request, s->found ? serve(s) : STEP_fill);
    } else if (s->found) {
        serve_instead(s);
    }
}

/* --- storing --- */

static void store(struct semantic *s, const struct cache_entry *e)
{
    struct vectors_entry v = {
        .created_ms = e->facts.created_ms, .expires_ms = e->facts.expires_ms, .note = s->signature};
    memcpy(v.id, e->facts.key.b, sizeof(v.id));
    if (semantic_index_put(&s->worker->semantic, &s->partition, s->route->settings->max_candidates, s->vector,
                           &v, clock_wall_ms()))
        metric_add(metric_plain(M_SEMANTIC_STORES), 1);
}

static void judge(struct semantic *s, const struct cache_entry *fresh)
{
    enum semantic_verdict v =
        shadow_judge(s->shadow->body, s->shadow->facts.is_stream, fresh->body, fresh->facts.is_stream);
    metric_add(s->route->m_shadow[semantic_band(s->similarity)][v], 1);
    entry_unref(s->shadow);
    s->shadow = NULL;
}

void semantic_stored(struct request *r, struct cache_entry *e)
{
    struct semantic *s = r->cached->semantic;
    if (!s)
        return;
    if (s->shadow)
        judge(s, e);
    if (s->vector)
        store(s, e);
    else if (s->wait)
        s->stored = entry_ref(e);
}

/* --- waiting --- */

static void go_on(struct semantic *s)
{
    if (s->wait || s->syncing || s->inside)
        return;
    if (!s->stored) {
        search(s);
        return;
    }
    /* The reply was faster than its vector. */
    if (s->vector)
        store(s, s->stored);
    entry_unref(s->stored);
    s->stored = NULL;
    if (!s->request)
        free_lookup(s);
}

static void on_vector(void *arg, struct embedding *vector, const char *why)
{
    struct semantic *s = arg;
    s->wait = NULL;
    s->vector = vector;
    if (!vector)
        s->reason = why;
    go_on(s);
}

static void on_synced(struct semantic_sync *y)
{
    struct semantic *s = CONTAINER_OF(y, struct semantic, sync);
    struct store_budget *b = &s->request->cached->budget; /* one for all waiting on Redis */
    uint64_t took = net_now_us(&s->worker->loop) - s->sync_began_us;
    b->left_us = took < b->left_us ? b->left_us - (unsigned)took : 0;
    s->syncing = false;
    go_on(s);
}

static void ask(struct semantic *s)
{
    struct request *r = s->request;
    struct embed_source source;
    semantic_source_of(r, s->route, &source);
    s->wait = embedder_ask(r->worker->cache->embedder, &r->worker->loop, r->worker->pool, &source, s->text,
                           on_vector, s);
}

static struct semantic *new_lookup(struct request *r)
{
    struct semantic *s = MEM_NEW(struct semantic);
    s->request = r;
    s->worker = r->worker;
    s->plan = plan_ref(r->plan);
    s->route = r->cached->plan->semantic;
    s->sync.done = on_synced;
    arena_init(&s->arena, NULL);
    list_push(&r->worker->lookups, &s->node);
    r->cached->semantic = s;
    return s;
}

/* NULL when the request is none for this layer. */
static struct semantic *prepare(struct request *r)
{
    if (!r->cached->plan->semantic)
        return NULL;
    struct semantic *s = new_lookup(r);
    s->reason = semantic_text(r->dialect_id, &r->doc, &s->arena, &s->text);
    if (s->reason)
        return NULL;
    struct semantic_source from = {s->route->provider->name, s->route->api_base, s->route->model};
    struct key_header headers[KEY_HEADERS_MAX];
    struct key_input in;
    cached_key_input(r, headers, &in);
    semantic_partition(&in, &from, &s->arena, &s->partition);
    s->signature = lexical_signature(s->text, &s->arena);
    return s;
}

void semantic_refresh(struct request *r)
{
    struct semantic *s = prepare(r);
    if (s) {
        struct embed_source from = {
            .provider = s->route->provider->name, .api_base = s->route->api_base, .model = s->route->model};
        s->vector = embedder_known(r->worker->cache->embedder, &from, s->text);
    } else if (r->cached->semantic) {
        r->cached->semantic->reason = NULL; /* nobody asked it */
    }
}

enum step semantic_lookup(struct request *r)
{
    struct cached *c = r->cached;
    struct semantic *s = prepare(r);
    if (!s) {
        if (semantic_reason(r))
            metric_add(metric_series(M_SEMANTIC_BYPASSED, semantic_reason(r), NULL, NULL), 1);
        return STEP_fill;
    }
    s->inside = true;
    s->sync_began_us = net_now_us(&r->worker->loop);
    s->syncing = semantic_sync_start(&s->sync, &r->worker->semantic, &s->partition,
                                     s->route->settings->max_candidates, c->budget.left_us / 1000);
    ask(s);
    if (!s->wait && !s->syncing)
        search(s);
    s->inside = false;
    if (s->decided)
        return s->found ? serve(s) : STEP_fill;
    if (is_racing(s))
        return STEP_fill;
    s->parked = true;
    return STEP_PARKED;
}

/* --- asked from outside --- */

bool semantic_similarity(const struct request *r, double *ret)
{
    const struct semantic *s = r->cached ? r->cached->semantic : NULL;
    if (!s || r->cached->kind != CACHE_SEMANTIC)
        return false;
    *ret = s->similarity;
    return true;
}

const struct cache_digest *semantic_partition_of(const struct request *r)
{
    const struct semantic *s = r->cached ? r->cached->semantic : NULL;
    return s && s->text.n ? &s->partition : NULL;
}

const char *semantic_reason(const struct request *r)
{
    const struct semantic *s = r->cached ? r->cached->semantic : NULL;
    return s ? s->reason : NULL;
}

void semantic_end(struct request *r)
{
    struct semantic *s = r->cached->semantic;
    if (!s)
        return;
    r->cached->semantic = NULL;
    s->request = NULL;
    s->parked = false;
    store_cancel(&s->body);
    if (s->syncing)
        semantic_sync_cancel(&s->sync);
    s->syncing = false;
    if (s->wait && s->stored)
        return; /* the vector may still come */
    if (s->wait)
        embedder_cancel(s->wait);
    free_lookup(s);
}

void semantic_close_worker(struct worker *w)
{
    while (!list_empty(&w->lookups)) {
        struct semantic *s = LIST_ITEM(w->lookups.next, struct semantic, node);
        CHECK(!s->request && s->wait);
        embedder_cancel(s->wait);
        free_lookup(s);
    }
    if (w->cache)
        embedder_close_loop(w->cache->embedder, &w->loop);
}
