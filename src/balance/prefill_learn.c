/* SPDX-License-Identifier: Apache-2.0
 *
 * What least_prefill does after its picks: charges given back, replies compared with what was predicted,
 * sizes of mirrors.
 */
#include "balance/prefill_memory.h"
#include "fleet/prefill.h"

static struct prefix_loop *loop_of(const struct balancer *b, uint32_t target)
{
    const struct prefill_state *s = b->state;
    return s->lane[target] == MIRROR_NO_LANE ? NULL : prefill_loop(s->memory, s->lane[target]);
}

void prefill_first_token(struct balancer *b, struct pick_receipt *receipt, uint64_t now_us, bool is_timed)
{
    struct prefill_receipt *r = &receipt->prefill;
    provider_prefill_end(b->providers[r->target], r->charge, is_timed ? r->picked_us : 0, now_us);
    const struct prefill_state *s = b->state;
    prefill_claim_end(&s->memory->claims, r->claim); /* it was given up before it was recorded */
    r->claim = 0;
    struct prefix_loop *loop = loop_of(b, r->target);
    if (loop && r->open)
        prefix_loop_close(loop, r->open);
    r->open = 0;
}

/* The mirror has to go, or a part of it. */
static void correct(struct balancer *b, uint32_t lane, enum mirror_reset what, double keep)
{
    const struct prefill_state *s = b->state;
    struct prefix_loop *loop = prefill_loop(s->memory, lane);
    if (what == MIRROR_DROPPED)
        mirror_reset(s->memory->mirror, lane);
    else
        mirror_shrink(s->memory->mirror, lane, keep);
    atomic_fetch_add_explicit(&loop->resets[what], 1, memory_order_relaxed);
}

double prefill_learn(struct balancer *b, struct pick_receipt *receipt, const struct prompt_usage *u)
{
    const struct prefill_state *s = b->state;
    const struct prefill_receipt *r = &receipt->prefill;
    struct provider *p = b->providers[r->target];
    uint32_t lane = s->lane[r->target];
    struct mirror_stats stats;
    double error = -1, keep = 1;
    prefill_learn_tokens(s->memory, r->bytes, u->tokens);
    if (u->cached_known)
        provider_note_cached(p);
    if (u->tokens == 0 || r->bytes == 0 || !provider_reports_cached(p) ||
        mirror_generation(s->memory->mirror, lane) != r->generation)
        return -1;
    double reported = (double)(u->cached_known ? u->cached : 0) / (double)u->tokens;
    struct prefix_loop *loop = prefill_loop(s->memory, lane);
    mirror_stats(s->memory->mirror, lane, &stats);
    float scale = loop->scale;
    double size = prefill_blocks(s->memory, &b->targets[r->target], 1);
    enum mirror_reset what = prefix_loop_note(
        loop, block_bytes(r->settled) / (double)r->bytes, block_bytes(r->depth) / (double)r->bytes,
        reported < 1 ? reported : 1, (double)stats.blocks / size, &error, &keep);
    if (what != MIRROR_KEPT)
        correct(b, lane, what, keep);
    if (scale != loop->scale) /* a larger one waits until there is room */
        mirror_lane_resize(s->memory->mirror, lane,
                           prefill_blocks(s->memory, &b->targets[r->target], (double)loop->scale));
    return error;
}

void prefill_tend(struct balancer *b)
{
    const struct prefill_state *s = b->state;
    for (unsigned i = 0; i < b->n; i++) {
        struct prefix_loop *loop = loop_of(b, i);
        if (!loop)
            continue;
        uint32_t blocks = prefill_blocks(s->memory, &b->targets[i], (double)loop->scale);
        if (!mirror_lane_resize(s->memory->mirror, s->lane[i], blocks))
            mirror_lane_grow(s->memory->mirror, s->lane[i], blocks);
    }
    mirror_tidy(s->memory->mirror, UINT32_MAX);
}

unsigned prefill_take_resets(struct balancer *b, unsigned i, enum mirror_reset why, bool *ret_is_news)
{
    struct prefix_loop *loop = loop_of(b, i);
    unsigned n = loop ? atomic_exchange(&loop->resets[why], 0) : 0;
    *ret_is_news = n > 0 && (why == MIRROR_RESTARTED || !atomic_exchange(&loop->is_told, true));
    return n;
}

bool prefill_mirror_stats(const struct balancer *b, unsigned i, struct mirror_stats *ret)
{
    const struct prefill_state *s = b->state;
    if (s->lane[i] == MIRROR_NO_LANE)
        return false;
    mirror_stats(s->memory->mirror, s->lane[i], ret);
    return true;
}
