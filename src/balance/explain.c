/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/strategy.h"

/* A word and a separator before it, unless it is the first. */
static void word(struct buf *out, size_t begin, const char *name)
{
    if (out->n > begin)
        BUF_LIT(out, " ");
    buf_add_str(out, name);
}

void balance_explain(const struct balancer *b, const struct pick *p, struct buf *out)
{
    const struct pick_why *y = &p->why;
    size_t begin = out->n;
    if (y->has_share) {
        word(out, begin, "share=");
        buf_printf(out, "%.2f", (double)y->share);
    }
    if (y->has_load) {
        word(out, begin, "load=");
        buf_add_u64(out, y->load);
        BUF_LIT(out, " least=");
        buf_add_u64(out, y->least);
    }
    if (y->guard != GUARD_NOT_ASKED)
        word(out, begin, y->guard == GUARD_OK ? "guard=ok" : "guard=overloaded");
    if (y->has_score) {
        word(out, begin, "score=");
        buf_printf(out, "%.3f", (double)y->score);
    }
    if (y->runner_up < 0 || (unsigned)y->runner_up >= b->n)
        return;
    word(out, begin, "runner_up=");
    buf_add_str(out, target_name(b->targets[y->runner_up].target));
    if (y->has_score)
        buf_printf(out, " runner_up_score=%.3f", (double)y->runner_up_score);
}
