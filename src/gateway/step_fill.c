/* SPDX-License-Identifier: Apache-2.0
 *
 * fill: a miss either leads the upstream call that fills the store, or follows the identical one that is
 * under way (C9). A follower gets the stream as it comes, or the reply when it is whole; when nothing comes
 * of it, the released followers form one new flight, and after that each makes its own call (R61).
 */
#include "base/clock.h"
#include "gateway/cached.h"

enum { ROUNDS_MAX = 2 };

static bool is_worth_another_flight(const struct cached *c, const char *reason)
{
    /* A reply that is none for others would be none the next time, too. */
    return c->rounds < ROUNDS_MAX &&
           (!reason || strcmp(reason, "upstream_failed") == 0 || strcmp(reason, "status") == 0 ||
            strcmp(reason, "client_gone") == 0 || strcmp(reason, "found") == 0);
}

static enum step released(struct request *r, const char *reason)
{
    struct cached *c = r->cached;
    flight_leave(&c->flight);
    c->rounds++;
    if (c->stale && reason && strcmp(reason, "upstream_failed") == 0)
        return cached_serve_stale(r);
    if (is_worth_another_flight(c, reason))
        return STEP_fill;
    c->rounds = ROUNDS_MAX;
    return STEP_fill;
}

static void coalesced(struct request *r)
{
    struct cached *c = r->cached;
    c->result = CACHE_HIT;
    c->kind = CACHE_COALESCED;
    c->reason = "coalesced";
    metric_add(metric_plain(M_CACHE_COALESCED), 1);
}

/* What a follower does now. STEP_PARKED: it waits for more. */
static enum step look(struct request *r)
{
    struct cached *c = r->cached;
    struct flight_view v;
    flight_look(&c->flight, &v);
    enum step next = STEP_PARKED;
    if (v.state == FLIGHT_RELEASED || (v.state == FLIGHT_BROKEN && !r->reply_begun)) {
        next = released(r, v.reason);
    } else if (v.state != FLIGHT_WAITING && v.is_stream) {
        if (!r->reply_begun) {
            coalesced(r);
            pump_follow(r, v.head);
        }
        c->ended = v.state != FLIGHT_OPEN;
        if (v.entry && !c->entry)
            c->entry = entry_ref(v.entry); /* for what the row says was saved */
        if (v.state == FLIGHT_BROKEN)
            r->error = v.reason;
        pump_more(r);
        entry_unref(v.entry);
        return STEP_GONE; /* the pump has seen to the rest */
    } else if (v.state == FLIGHT_WHOLE) {
        flight_leave(&c->flight);
        coalesced(r);
        next = cached_serve(r, entry_ref(v.entry), CACHE_COALESCED, "coalesced");
    }
    entry_unref(v.entry);
    return next;
}

static void follower_news(struct flight_member *m)
{
    struct cached *c = CONTAINER_OF(m, struct cached, flight);
    struct request *r = c->request;
    enum step next = look(r);
    if (next != STEP_GONE)
        request_resume(r, next);
}

static void leader_news(struct request *r)
{
    struct cached *c = r->cached;
    if (!r->conn && !c->is_background && !flight_goes_on(&c->flight)) {
        request_resume(r, STEP_finish); /* nobody is left */
        return;
    }
    if (r->exchange && !flight_is_paused(&c->flight))
        exchange_resume(r->exchange);
    if (c->pump == PUMP_FLIGHT && flight_is_cut(&c->flight))
        pump_more(r);
}

static void on_news(struct flight_member *m)
{
    if (m->leads)
        leader_news(CONTAINER_OF(m, struct cached, flight)->request);
    else
        follower_news(m);
}

/* The key of a flight: a purge since its upstream call started makes another one. */
static struct cache_digest flight_key(const struct cached *c)
{
    struct cache_digest k = c->key;
    for (unsigned i = 0; i < sizeof c->stamp; i++)
        k.b[8 + i] ^= (uint8_t)(c->stamp >> (8 * i));
    return k;
}

/* The flight that this request found no part of may have ended between the lookup and now. */
static struct cache_entry *stored_meanwhile(struct request *r)
{
    struct cached *c = r->cached;
    uint64_t now = clock_wall_ms();
    struct cache_entry *e = reply_cache_peek(r->worker->store, &c->key, now);
    if (e && entry_is_fresh(e, now) && !cached_refuses(r, e, now))
        return e;
    entry_unref(e);
    return NULL;
}

static enum step lead(struct request *r, bool shared)
{
    struct cached *c = r->cached;
    struct cache_entry *e = shared ? stored_meanwhile(r) : NULL;
    if (e) {
        flight_end(&c->flight, FLIGHT_RELEASED, "found", NULL);
        flight_leave(&c->flight);
        if (c->is_background) {
            entry_unref(e);
            r->no_row = true;
            return STEP_finish;
        }
        metric_add(metric_plain(M_CACHE_HITS), 1);
        return cached_serve(r, e, CACHE_EXACT, "exact");
    }
    return STEP_context;
}

enum step step_fill(struct request *r)
{
    struct cached *c = r->cached;
    struct flight_table *t = r->worker->cache->flights;
    struct net_loop *l = &r->worker->loop;
    bool shared = c->plan->coalesce && !c->control.no_cache && c->rounds < ROUNDS_MAX;
    c->flight.on_news = on_news;
    if (shared) {
        struct cache_digest k = flight_key(c);
        flight_join(t, &k, l, !c->control.only_if_cached, &c->flight);
    } else if (!c->control.only_if_cached) {
        flight_alone(t, l, &c->flight);
    }
    if (!c->flight.flight)
        return request_refuse(r, 504, "not_cached", NULL, "The reply is not in the cache.");
    if (c->flight.leads)
        return lead(r, shared);
    if (c->is_background) { /* somebody renews it already */
        flight_leave(&c->flight);
        r->no_row = true;
        return STEP_finish;
    }
    return look(r);
}

bool fill_goes_on(struct request *r)
{
    struct cached *c = r->cached;
    if (!c || !c->flight.flight || !c->flight.leads || !flight_goes_on(&c->flight))
        return false;
    c->pump = PUMP_NONE;
    return true;
}
