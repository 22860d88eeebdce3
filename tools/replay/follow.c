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

enum kind { FIRST, END, BEGIN }; /* the order at one time */

struct step {
    uint64_t us;
    size_t request;
    enum kind kind;
};

/* What ended by a moment has left before what begins at it. */
static int by_time(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return (x->request > y->request) - (x->request < y->request);
}

struct walk {
    struct rig *rig;
    const struct recorded *was;
    const struct step *steps;
    size_t n, at;
    uint64_t slack_us;
    bool *has_ended, *has_first; /* of each request */
    uint64_t next_tend_us;
    struct run *run;
};

static uint64_t virtual_us(uint64_t us)
{
    return OFFLINE_BEGIN_US + us;
}

static void first(struct walk *w, size_t i)
{
    const struct recorded *was = &w->was[i];
    if (!w->has_first[i])
        rig_first_token(w->rig, i, virtual_us(was->first_us ? was->first_us : was->end_us));
    w->has_first[i] = true;
}

static void end(struct walk *w, size_t i)
{
    const struct recorded *was = &w->was[i];
    if (w->has_ended[i])
        return;
    first(w, i);
    rig_end(w->rig, i, (double)(was->end_us - was->at_us) / 1000, was->cached, virtual_us(was->end_us));
    w->has_ended[i] = true;
}

/* Lets one more request end that is recorded to have ended within the slack behind the pick at <at_us>; false
 * when there is none. */
static bool end_early(struct walk *w, uint64_t at_us)
{
    for (size_t k = w->at + 1; k < w->n && w->steps[k].us <= at_us + w->slack_us; k++) {
        size_t i = w->steps[k].request;
        if (w->steps[k].kind != END || w->has_ended[i] || w->was[i].at_us >= at_us)
            continue;
        end(w, i);
        return true;
    }
    return false;
}

/* The recorder's times are not the gateway's: what a client sees end just after it sent a request may have
 * ended before the gateway picked for that. */
static void begin(struct walk *w, size_t i)
{
    const struct recorded *was = &w->was[i];
    uint64_t now_us = virtual_us(was->at_us);
    struct run_row *row = &w->run->rows[i];
    if (now_us >= w->next_tend_us) {
        rig_tend(w->rig);
        w->next_tend_us = now_us + 1000000;
    }
    struct pick p = rig_pick(w->rig, 0, i, now_us);
    row->reason = pick_reason_name(p.reason);
    w->run->compared++;
    w->run->agreed_at_once += p.index == was->target;
    while (p.index != was->target && end_early(w, was->at_us)) {
        rig_pick_undo(w->rig, 0, &p, now_us);
        p = rig_pick(w->rig, 0, i, now_us);
    }
    if (p.index == was->target) {
        w->run->agreed++;
    } else {
        row->error = "another target";
        rig_pick_undo(w->rig, 0, &p, now_us);
        p = rig_pick_forced(w->rig, 0, i, (unsigned)was->target, p.reason == PICK_LEAST_LOAD, now_us);
    }
    rig_charge(w->rig, i, &p, now_us);
}

/* A request that ends at its beginning ends behind it all the same. */
static void walk(struct walk *w)
{
    for (w->at = 0; w->at < w->n; w->at++) {
        size_t i = w->steps[w->at].request;
        enum kind kind = w->steps[w->at].kind;
        bool is_instant = w->was[i].end_us == w->was[i].at_us;
        if (kind == BEGIN)
            begin(w, i);
        if (kind == FIRST ? w->was[i].first_us > w->was[i].at_us
                          : kind == BEGIN && w->was[i].first_us == w->was[i].at_us)
            first(w, i);
        if (kind != FIRST && (kind == END) != is_instant)
            end(w, i);
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
    if (strategy_reads_tokens((enum strategy_id)item->id)) {
        snprintf(ret_error, OPTIONS_ERROR_BYTES,
                 "%s picks by what engines told, which a recording does not say", item->name);
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
    struct step *steps = mem_array(3 * n + 1, sizeof *steps);
    for (size_t i = 0; i < n; i++) {
        if (was[i].target < 0)
            continue;
        steps[n_steps++] = (struct step){was[i].at_us, i, BEGIN};
        steps[n_steps++] = (struct step){was[i].end_us, i, END};
        if (was[i].first_us)
            steps[n_steps++] = (struct step){was[i].first_us, i, FIRST};
    }
    qsort(steps, n_steps, sizeof *steps, by_time);
    run_init(ret, item->name, RUN_STRATEGY, 0);
    offline_start_run(f, ret);
    fill_rows(f, was, ret);
    struct walk w = {.was = was, .steps = steps, .n = n_steps, .run = ret};
    w.rig = offline_rig(f, item->id, f->o->blocks[0], NULL);
    w.slack_us = (uint64_t)(f->o->slack_ms * 1000);
    w.has_ended = mem_array(n + 1, sizeof *w.has_ended);
    w.has_first = mem_array(n + 1, sizeof *w.has_first);
    walk(&w);
    rig_free(w.rig);
    free(w.has_ended);
    free(w.has_first);
    free(steps);
    free(was);
    ret->took_ms = (double)(clock_mono_us() - begun) / 1000;
    run_summarize(ret);
    return true;
}
