/* SPDX-License-Identifier: Apache-2.0 */
#include "json/json.h"

struct sink {
    void (*put)(void *arg, const char *p, size_t n);
    void *arg;
    const char *from; /* start of the bytes not yet put */
};

/* Leaves the white space of [p, end) out; brackets, commas and colons are all else that stands between
 * scalars. */
static void skip_gap(struct sink *s, const char *p, const char *end)
{
    for (; p < end; p++) {
        if ((unsigned char)*p > ' ')
            continue;
        if (p > s->from)
            s->put(s->arg, s->from, (size_t)(p - s->from));
        s->from = p + 1;
    }
}

void json_compact_each(const struct json_doc *d, uint32_t i, void (*put)(void *arg, const char *p, size_t n),
                       void *arg)
{
    if (i >= d->n)
        return;
    const struct json_node *root = &d->node[i];
    const char *p = d->text.p + root->at, *end = p + root->len;
    struct sink s = {put, arg, p};
    for (uint32_t k = i; k < root->end; k++) {
        const struct json_node *n = &d->node[k];
        if (n->type >= JSON_ARRAY)
            continue;
        skip_gap(&s, p, d->text.p + n->at);
        p = d->text.p + n->at + n->len;
    }
    skip_gap(&s, p, end);
    if (end > s.from)
        put(arg, s.from, (size_t)(end - s.from));
}
