/* SPDX-License-Identifier: Apache-2.0 */
#include "json/edit.h"

#include <stdlib.h>

#include "base/check.h"
#include "json/parser.h"

void json_edits_init(struct json_edits *e, const struct json_doc *d, struct arena *a)
{
    e->doc = d;
    e->arena = a;
    e->n = 0;
    e->overflow = false;
}

static struct json_edit *find(struct json_edits *e, uint32_t node, bool gone)
{
    for (unsigned i = 0; i < e->n; i++) {
        if (e->list[i].node == node && e->list[i].gone == gone)
            return &e->list[i];
    }
    return NULL;
}

static struct json_edit *find_new(struct json_edits *e, struct span name)
{
    for (unsigned i = 0; i < e->n; i++) {
        if (e->list[i].node == JSON_NODE_NONE && span_eq(e->list[i].name, name))
            return &e->list[i];
    }
    return NULL;
}

static void add(struct json_edits *e, struct json_edit edit)
{
    if (e->n == JSON_EDITS_MAX)
        e->overflow = true;
    else
        e->list[e->n++] = edit;
}

static void drop(struct json_edits *e, struct json_edit *edit)
{
    size_t behind = (size_t)(e->list + e->n - edit) - 1;
    memmove(edit, edit + 1, behind * sizeof(*edit));
    e->n--;
}

static void replace(struct json_edits *e, uint32_t node, struct span text)
{
    struct json_edit *old = find(e, node, false);
    if (old)
        old->text = text;
    else
        add(e, (struct json_edit){.node = node, .text = text});
}

void json_edits_replace(struct json_edits *e, uint32_t node, struct span value)
{
    CHECK(node < e->doc->n);
    replace(e, node, arena_dup(e->arena, value));
}

/* ,"name":value */
static void set_new(struct json_edits *e, struct span name, struct span value)
{
    char *p = arena_alloc(e->arena, name.n * 6 + JSON_UNESCAPE_ROOM + value.n + 4);
    size_t n = 0;
    p[n++] = ',';
    p[n++] = '"';
    n += json_escape_into(p + n, name);
    p[n++] = '"';
    p[n++] = ':';
    if (value.n)
        memcpy(p + n, value.p, value.n);
    struct span text = span_of(p, n + value.n);
    struct json_edit *old = find_new(e, name);
    if (old)
        old->text = text;
    else
        add(e, (struct json_edit){.node = JSON_NODE_NONE, .text = text, .name = arena_dup(e->arena, name)});
}

void json_edits_set(struct json_edits *e, struct span name, struct span value)
{
    const struct json_doc *d = e->doc;
    if (!json_is(d, 0, JSON_OBJECT)) {
        e->overflow = true;
        return;
    }
    struct span copy = SPAN_NONE;
    for (uint32_t i = json_first(d, 0); i != JSON_NODE_NONE; i = json_next(d, 0, i)) {
        if (!json_string_eq(d, i, name))
            continue;
        if (!copy.p)
            copy = arena_dup(e->arena, value);
        struct json_edit *gone = find(e, i, true);
        if (gone)
            drop(e, gone);
        replace(e, i + 1, copy);
    }
    if (!copy.p)
        set_new(e, name, value);
}

void json_edits_remove(struct json_edits *e, struct span name)
{
    const struct json_doc *d = e->doc;
    struct json_edit *set = find_new(e, name);
    if (set)
        drop(e, set);
    if (!json_is(d, 0, JSON_OBJECT))
        return;
    for (uint32_t i = json_first(d, 0); i != JSON_NODE_NONE; i = json_next(d, 0, i)) {
        if (!json_string_eq(d, i, name) || find(e, i, true))
            continue;
        set = find(e, i + 1, false);
        if (set)
            drop(e, set);
        add(e, (struct json_edit){.node = i, .gone = true});
    }
}

/* A range of the old text and what takes its place. */
struct range {
    size_t at, remove;
    struct span insert;
};

struct plan {
    const struct json_doc *d;
    const struct json_edit *old[JSON_EDITS_MAX]; /* edits of what is there, in the order of the text */
    unsigned n_old;
    uint32_t last_kept; /* name of the last member of the root that stays, or JSON_NODE_NONE */
    uint32_t last;      /* and of the last one */
    struct range range[JSON_EDITS_MAX + 1];
    unsigned n;
};

static size_t end_of(const struct json_doc *d, uint32_t i)
{
    return (size_t)d->node[i].at + d->node[i].len;
}

static int by_place(const void *a, const void *b)
{
    const struct json_edit *x = *(const struct json_edit *const *)a, *y = *(const struct json_edit *const *)b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    /* A member that goes stands in front of an edit of its name, which goes with it. */
    return (int)y->gone - (int)x->gone;
}

static void find_last(struct plan *p)
{
    const struct json_doc *d = p->d;
    unsigned k = 0;
    p->last = p->last_kept = JSON_NODE_NONE;
    if (!json_is(d, 0, JSON_OBJECT))
        return;
    for (uint32_t i = json_first(d, 0); i != JSON_NODE_NONE; i = json_next(d, 0, i)) {
        while (k < p->n_old && (p->old[k]->node < i || !p->old[k]->gone))
            k++;
        p->last = i;
        if (k == p->n_old || p->old[k]->node != i)
            p->last_kept = i;
    }
}

/* Members that go take the comma behind them along while a member that stays follows; those behind the last
 * one that stays go in one piece, with the comma in front of them. False when edits overlap. */
static bool plan_old(struct plan *p)
{
    const struct json_doc *d = p->d;
    uint32_t gone_until = 0, replaced_until = 0;
    for (unsigned k = 0; k < p->n_old; k++) {
        const struct json_edit *edit = p->old[k];
        uint32_t i = edit->node;
        if (i < replaced_until)
            return false;
        if (i < gone_until)
            continue;
        if (!edit->gone) {
            replaced_until = d->node[i].end;
            p->range[p->n++] = (struct range){d->node[i].at, d->node[i].len, edit->text};
            continue;
        }
        gone_until = d->node[i + 1].end;
        if (p->last_kept != JSON_NODE_NONE && i < p->last_kept)
            p->range[p->n++] =
                (struct range){d->node[i].at, d->node[gone_until].at - d->node[i].at, SPAN_NONE};
    }
    if (p->last != p->last_kept) {
        size_t from = p->last_kept == JSON_NODE_NONE ? d->node[1].at : end_of(d, p->last_kept + 1);
        p->range[p->n++] = (struct range){from, end_of(d, p->last + 1) - from, SPAN_NONE};
    }
    return true;
}

/* New members stand behind the last one that stays, in the order in which they were set first. */
static void plan_new(struct plan *p, const struct json_edits *e)
{
    const struct json_doc *d = p->d;
    size_t at = p->last == JSON_NODE_NONE ? d->node[0].at + 1 : end_of(d, p->last + 1);
    bool comma = p->last_kept != JSON_NODE_NONE;
    for (unsigned i = 0; i < e->n; i++) {
        struct span text = e->list[i].text;
        if (e->list[i].node != JSON_NODE_NONE)
            continue;
        if (!comma)
            text = span_of(text.p + 1, text.n - 1);
        comma = true;
        p->range[p->n++] = (struct range){at, 0, text};
    }
}

static struct span carry_out(const struct plan *p, struct arena *a)
{
    struct span old = p->d->text;
    size_t total = old.n, from = 0, n = 0;
    for (unsigned i = 0; i < p->n; i++)
        total = total - p->range[i].remove + p->range[i].insert.n;
    char *to = arena_alloc(a, total + 1);
    for (unsigned i = 0; i < p->n; i++) {
        const struct range *r = &p->range[i];
        CHECK(r->at >= from);
        memcpy(to + n, old.p + from, r->at - from);
        n += r->at - from;
        if (r->insert.n)
            memcpy(to + n, r->insert.p, r->insert.n);
        n += r->insert.n;
        from = r->at + r->remove;
    }
    memcpy(to + n, old.p + from, old.n - from);
    CHECK(n + (old.n - from) == total);
    return span_of(to, total);
}

bool json_edits_apply(const struct json_edits *e, struct span *ret)
{
    if (e->overflow)
        return false;
    if (e->n == 0) {
        *ret = e->doc->text;
        return true;
    }
    struct plan p;
    p.d = e->doc;
    p.n_old = p.n = 0;
    for (unsigned i = 0; i < e->n; i++) {
        if (e->list[i].node != JSON_NODE_NONE)
            p.old[p.n_old++] = &e->list[i];
    }
    qsort(p.old, p.n_old, sizeof(p.old[0]), by_place);
    find_last(&p);
    if (!plan_old(&p))
        return false;
    bool has_new = p.n_old < e->n;
    if (has_new && p.n_old > 0 && p.old[0]->node == 0)
        return false;
    if (has_new)
        plan_new(&p, e);
    *ret = carry_out(&p, e->arena);
    return true;
}
