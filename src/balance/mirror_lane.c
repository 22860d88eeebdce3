/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/mirror_lane.h"

#include <stdlib.h>

#include "balance/epoch.h"
#include "base/mem.h"

#define LISTED ((uint32_t)1 << 31)

static inline uint32_t kids_of(const struct lane_note *x)
{
    return x->kids & ~LISTED;
}

void lane_init(struct lane_books *l, uint32_t room)
{
    *l = (struct lane_books){.room = room, .used = 1};
    l->notes = mem_array((size_t)room + 2, sizeof *l->notes);
    /* Few blocks have a note, so an eighth is roomy; where all have one, chains are eight long. */
    l->n_heads = room / 8 + 1;
    l->heads = mem_array(l->n_heads, sizeof *l->heads);
    l->trail = mem_array(room, sizeof *l->trail);
}

void lane_retire(struct lane_books *l)
{
    epoch_retire(l->notes, ((size_t)l->room + 2) * sizeof *l->notes);
    epoch_retire(l->heads, l->n_heads * sizeof *l->heads);
    epoch_retire(l->trail, (size_t)l->room * sizeof *l->trail);
    *l = (struct lane_books){0};
}

uint64_t lane_memory(const struct lane_books *l)
{
    return ((uint64_t)l->room + 2) * sizeof *l->notes + (uint64_t)l->n_heads * sizeof *l->heads +
           (uint64_t)l->room * sizeof *l->trail;
}

/* Notes */

static inline uint32_t *head_of(const struct lane_books *l, uint32_t slot)
{
    uint32_t mixed = slot * 0x9e3779b1u;
    return &l->heads[(uint64_t)mixed * l->n_heads >> 32];
}

static struct lane_note *note_find(const struct lane_books *l, uint32_t slot)
{
    for (uint32_t i = *head_of(l, slot); i; i = l->notes[i].next)
        if (l->notes[i].slot == slot)
            return &l->notes[i];
    return NULL;
}

static struct lane_note *note_new(struct lane_books *l, uint32_t slot, uint32_t kids)
{
    uint32_t i = l->free;
    if (i)
        l->free = l->notes[i].newer;
    else
        i = l->used++;
    CHECK(i <= l->room + 1);
    uint32_t *head = head_of(l, slot);
    l->notes[i] = (struct lane_note){.slot = slot, .next = *head, .kids = kids, .trail = TRAIL_END};
    *head = i;
    l->n_notes++;
    return &l->notes[i];
}

static void note_free(struct lane_books *l, struct lane_note *x)
{
    uint32_t i = (uint32_t)(x - l->notes), *at = head_of(l, x->slot);
    while (*at != i)
        at = &l->notes[*at].next;
    *at = x->next;
    x->newer = l->free;
    l->free = i;
    l->n_notes--;
}

static void unlist(struct lane_books *l, struct lane_note *x)
{
    l->notes[x->older].newer = x->newer;
    l->notes[x->newer].older = x->older;
    x->kids &= ~LISTED;
    x->serial = 0;
}

/* Behind <older>; 0 makes it the oldest of all. */
static void list_behind(struct lane_books *l, struct lane_note *x, uint32_t older)
{
    uint32_t i = (uint32_t)(x - l->notes);
    x->older = older;
    x->newer = l->notes[older].newer;
    l->notes[older].newer = i;
    l->notes[x->newer].older = i;
    x->kids |= LISTED;
}

/* A note that neither is in the list nor counts more than the usual child says nothing. */
static void note_settle(struct lane_books *l, struct lane_note *x)
{
    if (x->kids == 1)
        note_free(l, x);
}

/* The block becomes the most recent one. */
static struct lane_note *touch(struct lane_books *l, uint32_t slot, uint32_t serial)
{
    struct lane_note *x = note_find(l, slot);
    if (!x)
        x = note_new(l, slot, 1);
    if (x->kids & LISTED)
        unlist(l, x);
    list_behind(l, x, l->notes[0].older);
    x->serial = serial;
    return x;
}

/* The trail */

/* No slot has this place in a bucket. */
enum { TRAIL_JUMP = 7, TRAIL_AHEAD = 16 };

static uint32_t trail_add(struct lane_books *l, uint32_t entry)
{
    uint32_t at = l->trail_at;
    l->trail[at] = entry;
    l->trail_at = at + 1 < l->room ? at + 1 : 0;
    return at;
}

/* Blocks behind the one at this place follow. */
static void trail_begin(struct lane_books *l, uint32_t parent)
{
    trail_add(l, parent == TRAIL_END ? TRAIL_END : parent << 3 | TRAIL_JUMP);
}

/* Where the parent of the block at <at> is. */
static uint32_t trail_parent(const struct lane_books *l, uint32_t at)
{
    at = at > 0 ? at - 1 : l->room - 1;
    uint32_t entry = l->trail[at];
    if ((entry & 7) != TRAIL_JUMP)
        return at;
    return entry >> 3 < l->room ? entry >> 3 : TRAIL_END;
}

static void trail_prefetch(const struct lane_books *l, const struct block_table *t, uint32_t at)
{
    uint32_t slot = l->trail[at];
    if ((slot & 7) == TRAIL_JUMP || slot >> 3 >= t->n)
        return;
    block_bucket_prefetch(&t->buckets[slot >> 3]);
    block_prefetch(head_of(l, slot));
}

/* Two walkers from a block to the beginning of its prompt; <ahead> fetches for <at>. */
struct trail_walk {
    uint32_t at, ahead;
};

static void trail_ahead(const struct lane_books *l, const struct block_table *t, struct trail_walk *w)
{
    if (w->ahead == TRAIL_END)
        return;
    trail_prefetch(l, t, w->ahead);
    w->ahead = trail_parent(l, w->ahead);
}

static struct trail_walk trail_start(const struct lane_books *l, const struct block_table *t, uint32_t at,
                                     uint32_t most)
{
    struct trail_walk w = {at, at};
    for (unsigned i = 0; i < TRAIL_AHEAD && i < most; i++)
        trail_ahead(l, t, &w);
    return w;
}

/* On to <slot>, the parent, as the trail has it or not. */
static void trail_follow(const struct lane_books *l, const struct block_table *t, struct trail_walk *w,
                         uint32_t slot)
{
    if (w->at == TRAIL_END)
        return;
    w->at = trail_parent(l, w->at);
    if (w->at != TRAIL_END && l->trail[w->at] != slot)
        w->at = TRAIL_END;
    if (w->at != TRAIL_END)
        trail_ahead(l, t, w);
}

/* Blocks */

static bool holds(const struct block_table *t, uint64_t bit, uint64_t key, uint32_t *ret_slot)
{
    uint64_t holders;
    *ret_slot = block_table_find(t, key, &holders);
    return holders & bit;
}

uint32_t lane_depth(const struct block_table *t, uint64_t bit, const uint64_t *keys, uint32_t n)
{
    uint32_t low = 0, high = 1, slot; /* keys[0..low) are held */
    while (high <= n && holds(t, bit, keys[high - 1], &slot)) {
        low = high;
        high = 2 * high + 1;
    }
    high = high <= n ? high - 1 : n; /* keys[high..) may be ruled out, keys[high - 1] may be held */
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (holds(t, bit, keys[middle - 1], &slot))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* A child of <parent> has gone, which was older than all others: what that makes of the parent. Returns
 * whether the parent has nothing left and should go next. <trail>: its place there. */
static bool lose_child(struct lane_books *l, uint32_t parent, bool go_on, uint32_t trail)
{
    struct lane_note *x = note_find(l, parent);
    if (!x) {
        if (go_on)
            return true;
        x = note_new(l, parent, 0);
        x->trail = trail;
        list_behind(l, x, 0);
        return false;
    }
    x->kids--;
    if (x->kids == 0) /* neither children nor a place of its own */
        list_behind(l, x, 0);
    else
        note_settle(l, x);
    return false;
}

uint32_t lane_evict(struct lane_books *l, struct block_table *t, uint64_t bit, uint32_t keep, uint32_t most)
{
    uint32_t gone = 0;
    while (l->count > keep && gone < most) {
        struct lane_note *x = &l->notes[l->notes[0].newer];
        CHECK(x != l->notes);
        bool has_kids = kids_of(x) > 0;
        uint32_t slot = x->slot, parent;
        unlist(l, x);
        if (has_kids) { /* its children are younger and will hand their place on */
            note_settle(l, x);
            continue;
        }
        uint32_t left = most - gone < l->count - keep ? most - gone : l->count - keep;
        struct trail_walk w = trail_start(l, t, x->trail, left);
        note_free(l, x);
        for (;;) {
            parent = block_table_parent(t, slot);
            block_table_drop(t, slot, bit);
            l->count--;
            gone++;
            if (parent == BLOCK_NONE)
                break;
            trail_follow(l, t, &w, parent);
            if (!lose_child(l, parent, l->count > keep && gone < most, w.at))
                break;
            slot = parent;
        }
    }
    return gone;
}

/* The last block that the lane holds gets a child: from now on the child is the end. */
static void gain_child(struct lane_books *l, struct lane_note *x)
{
    unlist(l, x);
    x->kids++;
    note_settle(l, x);
}

uint32_t lane_record(struct lane_books *l, struct block_table *t, uint64_t bit, uint32_t size,
                     const uint64_t *keys, uint32_t n, uint32_t serial, uint32_t *ret_before,
                     uint32_t *ret_evicted)
{
    enum { EXCESS = 4096 };      /* of a lane that shrinks: put out at a time */
    enum { FAR = 16, NEAR = 6 }; /* blocks ahead whose lines are on their way */
    size = size < l->room ? size : l->room;
    n = n < size ? n : size;
    uint32_t depth = lane_depth(t, bit, keys, n), parent = BLOCK_NONE;
    *ret_before = depth;
    *ret_evicted = 0;
    if (n == 0)
        return 0;
    struct lane_note *at = NULL;
    if (depth > 0) {
        CHECK(holds(t, bit, keys[depth - 1], &parent));
        at = touch(l, parent, serial); /* which also keeps it from being put out now */
    }
    if (depth == n)
        return n;
    *ret_evicted = lane_evict(l, t, bit, size - (n - depth), n - depth + EXCESS);
    uint32_t made = depth, trail = TRAIL_END;
    trail_begin(l, at ? at->trail : TRAIL_END);
    for (; made < n && l->count < l->room; made++) {
        if (made + FAR < n)
            block_table_prefetch(t, keys[made + FAR]);
        if (made + NEAR < n)
            block_table_prepare(t, keys[made + NEAR]);
        uint32_t slot = block_table_add(t, keys[made], bit, parent);
        if (slot == BLOCK_NONE)
            break;
        trail = trail_add(l, slot);
        parent = slot;
        l->count++;
    }
    if (made == depth)
        return depth;
    if (at)
        gain_child(l, at);
    list_behind(l, at = note_new(l, parent, 0), l->notes[0].older);
    at->serial = serial;
    at->trail = trail;
    return made;
}

bool lane_withdraw(struct lane_books *l, struct block_table *t, uint64_t bit, uint64_t end, uint32_t before,
                   uint32_t depth, uint32_t serial)
{
    uint32_t slot;
    if (depth <= before || !holds(t, bit, end, &slot))
        return false;
    struct lane_note *x = note_find(l, slot);
    if (!x || x->serial != serial || kids_of(x) > 0)
        return false;
    unlist(l, x);
    note_free(l, x);
    for (;;) {
        uint32_t parent = block_table_parent(t, slot);
        block_table_drop(t, slot, bit);
        l->count--;
        depth--;
        if (parent == BLOCK_NONE)
            return true;
        slot = parent;
        x = note_find(l, slot);
        if (x || depth <= before)
            break;
    }
    /* What stays has lost its child and counts as used now. */
    if (x)
        x->kids--;
    else
        note_new(l, slot, 0);
    touch(l, slot, 0);
    return true;
}

void lane_replay(const struct lane_books *l, const struct block_table *t, uint64_t *keys,
                 void (*each)(void *arg, const uint64_t *keys, uint32_t n, uint32_t serial), void *arg)
{
    for (uint32_t i = l->notes[0].newer; i; i = l->notes[i].newer) {
        uint32_t n = 0;
        for (uint32_t slot = l->notes[i].slot; slot != BLOCK_NONE; slot = block_table_parent(t, slot))
            keys[n++] = block_table_key(t, slot);
        for (uint32_t a = 0, b = n - 1; a < b; a++, b--) {
            uint64_t key = keys[a];
            keys[a] = keys[b];
            keys[b] = key;
        }
        each(arg, keys, n, l->notes[i].serial);
    }
}
