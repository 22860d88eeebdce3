/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/splice.h"

#include <stdlib.h>

void splice_init(struct splice *s, struct arena *a)
{
    *s = (struct splice){.arena = a};
}

void splice_add(struct splice *s, size_t at, size_t n, struct span text)
{
    if (s->n == s->cap) {
        unsigned cap = s->cap ? s->cap * 2 : 16;
        struct splice_range *list = arena_alloc(s->arena, cap * sizeof *list);
        if (s->n)
            memcpy(list, s->list, s->n * sizeof *list);
        s->list = list;
        s->cap = cap;
    }
    s->list[s->n++] = (struct splice_range){at, n, text};
}

static int by_place(const void *a, const void *b)
{
    const struct splice_range *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

struct span splice_apply(struct splice *s, struct span text)
{
    size_t total = text.n, from = 0, n = 0;
    if (s->n > 1)
        qsort(s->list, s->n, sizeof *s->list, by_place);
    for (unsigned i = 0; i < s->n; i++)
        total += s->list[i].text.n; /* an upper bound */
    char *to = arena_alloc(s->arena, total + 1);
    for (unsigned i = 0; i < s->n; i++) {
        const struct splice_range *r = &s->list[i];
        if (i > 0 && r->at == s->list[i - 1].at)
            continue;
        CHECK(r->at >= from && r->at + r->n <= text.n);
        memcpy(to + n, text.p + from, r->at - from);
        n += r->at - from;
        if (r->text.n)
            memcpy(to + n, r->text.p, r->text.n);
        n += r->text.n;
        from = r->at + r->n;
    }
    memcpy(to + n, text.p + from, text.n - from);
    return span_of(to, n + (text.n - from));
}
