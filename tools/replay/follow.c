/* SPDX-License-Identifier: Apache-2.0
 *
 * Going the way of a recording: the pick code is asked in the recorded order, with the loads that the
 * recorded requests make, so that each pick stands beside the recorded one whatever came before.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "offline_impl.h"
#include "record.h"

struct step {
    uint64_t us;
    size_t request;
    bool is_end;
};

/* What ended by a moment has left before what begins at it. */
static int by_time(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    if (x->is_end != y->is_end)
        return x->is_end ? -1 : 1;
    return (x->request > y->request) - (x->request < y->request);
}

static void begin(struct rig *g, size_t i, const struct recorded *was, struct run *r)
{
    uint64_t now_ms = OFFLINE_BEGIN_US / 1000 + was->at_us / 1000;
    struct pick p = rig_pick(g, 0, i, now_ms);
    r->compared++;
    r->rows[i].reason = pick_reason_name(p.reason);
    if (p.index == was->target) {
        r->agreed++;
    } else {
        r->rows[i].error = "another target";
        rig_pick_instead(g, 0, i, &p, (unsigned)was->target, now_ms);
    }
    rig_charge(g, i, &p, now_ms);
}

/* A request that ends at its beginning ends behind it all the same. */
static void walk(struct rig *g, const struct recorded *was, const struct step *steps, size_t n, struct run *r)
{
    for (size_t k = 0; k < n; k++) {
        size_t i = steps[k].request;
        if (!steps[k].is_end) {
            begin(g, i, &was[i], r);
            if (was[i].end_us > was[i].at_us)
                continue;
        } else if (was[i].end_us == was[i].at_us) {
            continue;
        }
        rig_first_token(g, i, OFFLINE_BEGIN_US / 1000 + was[i].end_us / 1000);
        rig_end(g, i, (double)(was[i].end_us - was[i].at_us) / 1000);
    }
}

static void fill_rows(const struct offline *f, const struct recorded *was, struct run *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct trace_request *q = &f->trace->requests[i];
        r->rows[i] = (struct run_row){.at_us = was[i].at_us,
                                      .end_us = was[i].end_us,
                                      .input = q->input,
                                      .output = q->output,
                                      .replica = was[i].target,
                                      .error = was[i].target < 0 ? "no target recorded" : NULL};
    }
}

bool offline_follow(struct offline *f, const struct offline_item *item, const char *path, struct run *ret,
                    char *ret_error)
{
    size_t n = f->trace->n, n_steps = 0;
    const char *names[RULES_REPLICAS_MAX];
    for (unsigned i = 0; i < f->n_targets; i++)
        names[i] = f->targets[i].name;
    if (item->kind != RUN_STRATEGY) {
        snprintf(ret_error, OPTIONS_ERROR_BYTES, "%s does not pick in a gateway", item->name);
        return false;
    }
    uint64_t begun = clock_mono_us();
    struct recorded *was = mem_array(n + 1, sizeof *was);
    for (size_t i = 0; i < n; i++)
        was[i].target = -1;
    if (!record_read(path, n, names, f->n_targets, was, ret_error, OPTIONS_ERROR_BYTES)) {
        free(was);
        return false;
    }
    struct step *steps = mem_array(2 * n + 1, sizeof *steps);
    for (size_t i = 0; i < n; i++) {
        if (was[i].target < 0)
            continue;
        steps[n_steps++] = (struct step){was[i].at_us, i, false};
        steps[n_steps++] = (struct step){was[i].end_us, i, true};
    }
    qsort(steps, n_steps, sizeof *steps, by_time);
    run_init(ret, item->name, RUN_STRATEGY, 0);
    offline_start_run(f, ret);
    fill_rows(f, was, ret);
    struct rig *g = offline_rig(f, item->id);
    walk(g, was, steps, n_steps, ret);
    rig_free(g);
    free(steps);
    free(was);
    ret->took_ms = (double)(clock_mono_us() - begun) / 1000;
    run_summarize(ret);
    return true;
}
