/* SPDX-License-Identifier: Apache-2.0
 *
 * Two rings of counted records: what was looked up, and what of that was stored.
 */
#include "cache/explain.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cache/explain_parts.h"
#include "json/write.h"

enum { ID_MAX = 128 };

struct record {
    unsigned refs; /* under the lock */
    char id[ID_MAX];
    size_t id_n;
    const char *result, *reason;
    uint64_t at_ms;
    struct cache_digest key;
    uint64_t route;
    bool was_stored; /* the rest is set with it */
    struct cache_owner owner;
    uint64_t stamp, stale_until_ms;
    bool has_parts;
    struct explain_parts parts; /* as far as it is used */
};

struct explain {
    pthread_mutex_t lock;
    struct record *recent[EXPLAIN_RECENT], *stored[EXPLAIN_STORED];
    unsigned next_recent, next_stored;
};

struct explain *explain_new(void)
{
    struct explain *e = MEM_NEW(struct explain);
    CHECK(pthread_mutex_init(&e->lock, NULL) == 0);
    return e;
}

static void unref(struct record *r)
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
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static void push(struct record **ring, unsigned size, unsigned *next, struct record *r)
{
    unref(ring[*next % size]);
    ring[*next % size] = r;
    r->refs++;
    *next = (*next + 1) % size;
}

static struct record *record_new(struct span id, const struct key_input *in, struct arena *a)
{
    /* Of a request that was not looked up there are no parts; its record is a small one. */
    size_t head = offsetof(struct record, parts);
    struct explain_parts *parts = NULL;
    size_t n = 0;
    if (in) {
        parts = arena_alloc(a, sizeof *parts);
        explain_parts_of(in, a, parts);
        n = explain_parts_bytes(parts);
    }
    struct record *r = mem_alloc(head + n);
    memset(r, 0, head);
    r->id_n = id.n < ID_MAX ? id.n : ID_MAX;
    memcpy(r->id, id.p, r->id_n);
    if (in) {
        r->has_parts = true;
        r->route = hash_bytes(in->route.p, in->route.n);
        memcpy(&r->parts, parts, n);
    }
    return r;
}

void explain_note(struct explain *e, struct span request_id, const char *result, const char *reason,
                  const struct key_input *in, const struct cache_digest *key, struct arena *a,
                  uint64_t now_ms)
{
    struct record *r = record_new(request_id, in, a);
    r->result = result;
    r->reason = reason;
    r->at_ms = now_ms;
    if (key)
        r->key = *key;
    pthread_mutex_lock(&e->lock);
    push(e->recent, EXPLAIN_RECENT, &e->next_recent, r);
    pthread_mutex_unlock(&e->lock);
}

void explain_stored(struct explain *e, const struct cache_digest *key, const struct cache_owner *owner,
                    uint64_t stamp, uint64_t stale_until_ms)
{
    pthread_mutex_lock(&e->lock);
    for (unsigned back = 1; back <= EXPLAIN_RECENT; back++) {
        struct record *r = e->recent[(e->next_recent + EXPLAIN_RECENT - back) % EXPLAIN_RECENT];
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

static struct record *find(struct explain *e, struct span id)
{
    for (unsigned back = 1; back <= EXPLAIN_RECENT; back++) {
        struct record *r = e->recent[(e->next_recent + EXPLAIN_RECENT - back) % EXPLAIN_RECENT];
        if (r && span_eq(span_of(r->id, r->id_n), id))
            return r;
    }
    return NULL;
}

/* The stored one that is most alike; of equals the youngest. Not what this request itself has stored. */
static const struct record *nearest(const struct explain *e, const struct record *r)
{
    const struct record *best = NULL;
    int most = -1;
    for (unsigned back = 1; back <= EXPLAIN_STORED; back++) {
        const struct record *s = e->stored[(e->next_stored + EXPLAIN_STORED - back) % EXPLAIN_STORED];
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

static const char *why(const struct record *r, const struct record *s, const struct cache_purge *purge)
{
    if (!s)
        return "nothing_stored";
    if (!digest_eq(&s->key, &r->key))
        return "differs";
    if (r->at_ms >= s->stale_until_ms)
        return "expired";
    return purge_stamp(purge, &s->owner) != s->stamp ? "purged" : "evicted";
}

static void write_answer(const struct explain *e, const struct record *r, const struct cache_purge *purge,
                         struct buf *out)
{
    struct span paths[EXPLAIN_DIFFERS];
    unsigned n = 0;
    const char *reason = r->reason;
    if (r->has_parts && !reason) {
        const struct record *s = nearest(e, r);
        reason = why(r, s, purge);
        if (s)
            n = explain_difference(&r->parts, &s->parts, paths);
    }
    struct json_out o;
    json_out_init(&o, out);
    json_out_object(&o);
    json_out_member_span(&o, "request_id", span_of(r->id, r->id_n));
    json_out_member_str(&o, "result", r->result);
    json_out_member_str(&o, "reason", reason);
    json_out_name(&o, "differs");
    json_out_array(&o);
    for (unsigned i = 0; i < n; i++)
        json_out_string(&o, paths[i]);
    json_out_array_end(&o);
    json_out_object_end(&o);
}

bool explain_write(struct explain *e, struct span request_id, const struct cache_purge *purge,
                   struct buf *out)
{
    pthread_mutex_lock(&e->lock);
    const struct record *r = find(e, request_id);
    if (r)
        write_answer(e, r, purge, out);
    pthread_mutex_unlock(&e->lock);
    return r != NULL;
}
