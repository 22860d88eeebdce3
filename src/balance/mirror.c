/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes in groups of 64, each group with a store: a table and the lanes' books. A store never grows: a larger
 * one is filled from it, lane by lane in the order of use, and takes its place.
 *
 * Locks: m->lock (configuration: who has which lane, growing), then a lane's, then a bucket's.
 */
#include <stdlib.h>

#include "balance/mirror_impl.h"
#include "base/mem.h"

struct mirror *mirror_new(void)
{
    struct mirror *m = MEM_NEW(struct mirror);
    atomic_init(&m->refs, 1);
    CHECK(pthread_mutex_init(&m->lock, NULL) == 0);
    return m;
}

struct mirror *mirror_ref(struct mirror *m)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

static void store_free(struct store *s)
{
    for (unsigned i = 0; s && i < MIRROR_GROUP_LANES; i++) {
        free(s->books[i].notes);
        free(s->books[i].heads);
        free(s->books[i].trail);
    }
    if (s)
        free(s->table.memory);
    free(s);
}

void mirror_unref(struct mirror *m)
{
    if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned g = 0; g < GROUPS; g++) {
        struct group *at = atomic_load(&m->groups[g]);
        if (at)
            store_free(atomic_load(&at->store));
        free(at);
    }
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void mirror_enter(void)
{
    epoch_enter();
}

void mirror_leave(void)
{
    epoch_leave();
}

/* Growing */

struct refill {
    struct store *to;
    uint64_t bit;
    uint32_t lane, size;
};

static void refill_each(void *arg, const uint64_t *keys, uint32_t n, uint32_t serial)
{
    struct refill *r = arg;
    uint32_t before, evicted;
    lane_record(&r->to->books[r->lane], &r->to->table, r->bit, r->size, keys, n, serial, &before, &evicted);
}

static void refill(const struct group *g, const struct store *from, struct store *to)
{
    uint32_t most = 0;
    for (unsigned i = 0; from && i < MIRROR_GROUP_LANES; i++)
        most = from->books[i].count > most ? from->books[i].count : most;
    if (most == 0)
        return;
    uint64_t *keys = mem_array(most, sizeof *keys), hidden = atomic_load(&g->hidden);
    for (uint32_t i = 0; i < MIRROR_GROUP_LANES; i++) {
        if (from->books[i].count == 0 || hidden >> i & 1 || to->books[i].room == 0)
            continue;
        struct refill r = {to, (uint64_t)1 << i, i, to->books[i].room};
        lane_replay(&from->books[i], &from->table, keys, refill_each, &r);
    }
    free(keys);
}

/* Makes the group's store anew with so much room for each lane. Under m->lock. */
static void rebuild(struct group *g, const uint32_t *room)
{
    uint64_t total = 0;
    struct store *to = MEM_NEW(struct store), *from;
    for (unsigned i = 0; i < MIRROR_GROUP_LANES; i++) {
        total += room[i];
        if (room[i])
            lane_init(&to->books[i], room[i]);
    }
    block_table_init(&to->table, total);
    atomic_store(&g->is_moving, true);
    for (unsigned i = 0; i < MIRROR_GROUP_LANES; i++)
        prefix_lock_acquire(&g->lanes[i].lock);
    from = atomic_load(&g->store);
    refill(g, from, to);
    atomic_store(&g->store, to);
    atomic_store(&g->hidden, 0);
    for (unsigned i = 0; i < MIRROR_GROUP_LANES; i++)
        prefix_lock_release(&g->lanes[i].lock);
    atomic_store(&g->is_moving, false);
    if (!from)
        return;
    epoch_enter();
    epoch_retire(from->table.memory, from->table.memory_bytes);
    for (unsigned i = 0; i < MIRROR_GROUP_LANES; i++)
        if (from->books[i].room)
            lane_retire(&from->books[i]);
    epoch_retire(from, sizeof *from);
    epoch_leave();
}

/* Lanes */

static uint32_t find_lane(struct mirror *m, uint64_t identity)
{
    for (uint32_t lane = 0; lane < MIRROR_LANES_MAX; lane++) {
        if (!atomic_load(&m->groups[lane / MIRROR_GROUP_LANES]))
            break;
        if (lane_of(m, lane)->identity == identity)
            return lane;
    }
    return MIRROR_NO_LANE;
}

/* One that was never used, else a new group's, else the one that is idle longest. */
static uint32_t free_lane(struct mirror *m)
{
    uint32_t idle = MIRROR_NO_LANE;
    for (uint32_t lane = 0; lane < MIRROR_LANES_MAX; lane++) {
        uint32_t g = lane / MIRROR_GROUP_LANES;
        if (!atomic_load(&m->groups[g])) {
            if (idle != MIRROR_NO_LANE)
                return idle;
            atomic_store(&m->groups[g], MEM_NEW(struct group));
            return lane;
        }
        struct lane *l = lane_of(m, lane);
        if (l->identity == 0)
            return lane;
        if (l->refs == 0 && (idle == MIRROR_NO_LANE || l->idle_since < lane_of(m, idle)->idle_since))
            idle = lane;
    }
    return idle;
}

static uint32_t get(struct mirror *m, uint64_t identity, uint32_t blocks)
{
    identity = identity ? identity : 1;
    uint32_t lane = find_lane(m, identity);
    if (lane == MIRROR_NO_LANE && (lane = free_lane(m)) != MIRROR_NO_LANE) {
        if (lane_of(m, lane)->identity)
            mirror_reset(m, lane);
        lane_of(m, lane)->identity = identity;
        atomic_store(&lane_of(m, lane)->generation, lane_of(m, lane)->generation + 1);
    }
    if (lane == MIRROR_NO_LANE)
        return lane;
    lane_of(m, lane)->refs++;
    atomic_store(&lane_of(m, lane)->size, blocks);
    mirror_lane_show(group_of(m, lane), lane);
    return lane;
}

/* As many idle lanes are kept as there are used ones, those that are idle longest go: a fleet whose addresses
 * change all the time must not fill the memory with targets that never come back. Their room goes when their
 * group is made anew. Under m->lock. */
static void forget_idle(struct mirror *m)
{
    uint32_t used = 0, n = 0, idle[MIRROR_LANES_MAX];
    for (uint32_t lane = 0; lane < MIRROR_LANES_MAX && atomic_load(&m->groups[lane / MIRROR_GROUP_LANES]);
         lane++) {
        const struct lane *l = lane_of(m, lane);
        used += l->refs > 0;
        if (l->refs == 0 && l->identity)
            idle[n++] = lane;
    }
    while (n > used) {
        uint32_t oldest = 0;
        for (uint32_t i = 1; i < n; i++)
            if (lane_of(m, idle[i])->idle_since < lane_of(m, idle[oldest])->idle_since)
                oldest = i;
        mirror_reset(m, idle[oldest]);
        lane_of(m, idle[oldest])->identity = 0;
        idle[oldest] = idle[--n];
    }
}

/* What a new store must have for each lane. */
static void rooms_of(const struct group *g, uint32_t *ret)
{
    const struct store *s = atomic_load(&g->store);
    for (unsigned i = 0; i < MIRROR_GROUP_LANES; i++)
        ret[i] = s && g->lanes[i].identity ? s->books[i].room : 0;
}

void mirror_lanes_get(struct mirror *m, const uint64_t *identity, const uint32_t *blocks, unsigned n,
                      uint32_t *ret)
{
    pthread_mutex_lock(&m->lock);
    for (unsigned i = 0; i < n; i++) {
        CHECK(blocks[i] >= 1 && blocks[i] <= MIRROR_BLOCKS_MAX);
        ret[i] = get(m, identity[i], blocks[i]);
    }
    forget_idle(m);
    for (unsigned k = 0; k < GROUPS; k++) {
        struct group *g = atomic_load(&m->groups[k]);
        uint32_t room[MIRROR_GROUP_LANES];
        bool grows = false;
        if (!g)
            break;
        rooms_of(g, room);
        for (unsigned i = 0; i < MIRROR_GROUP_LANES; i++)
            if (g->lanes[i].refs > 0 && room[i] < atomic_load(&g->lanes[i].size)) {
                room[i] = atomic_load(&g->lanes[i].size);
                grows = true;
            }
        if (grows)
            rebuild(g, room);
    }
    pthread_mutex_unlock(&m->lock);
}

void mirror_lane_put(struct mirror *m, uint32_t lane)
{
    if (lane == MIRROR_NO_LANE)
        return;
    pthread_mutex_lock(&m->lock);
    struct lane *l = lane_of(m, lane);
    CHECK(l->refs > 0);
    l->refs--;
    l->idle_since = ++m->clock;
    pthread_mutex_unlock(&m->lock);
}

bool mirror_lane_resize(struct mirror *m, uint32_t lane, uint32_t blocks)
{
    blocks = blocks < 1 ? 1 : blocks < MIRROR_BLOCKS_MAX ? blocks : MIRROR_BLOCKS_MAX;
    struct group *g = group_of(m, lane);
    struct lane *l = lane_of(m, lane);
    if (atomic_load_explicit(&l->size, memory_order_relaxed) != blocks) {
        prefix_lock_acquire(&l->lock);
        atomic_store(&l->size, blocks);
        mirror_lane_show(g, lane);
        prefix_lock_release(&l->lock);
    }
    epoch_enter();
    const struct store *s = atomic_load(&g->store);
    bool has_room = s->books[lane % MIRROR_GROUP_LANES].room >= blocks;
    epoch_leave();
    return has_room;
}

void mirror_lane_grow(struct mirror *m, uint32_t lane, uint32_t blocks)
{
    pthread_mutex_lock(&m->lock);
    struct group *g = group_of(m, lane);
    uint32_t room[MIRROR_GROUP_LANES], *own = &room[lane % MIRROR_GROUP_LANES];
    rooms_of(g, room);
    if (*own < blocks) {
        *own = blocks < MIRROR_BLOCKS_MAX * 2 / 3 ? blocks + blocks / 2 : MIRROR_BLOCKS_MAX;
        rebuild(g, room);
    }
    pthread_mutex_unlock(&m->lock);
}
