/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "json/number.h"
#include "json/parser.h"

static bool is_node(const struct json_doc *d, uint32_t i)
{
    return i < d->n;
}

bool json_is(const struct json_doc *d, uint32_t i, enum json_type type)
{
    return is_node(d, i) && d->node[i].type == type;
}

/* Whether name node <i> is <name>; the common case without a call. */
static inline bool is_name(const struct json_doc *d, uint32_t i, struct span name)
{
    const struct json_node *n = &d->node[i];
    if (LIKELY(!(n->flags & JSON_ESCAPED)))
        return n->len == name.n + 2 && memcmp(d->text.p + n->at + 1, name.p, name.n) == 0;
    return json_string_eq(d, i, name);
}

uint32_t json_get(const struct json_doc *d, uint32_t obj, const char *name)
{
    if (!json_is(d, obj, JSON_OBJECT))
        return JSON_NODE_NONE;
    struct span want = span_str(name);
    uint32_t found = JSON_NODE_NONE, end = d->node[obj].end;
    for (uint32_t i = obj + 1; i < end; i = d->node[i + 1].end) {
        if (is_name(d, i, want))
            found = i + 1;
    }
    return found;
}

unsigned json_count_name(const struct json_doc *d, uint32_t obj, const char *name)
{
    if (!json_is(d, obj, JSON_OBJECT))
        return 0;
    struct span want = span_str(name);
    unsigned n = 0;
    uint32_t end = d->node[obj].end;
    for (uint32_t i = obj + 1; i < end; i = d->node[i + 1].end)
        n += is_name(d, i, want);
    return n;
}

uint32_t json_first(const struct json_doc *d, uint32_t container)
{
    if (!is_node(d, container) || d->node[container].type < JSON_ARRAY || d->node[container].count == 0)
        return JSON_NODE_NONE;
    return container + 1;
}

uint32_t json_next(const struct json_doc *d, uint32_t container, uint32_t i)
{
    if (!is_node(d, container) || !is_node(d, i))
        return JSON_NODE_NONE;
    uint32_t next = d->node[container].type == JSON_OBJECT ? d->node[i + 1].end : d->node[i].end;
    return next < d->node[container].end ? next : JSON_NODE_NONE;
}

struct span json_raw(const struct json_doc *d, uint32_t i)
{
    if (!is_node(d, i))
        return SPAN_NONE;
    return span_of(d->text.p + d->node[i].at, d->node[i].len);
}

bool json_u64(const struct json_doc *d, uint32_t i, uint64_t *ret)
{
    return json_is(d, i, JSON_NUMBER) && span_to_u64(json_raw(d, i), ret);
}

bool json_double(const struct json_doc *d, uint32_t i, double *ret)
{
    return json_is(d, i, JSON_NUMBER) && json_number_read(d->text.p + d->node[i].at, d->node[i].len, ret);
}
