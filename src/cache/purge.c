/* SPDX-License-Identifier: Apache-2.0
 *
 * An open table of generations that only fills up: readers walk it without a lock, writers have one. A slot's
 * name is published after its generation.
 */
#include "cache/purge.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"

enum { SLOTS = 4 * PURGE_MAX };

struct slot {
    _Atomic uint64_t name; /* kind and id in one; 0 = free */
    _Atomic uint64_t generation;
};

struct cache_purge {
    pthread_mutex_t lock;
    _Atomic uint64_t all;
    _Atomic unsigned n;
    struct slot slot[SLOTS];
};

struct cache_purge *purge_new(void)
{
    struct cache_purge *p = MEM_NEW(struct cache_purge);
    CHECK(pthread_mutex_init(&p->lock, NULL) == 0);
    return p;
}

void purge_free(struct cache_purge *p)
{
    if (!p)
        return;
    pthread_mutex_destroy(&p->lock);
    free(p);
}

uint64_t purge_name(struct span name)
{
    return hash_bytes_seed(name.p, name.n, 0x7075726765) | 1;
}

static uint64_t slot_name(enum purge_kind kind, uint64_t id)
{
    uint64_t name = hash_mix(id, kind);
    return name ? name : 1;
}

/* The slot of <name>, or the free one where it would stand. */
static unsigned find(const struct cache_purge *p, uint64_t name)
{
    unsigned i = (unsigned)(name % SLOTS);
    for (;;) {
        uint64_t at = atomic_load_explicit(&p->slot[i].name, memory_order_acquire);
        if (at == name || at == 0)
            return i;
        i = (i + 1) % SLOTS;
    }
}

static uint64_t generation_of(const struct cache_purge *p, enum purge_kind kind, uint64_t id)
{
    const struct slot *s = &p->slot[find(p, slot_name(kind, id))];
    /* In this order: a free slot may be getting its generation right now. */
    if (atomic_load_explicit(&s->name, memory_order_acquire) == 0)
        return 0;
    return atomic_load_explicit(&s->generation, memory_order_acquire);
}

uint64_t purge_stamp(const struct cache_purge *p, const struct cache_owner *owner)
{
    uint64_t all = atomic_load_explicit(&p->all, memory_order_acquire);
    if (atomic_load_explicit(&p->n, memory_order_acquire) == 0)
        return hash_mix(all, 0);
    uint64_t route = generation_of(p, PURGE_ROUTE, owner->route);
    uint64_t scope = generation_of(p, PURGE_SCOPE, owner->scope);
    uint64_t key = generation_of(p, PURGE_KEY, owner->key);
    /* Purges of others leave the stamp alone, also the first one of all. */
    if ((route | scope | key) == 0)
        return hash_mix(all, 0);
    return hash_mix(all, hash_mix(hash_mix(route, scope), key));
}

/* Under the lock. */
static _Atomic uint64_t *generation_place(struct cache_purge *p, enum purge_kind kind, uint64_t id)
{
    if (kind == PURGE_ALL)
        return &p->all;
    uint64_t name = slot_name(kind, id);
    struct slot *s = &p->slot[find(p, name)];
    if (atomic_load_explicit(&s->name, memory_order_relaxed) == name)
        return &s->generation;
    return NULL;
}

/* Under the lock; false when the table is full. */
static bool add(struct cache_purge *p, enum purge_kind kind, uint64_t id, uint64_t generation)
{
    if (atomic_load_explicit(&p->n, memory_order_relaxed) == PURGE_MAX)
        return false;
    uint64_t name = slot_name(kind, id);
    struct slot *s = &p->slot[find(p, name)];
    atomic_store_explicit(&s->generation, generation, memory_order_relaxed);
    atomic_store_explicit(&s->name, name, memory_order_release);
    atomic_fetch_add_explicit(&p->n, 1, memory_order_release);
    return true;
}

/* To at least <least>, and by one more step when <step>. */
static uint64_t raise(struct cache_purge *p, enum purge_kind kind, uint64_t id, uint64_t least, bool step)
{
    CHECK((unsigned)kind < PURGE_KINDS);
    pthread_mutex_lock(&p->lock);
    _Atomic uint64_t *place = generation_place(p, kind, id);
    uint64_t now = place ? atomic_load_explicit(place, memory_order_relaxed) : 0;
    uint64_t next = now + step > least ? now + step : least;
    if (next != now) {
        if (place)
            atomic_store_explicit(place, next, memory_order_release);
        else if (!add(p, kind, id, next))
            atomic_fetch_add_explicit(&p->all, 1, memory_order_release);
    }
    pthread_mutex_unlock(&p->lock);
    return next;
}

uint64_t purge_now(struct cache_purge *p, enum purge_kind kind, uint64_t id)
{
    return raise(p, kind, id, 0, true);
}

void purge_merge(struct cache_purge *p, enum purge_kind kind, uint64_t id, uint64_t generation)
{
    (void)raise(p, kind, id, generation, false);
}
