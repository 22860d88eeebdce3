/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/session_map.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

#define GET(x)    atomic_load_explicit(&(x), memory_order_relaxed)
#define SET(x, v) atomic_store_explicit(&(x), v, memory_order_relaxed)

enum { SHARD_MAX = SESSIONS_MAX / SESSION_SHARDS, BUCKETS = 8192, NONE = 0 };

/* Looks that a reader takes at a shard which writers change, and places of a chain that it follows: a chain
 * has one or two; one that changes underfoot may lead anywhere, though only to places that exist. */
enum { READ_TRIES = 16, READ_CHAIN_MAX = 64 };

/* Places are counted from 1; place 0 is the end of every chain and the head of the ring of records. Readers
 * look at what is atomic. */
struct entry {
    _Atomic uint64_t key, target, at_ms;
    uint32_t older, newer; /* ring in the order of records */
    atomic_uint next;      /* of the bucket, or of the free places */
    uint32_t serial;       /* of the record, in its shard */
};

struct shard {
    _Alignas(64) pthread_mutex_t lock; /* of writers */
    atomic_uint version;               /* odd while a writer changes what readers look at */
    uint32_t n;                        /* in use */
    uint32_t top;                      /* places that were ever used: those beyond were never touched */
    uint32_t free;                     /* first free place below top */
    uint32_t serial;
    atomic_uint *buckets;
    struct entry *entries; /* SHARD_MAX + 1 */
};

struct session_map {
    atomic_uint refs;
    uint64_t salt;
    struct shard shards[SESSION_SHARDS];
};

struct session_map *session_map_new(void)
{
    struct session_map *m = aligned_alloc(_Alignof(struct session_map), sizeof *m);
    CHECK_MSG(m != NULL, "out of memory");
    memset(m, 0, sizeof *m);
    atomic_init(&m->refs, 1);
    rng_secure_bytes(&m->salt, sizeof m->salt);
    for (unsigned i = 0; i < SESSION_SHARDS; i++) {
        struct shard *s = &m->shards[i];
        CHECK(pthread_mutex_init(&s->lock, NULL) == 0);
        s->buckets = mem_array(BUCKETS, sizeof *s->buckets);
        s->entries = mem_array(SHARD_MAX + 1, sizeof *s->entries);
    }
    return m;
}

struct session_map *session_map_ref(struct session_map *m)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void session_map_unref(struct session_map *m)
{
    if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < SESSION_SHARDS; i++) {
        pthread_mutex_destroy(&m->shards[i].lock);
        free(m->shards[i].buckets);
        free(m->shards[i].entries);
    }
    free(m);
}

/* The low bits choose the shard, the next ones the bucket. Session ids are the clients': without a salt one
 * of them could fill a bucket, and put others' sessions out of a shard, with ids made for it. */
static struct shard *shard_of(struct session_map *m, uint64_t *key)
{
    *key = hash_mix(*key, m->salt);
    return &m->shards[*key % SESSION_SHARDS];
}

static struct shard *shard_lock(struct session_map *m, uint64_t *key)
{
    struct shard *s = shard_of(m, key);
    pthread_mutex_lock(&s->lock);
    SET(s->version, GET(s->version) + 1);
    atomic_thread_fence(memory_order_release);
    return s;
}

static void shard_unlock(struct shard *s)
{
    atomic_store_explicit(&s->version, GET(s->version) + 1, memory_order_release);
    pthread_mutex_unlock(&s->lock);
}

static atomic_uint *bucket_of(struct shard *s, uint64_t key)
{
    return &s->buckets[key / SESSION_SHARDS % BUCKETS];
}

static uint32_t find(struct shard *s, uint64_t key)
{
    uint32_t at = GET(*bucket_of(s, key));
    while (at != NONE && GET(s->entries[at].key) != key)
        at = GET(s->entries[at].next);
    return at;
}

static void ring_remove(struct shard *s, uint32_t at)
{
    struct entry *e = &s->entries[at];
    s->entries[e->older].newer = e->newer;
    s->entries[e->newer].older = e->older;
}

static void ring_push(struct shard *s, uint32_t at)
{
    struct entry *e = &s->entries[at], *head = &s->entries[0];
    e->older = head->older; /* the head's older one is the newest of all */
    e->newer = 0;
    s->entries[head->older].newer = at;
    head->older = at;
}

static void forget(struct shard *s, uint32_t at)
{
    atomic_uint *from = bucket_of(s, GET(s->entries[at].key));
    while (GET(*from) != at)
        from = &s->entries[GET(*from)].next;
    SET(*from, GET(s->entries[at].next));
    ring_remove(s, at);
    SET(s->entries[at].next, s->free);
    s->free = at;
    s->n--;
}

static uint32_t insert(struct shard *s, uint64_t key)
{
    if (s->n == SHARD_MAX)
        forget(s, s->entries[0].newer);
    uint32_t at = s->free;
    if (at != NONE)
        s->free = GET(s->entries[at].next);
    else
        at = ++s->top;
    atomic_uint *bucket = bucket_of(s, key);
    SET(s->entries[at].key, key);
    SET(s->entries[at].next, GET(*bucket));
    SET(*bucket, at);
    ring_push(s, at);
    s->n++;
    return at;
}

static bool is_over(uint64_t at_ms, uint64_t now_ms)
{
    return now_ms > at_ms && now_ms - at_ms > SESSION_TTL_MS;
}

/* What a reader saw; right only if nobody wrote meanwhile. */
static uint64_t read_target(struct shard *s, uint64_t key, uint64_t now_ms)
{
    uint32_t at = GET(*bucket_of(s, key));
    for (unsigned steps = 0; at != NONE && steps < READ_CHAIN_MAX; steps++) {
        struct entry *e = &s->entries[at];
        if (GET(e->key) == key)
            return is_over(GET(e->at_ms), now_ms) ? 0 : GET(e->target);
        at = GET(e->next);
    }
    return 0;
}

uint64_t session_map_find(struct session_map *m, uint64_t key, uint64_t now_ms)
{
    struct shard *s = shard_of(m, &key);
    for (unsigned tries = 0; tries < READ_TRIES; tries++) {
        unsigned before = atomic_load_explicit(&s->version, memory_order_acquire);
        if (before % 2 == 1)
            continue;
        uint64_t target = read_target(s, key, now_ms);
        atomic_thread_fence(memory_order_acquire);
        if (GET(s->version) == before)
            return target;
    }
    return 0;
}

struct session_receipt session_map_record(struct session_map *m, uint64_t key, uint64_t target,
                                          uint64_t now_ms)
{
    struct session_receipt r = {.key = key, .target = target};
    struct shard *s = shard_lock(m, &key);
    uint32_t at = find(s, key);
    if (at == NONE) {
        at = insert(s, key);
    } else {
        r.before = GET(s->entries[at].target);
        r.before_ms = GET(s->entries[at].at_ms);
        r.before_serial = s->entries[at].serial;
        ring_remove(s, at);
        ring_push(s, at);
    }
    SET(s->entries[at].target, target);
    SET(s->entries[at].at_ms, now_ms);
    s->entries[at].serial = r.serial = ++s->serial;
    shard_unlock(s);
    return r;
}

void session_map_withdraw(struct session_map *m, const struct session_receipt *r)
{
    if (r->target == 0)
        return;
    uint64_t key = r->key;
    struct shard *s = shard_lock(m, &key);
    uint32_t at = find(s, key);
    if (at != NONE && s->entries[at].serial == r->serial) {
        if (r->before == 0) {
            forget(s, at);
        } else {
            SET(s->entries[at].target, r->before);
            SET(s->entries[at].at_ms, r->before_ms);
            s->entries[at].serial = r->before_serial;
        }
    }
    shard_unlock(s);
}

unsigned session_map_count(struct session_map *m)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SESSION_SHARDS; i++) {
        pthread_mutex_lock(&m->shards[i].lock);
        n += m->shards[i].n;
        pthread_mutex_unlock(&m->shards[i].lock);
    }
    return n;
}
