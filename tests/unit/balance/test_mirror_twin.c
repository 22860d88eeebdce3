/* SPDX-License-Identifier: Apache-2.0
 *
 * The mirror beside its model over random operations: matching over all lanes, recording, withdrawing,
 * resets, lanes that change their size and move to larger tables. Small alphabets, so that every prompt parts
 * from, ends in and goes on behind others. To show that the twin sees, faults are planted between the two.
 */
#include "unit.h"

#include "balance/mirror.h"
#include "base/hash.h"
#include "base/rng.h"
#include "mirror_model.h"

enum fault {
    FAULT_NONE,
    FAULT_HEADS_FIRST,
    FAULT_SHORT_RECORD, /* one block less */
    FAULT_NO_TOUCH,     /* a known prompt is not used again */
    FAULT_NO_WITHDRAW,
    FAULT_NO_RESET,
    FAULT_OTHER_SIZE,
    FAULT_COUNT
};

struct shape {
    unsigned lanes, letters, longest, size, recent;
};

enum { OUTSTANDING = 16, KEYS = 300, RECENT = 64 };

struct outstanding {
    struct mirror_receipt receipt;
    struct model_receipt model;
    unsigned lane, resets;
};

struct twin {
    struct shape shape;
    enum fault fault;
    struct mirror *mirror;
    struct model *model;
    struct rng rng;
    uint32_t lane[MODEL_LANES];
    unsigned resets[MODEL_LANES];
    struct outstanding out[OUTSTANDING];
    uint64_t recent[RECENT][KEYS];
    unsigned recent_n[RECENT];
    uint64_t keys[KEYS];
    unsigned n;
};

static unsigned below(struct twin *t, unsigned n)
{
    return (unsigned)rng_below(&t->rng, n);
}

/* Goes on from some point of a recent prompt, or begins anew. */
static void any_prompt(struct twin *t)
{
    unsigned r = below(t, RECENT), keep = below(t, 4) ? below(t, t->recent_n[r] + 1) : 0;
    unsigned n = keep + below(t, 3) * below(t, t->shape.longest);
    n = n < t->shape.longest ? n : t->shape.longest;
    n = n > keep ? n : keep;
    memcpy(t->keys, t->recent[r], keep * sizeof t->keys[0]);
    for (unsigned i = keep; i < n; i++)
        t->keys[i] = hash_mix(i ? t->keys[i - 1] : 7, below(t, i % 8 ? 1 + below(t, 2) : t->shape.letters));
    t->n = n;
    r = below(t, RECENT);
    memcpy(t->recent[r], t->keys, n * sizeof t->keys[0]);
    t->recent_n[r] = n;
}

static void twin_init(struct twin *t, const struct shape *shape, enum fault fault, uint64_t seed)
{
    uint64_t identity[MODEL_LANES];
    uint32_t sizes[MODEL_LANES];
    memset(t, 0, sizeof *t);
    t->shape = *shape;
    t->fault = fault;
    rng_seed(&t->rng, seed);
    t->mirror = mirror_new();
    t->model = calloc(1, sizeof *t->model);
    t->model->heads_first = fault == FAULT_HEADS_FIRST;
    for (unsigned i = 0; i < shape->lanes; i++) {
        identity[i] = i + 1;
        sizes[i] = shape->size - below(t, shape->size / 2);
        t->model->lane[i].size = sizes[i] - (fault == FAULT_OTHER_SIZE && i == 0);
    }
    mirror_lanes_get(t->mirror, identity, sizes, shape->lanes, t->lane);
}

static void twin_fini(struct twin *t)
{
    for (unsigned i = 0; i < t->shape.lanes; i++)
        mirror_lane_put(t->mirror, t->lane[i]);
    mirror_unref(t->mirror);
    free(t->model);
}

static bool same_match(struct twin *t)
{
    uint32_t depth[MODEL_LANES], room[MODEL_LANES];
    mirror_enter();
    struct mirror_lane_set set;
    mirror_lane_set_init(&set, t->lane, t->shape.lanes);
    mirror_match(t->mirror, t->keys, t->n, &set, depth, room);
    mirror_leave();
    for (unsigned i = 0; i < t->shape.lanes; i++)
        if (depth[i] != model_match(&t->model->lane[i], t->keys, t->n))
            return false;
    return true;
}

static bool same_stats(struct twin *t, unsigned i)
{
    struct mirror_stats s;
    const struct model_lane *l = &t->model->lane[i];
    mirror_stats(t->mirror, t->lane[i], &s);
    return s.blocks == l->n && s.evictions == l->evictions && s.warmth == l->warmth;
}

static bool do_record(struct twin *t, unsigned i)
{
    struct outstanding *o = &t->out[below(t, OUTSTANDING)];
    unsigned n = t->n - (t->fault == FAULT_SHORT_RECORD && t->n > 1);
    o->lane = i;
    o->resets = t->resets[i];
    o->receipt = mirror_record(t->mirror, t->lane[i], t->keys, t->n);
    uint64_t clock = t->model->clock;
    o->model = model_record(t->model, &t->model->lane[i], t->keys, n);
    if (t->fault == FAULT_NO_TOUCH && o->model.before == n)
        for (unsigned k = 0; k < t->model->lane[i].n; k++)
            if (t->model->lane[i].block[k].time > clock)
                t->model->lane[i].block[k].time = clock / 2;
    return o->receipt.before == o->model.before && o->receipt.depth == o->model.depth;
}

static void do_withdraw(struct twin *t)
{
    struct outstanding *o = &t->out[below(t, OUTSTANDING)];
    mirror_withdraw(t->mirror, &o->receipt);
    if (o->receipt.generation && o->resets == t->resets[o->lane] && t->fault != FAULT_NO_WITHDRAW)
        model_withdraw(t->model, &t->model->lane[o->lane], &o->model);
    *o = (struct outstanding){0};
}

static void do_reset(struct twin *t, unsigned i)
{
    mirror_reset(t->mirror, t->lane[i]);
    t->resets[i]++;
    if (t->fault == FAULT_NO_RESET)
        return;
    t->model->lane[i].n = 0;
    t->model->lane[i].warmth = 0;
}

/* What a reset or a smaller size takes away counts as put out in neither. */
static void do_resize(struct twin *t, unsigned i)
{
    uint32_t size = 1 + below(t, t->shape.size);
    if (below(t, 4) == 0)
        size = t->shape.size + below(t, MODEL_BLOCKS - t->shape.size);
    t->model->lane[i].size = size;
    if (!mirror_lane_resize(t->mirror, t->lane[i], size))
        mirror_lane_grow(t->mirror, t->lane[i], size);
}

static bool one_step(struct twin *t)
{
    unsigned i = below(t, t->shape.lanes), what = below(t, 1000);
    any_prompt(t);
    if (what < 700) {
        if (!do_record(t, i))
            return false;
    } else if (what < 800) {
        do_withdraw(t);
    } else if (what < 804) {
        do_reset(t, i);
    } else if (what < 806) {
        do_resize(t, i);
    }
    return same_match(t) && (below(t, 8) || same_stats(t, i));
}

/* Operations until the two differ, or all of them. */
static unsigned run(const struct shape *shape, enum fault fault, uint64_t seed, unsigned steps)
{
    static struct twin t;
    unsigned n = 0;
    twin_init(&t, shape, fault, seed);
    while (n < steps && one_step(&t))
        n++;
    twin_fini(&t);
    return n;
}

static const struct shape shapes[] = {
    {.lanes = 3, .letters = 2, .longest = 20, .size = 40},
    {.lanes = 1, .letters = 8, .longest = 6, .size = 30},
    {.lanes = 8, .letters = 2, .longest = 60, .size = 80},
    {.lanes = 2, .letters = 30, .longest = 2, .size = 20},
    {.lanes = 70, .letters = 2, .longest = 12, .size = 24},
    {.lanes = 2, .letters = 2, .longest = 250, .size = 200},
};

static void test_twin(void **state)
{
    static const unsigned steps[] = {400000, 400000, 150000, 400000, 15000, 40000};
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        unsigned wanted = steps[i] / (UNIT_SANITIZED ? 10 : 1);
        unsigned n = run(&shapes[i], FAULT_NONE, 100 + i, wanted);
        if (n < wanted)
            fail_msg("shape %u: they differ after %u operations", i, n);
    }
}

static void test_faults_are_seen(void **state)
{
    for (int f = FAULT_NONE + 1; f < FAULT_COUNT; f++) {
        unsigned n = run(&shapes[0], (enum fault)f, 5, 20000);
        if (n == 20000)
            fail_msg("fault %d is not seen", f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin), cmocka_unit_test(test_faults_are_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
