/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes in groups of 64, each group with a store: a table and the lanes' books. A store never grows: a larger
 * one is filled from it, lane by lane in the order of use, and takes its place.
 *
 * Locks: m->lock (configuration: who has which lane, growing), then a lane's, then a bucket's.
 */
#include "balance/mirror.h"

#include <pthread.h>
#include <stdlib.h>

#include "balance/epoch.h"
#include "balance/mirror_lane.h"
#include "balance/prefix_lock.h"
#include "base/mem.h"

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
    _Atomic uint32_t count; /* that it held after the last recording; a copy for picks */
    _Atomic uint32_t generation;
    _Atomic uint64_t warmth, evictions;
};

struct group {
    _Atomic(struct store *) store;
    atomic_bool is_moving;
    _Atomic uint64_t hidden; /* lanes that were reset and still have blocks */
    struct lane lanes[MIRROR_GROUP_LANES];
};

struct mirror {
    atomic_uint refs;
    pthread_mutex_t lock;
    uint64_t clock;
    _Atomic(struct group *) groups[GROUPS];
};

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
    return lane;
}

static void rooms_of(const struct group *g, uint32_t *ret)
{
    const struct store *s = atomic_load(&g->store);
    for (unsigned i = 0; i < MIRROR_GROUP_LANES; i++)
        ret[i] = s ? s->books[i].room : 0;
}

void mirror_lanes_get(struct mirror *m, const uint64_t *identity, const uint32_t *blocks, unsigned n,
                      uint32_t *ret)
{
    pthread_mutex_lock(&m->lock);
    for (unsigned i = 0; i < n; i++) {
        CHECK(blocks[i] >= 1 && blocks[i] <= MIRROR_BLOCKS_MAX);
        ret[i] = get(m, identity[i], blocks[i]);
    }
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
    atomic_store(&lane_of(m, lane)->size, blocks);
    epoch_enter();
    const struct store *s = atomic_load(&group_of(m, lane)->store);
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

/* Matching */

struct span_of_blocks {
    uint32_t low, high; /* all in <at_low> hold keys[0..low), none but <at_high> hold keys[0..high) */
    uint64_t at_low, at_high;
};

static inline uint64_t holders_at(const struct block_table *t, const uint64_t *keys, uint32_t n,
                                  uint64_t lanes)
{
    uint64_t holders;
    block_table_find(t, keys[n - 1], &holders);
    return holders & lanes;
}

/* Between two places the holders may only get fewer: where they are the same there is nothing to look for. */
static void bisect(const struct block_table *t, const uint64_t *keys, struct span_of_blocks s,
                   uint32_t ret[MIRROR_GROUP_LANES])
{
    struct span_of_blocks stack[32];
    unsigned n = 0;
    stack[n++] = s;
    while (n > 0) {
        s = stack[--n];
        s.at_high &= s.at_low; /* what others did meanwhile must not confuse this */
        uint64_t gone = s.at_low & ~s.at_high;
        if (!gone)
            continue;
        if (s.high - s.low == 1) {
            for (; gone; gone &= gone - 1)
                ret[__builtin_ctzll(gone)] = s.low;
            continue;
        }
        uint32_t middle = s.low + (s.high - s.low) / 2;
        uint64_t here = holders_at(t, keys, middle, s.at_low);
        stack[n++] = (struct span_of_blocks){middle, s.high, here, s.at_high};
        stack[n++] = (struct span_of_blocks){s.low, middle, s.at_low, here | s.at_high};
    }
}

static void match_group(const struct block_table *t, const uint64_t *keys, uint32_t n, uint64_t lanes,
                        uint32_t ret[MIRROR_GROUP_LANES])
{
    struct span_of_blocks s = {.low = 0, .at_low = lanes};
    while (s.low < n && s.at_low) {
        s.high = 2 * s.low + 1 < n ? 2 * s.low + 1 : n;
        s.at_high = holders_at(t, keys, s.high, s.at_low);
        if (s.at_high != s.at_low)
            bisect(t, keys, s, ret);
        s.low = s.high;
        s.at_low = s.at_high;
    }
    for (; s.at_low; s.at_low &= s.at_low - 1)
        ret[__builtin_ctzll(s.at_low)] = s.low;
}

void mirror_match(const struct mirror *m, const uint64_t *keys, uint32_t n, const uint32_t *lanes,
                  unsigned n_lanes, uint32_t *ret)
{
    for (unsigned k = 0, left = n_lanes; k < GROUPS && left > 0; k++) {
        struct group *g = atomic_load_explicit(&m->groups[k], memory_order_acquire);
        uint32_t depth[MIRROR_GROUP_LANES];
        uint64_t wanted = 0;
        for (unsigned i = 0; i < n_lanes; i++)
            if (lanes[i] / MIRROR_GROUP_LANES == k)
                wanted |= bit_of(lanes[i]);
        if (!wanted)
            continue;
        uint64_t hidden = atomic_load_explicit(&g->hidden, memory_order_acquire);
        const struct store *s = atomic_load_explicit(&g->store, memory_order_acquire);
        match_group(&s->table, keys, n, wanted & ~hidden, depth);
        for (unsigned i = 0; i < n_lanes; i++)
            if (lanes[i] / MIRROR_GROUP_LANES == k) {
                ret[i] = hidden & bit_of(lanes[i]) ? 0 : depth[lanes[i] % MIRROR_GROUP_LANES];
                left--;
            }
    }
    for (unsigned i = 0; i < n_lanes; i++)
        if (lanes[i] == MIRROR_NO_LANE)
            ret[i] = 0;
}

/* Recording */

/* Whether the lane may be used; one that was reset is emptied a little first. Under the lane's lock. */
static bool lane_is_clean(struct group *g, struct store *s, uint32_t lane, uint32_t most)
{
    struct lane_books *l = &s->books[lane % MIRROR_GROUP_LANES];
    if (LIKELY(!(atomic_load_explicit(&g->hidden, memory_order_relaxed) & bit_of(lane))))
        return true;
    lane_evict(l, &s->table, bit_of(lane), 0, most);
    if (l->count > 0)
        return false;
    atomic_fetch_and_explicit(&g->hidden, ~bit_of(lane), memory_order_release);
    return true;
}

struct mirror_receipt mirror_record(struct mirror *m, uint32_t lane, const uint64_t *keys, uint32_t n)
{
    enum { CLEAN_AT_ONCE = 4096 };
    struct mirror_receipt r = {0};
    if (lane == MIRROR_NO_LANE)
        return r;
    struct group *g = group_of(m, lane);
    struct lane *l = lane_of(m, lane);
    /* Its locks are held for as long as the move takes. */
    if (atomic_load_explicit(&g->is_moving, memory_order_relaxed))
        return r;
    epoch_enter();
    prefix_lock_acquire(&l->lock);
    struct store *s = atomic_load_explicit(&g->store, memory_order_acquire);
    if (lane_is_clean(g, s, lane, CLEAN_AT_ONCE)) {
        l->serial = l->serial + 1 ? l->serial + 1 : 1;
        r.lane = lane;
        r.generation = atomic_load_explicit(&l->generation, memory_order_relaxed);
        r.serial = l->serial;
        r.depth = lane_record(&s->books[lane % MIRROR_GROUP_LANES], &s->table, bit_of(lane),
                              atomic_load_explicit(&l->size, memory_order_relaxed), keys, n, l->serial,
                              &r.before, &r.evicted);
        atomic_store_explicit(&l->count, s->books[lane % MIRROR_GROUP_LANES].count, memory_order_relaxed);
        r.end = r.depth > 0 ? keys[r.depth - 1] : 0;
        atomic_store_explicit(&l->warmth, l->warmth + 1, memory_order_relaxed);
        atomic_store_explicit(&l->evictions, l->evictions + r.evicted, memory_order_relaxed);
    }
    prefix_lock_release(&l->lock);
    epoch_leave();
    return r;
}

void mirror_withdraw(struct mirror *m, const struct mirror_receipt *r)
{
    if (r->generation == 0)
        return;
    struct group *g = group_of(m, r->lane);
    struct lane *l = lane_of(m, r->lane);
    epoch_enter();
    prefix_lock_acquire(&l->lock);
    if (atomic_load_explicit(&l->generation, memory_order_relaxed) == r->generation) {
        struct store *s = atomic_load_explicit(&g->store, memory_order_acquire);
        lane_withdraw(&s->books[r->lane % MIRROR_GROUP_LANES], &s->table, bit_of(r->lane), r->end, r->before,
                      r->depth, r->serial);
        uint64_t warmth = atomic_load_explicit(&l->warmth, memory_order_relaxed);
        atomic_store_explicit(&l->warmth, warmth > 0 ? warmth - 1 : 0, memory_order_relaxed);
    }
    prefix_lock_release(&l->lock);
    epoch_leave();
}

void mirror_reset(struct mirror *m, uint32_t lane)
{
    if (lane == MIRROR_NO_LANE)
        return;
    struct group *g = group_of(m, lane);
    struct lane *l = lane_of(m, lane);
    epoch_enter();
    prefix_lock_acquire(&l->lock);
    const struct store *s = atomic_load_explicit(&g->store, memory_order_acquire);
    if (s && s->books[lane % MIRROR_GROUP_LANES].count > 0)
        atomic_fetch_or_explicit(&g->hidden, bit_of(lane), memory_order_release);
    uint32_t next = atomic_load_explicit(&l->generation, memory_order_relaxed) + 1;
    atomic_store_explicit(&l->generation, next ? next : 1, memory_order_release);
    atomic_store_explicit(&l->warmth, 0, memory_order_relaxed);
    atomic_store_explicit(&l->count, 0, memory_order_relaxed);
    prefix_lock_release(&l->lock);
    epoch_leave();
}

void mirror_shrink(struct mirror *m, uint32_t lane, double keep)
{
    enum { PIECE = 512 };
    if (lane == MIRROR_NO_LANE)
        return;
    struct group *g = group_of(m, lane);
    struct lane *l = lane_of(m, lane);
    uint32_t wanted = 0;
    for (bool is_first = true, more = true; more; is_first = false) {
        epoch_enter();
        prefix_lock_acquire(&l->lock);
        struct store *s = atomic_load_explicit(&g->store, memory_order_acquire);
        struct lane_books *b = &s->books[lane % MIRROR_GROUP_LANES];
        if (is_first)
            wanted = keep <= 0 ? 0 : keep >= 1 ? b->count : (uint32_t)(b->count * keep);
        lane_evict(b, &s->table, bit_of(lane), wanted, PIECE);
        more = b->count > wanted;
        prefix_lock_release(&l->lock);
        epoch_leave();
    }
}

/* In small pieces, so that nobody waits for the lane's lock for long. */
bool mirror_tidy(struct mirror *m, uint32_t blocks)
{
    enum { PIECE = 512 };
    bool is_done = true;
    for (uint32_t lane = 0; lane < MIRROR_LANES_MAX; lane++) {
        struct group *g = group_of(m, lane);
        if (!g)
            break;
        struct lane *l = lane_of(m, lane);
        for (uint32_t done = 0;; done += PIECE) {
            epoch_enter();
            prefix_lock_acquire(&l->lock);
            struct store *s = atomic_load(&g->store);
            struct lane_books *b = s ? &s->books[lane % MIRROR_GROUP_LANES] : NULL;
            uint32_t size = atomic_load(&l->size);
            bool more = b && b->room > 0 && (!lane_is_clean(g, s, lane, PIECE) || b->count > size);
            if (more && !(atomic_load(&g->hidden) & bit_of(lane)))
                lane_evict(b, &s->table, bit_of(lane), size, PIECE);
            prefix_lock_release(&l->lock);
            epoch_leave();
            if (!more || done >= blocks) {
                is_done = is_done && !more;
                break;
            }
        }
    }
    return is_done;
}

/* Figures */

uint64_t mirror_warmth(const struct mirror *m, uint32_t lane)
{
    return atomic_load_explicit(&lane_of(m, lane)->warmth, memory_order_relaxed);
}

uint32_t mirror_generation(const struct mirror *m, uint32_t lane)
{
    return atomic_load_explicit(&lane_of(m, lane)->generation, memory_order_acquire);
}

uint32_t mirror_room(const struct mirror *m, uint32_t lane)
{
    uint32_t size = mirror_size(m, lane),
             count = atomic_load_explicit(&lane_of(m, lane)->count, memory_order_relaxed);
    return count < size ? size - count : 0;
}

uint32_t mirror_size(const struct mirror *m, uint32_t lane)
{
    return atomic_load_explicit(&lane_of(m, lane)->size, memory_order_relaxed);
}

void mirror_stats(struct mirror *m, uint32_t lane, struct mirror_stats *ret)
{
    *ret = (struct mirror_stats){0};
    if (lane == MIRROR_NO_LANE)
        return;
    struct group *g = group_of(m, lane);
    struct lane *l = lane_of(m, lane);
    epoch_enter();
    prefix_lock_acquire(&l->lock);
    const struct lane_books *b = &atomic_load(&g->store)->books[lane % MIRROR_GROUP_LANES];
    bool hidden = atomic_load(&g->hidden) & bit_of(lane);
    *ret = (struct mirror_stats){.blocks = hidden ? 0 : b->count,
                                 .size = atomic_load(&l->size),
                                 .room = b->room,
                                 .ends = hidden ? 0 : b->n_notes,
                                 .evictions = atomic_load(&l->evictions),
                                 .warmth = atomic_load(&l->warmth)};
    prefix_lock_release(&l->lock);
    epoch_leave();
}

uint64_t mirror_memory(struct mirror *m)
{
    uint64_t sum = sizeof *m;
    for (unsigned k = 0; k < GROUPS; k++) {
        struct group *g = atomic_load(&m->groups[k]);
        const struct store *s = g ? atomic_load(&g->store) : NULL;
        if (!s)
            continue;
        sum += sizeof *g + sizeof *s + s->table.memory_bytes;
        for (unsigned i = 0; i < MIRROR_GROUP_LANES; i++)
            sum += s->books[i].room ? lane_memory(&s->books[i]) : 0;
    }
    return sum;
}

uint64_t mirror_bytes_used(struct mirror *m)
{
    uint64_t sum = 0;
    for (unsigned k = 0; k < GROUPS; k++) {
        struct group *g = atomic_load(&m->groups[k]);
        const struct store *s = g ? atomic_load(&g->store) : NULL;
        if (!s)
            continue;
        sum += s->table.memory_bytes;
        for (unsigned i = 0; i < MIRROR_GROUP_LANES; i++)
            sum += (uint64_t)s->books[i].n_heads * sizeof(uint32_t) +
                   (uint64_t)s->books[i].used * sizeof(struct lane_note);
    }
    return sum;
}
