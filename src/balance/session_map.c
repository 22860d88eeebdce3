/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/session_map.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

enum { SHARD_MAX = SESSIONS_MAX / SESSION_SHARDS, BUCKETS = 8192, NONE = 0 };

/* Places are counted from 1; place 0 is the end of every chain and the head of the ring of records. */
struct entry {
    uint64_t key, target, at_ms;
    uint32_t older, newer; /* ring in the order of records */
    uint32_t next;         /* of the bucket, or of the free places */
    uint32_t serial;       /* of the record, in its shard */
};

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    uint32_t n;    /* in use */
    uint32_t top;  /* places that were ever used: those beyond were never touched */
    uint32_t free; /* first free place below top */
    uint32_t serial;
    uint32_t *buckets;
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
static struct shard *shard_lock(struct session_map *m, uint64_t *key)
{
    *key = hash_mix(*key, m->salt);
    struct shard *s = &m->shards[*key % SESSION_SHARDS];
    pthread_mutex_lock(&s->lock);
    return s;
}

static uint32_t *bucket_of(struct shard *s, uint64_t key)
{
    return &s->buckets[key / SESSION_SHARDS % BUCKETS];
}

static uint32_t find(struct shard *s, uint64_t key)
{
    uint32_t at = *bucket_of(s, key);
    while (at != NONE && s->entries[at].key != key)
        at = s->entries[at].next;
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
    uint32_t *from = bucket_of(s, s->entries[at].key);
    while (*from != at)
        from = &s->entries[*from].next;
    *from = s->entries[at].next;
    ring_remove(s, at);
    s->entries[at].next = s->free;
    s->free = at;
    s->n--;
}

static uint32_t insert(struct shard *s, uint64_t key)
{
    if (s->n == SHARD_MAX)
        forget(s, s->entries[0].newer);
    uint32_t at = s->free;
    if (at != NONE)
        s->free = s->entries[at].next;
    else
        at = ++s->top;
    uint32_t *bucket = bucket_of(s, key);
    s->entries[at] = (struct entry){.key = key, .next = *bucket};
    *bucket = at;
    ring_push(s, at);
    s->n++;
    return at;
}

static bool is_over(const struct entry *e, uint64_t now_ms)
{
    return now_ms > e->at_ms && now_ms - e->at_ms > SESSION_TTL_MS;
}

uint64_t session_map_find(struct session_map *m, uint64_t key, uint64_t now_ms)
{
    struct shard *s = shard_lock(m, &key);
    uint32_t at = find(s, key);
    uint64_t target = at != NONE && !is_over(&s->entries[at], now_ms) ? s->entries[at].target : 0;
    pthread_mutex_unlock(&s->lock);
    return target;
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
        r.before = s->entries[at].target;
        r.before_ms = s->entries[at].at_ms;
        r.before_serial = s->entries[at].serial;
        ring_remove(s, at);
        ring_push(s, at);
    }
    s->entries[at].target = target;
    s->entries[at].at_ms = now_ms;
    s->entries[at].serial = r.serial = ++s->serial;
    pthread_mutex_unlock(&s->lock);
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
            s->entries[at].target = r->before;
            s->entries[at].at_ms = r->before_ms;
            s->entries[at].serial = r->before_serial;
        }
    }
    pthread_mutex_unlock(&s->lock);
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
