/* SPDX-License-Identifier: Apache-2.0
 *
 * What the prefix index must do, written down as plainly as possible: a list of prompts for each slot, and
 * everything else worked out from the lists whenever it is asked for. Slow on purpose; a few dozen prompts.
 */
#ifndef ROLTER_TESTS_PREFIX_MODEL_H
#define ROLTER_TESTS_PREFIX_MODEL_H

#include "unit.h"

#include "balance/prefix_index.h"
#include "base/mem.h"

enum { MODEL_SLOTS = 6, MODEL_PROMPTS = 96, MODEL_TEXT = 24 * 1024 };

struct model_prompt {
    uint32_t n;
    uint64_t serial;
    unsigned records;
    char text[];
};

struct model_slot {
    struct model_prompt *prompt[MODEL_PROMPTS]; /* oldest first */
    unsigned n, peak;
    uint64_t evictions, warmth;
    unsigned generation;
};

struct model {
    struct model_slot slot[MODEL_SLOTS];
    struct prefix_limits limits;
    struct prefix_stats costs[MODEL_SLOTS]; /* node_bytes and the like */
    uint64_t serial;
};

static inline uint32_t model_common(struct span a, struct span b)
{
    uint32_t n = 0;
    while (n < a.n && n < b.n && a.p[n] == b.p[n])
        n++;
    return n;
}

static inline struct span model_text(const struct model_prompt *p)
{
    return span_of(p->text, p->n);
}

static inline uint32_t model_match(const struct model_slot *s, struct span prompt)
{
    uint32_t best = 0;
    for (unsigned i = 0; i < s->n; i++) {
        uint32_t common = model_common(model_text(s->prompt[i]), prompt);
        best = common > best ? common : best;
    }
    return best;
}

static inline int model_by_text(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

/* What <n> bytes from the beginning are charged with. */
static inline uint64_t model_charge(size_t n)
{
    return n + n / 256;
}

/* The slot's distinct beginnings, charged by the byte. */
static inline uint64_t model_bytes_of_text(const struct model_slot *s)
{
    struct span sorted[MODEL_PROMPTS];
    uint64_t bytes = 0;
    for (unsigned i = 0; i < s->n; i++)
        sorted[i] = model_text(s->prompt[i]);
    qsort(sorted, s->n, sizeof sorted[0], model_by_text);
    for (unsigned i = 0; i < s->n; i++)
        bytes += model_charge(sorted[i].n) - (i ? model_charge(model_common(sorted[i - 1], sorted[i])) : 0);
    return bytes;
}

/* Beginnings at which a prompt of any slot ends, or prompts of any slots part, and that the slot has. */
static inline uint64_t model_nodes(const struct model *m, const struct model_slot *s)
{
    struct span all[MODEL_SLOTS * MODEL_PROMPTS], ends[2 * MODEL_SLOTS * MODEL_PROMPTS];
    unsigned n = 0, n_ends = 0;
    for (unsigned k = 0; k < MODEL_SLOTS; k++)
        for (unsigned i = 0; i < m->slot[k].n; i++)
            all[n++] = model_text(m->slot[k].prompt[i]);
    qsort(all, n, sizeof all[0], model_by_text);
    for (unsigned i = 0; i < n; i++) {
        ends[n_ends++] = all[i];
        if (i + 1 < n)
            ends[n_ends++] = span_of(all[i].p, model_common(all[i], all[i + 1]));
    }
    qsort(ends, n_ends, sizeof ends[0], model_by_text);
    uint64_t nodes = 0;
    for (unsigned i = 0; i < n_ends; i++)
        if (ends[i].n > 0 && (i == 0 || model_by_text(&ends[i - 1], &ends[i]) != 0))
            nodes += model_match(s, ends[i]) == ends[i].n;
    return nodes;
}

static inline uint64_t model_bytes(const struct model *m, unsigned slot, uint64_t nodes)
{
    const struct model_slot *s = &m->slot[slot];
    const struct prefix_stats *c = &m->costs[slot];
    return nodes * c->node_bytes + model_bytes_of_text(s) + s->n * c->prompt_bytes +
           (s->peak + c->chunk_prompts - 1) / c->chunk_prompts * c->chunk_bytes;
}

static inline void model_drop(struct model_slot *s, unsigned i)
{
    free(s->prompt[i]);
    memmove(&s->prompt[i], &s->prompt[i + 1], (s->n - i - 1) * sizeof s->prompt[0]);
    s->n--;
}

static inline struct span model_cut(const struct model *m, struct span p)
{
    const struct prefix_stats *c = &m->costs[0];
    size_t most = m->limits.max_bytes - c->chunk_bytes - c->prompt_bytes - c->node_bytes - 64;
    most = most - most / 256 - 1;
    most = most > PREFIX_PROMPT_MAX ? PREFIX_PROMPT_MAX : most;
    return span_of(p.p, p.n < most ? p.n : most);
}

/* The serial of the prompt that was recorded. */
static inline uint64_t model_record(struct model *m, unsigned slot, struct span text)
{
    struct model_slot *s = &m->slot[slot];
    struct model_prompt *p = NULL;
    text = model_cut(m, text);
    for (unsigned i = 0; i < s->n && !p; i++)
        if (span_eq(model_text(s->prompt[i]), text)) {
            p = s->prompt[i];
            memmove(&s->prompt[i], &s->prompt[i + 1], (s->n - i - 1) * sizeof s->prompt[0]);
            s->n--;
        }
    s->warmth++;
    bool added = p == NULL;
    if (added) {
        assert_true(s->n < MODEL_PROMPTS && text.n <= MODEL_TEXT);
        p = mem_zalloc(sizeof *p + text.n);
        memcpy(p->text, text.p, text.n);
        p->n = (uint32_t)text.n;
        p->serial = ++m->serial;
    }
    p->records++;
    s->prompt[s->n++] = p;
    s->peak = s->n > s->peak ? s->n : s->peak;
    while (added && s->n > 1) {
        uint64_t nodes = model_nodes(m, s);
        if (nodes <= m->limits.max_nodes && model_bytes(m, slot, nodes) <= m->limits.max_bytes)
            break;
        model_drop(s, 0);
        s->evictions++;
    }
    return p->serial;
}

static inline void model_withdraw(struct model *m, unsigned slot, unsigned generation, uint64_t serial)
{
    struct model_slot *s = &m->slot[slot];
    if (s->generation != generation)
        return;
    s->warmth--;
    for (unsigned i = 0; i < s->n; i++)
        if (s->prompt[i]->serial == serial && --s->prompt[i]->records == 0) {
            model_drop(s, i);
            return;
        }
}

static inline void model_reset(struct model *m, unsigned slot)
{
    struct model_slot *s = &m->slot[slot];
    while (s->n > 0)
        model_drop(s, 0);
    s->warmth = 0;
    s->peak = 0;
    s->generation++;
}

#endif
