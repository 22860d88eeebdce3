/* SPDX-License-Identifier: Apache-2.0
 *
 * Two rings of counted records: what was looked up in vain, and what of that was stored; and notes of hits.
 */
#include "cache/explain.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fmt.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cache/explain_parts.h"
#include "json/write.h"

enum { ID_MAX = 128 };

struct explain_record {
    unsigned refs; /* under the lock */
    char id[ID_MAX];
    size_t id_n;
    const char *result, *reason;
    uint64_t at_ms, serial;
    struct cache_digest key;
    uint64_t route;
    bool was_stored; /* the rest is set with it */
    struct cache_owner owner;
    uint64_t stamp, stale_until_ms;
    const char *layer;
    struct explain_entry entry;
    bool has_entry, has_partition;
    struct cache_digest partition;
    const char *semantic;
    double similarity;
    bool has_parts;
    struct explain_parts parts; /* as far as it is used */
};

struct hit {
    char id[ID_MAX];
    uint8_t id_n;
    const char *layer, *reason;
    struct explain_entry entry;
    uint64_t at_ms, serial;
};

struct hit_ring {
    pthread_mutex_t lock;
    unsigned next;
    struct hit *hit; /* EXPLAIN_HITS of them; NULL: none yet */
    char apart[64];  /* from the next one, which another thread writes */
};

struct explain {
    _Atomic uint64_t serial; /* of notes and hits: several may come in a millisecond */
    struct hit_ring hits[EXPLAIN_RINGS];
    pthread_mutex_t lock;
    struct explain_record *recent[EXPLAIN_RECENT], *stored[EXPLAIN_STORED];
    unsigned next_recent, next_stored;
};

struct explain *explain_new(void)
{
    struct explain *e = MEM_NEW(struct explain);
    CHECK(pthread_mutex_init(&e->lock, NULL) == 0);
    for (unsigned i = 0; i < EXPLAIN_RINGS; i++)
        CHECK(pthread_mutex_init(&e->hits[i].lock, NULL) == 0);
    return e;
}

static void unref(struct explain_record *r)
{
    if (r && --r->refs == 0)
        free(r);
}

void explain_free(struct explain *e)
{
    if (!e)
        return;
    for (unsigned i = 0; i < EXPLAIN_RECENT; i++)
        unref(e->recent[i]);
    for (unsigned i = 0; i < EXPLAIN_STORED; i++)
        unref(e->stored[i]);
    for (unsigned i = 0; i < EXPLAIN_RINGS; i++) {
        pthread_mutex_destroy(&e->hits[i].lock);
        free(e->hits[i].hit);
    }
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static void push(struct explain_record **ring, unsigned size, unsigned *next, struct explain_record *r)
{
    unref(ring[*next % size]);
    ring[*next % size] = r;
    r->refs++;
    *next = (*next + 1) % size;
}

static struct explain_record *record_new(struct span id, const struct key_input *in, struct arena *a)
{
    /* Of a request that was not looked up there are no parts; its record is a small one. */
    size_t head = offsetof(struct explain_record, parts);
    struct explain_parts *parts = NULL;
    size_t n = 0;
    if (in) {
        parts = arena_alloc(a, sizeof *parts);
        explain_parts_of(in, a, parts);
        n = explain_parts_bytes(parts);
    }
    struct explain_record *r = mem_alloc(head + n);
    memset(r, 0, head);
    r->id_n = id.n < ID_MAX ? id.n : ID_MAX;
    if (r->id_n) /* a preview has none */
        memcpy(r->id, id.p, r->id_n);
    if (in) {
        r->has_parts = true;
        r->route = hash_bytes(in->route.p, in->route.n);
        memcpy(&r->parts, parts, n);
    }
    return r;
}

struct explain_record *explain_note(struct explain *e, struct span request_id, const char *result,
                                    const char *reason, const struct key_input *in,
                                    const struct cache_digest *key, struct arena *a, uint64_t now_ms)
{
    struct explain_record *r = record_new(request_id, in, a);
    r->result = result;
    r->reason = reason;
    r->at_ms = now_ms;
    r->serial = atomic_fetch_add_explicit(&e->serial, 1, memory_order_relaxed);
    if (key)
        r->key = *key;
    r->refs = 1; /* the caller's */
    pthread_mutex_lock(&e->lock);
    push(e->recent, EXPLAIN_RECENT, &e->next_recent, r);
    pthread_mutex_unlock(&e->lock);
    return r;
}

void explain_settle(struct explain *e, struct explain_record *r, const struct explain_outcome *o)
{
    pthread_mutex_lock(&e->lock);
    if (o) {
        if (o->layer) {
            r->result = "hit";
            r->reason = o->reason;
            r->layer = o->layer;
        }
        r->has_entry = o->entry != NULL;
        if (o->entry)
            r->entry = *o->entry;
        r->has_partition = o->partition != NULL;
        if (o->partition)
            r->partition = *o->partition;
        r->semantic = o->semantic;
        r->similarity = o->similarity;
    }
    unref(r);
    pthread_mutex_unlock(&e->lock);
}

/* Each thread writes into the ring that it came to first. */
static struct hit_ring *ring_of(struct explain *e)
{
    static atomic_uint next;
    static _Thread_local unsigned mine;
    if (!mine)
        mine = 1 + atomic_fetch_add(&next, 1) % EXPLAIN_RINGS;
    return &e->hits[mine - 1];
}

void explain_hit(struct explain *e, struct span request_id, const char *layer, const char *reason,
                 const struct explain_entry *entry, uint64_t now_ms)
{
    struct hit_ring *ring = ring_of(e);
    pthread_mutex_lock(&ring->lock);
    if (UNLIKELY(!ring->hit))
        ring->hit = mem_array(EXPLAIN_HITS, sizeof *ring->hit);
    struct hit *h = &ring->hit[ring->next++ % EXPLAIN_HITS];
    h->id_n = (uint8_t)(request_id.n < ID_MAX ? request_id.n : ID_MAX);
    memcpy(h->id, request_id.p, h->id_n);
    h->layer = layer;
    h->reason = reason;
    h->entry = *entry;
    h->at_ms = now_ms;
    h->serial = atomic_fetch_add_explicit(&e->serial, 1, memory_order_relaxed);
    pthread_mutex_unlock(&ring->lock);
}

void explain_stored(struct explain *e, const struct cache_digest *key, const struct cache_owner *owner,
                    uint64_t stamp, uint64_t stale_until_ms)
{
    pthread_mutex_lock(&e->lock);
    for (unsigned back = 1; back <= EXPLAIN_RECENT; back++) {
        struct explain_record *r = e->recent[(e->next_recent + EXPLAIN_RECENT - back) % EXPLAIN_RECENT];
        if (!r)
            break;
        if (!r->has_parts || r->was_stored || !digest_eq(&r->key, key))
            continue;
        r->was_stored = true;
        r->owner = *owner;
        r->stamp = stamp;
        r->stale_until_ms = stale_until_ms;
        push(e->stored, EXPLAIN_STORED, &e->next_stored, r);
        break;
    }
    pthread_mutex_unlock(&e->lock);
}

static struct explain_record *find(struct explain *e, struct span id)
{
    for (unsigned back = 1; back <= EXPLAIN_RECENT; back++) {
        struct explain_record *r = e->recent[(e->next_recent + EXPLAIN_RECENT - back) % EXPLAIN_RECENT];
        if (r && span_eq(span_of(r->id, r->id_n), id))
            return r;
    }
    return NULL;
}

/* The stored one that is most alike; of equals the youngest. Not what this request itself has stored. */
static const struct explain_record *nearest(const struct explain *e, const struct explain_record *r)
{
    const struct explain_record *best = NULL;
    int most = -1;
    for (unsigned back = 1; back <= EXPLAIN_STORED; back++) {
        const struct explain_record *s = e->stored[(e->next_stored + EXPLAIN_STORED - back) % EXPLAIN_STORED];
        if (!s)
            break;
        if (s == r || s->route != r->route || s->at_ms > r->at_ms)
            continue;
        /* What only one of the two has counts against it. */
        int common = (int)(2 * explain_common(&r->parts, &s->parts)) + 4 * EXPLAIN_PARTS - (int)s->parts.n;
        if (digest_eq(&s->key, &r->key))
            return s;
        if (common > most) {
            most = common;
            best = s;
        }
    }
    return best;
}

static const char *why(const struct explain_record *r, const struct explain_record *s,
                       const struct cache_purge *purge)
{
    if (!s)
        return "nothing_stored";
    if (!digest_eq(&s->key, &r->key))
        return "differs";
    if (r->at_ms >= s->stale_until_ms)
        return "expired";
    return purge_stamp(purge, &s->owner) != s->stamp ? "purged" : "evicted";
}

static void write_hex(struct json_out *o, const char *name, const void *bytes, size_t n)
{
    char hex[2 * sizeof(struct cache_digest)];
    fmt_hex_bytes(hex, bytes, n);
    json_out_member_span(o, name, span_of(hex, 2 * n));
}

void explain_write_entry(struct json_out *o, const struct explain_entry *e, uint64_t now_ms)
{
    json_out_object(o);
    write_hex(o, "key", e->key.b, sizeof e->key.b);
    write_hex(o, "scope", &e->scope, sizeof e->scope);
    json_out_member_u64(o, "age_secs", now_ms > e->created_ms ? (now_ms - e->created_ms) / 1000 : 0);
    json_out_name(o, "expires_in_secs");
    json_out_i64(o, ((int64_t)e->expires_ms - (int64_t)now_ms) / 1000);
    json_out_object_end(o);
}

static void write_begin(struct json_out *o, struct buf *out, struct span id, const char *result,
                        const char *reason)
{
    json_out_init(o, out);
    json_out_object(o);
    json_out_member_span(o, "request_id", id);
    json_out_member_str(o, "result", result);
    json_out_member_str(o, "reason", reason);
}

static void write_differs(struct json_out *o, const struct span *paths, unsigned n)
{
    json_out_name(o, "differs");
    json_out_array(o);
    for (unsigned i = 0; i < n; i++)
        json_out_string(o, paths[i]);
    json_out_array_end(o);
}

/* Where an answer came from; the age is that of then. */
static void write_source(struct json_out *o, const char *layer, const struct explain_entry *e, uint64_t at_ms)
{
    json_out_member_str(o, "layer", layer);
    if (!e)
        return;
    json_out_name(o, "entry");
    explain_write_entry(o, e, at_ms);
}

static void write_semantic(struct json_out *o, const struct explain_record *r)
{
    if (!r->has_partition && !r->semantic)
        return;
    json_out_name(o, "semantic");
    json_out_object(o);
    if (r->has_partition)
        write_hex(o, "partition", r->partition.b, sizeof r->partition.b);
    if (r->layer && r->similarity != 0)
        json_out_member_double(o, "similarity", r->similarity);
    json_out_member_str(o, "reason", r->semantic);
    json_out_object_end(o);
}

static void write_answer(const struct explain *e, const struct explain_record *r,
                         const struct cache_purge *purge, struct buf *out)
{
    struct span paths[EXPLAIN_DIFFERS];
    unsigned n = 0;
    const char *reason = r->reason;
    if (r->has_parts && !reason) {
        const struct explain_record *s = nearest(e, r);
        reason = why(r, s, purge);
        if (s)
            n = explain_difference(&r->parts, &s->parts, paths);
    }
    struct json_out o;
    write_begin(&o, out, span_of(r->id, r->id_n), r->result, reason);
    write_differs(&o, paths, n);
    if (r->layer)
        write_source(&o, r->layer, r->has_entry ? &r->entry : NULL, r->at_ms);
    write_semantic(&o, r);
    json_out_object_end(&o);
}

static bool find_hit(struct explain *e, struct span id, struct hit *ret)
{
    bool found = false;
    for (unsigned k = 0; k < EXPLAIN_RINGS; k++) {
        struct hit_ring *ring = &e->hits[k];
        pthread_mutex_lock(&ring->lock);
        for (unsigned i = 0; ring->hit && i < EXPLAIN_HITS; i++) {
            const struct hit *h = &ring->hit[i];
            if (h->layer && span_eq(span_of(h->id, h->id_n), id) && (!found || h->serial > ret->serial)) {
                *ret = *h;
                found = true;
            }
        }
        pthread_mutex_unlock(&ring->lock);
    }
    return found;
}

static void write_hit(const struct hit *h, struct buf *out)
{
    struct json_out o;
    write_begin(&o, out, span_of(h->id, h->id_n), "hit", h->reason);
    write_differs(&o, NULL, 0);
    write_source(&o, h->layer, &h->entry, h->at_ms);
    json_out_object_end(&o);
}

bool explain_write(struct explain *e, struct span request_id, const struct cache_purge *purge,
                   struct buf *out)
{
    struct hit hit;
    bool is_hit = find_hit(e, request_id, &hit);
    pthread_mutex_lock(&e->lock);
    const struct explain_record *r = find(e, request_id);
    if (r && !(is_hit && hit.serial > r->serial))
        write_answer(e, r, purge, out); /* clients may use an id again: the last one counts */
    else if (is_hit)
        write_hit(&hit, out);
    pthread_mutex_unlock(&e->lock);
    return r || is_hit;
}

const char *explain_compare(struct explain *e, const struct key_input *in, const struct cache_digest *key,
                            const struct cache_purge *purge, struct arena *a, uint64_t now_ms,
                            struct span ret[EXPLAIN_DIFFERS], unsigned *ret_n)
{
    struct explain_record *r = record_new(SPAN_NONE, in, a);
    r->key = *key;
    r->at_ms = now_ms;
    pthread_mutex_lock(&e->lock);
    const struct explain_record *s = nearest(e, r);
    const char *reason = why(r, s, purge);
    unsigned n = s ? explain_difference(&r->parts, &s->parts, ret) : 0;
    for (unsigned i = 0; i < n; i++)
        ret[i] = arena_dup(a, ret[i]); /* slices of what others may free */
    pthread_mutex_unlock(&e->lock);
    free(r);
    *ret_n = n;
    return reason;
}
