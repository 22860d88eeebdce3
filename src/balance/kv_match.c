/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of a prompt each target has. Caches that stand in the same bank, with the same block size and the
 * same root, are asked together: one walk along the prompt's blocks, in which caches drop out.
 */
#include "balance/epoch.h"
#include "balance/kv_ids.h"
#include "balance/kv_parts.h"
#include "base/check.h"

enum { LANES = 256 };

/* One cache that is asked. */
struct lane {
    const struct kv_stream_state *stream;
    uint32_t place, block;
    uint64_t root;
    unsigned target;
    bool done;
};

struct lanes {
    struct lane lane[LANES];
    unsigned n;
};

struct prompt {
    const struct token_ids *tokens;
    unsigned step, size; /* tokens from block to block, and in each digest */
};

static uint64_t digest(void *arg, size_t block)
{
    const struct prompt *p = arg;
    return kv_digest(p->tokens->id + block * p->step, p->size);
}

static void answer(const struct token_ids *tokens, const struct lane *l, const struct kv_run *run,
                   struct kv_share *ret)
{
    /* Emptied while it was being asked: its slot may be somebody else's already. */
    if (atomic_load_explicit(&l->stream->place, memory_order_acquire) != l->place)
        return;
    uint64_t step = l->block >> 1;
    double held = (double)(run->blocks * step) - (1 - KV_LOWER_SHARE) * (double)(run->lower * step);
    float share = (float)(held / (double)tokens->n);
    if (share > ret->share)
        ret->share = share > 1 ? 1 : share;
    if (run->blocks * step > ret->tokens)
        ret->tokens = (uint32_t)(run->blocks * step);
}

static void walk(const struct token_ids *tokens, struct lanes *l, unsigned first, struct kv_share *ret)
{
    const struct lane *x = &l->lane[first];
    unsigned overlap = x->block & 1;
    struct prompt p = {.tokens = tokens, .step = x->block >> 1, .size = (x->block >> 1) + overlap};
    size_t n = tokens->n > overlap ? (tokens->n - overlap) / p.step : 0;
    struct kv_map *map = kv_bank(x->place - 1);
    uint64_t slots = 0;
    for (unsigned i = first; i < l->n; i++) {
        struct lane *y = &l->lane[i];
        if (!y->done && y->block == x->block && y->root == x->root && kv_bank(y->place - 1) == map)
            slots |= (uint64_t)3 << ((y->place - 1) % KV_SLOTS * 2);
    }
    struct kv_run run[KV_SLOTS];
    kv_map_walk(map, x->root, digest, &p, n, slots, run);
    uint64_t root = x->root;
    uint32_t block = x->block;
    for (unsigned i = first; i < l->n; i++) {
        struct lane *y = &l->lane[i];
        if (y->done || y->block != block || y->root != root || kv_bank(y->place - 1) != map)
            continue;
        y->done = true;
        answer(tokens, y, &run[(y->place - 1) % KV_SLOTS], &ret[y->target]);
    }
}

static void walk_all(const struct token_ids *tokens, struct lanes *l, struct kv_share *ret)
{
    for (unsigned i = 0; i < l->n; i++)
        if (!l->lane[i].done)
            walk(tokens, l, i, ret);
    l->n = 0;
}

bool kv_match(const struct token_ids *tokens, struct span salt, uint64_t now_ms, const struct kv_ask *ask,
              unsigned n, struct kv_share *ret)
{
    struct lanes l;
    l.n = 0;
    memset(ret, 0, n * sizeof *ret);
    if (tokens->n == 0)
        return false;
    bool any = false;
    uint64_t base = kv_root(SPAN_NONE, salt);
    epoch_enter();
    for (unsigned i = 0; i < n; i++) {
        const struct kv_source *s = ask[i].source;
        if (!s)
            continue;
        struct span model = span_str(ask[i].model);
        uint64_t root = kv_source_has_adapter(s, model) ? kv_root(model, salt) : base;
        for (unsigned r = 0; r < s->n; r++) {
            const struct kv_stream_state *t = &s->stream[r];
            if (!kv_stream_counts(s, t, now_ms))
                continue;
            ret[i].trusted = any = true;
            uint32_t place = atomic_load_explicit(&t->place, memory_order_acquire);
            uint32_t block = atomic_load_explicit(&t->block, memory_order_acquire);
            if (place == 0 || block == 0)
                continue;
            if (l.n == LANES)
                walk_all(tokens, &l, ret);
            l.lane[l.n++] = (struct lane){t, place, block, root, i, false};
        }
    }
    walk_all(tokens, &l, ret);
    epoch_leave();
    return any;
}
