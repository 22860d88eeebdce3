/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "json/json.h"

enum { TOKENS_MAX = 1 << 30, BLOCKS_PER_LINE_MAX = 1 << 22 };
#define AT_MS_MAX 1e12 /* thirty years */

void trace_init(struct trace *t, uint32_t block_tokens)
{
    CHECK(block_tokens > 0);
    *t = (struct trace){.block_tokens = block_tokens};
    arena_init(&t->arena, NULL);
}

void trace_fini(struct trace *t)
{
    MEM_FREE(t->requests);
    MEM_FREE(t->blocks);
    MEM_FREE(t->ids);
    MEM_FREE(t->slots);
    arena_reset(&t->arena);
}

/* Room for <more> items; grows by half. */
static void *reserve(void *items, size_t n, size_t more, size_t *cap, size_t size)
{
    if (*cap - n >= more)
        return items;
    *cap = n + more + *cap / 2 + 64;
    return mem_realloc(items, *cap * size);
}

static size_t slot_of(const struct trace *t, uint64_t id)
{
    size_t mask = t->n_slots - 1, at = hash_mix(id, 0x7261636b) & mask;
    while (t->slots[at] && t->ids[t->slots[at] - 1] != id)
        at = (at + 1) & mask;
    return at;
}

static void grow_slots(struct trace *t)
{
    free(t->slots);
    t->n_slots = t->n_slots ? t->n_slots * 2 : 1024;
    t->slots = mem_array(t->n_slots, sizeof *t->slots);
    for (uint32_t i = 0; i < t->n_ids; i++)
        t->slots[slot_of(t, t->ids[i])] = i + 1;
}

static uint32_t number_of(struct trace *t, uint64_t id)
{
    if (((size_t)t->n_ids + 1) * 2 > t->n_slots)
        grow_slots(t);
    size_t at = slot_of(t, id);
    if (!t->slots[at]) {
        t->ids = reserve(t->ids, t->n_ids, 1, &t->ids_cap, sizeof *t->ids);
        t->ids[t->n_ids++] = id;
        t->slots[at] = t->n_ids;
    }
    return t->slots[at] - 1;
}

/* One line */

struct reader {
    const struct json_doc *doc;
    struct trace_fault *fault;
};

static bool refuse(struct reader *r, uint32_t node, const char *what)
{
    size_t at = node == JSON_NODE_NONE ? 0 : r->doc->node[node].at;
    *r->fault = (struct trace_fault){at + 1, what};
    return false;
}

static bool read_tokens(struct reader *r, const char *name, const char *what, uint32_t *ret)
{
    uint32_t i = json_get(r->doc, 0, name);
    uint64_t v;
    if (!json_u64(r->doc, i, &v) || v > TOKENS_MAX)
        return refuse(r, i, what);
    *ret = (uint32_t)v;
    return true;
}

static bool read_time(struct reader *r, uint64_t *ret_us)
{
    uint32_t i = json_get(r->doc, 0, "timestamp");
    double ms;
    if (!json_double(r->doc, i, &ms) || !(ms >= 0 && ms <= AT_MS_MAX))
        return refuse(r, i, "timestamp is not a number of milliseconds");
    *ret_us = (uint64_t)(ms * 1000 + 0.5);
    return true;
}

/* Checks all ids before the first is taken, so that a bad line changes nothing. */
static bool check_ids(struct reader *r, uint32_t list, uint32_t needed)
{
    if (!json_is(r->doc, list, JSON_ARRAY))
        return refuse(r, list, "hash_ids is not a list");
    if (r->doc->node[list].count < needed)
        return refuse(r, list, "hash_ids has too few blocks for input_length");
    if (r->doc->node[list].count > BLOCKS_PER_LINE_MAX)
        return refuse(r, list, "hash_ids is too long");
    uint64_t id;
    for (uint32_t i = json_first(r->doc, list); i != JSON_NODE_NONE; i = json_next(r->doc, list, i))
        if (!json_u64(r->doc, i, &id))
            return refuse(r, i, "an item of hash_ids is not a whole number");
    return true;
}

static void take_ids(struct trace *t, const struct json_doc *d, uint32_t list, struct trace_request *q)
{
    q->first = t->n_blocks;
    t->blocks = reserve(t->blocks, t->n_blocks, q->n, &t->blocks_cap, sizeof *t->blocks);
    uint32_t i = json_first(d, list);
    for (uint32_t k = 0; k < q->n; k++, i = json_next(d, list, i)) {
        uint64_t id = 0;
        CHECK(json_u64(d, i, &id));
        t->blocks[t->n_blocks++] = number_of(t, id);
    }
}

static bool read_line(struct trace *t, struct span line, struct trace_fault *fault)
{
    struct json_doc d;
    struct json_fault f;
    struct reader r = {&d, fault};
    if (!json_parse(&t->arena, line, NULL, &d, &f)) {
        *fault = (struct trace_fault){f.at + 1, f.what};
        return false;
    }
    if (!json_is(&d, 0, JSON_OBJECT))
        return refuse(&r, 0, "not an object");
    struct trace_request q = {0};
    if (!read_time(&r, &q.at_us) ||
        !read_tokens(&r, "input_length", "input_length is not a number of tokens", &q.input) ||
        !read_tokens(&r, "output_length", "output_length is not a number of tokens", &q.output))
        return false;
    q.n = (q.input + t->block_tokens - 1) / t->block_tokens;
    uint32_t list = json_get(&d, 0, "hash_ids");
    if (!check_ids(&r, list, q.n))
        return false;
    take_ids(t, &d, list, &q);
    t->requests = reserve(t->requests, t->n, 1, &t->cap, sizeof *t->requests);
    t->requests[t->n++] = q;
    t->input_tokens += q.input;
    t->output_tokens += q.output;
    return true;
}

bool trace_add_line(struct trace *t, struct span line, struct trace_fault *ret)
{
    if (line.n && line.p[line.n - 1] == '\r')
        line.n--;
    if (span_trim(line).n == 0)
        return true;
    bool ok = read_line(t, line, ret);
    arena_reset(&t->arena);
    t->skipped += !ok;
    return ok;
}

/* Order by time, then by line: <first> grows with the lines, except for requests without blocks. */
static int by_time(const void *a, const void *b)
{
    const struct trace_request *x = *(struct trace_request *const *)a, *y = *(struct trace_request *const *)b;
    if (x->at_us != y->at_us)
        return x->at_us < y->at_us ? -1 : 1;
    return (x > y) - (x < y);
}

void trace_finish(struct trace *t)
{
    MEM_FREE(t->slots);
    t->n_slots = 0;
    size_t i = 1;
    while (i < t->n && t->requests[i - 1].at_us <= t->requests[i].at_us)
        i++;
    if (i >= t->n)
        return;
    struct trace_request **order = mem_array(t->n, sizeof *order);
    struct trace_request *sorted = mem_array(t->n, sizeof *sorted);
    for (i = 0; i < t->n; i++)
        order[i] = &t->requests[i];
    qsort(order, t->n, sizeof *order, by_time);
    for (i = 0; i < t->n; i++)
        sorted[i] = *order[i];
    free(order);
    free(t->requests);
    t->requests = sorted;
    t->cap = t->n;
}
