/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots and lanes; recording with its caps.
 */
#include "balance/prefix_index.h"

#include <pthread.h>
#include <stdlib.h>

#include "balance/epoch.h"
#include "balance/prefix_tree.h"
#include "base/mem.h"

enum {
    INDEX_MAGIC = 0x70726678,
    IDLE_SLOTS_MIN = 8,
    TIDY_PROMPTS = 4,
    EVICT_MAX = 2048,
    PENDING_SHARE = 16, /* of the caps, that attempts which may fail yet may take above them */
    NO_LANE = UINT32_MAX
};

struct slot {
    uint64_t identity;
    unsigned refs;       /* 0: idle, or free */
    uint64_t idle_since; /* a count of puts */
};

struct prefix_index {
    unsigned magic;
    atomic_uint refs;
    _Atomic uint64_t max_nodes, max_bytes;
    struct tree tree;
    _Atomic uint32_t slot_lane[PREFIX_SLOTS_MAX];       /* NO_LANE: the slot is free */
    _Atomic uint64_t slot_generation[PREFIX_SLOTS_MAX]; /* + 1; 0: not told yet */
    struct slot slots[PREFIX_SLOTS_MAX];
    pthread_mutex_t lock; /* slots' owners, and which lane is whose; before any lane's lock */
    uint64_t puts;
    atomic_uint dying; /* lanes to be emptied */
};

/* Half of the range at most, so that what is allowed above a cap is still a number. */
static uint64_t limit(uint64_t x, uint64_t least)
{
    return x < least ? least : x < INT64_MAX / 2 ? x : INT64_MAX / 2;
}

void prefix_limits_set(struct prefix_index *ix, struct prefix_limits limits)
{
    SET_RELAXED(ix->max_nodes, limit(limits.max_nodes, 1));
    SET_RELAXED(ix->max_bytes, limit(limits.max_bytes, PREFIX_MAX_BYTES_MIN));
}

struct prefix_index *prefix_index_new(struct prefix_limits limits)
{
    struct prefix_index *ix = MEM_NEW(struct prefix_index);
    ix->magic = INDEX_MAGIC;
    atomic_init(&ix->refs, 1);
    prefix_limits_set(ix, limits);
    tree_init(&ix->tree);
    CHECK(pthread_mutex_init(&ix->lock, NULL) == 0);
    for (unsigned i = 0; i < PREFIX_SLOTS_MAX; i++)
        atomic_init(&ix->slot_lane[i], NO_LANE);
    return ix;
}

struct prefix_index *prefix_index_ref(struct prefix_index *ix)
{
    MAGIC_CHECK(ix, INDEX_MAGIC);
    atomic_fetch_add_explicit(&ix->refs, 1, memory_order_relaxed);
    return ix;
}

static struct lane *lane_of(const struct prefix_index *ix, uint32_t id)
{
    return LOAD(ix->tree.lanes[id]);
}

/* Puts out the oldest prompt. The lane's lock is held. */
static void drop_oldest(struct prefix_index *ix, struct lane *l)
{
    tree_remove(&ix->tree, l, l->oldest);
    /* The next one to go has not been touched for long. */
    if (l->oldest != ENTRY_NONE)
        __builtin_prefetch(lane_entry(l, l->oldest)->node, 1);
}

void prefix_index_unref(struct prefix_index *ix)
{
    if (!ix)
        return;
    MAGIC_CHECK(ix, INDEX_MAGIC);
    if (atomic_fetch_sub_explicit(&ix->refs, 1, memory_order_acq_rel) > 1)
        return;
    tree_fini(&ix->tree);
    pthread_mutex_destroy(&ix->lock);
    ix->magic = 0;
    free(ix);
}

void prefix_section_begin(void)
{
    epoch_enter();
}

void prefix_section_end(void)
{
    epoch_leave();
}

/* Lanes */

static void lane_begin_dying(struct prefix_index *ix, struct lane *l)
{
    prefix_lock_acquire(&l->lock);
    bool empty = l->oldest == ENTRY_NONE;
    SET_RELAXED(l->state, empty ? LANE_FREE : LANE_DYING);
    if (empty)
        lane_empty_pool(l);
    prefix_lock_release(&l->lock);
    if (!empty)
        atomic_fetch_add_explicit(&ix->dying, 1, memory_order_relaxed);
}

/* Empties up to <prompts> prompts of a dying lane; how many it did. */
static size_t lane_tidy(struct prefix_index *ix, struct lane *l, size_t prompts)
{
    size_t done = 0;
    prefix_lock_acquire(&l->lock);
    if (RELAXED(l->state) == LANE_DYING) {
        for (; done < prompts && l->oldest != ENTRY_NONE; done++)
            drop_oldest(ix, l);
        if (l->oldest == ENTRY_NONE) {
            lane_empty_pool(l);
            SET_RELAXED(l->state, LANE_FREE);
            atomic_fetch_sub_explicit(&ix->dying, 1, memory_order_relaxed);
        }
    }
    prefix_lock_release(&l->lock);
    return done;
}

bool prefix_tidy(struct prefix_index *ix, size_t prompts)
{
    prefix_section_begin();
    for (uint32_t i = 0; i < LANES_MAX && prompts > 0 && RELAXED(ix->dying) > 0; i++) {
        struct lane *l = lane_of(ix, i);
        if (l && RELAXED(l->state) == LANE_DYING)
            prompts -= lane_tidy(ix, l, prompts);
    }
    prefix_section_end();
    return RELAXED(ix->dying) == 0;
}

/* A lane for a slot. ix->lock is held. There are more lanes than slots; if all the others are still dying,
 * one is emptied now. */
static struct lane *lane_take(struct prefix_index *ix, uint64_t evictions)
{
    struct lane *l = NULL;
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        l = lane_of(ix, i);
        if (!l) {
            l = lane_new(i);
            STORE(ix->tree.lanes[i], l);
        }
        if (RELAXED(l->state) == LANE_FREE)
            break;
        if (i + 1 == LANES_MAX) {
            /* Unless others have emptied the last of them just now. */
            prefix_tidy(ix, SIZE_MAX);
            i = UINT32_MAX; /* from the first one */
        }
    }
    prefix_lock_acquire(&l->lock);
    SET_RELAXED(l->state, LANE_LIVE);
    l->serial_begin = l->serial;
    SET_RELAXED(ix->tree.warmth[l->id], 0);
    SET_RELAXED(l->evictions, evictions);
    prefix_lock_release(&l->lock);
    return l;
}

/* Slots */

static void slot_empty(struct prefix_index *ix, uint32_t slot)
{
    uint32_t lane = RELAXED(ix->slot_lane[slot]);
    STORE(ix->slot_lane[slot], NO_LANE);
    lane_begin_dying(ix, lane_of(ix, lane));
}

static bool slot_is_idle(const struct prefix_index *ix, uint32_t slot)
{
    return ix->slots[slot].refs == 0 && RELAXED(ix->slot_lane[slot]) != NO_LANE;
}

static uint32_t slot_longest_idle(struct prefix_index *ix)
{
    uint32_t longest = PREFIX_NO_SLOT;
    for (uint32_t i = 0; i < PREFIX_SLOTS_MAX; i++)
        if (slot_is_idle(ix, i) &&
            (longest == PREFIX_NO_SLOT || ix->slots[i].idle_since < ix->slots[longest].idle_since))
            longest = i;
    return longest;
}

uint32_t prefix_slot_get(struct prefix_index *ix, uint64_t identity)
{
    MAGIC_CHECK(ix, INDEX_MAGIC);
    uint32_t vacant = PREFIX_NO_SLOT, found = PREFIX_NO_SLOT;
    pthread_mutex_lock(&ix->lock);
    for (uint32_t i = 0; i < PREFIX_SLOTS_MAX && found == PREFIX_NO_SLOT; i++) {
        if (RELAXED(ix->slot_lane[i]) == NO_LANE)
            vacant = vacant == PREFIX_NO_SLOT ? i : vacant;
        else if (ix->slots[i].identity == identity)
            found = i;
    }
    if (found == PREFIX_NO_SLOT) {
        found = vacant != PREFIX_NO_SLOT ? vacant : slot_longest_idle(ix);
        if (found != PREFIX_NO_SLOT) {
            if (vacant == PREFIX_NO_SLOT)
                slot_empty(ix, found);
            ix->slots[found].identity = identity;
            SET_RELAXED(ix->slot_generation[found], 0);
            STORE(ix->slot_lane[found], lane_take(ix, 0)->id);
        }
    }
    if (found != PREFIX_NO_SLOT)
        ix->slots[found].refs++;
    pthread_mutex_unlock(&ix->lock);
    return found;
}

void prefix_slot_put(struct prefix_index *ix, uint32_t slot)
{
    MAGIC_CHECK(ix, INDEX_MAGIC);
    if (slot == PREFIX_NO_SLOT)
        return;
    CHECK(slot < PREFIX_SLOTS_MAX);
    pthread_mutex_lock(&ix->lock);
    struct slot *s = &ix->slots[slot];
    CHECK_MSG(s->refs > 0, "a slot given back more often than taken");
    if (--s->refs == 0) {
        s->idle_since = ++ix->puts;
        unsigned used = 0, idle = 0;
        for (unsigned i = 0; i < PREFIX_SLOTS_MAX; i++) {
            used += ix->slots[i].refs > 0;
            idle += slot_is_idle(ix, i);
        }
        if (idle > IDLE_SLOTS_MIN && idle > used)
            slot_empty(ix, slot_longest_idle(ix));
    }
    pthread_mutex_unlock(&ix->lock);
}

/* The lane of a slot, or NULL. */
static struct lane *lane_of_slot(const struct prefix_index *ix, uint32_t slot)
{
    if (slot == PREFIX_NO_SLOT)
        return NULL;
    CHECK(slot < PREFIX_SLOTS_MAX);
    uint32_t id = LOAD(ix->slot_lane[slot]);
    return id == NO_LANE ? NULL : lane_of(ix, id);
}

/* ix->lock is held. */
static void slot_reset(struct prefix_index *ix, uint32_t slot)
{
    struct lane *l = lane_of_slot(ix, slot);
    if (!l)
        return;
    STORE(ix->slot_lane[slot], lane_take(ix, RELAXED(l->evictions))->id);
    lane_begin_dying(ix, l);
}

void prefix_reset(struct prefix_index *ix, uint32_t slot)
{
    MAGIC_CHECK(ix, INDEX_MAGIC);
    pthread_mutex_lock(&ix->lock);
    slot_reset(ix, slot);
    pthread_mutex_unlock(&ix->lock);
}

void prefix_slot_generation(struct prefix_index *ix, uint32_t slot, unsigned generation)
{
    if (slot == PREFIX_NO_SLOT || RELAXED(ix->slot_generation[slot]) == (uint64_t)generation + 1)
        return;
    pthread_mutex_lock(&ix->lock);
    uint64_t before = RELAXED(ix->slot_generation[slot]);
    /* A lower one was read before the last one was raised. */
    if (before < (uint64_t)generation + 1) {
        if (before != 0)
            slot_reset(ix, slot);
        SET_RELAXED(ix->slot_generation[slot], (uint64_t)generation + 1);
    }
    pthread_mutex_unlock(&ix->lock);
}

/* Matching and recording */

static struct span cut(const struct prefix_index *ix, struct span prompt)
{
    /* A prompt alone in its slot is not above the cap. */
    uint64_t most = RELAXED(ix->max_bytes) - CHUNK_CHARGE - PROMPT_CHARGE - NODE_CHARGE - NODE_CHARGE_WIDE;
    if (most > 2 * PREFIX_PROMPT_MAX)
        most = 2 * PREFIX_PROMPT_MAX;
    most -= most / TEXT_CHARGE_EACH + 1;
    if (most > PREFIX_PROMPT_MAX)
        most = PREFIX_PROMPT_MAX;
    return span_of(prompt.p, prompt.n < most ? prompt.n : (size_t)most);
}

void prefix_match(struct prefix_index *ix, struct span prompt, const uint32_t *slots, unsigned n,
                  struct prefix_hit *ret)
{
    MAGIC_CHECK(ix, INDEX_MAGIC);
    struct prefix_hit by_lane[LANES_MAX];
    uint64_t set[LANE_WORDS] = {0};
    uint32_t highest = 0;
    prompt = cut(ix, prompt);
    epoch_enter();
    for (unsigned i = 0; i < n; i++) {
        CHECK(slots[i] < PREFIX_SLOTS_MAX || slots[i] == PREFIX_NO_SLOT);
        uint32_t id = slots[i] == PREFIX_NO_SLOT ? NO_LANE : LOAD(ix->slot_lane[slots[i]]);
        ret[i].bytes = id; /* the lane, until the answer is there */
        if (id == NO_LANE)
            continue;
        set[id / 64] |= (uint64_t)1 << (id % 64);
        highest = id > highest ? id : highest;
    }
    tree_match(&ix->tree, prompt, set, highest / 64 + 1, by_lane);
    for (unsigned i = 0; i < n; i++) {
        /* A slot that was reset meanwhile has another lane, and this one may be someone else's by now. */
        uint32_t id = ret[i].bytes;
        bool is_same = id != NO_LANE && LOAD(ix->slot_lane[slots[i]]) == id;
        ret[i] = is_same ? by_lane[id] : (struct prefix_hit){0, NULL};
    }
    epoch_leave();
}

/* Above a cap the oldest prompts go, but never the last one that is left. EVICT_MAX is more than the longest
 * prompt displaces; only a slot whose caps were lowered comes down by steps, for others wait meanwhile. */
static uint32_t evict(struct prefix_index *ix, struct lane *l, bool pending)
{
    uint32_t n = 0;
    int64_t max_nodes = (int64_t)RELAXED(ix->max_nodes), max_bytes = (int64_t)RELAXED(ix->max_bytes);
    if (pending) {
        max_nodes += max_nodes / PENDING_SHARE + PREFIX_PENDING_NODES;
        max_bytes += max_bytes / PENDING_SHARE + PREFIX_PENDING_BYTES;
    }
    while ((RELAXED(l->nodes) > max_nodes || RELAXED(l->bytes) > max_bytes) && n < EVICT_MAX &&
           l->oldest != l->newest) {
        drop_oldest(ix, l);
        n++;
    }
    atomic_fetch_add_explicit(&l->evictions, n, memory_order_relaxed);
    return n;
}

/* Locks the slot's lane. It may be given to another slot between looking and locking: look again. */
static struct lane *lane_lock(struct prefix_index *ix, uint32_t slot)
{
    for (;;) {
        struct lane *l = lane_of_slot(ix, slot);
        if (!l)
            return NULL;
        prefix_lock_acquire(&l->lock);
        if (lane_of_slot(ix, slot) == l && RELAXED(l->state) == LANE_LIVE)
            return l;
        prefix_lock_release(&l->lock);
    }
}

static struct prefix_receipt record(struct prefix_index *ix, uint32_t slot, struct span prompt,
                                    const struct prefix_hit *hint, bool pending)
{
    MAGIC_CHECK(ix, INDEX_MAGIC);
    prompt = cut(ix, prompt);
    struct prefix_receipt receipt = {0};
    if (prompt.n == 0)
        return receipt;
    epoch_enter();
    struct lane *l = lane_lock(ix, slot);
    if (l) {
        bool added = false;
        uint32_t i = tree_insert(&ix->tree, l, prompt, hint, &added);
        struct entry *e = lane_entry(l, i);
        if (e->records < UINT32_MAX)
            e->records++;
        receipt = (struct prefix_receipt){.serial = e->serial, .lane = l->id, .entry = i};
        if (added)
            receipt.evicted = evict(ix, l, pending);
        else
            lane_refresh(l, i);
        atomic_fetch_add_explicit(&ix->tree.warmth[l->id], 1, memory_order_relaxed);
        prefix_lock_release(&l->lock);
    }
    if (UNLIKELY(RELAXED(ix->dying) > 0))
        prefix_tidy(ix, TIDY_PROMPTS);
    epoch_leave();
    return receipt;
}

struct prefix_receipt prefix_record(struct prefix_index *ix, uint32_t slot, struct span prompt,
                                    const struct prefix_hit *hint)
{
    return record(ix, slot, prompt, hint, false);
}

struct prefix_receipt prefix_record_pending(struct prefix_index *ix, uint32_t slot, struct span prompt,
                                            const struct prefix_hit *hint)
{
    return record(ix, slot, prompt, hint, true);
}

/* Without a lock: attempts settle more often than a slot is above its caps. */
static bool is_above_caps(const struct prefix_index *ix, const struct lane *l)
{
    return RELAXED(l->nodes) > (int64_t)RELAXED(ix->max_nodes) ||
           RELAXED(l->bytes) > (int64_t)RELAXED(ix->max_bytes);
}

uint32_t prefix_settle(struct prefix_index *ix, struct prefix_receipt receipt)
{
    MAGIC_CHECK(ix, INDEX_MAGIC);
    struct lane *l = receipt.serial ? lane_of(ix, receipt.lane) : NULL;
    if (!l || !is_above_caps(ix, l))
        return 0;
    uint32_t n = 0;
    epoch_enter();
    prefix_lock_acquire(&l->lock);
    if (RELAXED(l->state) == LANE_LIVE)
        n = evict(ix, l, false);
    prefix_lock_release(&l->lock);
    epoch_leave();
    return n;
}

void prefix_withdraw(struct prefix_index *ix, struct prefix_receipt receipt)
{
    MAGIC_CHECK(ix, INDEX_MAGIC);
    if (receipt.serial == 0)
        return;
    epoch_enter();
    struct lane *l = lane_of(ix, receipt.lane);
    prefix_lock_acquire(&l->lock);
    if (RELAXED(l->state) == LANE_LIVE && receipt.serial > l->serial_begin) {
        atomic_fetch_sub_explicit(&ix->tree.warmth[l->id], 1, memory_order_relaxed);
        struct entry *e = receipt.entry < l->used ? lane_entry(l, receipt.entry) : NULL;
        if (e && e->serial == receipt.serial && e->records < UINT32_MAX && --e->records == 0)
            tree_remove(&ix->tree, l, receipt.entry);
    }
    prefix_lock_release(&l->lock);
    epoch_leave();
}

/* Inspection */

uint64_t prefix_warmth(const struct prefix_index *ix, uint32_t slot)
{
    if (slot == PREFIX_NO_SLOT)
        return 0;
    CHECK(slot < PREFIX_SLOTS_MAX);
    uint32_t id = LOAD(ix->slot_lane[slot]);
    return id == NO_LANE ? 0 : RELAXED(ix->tree.warmth[id]);
}

void prefix_stats(const struct prefix_index *ix, uint32_t slot, struct prefix_stats *ret)
{
    const struct lane *l = lane_of_slot(ix, slot);
    *ret = (struct prefix_stats){0};
    if (!l)
        return;
    *ret = (struct prefix_stats){
        .nodes = (uint64_t)RELAXED(l->nodes),
        .bytes = (uint64_t)RELAXED(l->bytes),
        .prompts = RELAXED(l->prompts),
        .evictions = RELAXED(l->evictions),
        .warmth = RELAXED(ix->tree.warmth[l->id]),
        .node_bytes = (unsigned)node_charge(l->id),
        .prompt_bytes = PROMPT_CHARGE,
        .chunk_bytes = CHUNK_CHARGE,
        .chunk_prompts = CHUNK_ENTRIES,
    };
}

uint64_t prefix_memory(const struct prefix_index *ix)
{
    int64_t sum = sizeof *ix + sizeof(struct prefix_node);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        const struct lane *l = lane_of(ix, i);
        sum += l ? (int64_t)sizeof *l + RELAXED(l->allocated) : 0;
    }
    return (uint64_t)sum;
}

void prefix_check(struct prefix_index *ix)
{
    MAGIC_CHECK(ix, INDEX_MAGIC);
    tree_check(&ix->tree);
}
