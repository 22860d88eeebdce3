/* SPDX-License-Identifier: Apache-2.0
 *
 * What a mirror is made of; inside of mirror*.c only. Locks: see mirror.c.
 */
#ifndef ROLTER_BALANCE_MIRROR_IMPL_H
#define ROLTER_BALANCE_MIRROR_IMPL_H

#include <pthread.h>

#include "balance/epoch.h"
#include "balance/mirror.h"
#include "balance/mirror_lane.h"
#include "balance/prefix_lock.h"

enum { GROUPS = MIRROR_LANES_MAX / MIRROR_GROUP_LANES };

struct store {
    struct block_table table;
    struct lane_books books[MIRROR_GROUP_LANES];
};

struct lane {
    struct prefix_lock lock;
    uint64_t identity;
    unsigned refs;          /* under the mirror's lock */
    uint64_t idle_since;    /* put back at this turn of the mirror's clock */
    uint32_t serial;        /* under `lock` */
    _Atomic uint32_t size;  /* blocks that it may hold */
    _Atomic uint32_t count; /* that it held after the last recording */
    _Atomic uint32_t generation;
    _Atomic uint64_t warmth, evictions;
};

struct group {
    _Atomic(struct store *) store;
    atomic_bool is_moving;
    _Atomic uint64_t hidden; /* lanes that were reset and still have blocks */
    /* Of each lane, side by side, since picks read them of all lanes. */
    _Atomic uint32_t room[MIRROR_GROUP_LANES]; /* blocks that go in without putting any out */
    _Atomic uint64_t heat[MIRROR_GROUP_LANES]; /* mirror_heat */
    struct lane lanes[MIRROR_GROUP_LANES];
};

struct mirror {
    atomic_uint refs;
    pthread_mutex_t lock;
    uint64_t clock;
    _Atomic(struct group *) groups[GROUPS];
};

static inline struct group *group_of(const struct mirror *m, uint32_t lane)
{
    return atomic_load_explicit(&m->groups[lane / MIRROR_GROUP_LANES], memory_order_acquire);
}

static inline struct lane *lane_of(const struct mirror *m, uint32_t lane)
{
    CHECK(lane < MIRROR_LANES_MAX);
    return &group_of(m, lane)->lanes[lane % MIRROR_GROUP_LANES];
}

static inline uint64_t bit_of(uint32_t lane)
{
    return (uint64_t)1 << (lane % MIRROR_GROUP_LANES);
}

/* Size, count or warmth have changed: what picks see of them. Under the lane's lock, or at configuration
 * time.
 */
static inline void mirror_lane_show(struct group *g, uint32_t lane)
{
    unsigned i = lane % MIRROR_GROUP_LANES;
    const struct lane *l = &g->lanes[i];
    uint32_t size = atomic_load_explicit(&l->size, memory_order_relaxed),
             count = atomic_load_explicit(&l->count, memory_order_relaxed);
    uint64_t warmth = atomic_load_explicit(&l->warmth, memory_order_relaxed);
    atomic_store_explicit(&g->room[i], count < size ? size - count : 0, memory_order_relaxed);
    atomic_store_explicit(&g->heat[i], size ? (warmth << 24) / size : 0, memory_order_relaxed);
}

/* Whether the lane may be used; one that was reset is emptied by up to <most> blocks first. Under its lock.
 */
bool mirror_lane_is_clean(struct group *g, struct store *s, uint32_t lane, uint32_t most);

#endif
