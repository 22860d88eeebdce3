/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/prefix_loop.h"

#include <string.h>

#define LIE          0.25
#define RIGHT        0.08
#define CLAIM_MIN    0.1f /* a claim smaller than this supports and disproves nothing */
#define FOUND_MIN    0.1f /* of what was claimed: less is nothing */
#define SCALE_MIN    (1.0f / 64)
#define SCALE_GROWTH 1.25f

/* Replies in a row that must find nothing; windows at most before a step. */
enum { NOTHING = 5, STEADY_MAX = 64 };

void prefix_loop_init(struct prefix_loop *l)
{
    memset(l, 0, sizeof *l);
    l->scale = 1;
    l->steady = 1;
}

static void forget(struct prefix_loop *l)
{
    l->n = l->at = l->age = l->good = 0;
}

void prefix_loop_forget(struct prefix_loop *l)
{
    prefix_lock_acquire(&l->lock);
    forget(l);
    memset(l->open, 0, sizeof l->open);
    prefix_lock_release(&l->lock);
}

struct tally {
    double error, claimed, found, over;
    unsigned claims, empty; /* the latest claims, and how many of these in a row found nothing */
};

/* The newest sample first. */
static struct tally tally(const struct prefix_loop *l)
{
    struct tally t = {0};
    bool is_row = true;
    for (unsigned i = 0; i < l->n; i++) {
        const struct loop_sample *s = &l->sample[(l->at + LOOP_WINDOW - 1 - i) % LOOP_WINDOW];
        t.error += (double)s->error;
        t.over += s->predicted > s->reported ? (double)s->error : -(double)s->error;
        if (s->predicted < CLAIM_MIN)
            continue;
        bool is_empty = s->reported < FOUND_MIN * s->predicted;
        is_row = is_row && is_empty;
        t.empty += is_row;
        if (t.claims++ < LOOP_WINDOW / 2) {
            t.claimed += (double)s->predicted;
            t.found += (double)(s->reported < s->predicted ? s->reported : s->predicted);
        }
    }
    return t;
}

static void set_size(struct prefix_loop *l, double scale)
{
    if (scale >= (double)l->scale)
        return;
    l->scale = scale > (double)SCALE_MIN ? (float)scale : SCALE_MIN;
    l->steady = l->steady < STEADY_MAX ? l->steady * 2 : STEADY_MAX;
}

static enum mirror_reset judge(struct prefix_loop *l, const struct tally *t, double share, double *ret_keep)
{
    forget(l);
    if (t->empty >= NOTHING || t->found <= 0) {
        *ret_keep = 0;
        return MIRROR_DROPPED;
    }
    *ret_keep = t->found / t->claimed;
    set_size(l, share * *ret_keep);
    return MIRROR_SHRUNK;
}

static void grow(struct prefix_loop *l)
{
    float scale = l->scale * SCALE_GROWTH;
    l->good = 0;
    l->scale = scale < 1 ? scale : 1;
    if (scale >= 1)
        l->steady = 1;
}

/* Once in a window. */
static void tune(struct prefix_loop *l, const struct tally *t, double share)
{
    l->age = 0;
    if (t->error > RIGHT * LOOP_WINDOW) {
        l->good = 0;
        if (t->over > 0)
            set_size(l, share * (1 - t->over / LOOP_WINDOW));
        else if (t->over < -RIGHT * LOOP_WINDOW)
            grow(l); /* it knows too little */
        return;
    }
    atomic_store_explicit(&l->is_told, false, memory_order_relaxed);
    if (++l->good >= l->steady)
        grow(l);
}

enum mirror_reset prefix_loop_note(struct prefix_loop *l, double low, double high, double reported,
                                   double share, double *ret_error, double *ret_keep)
{
    enum mirror_reset what = MIRROR_KEPT;
    double predicted = reported > high ? high : reported < low ? low : reported;
    double error = reported > predicted ? reported - predicted : predicted - reported;
    prefix_lock_acquire(&l->lock);
    l->sample[l->at] = (struct loop_sample){(float)predicted, (float)reported, (float)error};
    l->at = (l->at + 1) % LOOP_WINDOW;
    l->n += l->n < LOOP_WINDOW;
    l->age++;
    struct tally t = tally(l);
    if (t.error > LIE * LOOP_WINDOW && t.over > 0)
        what = judge(l, &t, share, ret_keep);
    else if (l->age == LOOP_WINDOW)
        tune(l, &t, share);
    prefix_lock_release(&l->lock);
    *ret_error = error;
    return what;
}

uint32_t prefix_loop_open(struct prefix_loop *l, uint64_t first, uint32_t before)
{
    prefix_lock_acquire(&l->lock);
    unsigned i = 0;
    while (i < LOOP_OPEN && l->open[i].id)
        i++;
    if (i == LOOP_OPEN) /* many at a time: the one that is open longest is taken for computed */
        i = l->next_open++ % LOOP_OPEN;
    l->last_id = l->last_id + 1 ? l->last_id + 1 : 1;
    uint32_t id = l->last_id;
    l->open[i] = (struct loop_open){first, before, id};
    prefix_lock_release(&l->lock);
    return id;
}

void prefix_loop_close(struct prefix_loop *l, uint32_t id)
{
    prefix_lock_acquire(&l->lock);
    for (unsigned i = 0; i < LOOP_OPEN; i++)
        if (l->open[i].id == id)
            l->open[i].id = 0;
    prefix_lock_release(&l->lock);
}

uint32_t prefix_loop_settled(struct prefix_loop *l, const uint64_t *keys, uint32_t depth)
{
    prefix_lock_acquire(&l->lock);
    for (unsigned i = 0; i < LOOP_OPEN; i++) {
        const struct loop_open *o = &l->open[i];
        if (o->id && o->before < depth && keys[o->before] == o->first)
            depth = o->before;
    }
    prefix_lock_release(&l->lock);
    return depth;
}
