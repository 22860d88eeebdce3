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

static const struct section *holder(const struct section *s, struct span name, const struct section *except)
{
    if (s != except && section_find(s, name))
        return s;
    for (unsigned i = 0; i < s->n; i++) {
        const struct section *found = s->keys[i].section ? holder(s->keys[i].section, name, except) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

const struct key_spec *schema_nearest(const struct section *s, struct span name,
                                      const struct section **ret_elsewhere)
{
    const struct section *elsewhere = holder(&schema_root, name, s);
    const struct key_spec *best = NULL;
    unsigned limit = name.n < 4 ? 1 : name.n < 8 ? 2 : 3;
    /* A key of that very name elsewhere is a better guess than a key here that is three changes away. */
    if (elsewhere && limit > 1)
        limit = 1;
    for (unsigned i = 0; i < s->n; i++) {
        const unsigned d = schema_distance(name, span_str(s->keys[i].name), limit);
        if (d <= limit) {
            best = &s->keys[i];
            limit = d == 0 ? 0 : d - 1;
        }
    }
    if (best) {
        *ret_elsewhere = NULL;
        return best;
    }
    if (!elsewhere)
        return NULL;
    *ret_elsewhere = elsewhere;
    return section_find(elsewhere, name);
}
