/* SPDX-License-Identifier: Apache-2.0
 *
 * Matching and recording.
 */
#include "balance/mirror_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

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
        /* One of these two is looked at next, if any. */
        uint32_t lower = s.low + (middle - s.low) / 2, upper = middle + (s.high - middle) / 2;
        block_table_prefetch(t, keys[lower > 0 ? lower - 1 : 0]);
        block_table_prefetch(t, keys[upper - 1]);
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

/* The blocks of a step of match_group that are looked at first: its end, its middle, the middles of the
 * halves. In short steps their halves as well, since a short prompt has nothing but those to wait for. */
static void prefetch_step(const struct block_table *t, const uint64_t *keys, uint32_t low, uint32_t high)
{
    enum { SHORT = 16 };
    uint32_t n = high - low, part = n > SHORT || n <= SHORT / 2 ? n / 4 : n / 8;
    block_table_prefetch(t, keys[high - 1]);
    for (uint32_t at = low + part; part > 0 && at < high; at += part)
        block_table_prefetch(t, keys[at - 1]);
}

void mirror_prefetch(const struct mirror *m, uint32_t lane, const uint64_t *keys, uint32_t n)
{
    if (lane == MIRROR_NO_LANE || n == 0)
        return;
    const struct store *s = atomic_load_explicit(&group_of(m, lane)->store, memory_order_acquire);
    for (uint32_t low = 0; low < n;) {
        uint32_t high = 2 * low + 1 < n ? 2 * low + 1 : n;
        prefetch_step(&s->table, keys, low, high);
        low = high;
    }
}

void mirror_lane_set_init(struct mirror_lane_set *s, const uint32_t *lanes, unsigned n)
{
    *s = (struct mirror_lane_set){
        .lane = lanes, .n = n, .only_group = n > 0 ? lanes[0] / MIRROR_GROUP_LANES : 0};
    for (unsigned i = 0; i < n; i++) {
        uint32_t k = lanes[i] / MIRROR_GROUP_LANES;
        if (k != s->only_group || lanes[i] == MIRROR_NO_LANE)
            s->only_group = MIRROR_NO_LANE;
        if (lanes[i] != MIRROR_NO_LANE)
            s->wanted[k] |= bit_of(lanes[i]);
    }
}

/* <depth> of the group's lanes; returns the group. */
static const struct group *match_lanes(const struct mirror *m, const uint64_t *keys, uint32_t n, unsigned k,
                                       uint64_t wanted, uint32_t depth[MIRROR_GROUP_LANES])
{
    const struct group *g = atomic_load_explicit(&m->groups[k], memory_order_acquire);
    uint64_t hidden = atomic_load_explicit(&g->hidden, memory_order_acquire) & wanted;
    const struct store *s = atomic_load_explicit(&g->store, memory_order_acquire);
    match_group(&s->table, keys, n, wanted & ~hidden, depth);
    for (; UNLIKELY(hidden != 0); hidden &= hidden - 1)
        depth[__builtin_ctzll(hidden)] = 0;
    return g;
}

void mirror_match(const struct mirror *m, const uint64_t *keys, uint32_t n, const struct mirror_lane_set *set,
                  uint32_t *ret, uint32_t *ret_room)
{
    uint32_t depth[MIRROR_GROUP_LANES];
    if (LIKELY(set->only_group != MIRROR_NO_LANE)) {
        if (set->n == 0)
            return;
        const struct group *g = match_lanes(m, keys, n, set->only_group, set->wanted[set->only_group], depth);
        for (unsigned i = 0; i < set->n; i++) {
            unsigned at = set->lane[i] % MIRROR_GROUP_LANES;
            ret[i] = depth[at];
            ret_room[i] = atomic_load_explicit(&g->room[at], memory_order_relaxed);
        }
        return;
    }
    memset(ret, 0, set->n * sizeof *ret);
    memset(ret_room, 0, set->n * sizeof *ret_room);
    for (unsigned k = 0; k < GROUPS; k++) {
        if (!set->wanted[k])
            continue;
        const struct group *g = match_lanes(m, keys, n, k, set->wanted[k], depth);
        for (unsigned i = 0; i < set->n; i++)
            if (set->lane[i] / MIRROR_GROUP_LANES == k) {
                unsigned at = set->lane[i] % MIRROR_GROUP_LANES;
                ret[i] = depth[at];
                ret_room[i] = atomic_load_explicit(&g->room[at], memory_order_relaxed);
            }
    }
}

/* Recording */

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
    if (mirror_lane_is_clean(g, s, lane, CLEAN_AT_ONCE)) {
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
        mirror_lane_show(g, lane);
    }
    prefix_lock_release(&l->lock);
    epoch_leave();
    return r;
}

/* The <n> keys of the prompt that ends with <last>, as the lane holds it. */
static bool read_chain(struct mirror *m, uint32_t lane, uint64_t last, uint32_t n, uint64_t *ret)
{
    struct group *g = group_of(m, lane);
    struct lane *l = lane_of(m, lane);
    if (atomic_load_explicit(&g->is_moving, memory_order_relaxed))
        return false;
    epoch_enter();
    prefix_lock_acquire(&l->lock);
    const struct store *s = atomic_load_explicit(&g->store, memory_order_acquire);
    uint64_t holders;
    uint32_t slot = block_table_find(&s->table, last, &holders), left = n;
    bool is_hidden = atomic_load_explicit(&g->hidden, memory_order_relaxed) & bit_of(lane);
    if (is_hidden || !(holders & bit_of(lane)))
        slot = BLOCK_NONE;
    for (; slot != BLOCK_NONE && left > 0; slot = block_table_parent(&s->table, slot))
        ret[--left] = block_table_key(&s->table, slot);
    prefix_lock_release(&l->lock);
    epoch_leave();
    return slot == BLOCK_NONE && left == 0;
}

bool mirror_extend(struct mirror *m, uint32_t lane, uint64_t after, uint32_t before, const uint64_t *keys,
                   uint32_t n)
{
    if (lane == MIRROR_NO_LANE)
        return false;
    if (before == 0)
        return mirror_record(m, lane, keys, n).generation != 0;
    uint64_t *all = mem_array((size_t)before + n, sizeof *all);
    bool ok = read_chain(m, lane, after, before, all);
    if (ok) {
        memcpy(all + before, keys, n * sizeof *keys);
        ok = mirror_record(m, lane, all, before + n).generation != 0;
    }
    free(all);
    return ok;
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
        mirror_lane_show(g, r->lane);
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
    mirror_lane_show(g, lane);
    prefix_lock_release(&l->lock);
    epoch_leave();
}
