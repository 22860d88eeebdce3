/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks the whole tree and holds it against its invariants. For tests.
 */
#include <stdlib.h>

#include "balance/prefix_tree.h"
#include "base/mem.h"

struct found {
    uint64_t nodes, prompts;
    int64_t bytes;
};

struct checker {
    struct tree *tree;
    struct found lane[LANES_MAX];
    uint64_t allocated;
    struct prefix_node **stack;
    size_t depth, cap;
};

static void push(struct checker *c, struct prefix_node *n)
{
    if (c->depth == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 1024;
        c->stack = mem_realloc(c->stack, c->cap * sizeof(struct prefix_node *));
    }
    c->stack[c->depth++] = n;
}

/* Who holds a node, and why: a term or a child. */
static void check_lanes(struct checker *c, const struct prefix_node *n)
{
    const struct prefix_node *parent = RELAXED(n->parent);
    unsigned holders = 0;
    for (uint32_t id = 0; id < LANES_MAX; id++) {
        struct lane *l = RELAXED(c->tree->lanes[id]);
        uint32_t entry = term_find(n, id);
        bool holds = node_holds(n, id);
        CHECK(holds == (entry != ENTRY_NONE || kids_hold(RELAXED(n->kids), id)));
        if (!holds)
            continue;
        holders++;
        CHECK(l != NULL);
        CHECK(parent == c->tree->root || node_holds(parent, id));
        c->lane[id].nodes++;
        c->lane[id].bytes += node_charge(id) + text_charge(parent->end, n->end);
        if (entry == ENTRY_NONE)
            continue;
        c->lane[id].prompts++;
        CHECK(lane_entry(l, entry)->node == n && lane_entry(l, entry)->serial != 0);
    }
    CHECK(holders > 0);
}

static void check_node(struct checker *c, struct prefix_node *n)
{
    struct prefix_node *kids[256];
    unsigned count = kids_list(RELAXED(n->kids), kids);
    CHECK(!RELAXED(n->dead) && RELAXED(n->lock.word) == 0);
    CHECK(count == kids_count(RELAXED(n->kids)));
    c->allocated += sizeof *n + kids_bytes(RELAXED(n->kids)) +
                    (n->cap_terms > 1 ? n->cap_terms * sizeof(struct term) : 0);
    if (RELAXED(n->more))
        c->allocated += (LANE_WORDS - 1) * sizeof(uint64_t);
    for (unsigned i = 0; i < count; i++) {
        const struct text *t = RELAXED(kids[i]->text);
        CHECK(RELAXED(kids[i]->parent) == n);
        CHECK(text_serves(t, n->end) && n->end < kids[i]->end && t->start + t->len == kids[i]->end);
        CHECK(kids_find(RELAXED(n->kids), text_byte(t, n->end)) == kids[i]);
        c->allocated += text_bytes(t);
        push(c, kids[i]);
    }
    if (n == c->tree->root)
        return;
    /* What can be merged is merged. */
    CHECK(RELAXED(n->n_terms) > 0 || count > 1);
    check_lanes(c, n);
}

static void check_entries(const struct lane *l)
{
    uint32_t count = 0, newer = ENTRY_NONE;
    for (uint32_t i = l->newest; i != ENTRY_NONE; newer = i, i = lane_entry(l, i)->older) {
        CHECK(lane_entry(l, i)->newer == newer && lane_entry(l, i)->records > 0);
        count++;
    }
    CHECK(l->oldest == newer);
    CHECK(count == RELAXED(l->prompts) && count <= l->used);
    for (uint32_t i = l->first_free; i != ENTRY_NONE; i = lane_entry(l, i)->older) {
        CHECK(lane_entry(l, i)->serial == 0);
        count++;
    }
    CHECK(count == l->used);
}

static void check_lane(struct checker *c, const struct lane *l, int64_t *allocated)
{
    const struct found *f = &c->lane[l->id];
    CHECK((uint64_t)RELAXED(l->nodes) == f->nodes);
    CHECK(RELAXED(l->prompts) == f->prompts);
    int64_t bytes = f->bytes + (int64_t)f->prompts * PROMPT_CHARGE + (int64_t)l->n_chunks * CHUNK_CHARGE;
    CHECK(RELAXED(l->bytes) == bytes);
    CHECK(RELAXED(l->state) != LANE_FREE || f->prompts == 0);
    check_entries(l);
    *allocated += RELAXED(l->allocated);
    c->allocated += l->n_chunks * CHUNK_ENTRIES * sizeof(struct entry) + l->cap_chunks * sizeof l->chunks[0];
}

void tree_check(struct tree *t)
{
    struct checker *c = MEM_NEW(struct checker);
    c->tree = t;
    push(c, t->root);
    while (c->depth > 0)
        check_node(c, c->stack[--c->depth]);
    c->allocated -= sizeof *t->root;
    int64_t allocated = 0, charged = 0;
    for (unsigned i = 0; i < LANES_MAX; i++) {
        const struct lane *l = RELAXED(t->lanes[i]);
        if (!l)
            continue;
        check_lane(c, l, &allocated);
        charged += RELAXED(l->bytes);
    }
    CHECK(allocated == (int64_t)c->allocated);
    /* The root's table of children is no one's while it is nearly empty. */
    CHECK(allocated <= charged);
    free(c->stack);
    free(c);
}
