/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/explain_parts.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

/* The parts in the order in which they are looked into, level by level. */
struct walk {
    struct canon canon;
    struct hash_stream hash;
    struct explain_parts *parts;
    uint32_t node[EXPLAIN_PARTS]; /* JSON_NODE_NONE: nothing inside */
    enum canon_place place[EXPLAIN_PARTS];
};

size_t explain_parts_bytes(const struct explain_parts *p)
{
    return offsetof(struct explain_parts, text) + p->text_n;
}

static void put_hash(void *arg, const char *p, size_t n)
{
    hash_update(&((struct walk *)arg)->hash, p, n);
}

static void add(struct explain_parts *p, struct span path, uint64_t digest)
{
    if (p->n == EXPLAIN_PARTS || path.n > EXPLAIN_PATH_MAX)
        return;
    memcpy(p->text + p->text_n, path.p, path.n);
    p->part[p->n++] = (struct explain_part){hash_bytes(path.p, path.n), (uint32_t)(digest ^ digest >> 32),
                                            (uint16_t)p->text_n, (uint16_t)path.n};
    p->text_n += (unsigned)path.n;
}

static void add_around(struct explain_parts *p, const char *name, struct span value)
{
    add(p, span_str(name), hash_bytes(value.p, value.n));
}

static void add_surroundings(struct explain_parts *p, const struct key_input *in)
{
    add_around(p, "@path", in->path);
    add_around(p, "@query", in->query);
    add_around(p, "@scope", span_of((const char *)in->scope->digest.b, sizeof in->scope->digest.b));
    add_around(p, "@targets", span_of((const char *)in->targets->b, sizeof in->targets->b));
    for (unsigned i = 0; i < in->n_headers; i++) {
        char name[EXPLAIN_PATH_MAX];
        int n = snprintf(name, sizeof name, "@header %.*s", SPAN_FMT(in->headers[i].name));
        for (int k = 0; k < n && k < EXPLAIN_PATH_MAX - 1; k++)
            if (name[k] >= 'A' && name[k] <= 'Z')
                name[k] |= 0x20;
        add_around(p, name, span_trim(in->headers[i].value));
    }
}

/* The value <i> at <place>; <path> is what is called so. */
static void add_value(struct walk *w, struct span path, uint32_t i, enum canon_place place)
{
    unsigned at = w->parts->n;
    hash_begin(&w->hash);
    canon_value(&w->canon, i, place);
    add(w->parts, path, hash_end(&w->hash));
    if (w->parts->n > at) {
        w->node[at] = i;
        w->place[at] = place;
    }
}

static void add_members(struct walk *w, struct span under, uint32_t obj, enum canon_place place)
{
    const struct json_doc *d = w->canon.doc;
    for (uint32_t i = json_first(d, obj); i != JSON_NODE_NONE; i = json_next(d, obj, i)) {
        struct span name = json_string(d, i, w->canon.arena);
        char path[2 * EXPLAIN_PATH_MAX];
        if (!canon_keeps(&w->canon, place, name, i + 1) || under.n + name.n + 1 > EXPLAIN_PATH_MAX)
            continue;
        int n =
            snprintf(path, sizeof path, under.n ? "%.*s.%.*s" : "%.*s%.*s", SPAN_FMT(under), SPAN_FMT(name));
        add_value(w, span_of(path, (size_t)n), i + 1, canon_place_of_member(&w->canon, place, name));
    }
}

static void add_items(struct walk *w, struct span under, uint32_t array, enum canon_place place)
{
    const struct json_doc *d = w->canon.doc;
    unsigned k = 0;
    for (uint32_t i = json_first(d, array); i != JSON_NODE_NONE; i = json_next(d, array, i), k++) {
        char path[2 * EXPLAIN_PATH_MAX];
        int n = snprintf(path, sizeof path, "%.*s[%u]", SPAN_FMT(under), k);
        add_value(w, span_of(path, (size_t)n), i, canon_place_of_item(place));
        if (w->parts->n == EXPLAIN_PARTS)
            break;
    }
}

static int by_path(const void *a, const void *b)
{
    const struct explain_part *x = a, *y = b;
    return x->path_hash != y->path_hash ? (x->path_hash < y->path_hash ? -1 : 1)
                                        : (x->digest > y->digest) - (x->digest < y->digest);
}

void explain_parts_of(const struct key_input *in, struct arena *a, struct explain_parts *ret)
{
    struct walk w;
    ret->n = ret->text_n = 0;
    w.parts = ret;
    w.canon = key_canon(in, a, put_hash, &w);
    add_surroundings(ret, in);
    unsigned next = ret->n;
    add_members(&w, SPAN_NONE, 0, CANON_ROOT);
    for (; next < ret->n; next++) {
        char under[EXPLAIN_PATH_MAX]; /* the text may not move, but snprintf wants it elsewhere */
        struct span path = explain_path(ret, next);
        memcpy(under, path.p, path.n);
        if (json_is(in->doc, w.node[next], JSON_OBJECT))
            add_members(&w, span_of(under, path.n), w.node[next], w.place[next]);
        else if (json_is(in->doc, w.node[next], JSON_ARRAY) &&
                 !canon_is_one_text(&w.canon, w.node[next], w.place[next]))
            add_items(&w, span_of(under, path.n), w.node[next], w.place[next]);
    }
    qsort(ret->part, ret->n, sizeof *ret->part, by_path);
}

static bool has(const struct explain_parts *p, const struct explain_part *part)
{
    return bsearch(part, p->part, p->n, sizeof *part, by_path) != NULL;
}

unsigned explain_common(const struct explain_parts *a, const struct explain_parts *b)
{
    unsigned common = 0;
    for (unsigned i = 0; i < a->n; i++)
        common += has(b, &a->part[i]);
    return common;
}

static bool has_path(const struct explain_parts *p, uint64_t path_hash)
{
    unsigned from = 0, to = p->n;
    while (from < to) {
        unsigned middle = (from + to) / 2;
        if (p->part[middle].path_hash < path_hash)
            from = middle + 1;
        else
            to = middle;
    }
    return from < p->n && p->part[from].path_hash == path_hash;
}

/* Whether what holds the part is not there at all: then that is the difference, not each thing in it. */
static bool is_in_something_new(const struct explain_parts *other, struct span path)
{
    size_t n = path.n;
    while (n > 0 && path.p[n - 1] != '.' && path.p[n - 1] != '[')
        n--;
    return n > 1 && !has_path(other, hash_bytes(path.p, n - 1));
}

/* Whether <path> is a part of what is called <of>. */
static bool is_inside(struct span path, struct span of)
{
    return path.n > of.n && memcmp(path.p, of.p, of.n) == 0 && (path.p[of.n] == '.' || path.p[of.n] == '[');
}

/* Puts <path> in unless it is there; what it lies in goes, and it goes itself where something inside is. */
static void add_path(struct span *list, unsigned *n, struct span path)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < *n; i++)
        if (span_eq(list[i], path) || is_inside(list[i], path))
            return;
    for (unsigned i = 0; i < *n; i++)
        if (!is_inside(path, list[i]))
            list[kept++] = list[i];
    list[kept++] = path;
    *n = kept;
}

static int by_text(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    int order = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

unsigned explain_difference(const struct explain_parts *a, const struct explain_parts *b,
                            struct span ret[EXPLAIN_DIFFERS])
{
    struct span all[2 * EXPLAIN_PARTS];
    unsigned n = 0;
    for (unsigned i = 0; i < a->n; i++)
        if (!has(b, &a->part[i]) && !is_in_something_new(b, explain_path(a, i)))
            add_path(all, &n, explain_path(a, i));
    for (unsigned i = 0; i < b->n; i++)
        if (!has(a, &b->part[i]) && !is_in_something_new(a, explain_path(b, i)))
            add_path(all, &n, explain_path(b, i));
    qsort(all, n, sizeof *all, by_text);
    if (n > EXPLAIN_DIFFERS)
        n = EXPLAIN_DIFFERS;
    memcpy(ret, all, n * sizeof *all);
    return n;
}
