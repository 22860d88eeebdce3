/* SPDX-License-Identifier: Apache-2.0 */
#include "config/schema.h"

enum { LONGEST = 63 }; /* no key is near a longer word */

static unsigned min2(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned schema_distance(struct span a, struct span b, unsigned limit)
{
    if (a.n > LONGEST || b.n > LONGEST)
        return limit + 1;
    unsigned rows[3][LONGEST + 1]; /* the row above the last one, the last one, this one */
    unsigned *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b.n; j++)
        last[j] = (unsigned)j;
    for (size_t i = 1; i <= a.n; i++) {
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b.n; j++) {
            const bool same = a.p[i - 1] == b.p[j - 1];
            now[j] = min2(min2(last[j], now[j - 1]) + 1, last[j - 1] + !same);
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1])
                now[j] = min2(now[j], before[j - 2] + 1);
        }
        unsigned *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return min2(last[b.n], limit + 1);
}

struct guess {
    const struct key_spec *key;
    const struct section *section;
    unsigned distance; /* only nearer ones are taken */
};

static void look_into(const struct section *s, struct span name, struct guess *g)
{
    for (unsigned i = 0; i < s->n && g->distance > 0; i++) {
        const unsigned d = schema_distance(name, span_str(s->keys[i].name), g->distance);
        if (d < g->distance)
            *g = (struct guess){&s->keys[i], s, d};
    }
}

static void look_below(const struct section *s, struct span name, const struct section *except,
                       struct guess *g)
{
    if (s != except)
        look_into(s, name, g);
    for (unsigned i = 0; i < s->n; i++)
        if (s->keys[i].section)
            look_below(s->keys[i].section, name, except, g);
}

/* Sections that have a key of this name. */
static unsigned count_below(const struct section *s, struct span name)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->n; i++) {
        n += span_eq(name, span_str(s->keys[i].name));
        if (s->keys[i].section)
            n += count_below(s->keys[i].section, name);
    }
    return n;
}

const struct key_spec *schema_nearest(const struct section *s, struct span name,
                                      const struct section **ret_elsewhere)
{
    struct guess here = {.distance = name.n < 4 ? 2 : name.n < 8 ? 3 : 4};
    struct guess elsewhere = {.distance = name.n < 4 ? 1 : 2};
    look_into(s, name, &here);
    look_below(&schema_root, name, s, &elsewhere);
    /* A key of nearly that name elsewhere is a better guess than a key here that is several changes away. */
    const bool is_here = here.key && (!elsewhere.key || here.distance <= elsewhere.distance + 1);
    const struct guess *g = is_here ? &here : &elsewhere;
    *ret_elsewhere = is_here ? NULL : g->section;
    enum { PLACES_MAX = 4 }; /* `enabled` and the like stand in many sections: naming one would mislead */
    if (!is_here && g->key && g->distance == 0 && count_below(&schema_root, name) > PLACES_MAX)
        return NULL;
    return g->key;
}
