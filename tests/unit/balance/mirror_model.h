/* SPDX-License-Identifier: Apache-2.0
 *
 * The plainest mirror: for each lane a list of blocks with the time of their last use. Everything is found by
 * looking at all of them.
 */
#ifndef ROLTER_TESTS_MIRROR_MODEL_H
#define ROLTER_TESTS_MIRROR_MODEL_H

#include "base/check.h"

enum { MODEL_LANES = 70, MODEL_BLOCKS = 256 };

struct model_block {
    uint64_t key, parent; /* parent 0: the first of its prompts */
    uint64_t time;
    unsigned depth;
};

struct model_lane {
    struct model_block block[MODEL_BLOCKS];
    unsigned n, size;
    uint64_t evictions, warmth;
};

struct model {
    struct model_lane lane[MODEL_LANES];
    uint64_t clock;
    bool heads_first; /* a fault: puts out beginnings before ends */
};

struct model_receipt {
    uint64_t time, end;
    unsigned before, depth;
};

static struct model_block *model_find(struct model_lane *l, uint64_t key)
{
    for (unsigned i = 0; i < l->n; i++)
        if (l->block[i].key == key)
            return &l->block[i];
    return NULL;
}

static unsigned model_match(struct model_lane *l, const uint64_t *keys, unsigned n)
{
    unsigned i = 0;
    while (i < n && model_find(l, keys[i]))
        i++;
    return i;
}

static void model_touch(struct model *m, struct model_lane *l, const uint64_t *keys, unsigned n)
{
    m->clock++;
    for (unsigned i = 0; i < n; i++)
        model_find(l, keys[i])->time = m->clock;
}

static void model_evict(struct model *m, struct model_lane *l, unsigned keep)
{
    while (l->n > keep) {
        unsigned worst = 0;
        for (unsigned i = 1; i < l->n; i++) {
            const struct model_block *x = &l->block[i], *w = &l->block[worst];
            if (x->time < w->time ||
                (x->time == w->time && (m->heads_first ? x->depth < w->depth : x->depth > w->depth)))
                worst = i;
        }
        l->block[worst] = l->block[--l->n];
        l->evictions++;
    }
}

static struct model_receipt model_record(struct model *m, struct model_lane *l, const uint64_t *keys,
                                         unsigned n)
{
    struct model_receipt r = {0};
    n = n < l->size ? n : l->size;
    l->warmth++;
    r.before = model_match(l, keys, n);
    model_touch(m, l, keys, r.before);
    if (r.before < n)
        model_evict(m, l, l->size - (n - r.before));
    for (unsigned i = r.before; i < n; i++) {
        CHECK(l->n < MODEL_BLOCKS);
        l->block[l->n++] = (struct model_block){keys[i], i ? keys[i - 1] : 0, m->clock, i};
    }
    r.depth = n;
    r.time = m->clock;
    r.end = n ? keys[n - 1] : 0;
    return r;
}

static bool model_has_child(const struct model_lane *l, uint64_t key)
{
    for (unsigned i = 0; i < l->n; i++)
        if (l->block[i].parent == key)
            return true;
    return false;
}

static void model_withdraw(struct model *m, struct model_lane *l, const struct model_receipt *r)
{
    uint64_t key = r->end;
    unsigned depth = r->depth;
    l->warmth -= l->warmth > 0;
    for (; depth > r->before; depth--) {
        struct model_block *x = model_find(l, key);
        if (!x || x->time != r->time || model_has_child(l, key))
            break;
        key = x->parent;
        *x = l->block[--l->n];
    }
    if (depth == r->depth)
        return;
    m->clock++;
    for (struct model_block *x; key && (x = model_find(l, key)); key = x->parent)
        x->time = m->clock;
}

#endif
