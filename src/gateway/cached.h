/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request on a route with a response cache has beside the rest: its key, what was found, its flight,
 * and how far its reply has gone out. In the request's arena; absent (NULL) where nothing caches.
 *
 * A hit, a stale hit and a follower's reply that is whole end in step_deliver, like a reply that was held; a
 * followed stream and the stream of a leader whose client lags are sent from the flight's log by the pump.
 */
#ifndef ROLTER_GATEWAY_CACHED_H
#define ROLTER_GATEWAY_CACHED_H

#include "cache/key.h"
#include "gateway/reply_cache.h"
#include "gateway/request.h"
#include "gateway/semantic.h"

enum pump { PUMP_NONE, PUMP_ENTRY, PUMP_FLIGHT };

struct cached {
    struct request *request;
    const struct plan_cache *plan;

    /* what is asked for */
    struct cache_control {
        bool no_store, no_cache, only_if_cached;
        bool has_max_age;
        uint64_t max_age_secs;
    } control;
    const struct cache_scope *scope;
    struct cache_owner owner;
    struct cache_digest key;
    unsigned asked; /* choices or vectors (complete_asked) */
    uint64_t stamp; /* of the owner, before anything was sent */

    struct store_budget budget; /* for all waiting on the store */
    struct store_wait wait;

    /* what became of it */
    enum cache_result result;
    enum cache_kind kind;
    const char *reason;               /* for the row; static */
    struct explain_record *explained; /* a miss in the book (cache/explain.h); or NULL */
    struct cache_entry *entry;        /* that is served */
    struct cache_entry *stale;        /* that may be served when the upstream fails */
    bool revalidate;                  /* renew it when this request is over */
    bool is_background;               /* this request renews it: no client */

    /* the flight */
    struct flight_member flight;
    unsigned rounds; /* flights that released this request */
    struct capture *capture;
    struct semantic *semantic; /* NULL: not looked up by meaning */

    /* the reply's way out */
    enum pump pump;
    size_t pumped; /* bytes of the entry's body */
    bool ended;    /* nothing comes after what the log has */
    bool cut;      /* the client was too slow for the others */
};

/* --- step_lookup.c --- */
/* The entry that may be served because the upstream failed: the next step, or STEP_COUNT when there is none.
 */
enum step cached_serve_stale(struct request *r);
/* Serves <e> (takes the reference over). */
enum step cached_serve(struct request *r, struct cache_entry *e, enum cache_kind kind, const char *reason);
/* The last check before a replay: NULL, or the word for why <e> is not for this request. Streams and whole
 * replies never serve each other (C7); a reply that was cut is for routes that keep those, also after a
 * reload; none is older than the request wants (R44). */
const char *cached_refuses(const struct request *r, const struct cache_entry *e, uint64_t now_ms);
/* Whether the configuration lets this request be cached (C1, R55). */
bool cached_is_on(const struct request *r);
/* NULL when it may be looked up; else the word for why it bypasses. */
const char *cached_bypass(const struct request *r);
/* Scope, owner, exact key. */
void cached_make_key(struct request *r, struct cache_purge *purge);
/* What the request's keys are made of. <headers> is what *ret points to. */
void cached_key_input(const struct request *r, struct key_header headers[KEY_HEADERS_MAX],
                      struct key_input *ret);

/* --- cache_fields.c --- */
void cached_read_control(const struct http_head *h, struct cache_control *ret);
/* x-rolter-cache, its kind, Cache-Status, Age. */
void cached_fields(const struct request *r, struct buf *b);
/* The field lines of an origin, for replies that are not an upstream's own. */
void cached_origin_fields(struct buf *b, struct span content_type, struct span provider, struct span target,
                          struct span model, struct span variant);

/* --- capture.c: a leader's reply on its way into the store and to followers --- */
void capture_head(struct request *r, const struct http_head *h);
void capture_feed(struct request *r, const char *p, size_t n);
/* What was fed may be read by followers. True: all readers lag, the upstream should pause. */
bool capture_publish(struct request *r);
/* The reply is complete: judged, stored, given to those who wait. */
void capture_end(struct request *r);
/* The reply began and will begin anew with another attempt. */
void capture_discard(struct request *r);
/* There is nothing (more) for followers. */
void capture_fail(struct request *r, const char *reason);
bool capture_is_on(const struct request *r);

/* --- pump.c --- */
/* Begins the reply with the head of <head> and the bytes of the entry or the flight. */
void pump_entry(struct request *r);
void pump_follow(struct request *r, struct span fields);
/* The leader's client lags behind the flight: the rest comes from its log. */
void pump_from_here(struct request *r);
/* The client takes more, or there is more. */
void pump_more(struct request *r);

/* --- step_fill.c --- */
/* The client of a leader has left: true when the request goes on for others. */
bool fill_goes_on(struct request *r);

/* --- cached_end.c --- */
/* Everything back, whatever happened; from step_finish. */
void cached_end(struct request *r);
void cached_row(const struct request *r, struct row *row);
/* A request that renews the entry which <r> was served; it takes the memory of <r> over. NULL when there is
 * nothing to do. It starts when <r> is over. */
struct request *fill_in_background(struct request *r);
void fill_background_start(struct request *b);

#endif
