/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix index beside its model over random operations: matching, recording, recording again, eviction,
 * withdrawing, resets, slots given back and taken again. Small alphabets, so that every prompt parts from,
 * ends in and goes on behind others. After each operation the acting slot, now and then every slot, must have
 * the same prompts, nodes, bytes, evictions and warmth. To show that the twin sees, faults are planted
 * between the two.
 */
#include "unit.h"

#include "base/check.h"
#include "base/rng.h"
#include "prefix_model.h"

enum fault {
    FAULT_NONE,
    FAULT_SHORT_RECORD, /* one byte less of a prompt */
    FAULT_MATCH_REFRESHES,
    FAULT_NO_WITHDRAW,
    FAULT_NO_RESET,
    FAULT_OTHER_SLOT, /* a prompt recorded for its neighbour as well */
    FAULT_OTHER_CAP,
    FAULT_COUNT
};

struct shape {
    unsigned slots, letters, longest, stretch, stretch_chance;
    uint64_t max_nodes, max_bytes;
    unsigned rarer; /* so many times fewer operations: they take long */
    bool lazy; /* reset slots are emptied by the way; nothing is evicted then, and nodes are not compared */
};

struct outstanding {
    struct prefix_receipt receipt;
    unsigned slot, generation;
    uint64_t serial;
};
enum { OUTSTANDING = 16 };

struct twin {
    struct shape shape;
    enum fault fault;
    struct prefix_index *ix;
    struct model model;
    struct rng rng;
    uint32_t slot[MODEL_SLOTS];
    bool away[MODEL_SLOTS]; /* given back */
    struct outstanding out[OUTSTANDING];
    char text[MODEL_TEXT];
};

static unsigned below(struct twin *t, unsigned n)
{
    return (unsigned)rng_below(&t->rng, n);
}

/* Letters, each drawn out to a run now and then. A run is different at every place of it. */
static struct span any_prompt(struct twin *t)
{
    unsigned letters = 1 + below(t, t->shape.longest);
    size_t n = 0;
    for (unsigned i = 0; i < letters; i++) {
        char c = (char)('a' + below(t, t->shape.letters));
        size_t run =
            t->shape.stretch && below(t, t->shape.stretch_chance) == 0 ? t->shape.stretch + below(t, 2) : 1;
        if (n + run > sizeof t->text)
            break;
        t->text[n] = c;
        for (size_t k = 1; k < run; k++)
            t->text[n + k] = (char)('a' + ((n + k) * 7 + (size_t)c) % 26);
        n += run;
    }
    return span_of(t->text, n);
}

static bool strikes(struct twin *t, enum fault f)
{
    return t->fault == f && below(t, 10) == 0;
}

static bool same_match(struct twin *t)
{
    struct prefix_hit hits[MODEL_SLOTS];
    struct span p = any_prompt(t);
    prefix_match(t->ix, p, t->slot, t->shape.slots, hits);
    if (strikes(t, FAULT_MATCH_REFRESHES) && hits[0].bytes == p.n)
        prefix_withdraw(t->ix, prefix_record(t->ix, t->slot[0], p, NULL));
    for (unsigned i = 0; i < t->shape.slots; i++)
        if (hits[i].bytes != model_match(&t->model.slot[i], model_cut(&t->model, p)))
            return false;
    return true;
}

static void record(struct twin *t, unsigned slot)
{
    struct span p = any_prompt(t);
    struct outstanding *o = &t->out[below(t, OUTSTANDING)];
    struct prefix_hit hits[MODEL_SLOTS];
    bool with_hint = below(t, 2);
    o->serial = model_record(&t->model, slot, p);
    o->generation = t->model.slot[slot].generation;
    o->slot = slot;
    if (strikes(t, FAULT_SHORT_RECORD))
        p.n--;
    if (strikes(t, FAULT_OTHER_SLOT))
        prefix_record(t->ix, t->slot[(slot + 1) % t->shape.slots], p, NULL);
    prefix_section_begin();
    if (with_hint)
        prefix_match(t->ix, p, t->slot, t->shape.slots, hits);
    o->receipt = prefix_record(t->ix, t->slot[slot], p, with_hint ? &hits[slot] : NULL);
    prefix_section_end();
}

static void withdraw(struct twin *t)
{
    struct outstanding *o = &t->out[below(t, OUTSTANDING)];
    if (o->serial == 0)
        return;
    model_withdraw(&t->model, o->slot, o->generation, o->serial);
    if (!strikes(t, FAULT_NO_WITHDRAW))
        prefix_withdraw(t->ix, o->receipt);
    *o = (struct outstanding){0};
}

static void reset(struct twin *t, unsigned slot)
{
    model_reset(&t->model, slot);
    if (strikes(t, FAULT_NO_RESET))
        return;
    prefix_reset(t->ix, t->slot[slot]);
    while (!t->shape.lazy && !prefix_tidy(t->ix, 1))
        ;
}

/* What a target knows stays while it is away. */
static void leave_or_return(struct twin *t, unsigned slot)
{
    if (!t->away[slot])
        prefix_slot_put(t->ix, t->slot[slot]);
    else
        t->slot[slot] = prefix_slot_get(t->ix, 100 + slot);
    t->away[slot] = !t->away[slot];
}

static bool same_slot(struct twin *t, unsigned slot)
{
    struct prefix_stats s;
    const struct model_slot *m = &t->model.slot[slot];
    prefix_stats(t->ix, t->slot[slot], &s);
    if (s.prompts != m->n || s.warmth != m->warmth || s.evictions != m->evictions ||
        prefix_warmth(t->ix, t->slot[slot]) != m->warmth)
        return false;
    if (t->shape.lazy)
        return true;
    uint64_t nodes = model_nodes(&t->model, m);
    if (s.nodes != nodes || s.bytes != model_bytes(&t->model, slot, nodes))
        return false;
    for (unsigned i = 0; i < m->n; i++) {
        struct prefix_hit hit;
        prefix_match(t->ix, model_text(m->prompt[i]), &t->slot[slot], 1, &hit);
        if (hit.bytes != m->prompt[i]->n)
            return false;
    }
    return true;
}

static bool step(struct twin *t, unsigned number)
{
    unsigned slot = below(t, t->shape.slots), what = below(t, 1000);
    if (what < 400 && !same_match(t))
        return false;
    if (what >= 400 && what < 880)
        record(t, slot);
    if (what >= 880 && what < 985)
        withdraw(t);
    if (what >= 985 && what < 990)
        reset(t, slot);
    if (what >= 990)
        leave_or_return(t, slot);
    if (what >= 400 && !same_slot(t, slot))
        return false;
    for (unsigned i = 0; number % 64 == 0 && i < t->shape.slots; i++)
        if (!same_slot(t, i))
            return false;
    if (number % 1024 == 0 && t->fault == FAULT_NONE)
        prefix_check(t->ix);
    return true;
}

/* The number of the first operation after which the two differ, or <operations>. */
static unsigned run(const struct shape *shape, enum fault fault, unsigned operations, uint64_t seed)
{
    struct twin *t = MEM_NEW(struct twin);
    t->shape = *shape;
    t->fault = fault;
    t->model.limits = (struct prefix_limits){shape->max_nodes, shape->max_bytes};
    t->ix = prefix_index_new(
        (struct prefix_limits){shape->max_nodes + (fault == FAULT_OTHER_CAP), shape->max_bytes});
    rng_seed(&t->rng, seed);
    for (unsigned i = 0; i < shape->slots; i++) {
        t->slot[i] = prefix_slot_get(t->ix, 100 + i);
        prefix_stats(t->ix, t->slot[i], &t->model.costs[i]);
    }
    unsigned number = 0;
    while (number < operations && step(t, number))
        number++;
    if (fault == FAULT_NONE)
        prefix_check(t->ix);
    for (unsigned i = 0; i < shape->slots; i++)
        model_reset(&t->model, i);
    prefix_index_unref(t->ix);
    free(t);
    return number;
}

static const struct shape SHAPES[] = {
    {.slots = 1, .letters = 2, .longest = 8, .max_nodes = 3, .max_bytes = 1 << 20},
    {.slots = 3, .letters = 2, .longest = 6, .max_nodes = 7, .max_bytes = 1 << 20},
    {.slots = 3, .letters = 3, .longest = 12, .max_nodes = 12, .max_bytes = 1 << 20},
    {.slots = 6, .letters = 2, .longest = 10, .max_nodes = 9, .max_bytes = 1 << 20},
    {.slots = 4, .letters = 26, .longest = 4, .max_nodes = 24, .max_bytes = 1 << 20},
    {.slots = 3, .letters = 2, .longest = 9, .max_nodes = 1000, .max_bytes = 4096},
    {.slots = 3,
     .letters = 2,
     .longest = 12,
     .stretch = 300,
     .stretch_chance = 3,
     .max_nodes = 1000,
     .max_bytes = 6000},
    {.slots = 2,
     .letters = 2,
     .longest = 8,
     .stretch = 1500,
     .stretch_chance = 3,
     .max_nodes = 100,
     .max_bytes = 4096},
    {.slots = 3,
     .letters = 2,
     .longest = 9,
     .stretch = 2600,
     .stretch_chance = 2,
     .rarer = 16,
     .max_nodes = 100,
     .max_bytes = 60000},
    {.slots = 2, .letters = 2, .longest = 5, .max_nodes = 1000, .max_bytes = 1 << 20, .lazy = true},
};

static void test_twins(void **state)
{
    enum { EACH = 112000 };
    for (unsigned i = 0; i < ARRAY_LEN(SHAPES); i++) {
        unsigned each = SHAPES[i].rarer ? EACH / SHAPES[i].rarer : EACH;
        unsigned done = run(&SHAPES[i], FAULT_NONE, each, 1 + i);
        if (done < each)
            fail_msg("shape %u differs after operation %u", i, done);
    }
}

static void test_faults_are_seen(void **state)
{
    enum { MANY = 20000 };
    for (enum fault f = FAULT_NONE + 1; f < FAULT_COUNT; f++)
        if (run(&SHAPES[2], f, MANY, f) == MANY)
            fail_msg("fault %d goes unseen", (int)f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_faults_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
