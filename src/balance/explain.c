/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/strategy.h"

/* A word and a separator before it, unless it is the first. */
static void word(struct buf *out, size_t begin, const char *name)
{
    if (out->n > begin)
        BUF_LIT(out, " ");
    buf_add_str(out, name);
}

/* <v> between 0 and 1e6 with two or three decimals: rows want it quick. */
static void decimal(struct buf *out, double v, unsigned scale)
{
    uint64_t units = (uint64_t)(v * scale + 0.5);
    buf_add_u64(out, units / scale);
    BUF_LIT(out, ".");
    uint64_t rest = units % scale;
    for (unsigned digit = scale / 10; digit > 1 && rest < digit; digit /= 10)
        BUF_LIT(out, "0");
    buf_add_u64(out, rest);
}

void balance_explain(const struct balancer *b, const struct pick *p, struct buf *out)
{
    const struct pick_why *y = &p->why;
    size_t begin = out->n;
    if (y->has_share) {
        word(out, begin, "share=");
        decimal(out, (double)y->share, 100);
    }
    if (y->has_resident) {
        word(out, begin, "resident=");
        decimal(out, (double)y->resident, 100);
    } else if (y->not_resident) {
        word(out, begin, "resident=");
        buf_add_str(out, y->not_resident);
    }
    if (y->has_load) {
        word(out, begin, "load=");
        buf_add_u64(out, y->load);
        BUF_LIT(out, " least=");
        buf_add_u64(out, y->least);
    }
    if (y->guard != GUARD_NOT_ASKED)
        word(out, begin, y->guard == GUARD_OK ? "guard=ok" : "guard=overloaded");
    if (y->has_lmcache) {
        word(out, begin, "lmcache=");
        decimal(out, (double)y->lmcache, 100);
    } else if (y->asks_lmcache) {
        word(out, begin, "lmcache=unknown");
    }
    if (y->has_score) {
        word(out, begin, "score=");
        decimal(out, (double)y->score, 1000);
    }
    if (y->has_cost) {
        word(out, begin, "cost_ms=");
        buf_add_u64(out, (uint64_t)y->cost_ms);
        BUF_LIT(out, " backlog=");
        buf_add_u64(out, y->backlog);
        BUF_LIT(out, " uncached=");
        buf_add_u64(out, y->uncached);
    }
    if (y->runner_up < 0 || (unsigned)y->runner_up >= b->n)
        return;
    word(out, begin, "runner_up=");
    buf_add_str(out, target_name(b->targets[y->runner_up].target));
    if (y->has_score) {
        BUF_LIT(out, " runner_up_score=");
        decimal(out, (double)y->runner_up_score, 1000);
    }
    if (y->has_cost) {
        BUF_LIT(out, " runner_up_cost_ms=");
        buf_add_u64(out, (uint64_t)y->runner_up_cost_ms);
    }
}
