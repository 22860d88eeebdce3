/* SPDX-License-Identifier: Apache-2.0
 *
 * What lanes give up beside recordings, and figures.
 */
#include "balance/mirror_impl.h"

bool mirror_lane_is_clean(struct group *g, struct store *s, uint32_t lane, uint32_t most)
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
            bool more = b && b->room > 0 && (!mirror_lane_is_clean(g, s, lane, PIECE) || b->count > size);
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

uint64_t mirror_heat(const struct mirror *m, uint32_t lane)
{
    return atomic_load_explicit(&group_of(m, lane)->heat[lane % MIRROR_GROUP_LANES], memory_order_relaxed);
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
            sum += ((uint64_t)s->books[i].n_heads + s->books[i].room) * sizeof(uint32_t) +
                   (uint64_t)s->books[i].used * sizeof(struct lane_note);
    }
    return sum;
}
