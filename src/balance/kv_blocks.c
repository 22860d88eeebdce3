/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks are entries in segments, found by hash through chains, linked to the entry before them. Held ones
 * with nothing behind them stand in a list by age (two, so that waiting ones can go first): only these may be
 * put out, so that a prompt's tail goes before its head. When one goes, the block before it takes its place
 * in the list if nothing else is behind it.
 *
 * What an entry is:  known: id in the map, or noted;  waiting: the id is not known, as that of the block
 * before is not.  Each of them held or only remembered. A remembered one has others behind it.
 */
#include "balance/kv_blocks.h"

#include <stdlib.h>

#include "balance/kv_ids.h"
#include "base/check.h"
#include "base/mem.h"

enum { SEGMENT = 1024, HEADS_FIRST = 1024, NOTES_FIRST = 64 };

struct entry {
    uint64_t hash;
    uint32_t ref;    /* node of the map, or a note: has_node says which */
    uint32_t before; /* entry, 0 = none */
    union {
        struct {
            uint32_t newer, older; /* in its list, when it is a leaf */
        };
        uint32_t behind; /* entries whose `before` this is, when it is not */
    };
    uint32_t chain;
    uint32_t gpu : 3, lower : 3, leaf : 1, waits : 1;
    uint32_t second : 1; /* held and known, but another hash with the same tokens has the slot's bits */
    uint32_t blank : 1;  /* only its hash is known: others named it */
    uint32_t tag : 16;
};
_Static_assert(sizeof(struct entry) == 32, "an entry is 32 bytes");
_Static_assert(KV_COPIES_MAX < 8, "copies fit their bits");

/* What an entry needs besides while it waits or is remembered. */
struct note {
    uint64_t value;   /* waits: digest; else: id */
    uint32_t waiting; /* first entry that waits for this one */
    uint32_t sibling,
        sibling_back; /* while it waits for the same as others; of a free note the next free one */
};

struct age_list {
    uint32_t newest, oldest;
};

struct kv_blocks {
    struct kv_map *map;
    unsigned slot;
    struct entry **segment;
    uint32_t n_segments, used, free; /* entries */
    uint32_t *head;
    uint32_t n_heads;
    struct note *note;
    uint32_t n_notes, used_notes, free_note;
    struct age_list ages[2]; /* by `waits` */
    size_t held, all;
    uint32_t freed; /* entries that kv_blocks_free is done with */
};

static struct entry *at(const struct kv_blocks *b, uint32_t i)
{
    return &b->segment[i / SEGMENT][i % SEGMENT];
}

static bool is_held(const struct entry *e)
{
    return e->gpu || e->lower;
}

static bool has_node(const struct entry *e)
{
    return is_held(e) && !e->waits && !e->second;
}

static struct note *note_of(const struct kv_blocks *b, const struct entry *e)
{
    return &b->note[e->ref];
}

struct kv_blocks *kv_blocks_new(struct kv_map *map, unsigned slot)
{
    CHECK(slot < KV_SLOTS);
    struct kv_blocks *b = MEM_NEW(struct kv_blocks);
    b->map = map;
    b->slot = slot;
    b->n_heads = HEADS_FIRST;
    b->head = mem_array(b->n_heads, sizeof *b->head);
    b->used = b->used_notes = 1; /* 0 is none */
    b->freed = 1;
    return b;
}

/* Notes */

static uint32_t note_new(struct kv_blocks *b)
{
    uint32_t i = b->free_note;
    if (i) {
        b->free_note = b->note[i].sibling;
    } else {
        if (b->used_notes >= b->n_notes) {
            b->n_notes = b->n_notes ? b->n_notes + b->n_notes / 2 : NOTES_FIRST;
            b->note = mem_realloc(b->note, b->n_notes * sizeof *b->note);
        }
        i = b->used_notes++;
    }
    b->note[i] = (struct note){0};
    return i;
}

static void note_free(struct kv_blocks *b, uint32_t i)
{
    b->note[i].sibling = b->free_note;
    b->free_note = i;
}

/* Entries by hash. The engine chose the hash: mixed, so that its choice does not fill one chain. */

static uint32_t *head_of(const struct kv_blocks *b, uint64_t hash)
{
    return &b->head[(uint32_t)((unsigned __int128)kv_behind(1, hash) * b->n_heads >> 64)];
}

static uint32_t find(const struct kv_blocks *b, uint64_t hash)
{
    uint32_t i = *head_of(b, hash);
    while (i && at(b, i)->hash != hash)
        i = at(b, i)->chain;
    return i;
}

static void grow_heads(struct kv_blocks *b)
{
    uint32_t n_old = b->n_heads, *old = b->head;
    b->n_heads += b->n_heads / 2;
    b->head = mem_array(b->n_heads, sizeof *b->head);
    for (uint32_t h = 0; h < n_old; h++)
        for (uint32_t i = old[h], next; i; i = next) {
            struct entry *e = at(b, i);
            next = e->chain;
            uint32_t *head = head_of(b, e->hash);
            e->chain = *head;
            *head = i;
        }
    free(old);
}

static uint32_t entry_new(struct kv_blocks *b, uint64_t hash, uint16_t tag)
{
    if (b->all > b->n_heads + b->n_heads / 2)
        grow_heads(b);
    uint32_t i = b->free;
    if (i) {
        b->free = at(b, i)->chain;
    } else {
        if (b->used / SEGMENT == b->n_segments) {
            b->segment = mem_realloc(b->segment, (b->n_segments + 1) * sizeof *b->segment);
            b->segment[b->n_segments++] = mem_array(SEGMENT, sizeof(struct entry));
        }
        i = b->used++;
    }
    uint32_t *head = head_of(b, hash);
    *at(b, i) = (struct entry){.hash = hash, .tag = tag, .chain = *head};
    *head = i;
    b->all++;
    return i;
}

static void unchain(struct kv_blocks *b, uint32_t i)
{
    uint32_t *link = head_of(b, at(b, i)->hash);
    while (*link != i)
        link = &at(b, *link)->chain;
    *link = at(b, i)->chain;
}

/* Ages. <older> = 0: as the newest. */

static void age_insert(struct kv_blocks *b, uint32_t i, uint32_t newer, uint32_t older)
{
    struct entry *e = at(b, i);
    struct age_list *l = &b->ages[e->waits];
    e->leaf = 1;
    e->newer = newer;
    e->older = older;
    *(newer ? &at(b, newer)->older : &l->newest) = i;
    *(older ? &at(b, older)->newer : &l->oldest) = i;
}

static void age_remove(struct kv_blocks *b, uint32_t i)
{
    struct entry *e = at(b, i);
    struct age_list *l = &b->ages[e->waits];
    CHECK(e->leaf);
    *(e->newer ? &at(b, e->newer)->older : &l->newest) = e->older;
    *(e->older ? &at(b, e->older)->newer : &l->oldest) = e->newer;
    e->leaf = 0;
    e->behind = 0;
}

static void age_newest(struct kv_blocks *b, uint32_t i)
{
    age_insert(b, i, 0, b->ages[at(b, i)->waits].newest);
}

/* Who waits for whom */

static void wait_for(struct kv_blocks *b, uint32_t i, uint32_t before)
{
    struct note *n = note_of(b, at(b, i)), *p = note_of(b, at(b, before));
    n->sibling = p->waiting;
    n->sibling_back = 0;
    if (p->waiting)
        note_of(b, at(b, p->waiting))->sibling_back = i;
    p->waiting = i;
}

static void wait_over(struct kv_blocks *b, uint32_t i)
{
    struct entry *e = at(b, i);
    struct note *n = note_of(b, e);
    if (e->before == 0)
        return;
    if (n->sibling_back)
        note_of(b, at(b, n->sibling_back))->sibling = n->sibling;
    else
        note_of(b, at(b, e->before))->waiting = n->sibling;
    if (n->sibling)
        note_of(b, at(b, n->sibling))->sibling_back = n->sibling_back;
}

/* The slot's bits */

static void show(struct kv_blocks *b, const struct entry *e)
{
    if (has_node(e))
        kv_map_set(b->map, e->ref, b->slot, (e->gpu ? KV_HELD_GPU : 0u) | (e->lower ? KV_HELD_LOWER : 0u));
}

/* A held entry whose id is known: into the map. Sets `ref`. */
static void enter_map(struct kv_blocks *b, struct entry *e, uint64_t id)
{
    uint32_t node = kv_map_node(b->map, id);
    e->second = kv_map_get(b->map, node, b->slot) != 0;
    if (e->second) {
        e->ref = note_new(b);
        note_of(b, e)->value = id;
    } else {
        e->ref = node;
        show(b, e);
    }
}

static uint64_t id_of(const struct kv_blocks *b, const struct entry *e)
{
    return has_node(e) ? kv_map_id(b->map, e->ref) : note_of(b, e)->value;
}

/* A known entry loses its copies, and gets a note with its id in place of what it had. */
static void leave_map(struct kv_blocks *b, struct entry *e)
{
    bool node = has_node(e);
    uint64_t id = id_of(b, e);
    e->gpu = e->lower = e->second = 0;
    if (!node)
        return;
    kv_map_set(b->map, e->ref, b->slot, 0);
    e->ref = note_new(b);
    note_of(b, e)->value = id;
}

/* Who stands behind whom */

static void hang_behind(struct kv_blocks *b, uint32_t i, uint32_t before)
{
    at(b, i)->before = before;
    if (!before)
        return;
    if (at(b, before)->leaf)
        age_remove(b, before);
    at(b, before)->behind++;
}

static void entry_free(struct kv_blocks *b, uint32_t i)
{
    struct entry *e = at(b, i);
    unchain(b, i);
    if (!has_node(e))
        note_free(b, e->ref);
    *e = (struct entry){.chain = b->free};
    b->free = i;
    b->all--;
}

/* One less behind <i>. It takes the place between <newer> and <older> of its list when it is a leaf now, and
 * goes when it was remembered for that one only; so may others before it. The place counts only in the list
 * that <waits> names. */
static void unhang(struct kv_blocks *b, uint32_t i, bool waits, uint32_t newer, uint32_t older)
{
    while (i) {
        struct entry *e = at(b, i);
        CHECK(!e->leaf && e->behind > 0);
        if (--e->behind > 0)
            return;
        if (is_held(e)) {
            if (e->waits == waits)
                age_insert(b, i, newer, older);
            else
                age_newest(b, i);
            return;
        }
        uint32_t before = e->before;
        if (e->waits && !e->blank)
            wait_over(b, i);
        entry_free(b, i);
        i = before;
    }
}

/* The last copy goes: the entry is remembered when others stand behind it, else it ends. */
static void let_go(struct kv_blocks *b, uint32_t i)
{
    struct entry *e = at(b, i);
    b->held--;
    if (e->waits)
        e->gpu = e->lower = 0;
    else
        leave_map(b, e);
    if (!e->leaf)
        return;
    uint32_t before = e->before, newer = e->newer, older = e->older;
    bool waits = e->waits;
    age_remove(b, i);
    if (waits)
        wait_over(b, i);
    entry_free(b, i);
    unhang(b, before, waits, newer, older);
}

/* Storing */

/* <i> has an id now, and so have those that waited for it, and for them. */
static void become_known(struct kv_blocks *b, uint32_t i, uint64_t id)
{
    uint32_t todo = i;
    note_of(b, at(b, i))->value = id; /* of those in the list from here on: the id */
    note_of(b, at(b, i))->sibling = 0;
    while (todo) {
        uint32_t now = todo;
        struct entry *e = at(b, now);
        uint32_t note = e->ref;
        struct note n = b->note[note];
        todo = n.sibling;
        for (uint32_t w = n.waiting, next; w; w = next) {
            struct note *wn = note_of(b, at(b, w));
            next = wn->sibling;
            wn->value = kv_behind(n.value, wn->value);
            wn->sibling = todo;
            todo = w;
        }
        bool leaf = e->leaf;
        if (leaf)
            age_remove(b, now);
        e->waits = e->blank = 0;
        if (is_held(e)) {
            enter_map(b, e, n.value);
            note_free(b, note);
        } else {
            b->note[note].waiting = 0;
        }
        if (leaf)
            age_newest(b, now);
    }
}

static void add_copy(struct kv_blocks *b, struct entry *e, enum kv_tier tier)
{
    unsigned n = tier == KV_TIER_GPU ? e->gpu : e->lower;
    n += n < KV_COPIES_MAX;
    if (tier == KV_TIER_GPU)
        e->gpu = n & 7;
    else
        e->lower = n & 7;
}

/* A copy of an entry that is remembered or held, whose id or digest is what it was. */
static void store_same(struct kv_blocks *b, uint32_t i, enum kv_tier tier)
{
    struct entry *e = at(b, i);
    bool was_held = is_held(e), in_map = has_node(e);
    uint32_t note = e->ref;
    uint64_t id = id_of(b, e);
    b->held += !was_held;
    add_copy(b, e, tier);
    if (in_map) {
        show(b, e);
    } else if (!e->waits) { /* it was remembered, or second; perhaps it can be first now */
        enter_map(b, e, id);
        note_free(b, note);
    }
    if (e->leaf) { /* one that was remembered is none: others stand behind it */
        age_remove(b, i);
        age_newest(b, i);
    }
}

/* Before its content is set anew: nothing before it, no copies, blank. Those behind it stay what they are, or
 * wait for it still. */
static void strip(struct kv_blocks *b, uint32_t i)
{
    struct entry *e = at(b, i);
    uint32_t before = e->before;
    b->held -= is_held(e);
    if (e->leaf)
        age_remove(b, i);
    if (!e->waits)
        leave_map(b, e);
    else if (!e->blank)
        wait_over(b, i);
    e->gpu = e->lower = 0;
    e->waits = e->blank = 1;
    e->before = 0;
    e->behind++; /* it must not end here, should the chain before it come round to it */
    unhang(b, before, true, 0, b->ages[1].newest);
    e->behind--;
}

/* Gives an entry that is blank its content and its first copy. */
static void fill(struct kv_blocks *b, uint32_t i, const struct kv_store *s, uint32_t before)
{
    struct entry *e = at(b, i);
    bool leaf = e->behind == 0;
    e->blank = 0;
    e->tag = s->tag;
    hang_behind(b, i, before);
    add_copy(b, e, s->tier);
    b->held++;
    note_of(b, e)->value = s->digest;
    if (before && at(b, before)->waits)
        wait_for(b, i, before);
    else
        become_known(b, i, kv_behind(before ? id_of(b, at(b, before)) : s->root, s->digest));
    if (leaf)
        age_newest(b, i);
}

/* An entry of which only the hash is known. */
static uint32_t entry_blank(struct kv_blocks *b, uint64_t hash, uint16_t tag)
{
    uint32_t i = entry_new(b, hash, tag);
    struct entry *e = at(b, i);
    e->waits = e->blank = 1;
    e->ref = note_new(b);
    return i;
}

/* The entry before; 0 = none, as the block is the first one. Made when it is not known. False when its tag is
 * another. */
static bool entry_before(struct kv_blocks *b, const struct kv_store *s, uint32_t *ret)
{
    *ret = 0;
    if (s->is_first)
        return true;
    if (s->before == s->hash)
        return false;
    *ret = find(b, s->before);
    if (*ret == 0)
        *ret = entry_blank(b, s->before, s->tag);
    return at(b, *ret)->tag == s->tag;
}

/* Whether <e> is the block that <s> says, as far as can be told. */
static bool is_same(const struct kv_blocks *b, const struct entry *e, const struct kv_store *s,
                    uint32_t before)
{
    if (e->blank || e->tag != s->tag)
        return false;
    bool before_waits = before && at(b, before)->waits;
    if (e->waits)
        return before_waits && e->before == before && note_of(b, e)->value == s->digest;
    /* The engine names it by all that is in it; without the block before there is nothing to compare. */
    return before_waits || id_of(b, e) == kv_behind(before ? id_of(b, at(b, before)) : s->root, s->digest);
}

bool kv_blocks_store(struct kv_blocks *b, const struct kv_store *s)
{
    uint32_t before;
    if (!entry_before(b, s, &before))
        return false;
    uint32_t i = find(b, s->hash);
    if (i && is_same(b, at(b, i), s, before)) {
        if (before && at(b, before)->blank && at(b, before)->behind == 0)
            entry_free(b, before); /* made just now, and nobody's */
        store_same(b, i, s->tier);
        return true;
    }
    if (!i) {
        fill(b, entry_blank(b, s->hash, s->tag), s, before);
        return true;
    }
    /* The chain that <i> leaves must not take its new predecessor along. */
    if (before) {
        if (at(b, before)->leaf)
            age_remove(b, before);
        at(b, before)->behind++;
    }
    strip(b, i);
    fill(b, i, s, before);
    if (before)
        at(b, before)->behind--;
    return true;
}

void kv_blocks_store_known(struct kv_blocks *b, uint64_t hash, enum kv_tier tier)
{
    uint32_t i = find(b, hash);
    if (i && !at(b, i)->blank)
        store_same(b, i, tier);
}

void kv_blocks_remove(struct kv_blocks *b, uint64_t hash, enum kv_tier tier)
{
    uint32_t i = find(b, hash);
    if (!i)
        return;
    struct entry *e = at(b, i);
    unsigned n = tier == KV_TIER_GPU ? e->gpu : e->lower, other = tier == KV_TIER_GPU ? e->lower : e->gpu;
    if (n == 0)
        return;
    if (n == 1 && other == 0) {
        let_go(b, i);
        return;
    }
    if (tier == KV_TIER_GPU)
        e->gpu = (n - 1) & 7;
    else
        e->lower = (n - 1) & 7;
    show(b, e);
}

bool kv_blocks_knows(const struct kv_blocks *b, uint64_t hash)
{
    uint32_t i = find(b, hash);
    return i && !at(b, i)->blank;
}

bool kv_blocks_evict(struct kv_blocks *b)
{
    uint32_t i = b->ages[1].oldest ? b->ages[1].oldest : b->ages[0].oldest;
    if (!i)
        return false;
    let_go(b, i);
    return true;
}

bool kv_blocks_free(struct kv_blocks *b, size_t most)
{
    for (; b->freed < b->used; b->freed++) {
        if (most-- == 0)
            return false;
        const struct entry *e = at(b, b->freed);
        if (has_node(e))
            kv_map_set(b->map, e->ref, b->slot, 0);
    }
    for (uint32_t i = 0; i < b->n_segments; i++)
        free(b->segment[i]);
    free(b->segment);
    free(b->head);
    free(b->note);
    free(b);
    return true;
}

size_t kv_blocks_held(const struct kv_blocks *b)
{
    return b->held;
}

size_t kv_blocks_all(const struct kv_blocks *b)
{
    return b->all;
}

size_t kv_blocks_bytes(const struct kv_blocks *b)
{
    return sizeof *b + b->n_segments * (sizeof *b->segment + SEGMENT * sizeof(struct entry)) +
           b->n_heads * sizeof *b->head + b->n_notes * sizeof *b->note;
}

/* Entries of a list, which the links between them agree on. */
static size_t count_list(const struct kv_blocks *b, bool waits)
{
    size_t n = 0;
    uint32_t newer = 0;
    for (uint32_t i = b->ages[waits].newest; i; newer = i, i = at(b, i)->older, n++) {
        const struct entry *e = at(b, i);
        CHECK(e->leaf && e->waits == waits && is_held(e) && e->newer == newer);
    }
    CHECK(b->ages[waits].oldest == newer);
    return n;
}

void kv_blocks_check(const struct kv_blocks *b)
{
    size_t held = 0, all = 0, leaves = 0;
    uint32_t *behind = mem_array(b->used, sizeof *behind);
    for (uint32_t h = 0; h < b->n_heads; h++)
        for (uint32_t i = b->head[h]; i; i = at(b, i)->chain) {
            const struct entry *e = at(b, i);
            CHECK(find(b, e->hash) == i);
            all++;
            held += is_held(e);
            leaves += e->leaf;
            behind[e->before]++;
            CHECK(!e->blank || (e->waits && !is_held(e) && !e->before));
            CHECK(!has_node(e) || kv_map_get(b->map, e->ref, b->slot) ==
                                      ((e->gpu ? KV_HELD_GPU : 0u) | (e->lower ? KV_HELD_LOWER : 0u)));
            if (e->waits && !e->blank)
                CHECK(e->before && at(b, e->before)->waits);
        }
    for (uint32_t h = 0; h < b->n_heads; h++)
        for (uint32_t i = b->head[h]; i; i = at(b, i)->chain) {
            const struct entry *e = at(b, i);
            CHECK(e->leaf ? behind[i] == 0 && is_held(e) : e->behind == behind[i] && behind[i] > 0);
        }
    free(behind);
    CHECK(held == b->held && all == b->all && leaves == count_list(b, false) + count_list(b, true));
}
