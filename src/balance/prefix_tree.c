/* SPDX-License-Identifier: Apache-2.0
 *
 * Changing the tree. Everything here runs under the lock of the acting lane and inside a section.
 *
 * Inserting walks down like a reader, takes the lane into nodes that it does not hold yet, and ends in one of
 * three ways: a term in a node, a new leaf, or a split with one of the two. Removing goes up from the term as
 * long as nothing of the lane is left below. Whatever was seen without a lock is looked at again under it; if
 * it has changed, the walk starts again: what it did to nodes so far stays right.
 *
 * The lane's bits are its own, so a node that holds the lane is neither unlinked nor merged with one that
 * does not hold it, while the lane is on its way. Therefore others may skip a merge, and the lane looks after
 * those nodes when it is done.
 */
#include <stdlib.h>

#include "balance/epoch.h"
#include "balance/prefix_tree.h"
#include "base/mem.h"

static void lock(struct prefix_node *n)
{
    prefix_lock_acquire(&n->lock);
}

static void unlock(struct prefix_node *n)
{
    prefix_lock_release(&n->lock);
}

static void unlock_both(struct prefix_node *a, struct prefix_node *b)
{
    unlock(b);
    unlock(a);
}

/* Locks <n> and its parent; NULL when <n> is dead (then neither is locked). */
static struct prefix_node *lock_with_parent(struct prefix_node *n)
{
    for (;;) {
        struct prefix_node *parent = LOAD(n->parent);
        lock(parent);
        lock(n);
        if (RELAXED(n->dead)) {
            unlock_both(parent, n);
            return NULL;
        }
        if (!RELAXED(parent->dead) && RELAXED(n->parent) == parent)
            return parent;
        unlock_both(parent, n);
    }
}

/* Merging */

static bool may_merge(const struct prefix_node *n)
{
    return RELAXED(n->n_terms) == 0;
}

/* Puts the text of <upper> before its only child's and the child in its place. Locks of all three are held.
 * The child's new text. */
static const struct text *merge(struct tree *t, struct lane *by, struct prefix_node *parent,
                                struct prefix_node *upper, struct prefix_node *kid)
{
    struct text *head = RELAXED(upper->text), *tail = RELAXED(kid->text), *whole = tail;
    CHECK(text_serves(tail, upper->end) && text_serves(head, parent->end));
    if (!text_serves(tail, parent->end))
        whole = text_compose(by, parent->end, kid->end, head, tail);
    node_charge_holders(t, upper, -1);
    /* First the text, then the way to it: nobody finds too little. */
    STORE(kid->text, whole);
    STORE(kid->parent, parent);
    kids_put(by, parent, text_byte(whole, parent->end), kid);
    SET_RELAXED(upper->dead, true);
    if (whole != tail)
        text_retire(by, tail, whole, NULL);
    return whole;
}

/* Merges <n> with its child if it has one child only, is no term, and nobody is on the way between them. */
static void try_merge(struct tree *t, struct lane *by, struct prefix_node *n)
{
    if (n == t->root || !may_merge(n))
        return;
    struct prefix_node *parent = lock_with_parent(n);
    if (!parent)
        return;
    struct prefix_node *kid = may_merge(n) ? kids_only(RELAXED(n->kids)) : NULL;
    const struct text *merged = NULL;
    if (kid) {
        lock(kid);
        if (node_same_holders(n, kid))
            merged = merge(t, by, parent, n, kid);
        unlock(kid);
    }
    unlock_both(parent, n);
    /* By now others may have cut the merged text again; who has got its pieces since is their business. */
    if (merged)
        node_retire(by, n, merged);
}

/* Inserting */

struct insertion {
    struct tree *tree;
    struct lane *lane;
    struct span prompt;
    struct walk w;
    uint32_t entry;   /* result; ENTRY_NONE: start again */
    uint32_t held_to; /* the lane held the way to here before */
    bool joined;      /* it was taken into nodes */
    bool added;
};

static void add_term(struct insertion *i, struct prefix_node *n)
{
    i->entry = lane_entry_add(i->lane, n);
    i->added = true;
    term_add(i->lane, n, (struct term){i->lane->id, i->entry});
}

/* A child of <parent> with the rest of the prompt from <pos>; not visible yet. */
static struct prefix_node *leaf_new(struct insertion *i, struct prefix_node *parent, uint32_t pos)
{
    uint32_t end = (uint32_t)i->prompt.n;
    struct prefix_node *leaf = node_new(i->lane, end);
    atomic_init(&leaf->parent, parent);
    atomic_init(&leaf->text, text_new(i->lane, pos, i->prompt.p + pos, end - pos));
    node_hold(i->lane, leaf, i->lane->id);
    lane_count(i->lane, 1, node_charge(i->lane->id) + text_charge(pos, end));
    add_term(i, leaf);
    return leaf;
}

static void leaf_undo(struct insertion *i, struct prefix_node *leaf)
{
    lane_count(i->lane, -1, -(node_charge(i->lane->id) + text_charge(RELAXED(leaf->text)->start, leaf->end)));
    lane_entry_drop(i->lane, i->entry);
    node_retire(i->lane, leaf, NULL);
    i->entry = ENTRY_NONE;
    i->added = false;
}

/* The prompt ends with a node. False: it is gone. */
static bool end_at_node(struct insertion *i)
{
    struct prefix_node *n = i->w.node;
    lock(n);
    bool alive = !RELAXED(n->dead);
    if (alive) {
        i->entry = term_find(n, i->lane->id);
        if (i->entry == ENTRY_NONE)
            add_term(i, n);
    }
    unlock(n);
    return alive;
}

/* False: the node is gone, or has such a child by now. */
static bool end_in_leaf(struct insertion *i)
{
    struct prefix_node *n = i->w.node;
    uint8_t byte = (uint8_t)i->prompt.p[i->w.pos];
    /* The text is copied before the lock is taken: others wait for a few instructions only. */
    struct prefix_node *leaf = leaf_new(i, n, i->w.pos);
    lock(n);
    bool can = !RELAXED(n->dead) && !kids_find(RELAXED(n->kids), byte);
    if (can)
        kids_put(i->lane, n, byte, leaf);
    unlock(n);
    if (can)
        return true;
    leaf_undo(i, leaf);
    return false;
}

/* Takes the lane into the child that the walk has come through. False: it has changed. */
static bool join(struct insertion *i)
{
    struct prefix_node *kid = i->w.kid;
    lock(kid);
    bool can = !RELAXED(kid->dead) && RELAXED(kid->parent) == i->w.node;
    if (can) {
        node_hold(i->lane, kid, i->lane->id);
        lane_count(i->lane, 1, node_charge(i->lane->id) + text_charge(i->w.node->end, kid->end));
        i->joined = true;
    }
    unlock(kid);
    return can;
}

/* A node for the part of <w.kid> that the prompt has, complete with the child and what the prompt needs; not
 * visible yet. */
static struct prefix_node *upper_new(struct insertion *i)
{
    const struct walk *w = &i->w;
    uint32_t mid = w->pos + w->common;
    struct prefix_node *upper = node_new(i->lane, mid);
    atomic_init(&upper->parent, w->node);
    atomic_init(&upper->text, text_compose(i->lane, w->pos, mid, w->text, NULL));
    kids_put(i->lane, upper, text_byte(w->text, mid), w->kid);
    if (mid < i->prompt.n)
        kids_put(i->lane, upper, (uint8_t)i->prompt.p[mid], leaf_new(i, upper, mid));
    return upper;
}

static void upper_undo(struct insertion *i, struct prefix_node *upper)
{
    struct prefix_node *leaf = NULL;
    if (upper->end < i->prompt.n)
        leaf = kids_find(RELAXED(upper->kids), (uint8_t)i->prompt.p[upper->end]);
    if (leaf)
        leaf_undo(i, leaf);
    node_retire(i->lane, upper, i->w.text);
}

/* What can only be said under the locks: who holds the child. */
static void upper_hold(struct insertion *i, struct prefix_node *upper, const struct prefix_node *kid)
{
    struct lane *lane = i->lane;
    node_copy_holders(lane, upper, kid);
    node_charge_holders(i->tree, upper, 1);
    if (!node_holds(upper, lane->id)) {
        node_hold(lane, upper, lane->id);
        lane_count(lane, 1, node_charge(lane->id) + text_charge(RELAXED(upper->text)->start, upper->end));
    }
    if (upper->end == i->prompt.n)
        add_term(i, upper);
}

/* The prompt parts from the child within its text. False: something has changed. */
static bool end_in_split(struct insertion *i)
{
    struct walk *w = &i->w;
    struct prefix_node *n = w->node, *kid = w->kid, *upper = upper_new(i);
    struct text *head = RELAXED(upper->text), *tail = w->text;
    if (!text_serves(tail, upper->end))
        tail = text_compose(i->lane, upper->end, kid->end, w->text, NULL);
    lock(n);
    lock(kid);
    bool can = !RELAXED(n->dead) && !RELAXED(kid->dead) && RELAXED(kid->parent) == n &&
               RELAXED(kid->text) == w->text;
    if (can) {
        upper_hold(i, upper, kid);
        /* First the new way, then the shorter text: who comes by the new way finds too much, never too
         * little. */
        kids_put(i->lane, n, (uint8_t)i->prompt.p[w->pos], upper);
        STORE(kid->parent, upper);
        STORE(kid->text, tail);
    }
    unlock_both(n, kid);
    if (tail != w->text) {
        if (can)
            text_retire(i->lane, w->text, head, tail);
        else
            text_retire(i->lane, tail, w->text, NULL);
    }
    if (!can)
        upper_undo(i, upper);
    return can;
}

/* The walk may begin at the hint's node if the lane (still) holds it. */
static void begin(struct insertion *i, const struct prefix_hit *hint)
{
    i->w = (struct walk){.node = i->tree->root};
    struct prefix_node *n = hint ? hint->at : NULL;
    /* No lock: the lane's bit is ours, and should the node die now, the steps that follow see it. */
    if (n && n->end <= i->prompt.n && node_holds(n, i->lane->id) && !RELAXED(n->dead))
        i->w = (struct walk){.node = n, .pos = n->end};
    i->held_to = i->w.pos;
}

/* Walks until the prompt is in, or as much of it as the bound on nodes lets in. False: start again. */
static bool walk_down(struct insertion *i)
{
    struct walk *w = &i->w;
    for (unsigned nodes = 0; w->pos < i->prompt.n && nodes < WALK_NODES_MAX; nodes++) {
        switch (walk_step(w, i->prompt)) {
        case STEP_OVERTAKEN:
            return false;
        case STEP_NO_KID:
            return end_in_leaf(i);
        case STEP_INSIDE:
            return text_serves(w->text, w->pos) && end_in_split(i);
        case STEP_THROUGH:
            if (!node_holds(w->kid, i->lane->id)) {
                if (!join(i))
                    return false;
            } else if (!i->joined) {
                i->held_to = w->kid->end;
            }
            w->node = w->kid;
            w->pos = w->kid->end;
        }
    }
    return end_at_node(i);
}

uint32_t tree_insert(struct tree *t, struct lane *lane, struct span prompt, const struct prefix_hit *hint,
                     bool *ret_added)
{
    struct insertion i = {.tree = t, .lane = lane, .prompt = prompt, .entry = ENTRY_NONE};
    begin(&i, hint);
    while (!walk_down(&i))
        i.w = (struct walk){.node = t->root};
    if (i.joined) {
        struct prefix_node *n = lane_entry(lane, i.entry)->node;
        while (n->end > i.held_to) {
            struct prefix_node *parent = LOAD(n->parent);
            try_merge(t, lane, n);
            n = parent;
        }
    }
    *ret_added = i.added;
    return i.entry;
}

/* Removing */

/* Whether something of the lane ends at <n> or goes on below it. Its lock is held. */
static bool is_needed(const struct prefix_node *n, uint32_t lane)
{
    return term_find(n, lane) != ENTRY_NONE || kids_hold(RELAXED(n->kids), lane);
}

enum release { RELEASE_KEPT, RELEASE_LEFT, RELEASE_GONE };

/* Takes the lane out of <n> if it needs it no more, and unlinks <n> if nobody else does. */
static enum release release(struct lane *lane, struct prefix_node *parent, struct prefix_node *n)
{
    if (is_needed(n, lane->id))
        return RELEASE_KEPT;
    node_unhold(n, lane->id);
    lane_count(lane, -1, -(node_charge(lane->id) + text_charge(parent->end, n->end)));
    if (node_is_held(n))
        return RELEASE_LEFT;
    CHECK(kids_count(RELAXED(n->kids)) == 0 && RELAXED(n->n_terms) == 0);
    kids_drop(lane, parent, text_byte(RELAXED(n->text), parent->end));
    SET_RELAXED(n->dead, true);
    return RELEASE_GONE;
}

void tree_remove(struct tree *t, struct lane *lane, uint32_t entry)
{
    struct prefix_node *n = lane_entry(lane, entry)->node;
    lane_entry_drop(lane, entry);
    lock(n);
    CHECK(!RELAXED(n->dead));
    term_drop(lane, n, lane->id);
    unlock(n);
    while (n != t->root) {
        /* Dead: merged with its child, which the lane holds. */
        struct prefix_node *parent = lock_with_parent(n);
        if (!parent)
            return;
        enum release r = release(lane, parent, n);
        unlock_both(parent, n);
        if (r == RELEASE_GONE)
            node_retire(lane, n, NULL);
        else
            try_merge(t, lane, n);
        if (r == RELEASE_KEPT)
            return;
        n = parent;
    }
}

/* Life cycle */

void tree_init(struct tree *t)
{
    memset(t, 0, sizeof *t);
    t->root = node_new(NULL, 0);
}

static void node_free(struct prefix_node *n)
{
    free(RELAXED(n->kids));
    text_free(RELAXED(n->text));
    free(RELAXED(n->more));
    if (n->cap_terms > 1)
        free(n->many);
    free(n);
}

/* Nobody else is there: nodes go one by one, without what leaving in good order costs. Those that are still
 * to go hang together by their parent pointers. */
static void free_all(struct prefix_node *root)
{
    struct prefix_node *next = NULL, *kids[256];
    for (struct prefix_node *n = root; n; n = next) {
        next = RELAXED(n->parent);
        unsigned count = kids_list(RELAXED(n->kids), kids);
        for (unsigned i = 0; i < count; i++) {
            SET_RELAXED(kids[i]->parent, next);
            next = kids[i];
        }
        node_free(n);
    }
}

void tree_fini(struct tree *t)
{
    free_all(t->root);
    t->root = NULL;
    for (unsigned i = 0; i < LANES_MAX; i++)
        lane_free(RELAXED(t->lanes[i]));
}
