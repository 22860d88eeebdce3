/* SPDX-License-Identifier: Apache-2.0
 *
 * Walking down without locks.
 */
#include "balance/prefix_tree.h"

/* Equal leading bytes. Whole blocks by memcmp, which is vectorized; the block that differs in smaller steps.
 */
uint32_t bytes_common(const char *a, const char *b, uint32_t n)
{
    uint32_t i = 0;
    for (uint32_t block = 2048; block >= 128; block /= 4)
        while (n - i >= block && memcmp(a + i, b + i, block) == 0)
            i += block;
    for (; n - i >= 8; i += 8) {
        uint64_t x, y;
        memcpy(&x, a + i, 8);
        memcpy(&y, b + i, 8);
        if (x != y) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            return i + (uint32_t)__builtin_ctzll(x ^ y) / 8;
#else
            return i + (uint32_t)__builtin_clzll(x ^ y) / 8;
#endif
        }
    }
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Pieces lie anywhere; the beginning of the next one comes while this one is compared. */
static void prefetch_run(const char *bytes)
{
    for (unsigned i = 0; i < 256; i += 64)
        __builtin_prefetch(bytes + i);
}

enum step walk_step(struct walk *w, struct span prompt)
{
    struct prefix_node *kid = kids_find(LOAD(w->node->kids), (uint8_t)prompt.p[w->pos]);
    w->kid = kid;
    if (!kid)
        return STEP_NO_KID;
    /* The node's line is there; while the text comes, let the table of its children come, too. */
    __builtin_prefetch(RELAXED(kid->kids));
    if (kid->end == w->pos + 1) {
        /* One byte, by which it was found: no need to fetch the text. Many nodes near the root are such. */
        w->text = NULL;
        w->common = 1;
        return STEP_THROUGH;
    }
    const struct text *t = w->text = LOAD(kid->text);
    if (t->start > w->pos)
        return STEP_OVERTAKEN;
    uint32_t pos = w->pos, end = kid->end < prompt.n ? kid->end : (uint32_t)prompt.n;
    while (pos < end) {
        uint32_t n, next;
        const char *bytes = text_at(t, pos, &n);
        if (n < end - pos)
            prefetch_run(text_at(t, pos + n, &next));
        n = n < end - pos ? n : end - pos;
        uint32_t common = bytes_common(bytes, prompt.p + pos, n);
        pos += common;
        if (common < n)
            break;
    }
    w->common = pos - w->pos;
    return pos == kid->end ? STEP_THROUGH : STEP_INSIDE;
}

/* Those of <set> that <kid> has not got have come as far as the walk; false when no one is left. */
static bool narrow(uint64_t *set, unsigned words, const struct walk *w, struct prefix_hit *by_lane)
{
    uint64_t any = 0;
    for (unsigned i = 0; i < words; i++) {
        if (!set[i])
            continue;
        uint64_t held = RELAXED(w->kid->hold);
        if (i > 0) {
            const _Atomic uint64_t *more = LOAD(w->kid->more);
            held = more ? RELAXED(more[i - 1]) : 0;
        }
        for (uint64_t out = set[i] & ~held; out; out &= out - 1)
            by_lane[i * 64 + (unsigned)__builtin_ctzll(out)] = (struct prefix_hit){w->pos, w->node};
        set[i] &= held;
        any |= set[i];
    }
    return any != 0;
}

static void all_end(const uint64_t *set, unsigned words, struct prefix_hit hit, struct prefix_hit *by_lane)
{
    for (unsigned i = 0; i < words; i++)
        for (uint64_t left = set[i]; left; left &= left - 1)
            by_lane[i * 64 + (unsigned)__builtin_ctzll(left)] = hit;
}

void tree_match(const struct tree *t, struct span prompt, const uint64_t *lanes, unsigned words,
                struct prefix_hit *by_lane)
{
    uint64_t set[LANE_WORDS];
    for (int tries = 0;; tries++) {
        struct walk w = {.node = t->root};
        memcpy(set, lanes, words * sizeof *set);
        enum step step = STEP_NO_KID;
        for (unsigned nodes = 0; w.pos < prompt.n; nodes++) {
            if (nodes == WALK_NODES_MAX) {
                step = STEP_NO_KID;
                break;
            }
            w.common = 0;
            step = walk_step(&w, prompt);
            if (step == STEP_NO_KID || step == STEP_OVERTAKEN)
                break;
            if (!narrow(set, words, &w, by_lane))
                return;
            if (step == STEP_INSIDE)
                break;
            w.node = w.kid;
            w.pos = w.kid->end;
        }
        if (step == STEP_OVERTAKEN && w.pos < prompt.n && tries < WALK_TRIES)
            continue;
        uint32_t inside = w.pos < prompt.n && step == STEP_INSIDE ? w.common : 0;
        all_end(set, words, (struct prefix_hit){w.pos + inside, w.node}, by_lane);
        return;
    }
}
