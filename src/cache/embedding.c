/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/embedding.h"

#include <stdlib.h>

#include "base/mem.h"
#include "cache/vectors.h"
#include "json/json.h"
#include "json/write.h"

struct embedding *embedding_new(unsigned dims)
{
    struct embedding *e = mem_zalloc(sizeof(*e) + dims * sizeof(float));
    atomic_init(&e->refs, 1);
    e->dims = dims;
    return e;
}

struct embedding *embedding_ref(struct embedding *e)
{
    atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

void embedding_unref(struct embedding *e)
{
    if (e && atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1)
        free(e);
}

void embedding_write_request(struct buf *b, struct span model, struct span text)
{
    struct json_out o;
    json_out_init(&o, b);
    json_out_object(&o);
    json_out_member_span(&o, "model", model);
    json_out_member_span(&o, "input", text);
    json_out_object_end(&o);
}

static uint64_t read_tokens(const struct json_doc *d)
{
    uint64_t n;
    uint32_t usage = json_get(d, 0, "usage");
    if (json_u64(d, json_get(d, usage, "prompt_tokens"), &n) ||
        json_u64(d, json_get(d, usage, "total_tokens"), &n))
        return n;
    return UINT64_MAX;
}

static const char *read_vector(const struct json_doc *d, struct embedding **ret)
{
    uint32_t first = json_first(d, json_get(d, 0, "data"));
    uint32_t list = json_is(d, first, JSON_OBJECT) ? json_get(d, first, "embedding") : JSON_NODE_NONE;
    if (!json_is(d, list, JSON_ARRAY))
        return "shape";
    if (d->node[list].count == 0)
        return "empty";
    if (d->node[list].count > VECTORS_DIMS_MAX)
        return "too_long";
    struct embedding *e = embedding_new(d->node[list].count);
    unsigned n = 0;
    const char *why = NULL;
    for (uint32_t i = json_first(d, list); i != JSON_NODE_NONE && !why; i = json_next(d, list, i)) {
        double v;
        if (!json_is(d, i, JSON_NUMBER) || !json_double(d, i, &v))
            why = "number";
        else
            e->x[n++] = (float)v;
    }
    if (!why && !vectors_is_direction(e->x, e->dims))
        why = "direction";
    if (why)
        embedding_unref(e);
    else
        *ret = e;
    return why;
}

struct embedding *embedding_read(struct span body, uint64_t *ret_tokens, const char **ret_why)
{
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    struct embedding *e = NULL;
    arena_init(&a, NULL);
    *ret_tokens = UINT64_MAX;
    if (!json_parse(&a, body, NULL, &d, &fault)) {
        *ret_why = "json";
    } else {
        *ret_tokens = read_tokens(&d);
        *ret_why = read_vector(&d, &e);
    }
    arena_reset(&a);
    return e;
}
