/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "lru.h"

struct replica {
    struct lru *cache;
    uint64_t free_us; /* when the prefill has done all it was given */
    unsigned in_flight, waiting;
    uint64_t busy_blocks;
};

struct model {
    const struct trace *trace;
    struct model_options o;
    struct replica *replicas;
    struct model_event *heap; /* smallest first */
    size_t n, cap;
    uint64_t now_us;
    struct model_change *
        *changes;      /* of each request that has not told them yet; NULL without tells_changes */
    uint32_t *evicted; /* by the lru_use under way */
    size_t n_evicted, evicted_cap;
    bool *came; /* of each block: with the lru_use under way */
};

static void on_evicted(void *arg, uint32_t block)
{
    struct model *m = arg;
    if (m->n_evicted == m->evicted_cap) {
        m->evicted_cap = m->evicted_cap ? m->evicted_cap * 2 : 256;
        m->evicted = mem_realloc(m->evicted, m->evicted_cap * sizeof *m->evicted);
    }
    m->evicted[m->n_evicted++] = block;
}

struct model *model_new(const struct trace *t, const struct model_options *o)
{
    CHECK(o->replicas > 0 && o->blocks > 0);
    struct model *m = MEM_NEW(struct model);
    m->trace = t;
    m->o = *o;
    m->replicas = mem_array(o->replicas, sizeof *m->replicas);
    /* More places than there are blocks in the trace would stay empty. */
    uint32_t cap = o->blocks < t->n_ids ? o->blocks : t->n_ids;
    for (unsigned i = 0; i < o->replicas; i++)
        m->replicas[i].cache = lru_new(cap > 0 ? cap : 1);
    if (!o->tells_changes)
        return m;
    m->changes = mem_array(t->n + 1, sizeof *m->changes);
    m->came = mem_array((size_t)t->n_ids + 1, sizeof *m->came);
    for (unsigned i = 0; i < o->replicas; i++)
        lru_watch(m->replicas[i].cache, on_evicted, m);
    return m;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    for (unsigned i = 0; i < m->o.replicas; i++)
        lru_free(m->replicas[i].cache);
    for (size_t i = 0; m->changes && i < m->trace->n; i++)
        free(m->changes[i]);
    free(m->changes);
    free(m->evicted);
    free(m->came);
    free(m->replicas);
    free(m->heap);
    free(m);
}

static bool is_before(const struct model_event *a, const struct model_event *b)
{
    if (a->us != b->us)
        return a->us < b->us;
    return a->kind != b->kind ? a->kind < b->kind : a->request < b->request;
}

static void heap_add(struct model *m, const struct model_event *e)
{
    if (m->n == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 256;
        m->heap = mem_realloc(m->heap, m->cap * sizeof *m->heap);
    }
    size_t at = m->n++;
    for (size_t up; at > 0 && is_before(e, &m->heap[up = (at - 1) / 2]); at = up)
        m->heap[at] = m->heap[up];
    m->heap[at] = *e;
}

static struct model_event heap_take(struct model *m)
{
    struct model_event first = m->heap[0], last = m->heap[--m->n];
    size_t at = 0;
    for (size_t down; (down = 2 * at + 1) < m->n; at = down) {
        down += down + 1 < m->n && is_before(&m->heap[down + 1], &m->heap[down]);
        if (!is_before(&m->heap[down], &last))
            break;
        m->heap[at] = m->heap[down];
    }
    if (m->n > 0)
        m->heap[at] = last;
    return first;
}

static uint64_t prefill_us(const struct model *m, uint32_t tokens)
{
    return m->o.prefill_tps > 0 ? (uint64_t)llround(tokens * 1e6 / m->o.prefill_tps) : 0;
}

static uint64_t blocks_of(const struct model *m, const struct trace_request *r)
{
    uint32_t size = m->trace->block_tokens;
    return ((uint64_t)r->input + r->output + size - 1) / size;
}

/* Uses the blocks; what changes by it is kept until it is taken. */
static void use_and_note(struct model *m, struct lru *cache, size_t i, const uint32_t *blocks, uint32_t n)
{
    uint32_t *missing = mem_array((size_t)n + 1, sizeof *missing), n_missing = 0;
    for (uint32_t k = 0; k < n; k++)
        if (!lru_has(cache, blocks[k])) {
            missing[n_missing++] = blocks[k];
            m->came[blocks[k]] = true;
        }
    m->n_evicted = 0;
    lru_use(cache, blocks, n);
    struct model_change *c = mem_zalloc(sizeof *c + ((size_t)n_missing + m->n_evicted) * sizeof *c->block);
    /* Of a prompt larger than the cache some blocks came and went. */
    for (uint32_t k = 0; k < n_missing; k++)
        if (lru_has(cache, missing[k]))
            c->block[c->n_stored++] = missing[k];
    for (size_t k = 0; k < m->n_evicted; k++)
        if (!lru_has(cache, m->evicted[k]) && !m->came[m->evicted[k]])
            c->block[c->n_stored + c->n_removed++] = m->evicted[k];
    for (uint32_t k = 0; k < n_missing; k++)
        m->came[missing[k]] = false;
    free(missing);
    m->changes[i] = c;
}

struct model_change *model_take_change(struct model *m, size_t request)
{
    struct model_change *c = m->changes[request];
    CHECK(c);
    m->changes[request] = NULL;
    return c;
}

struct model_served model_submit(struct model *m, unsigned replica, size_t i, uint64_t now_us)
{
    CHECK(replica < m->o.replicas && i < m->trace->n && now_us >= m->now_us);
    m->now_us = now_us;
    struct replica *to = &m->replicas[replica];
    const struct trace_request *r = &m->trace->requests[i];
    const uint32_t *blocks = trace_blocks(m->trace, r);
    struct model_served s = {.begin_us = to->free_us > now_us ? to->free_us : now_us};
    s.hit = trace_tokens(m->trace, r, lru_match(to->cache, blocks, r->n));
    if (m->changes)
        use_and_note(m, to->cache, i, blocks, r->n);
    else
        lru_use(to->cache, blocks, r->n);
    s.first_us = to->free_us = s.begin_us + prefill_us(m, r->input - s.hit);
    s.end_us = s.first_us + (uint64_t)llround(r->output * m->o.decode_ms * 1000);
    to->in_flight++;
    to->waiting++;
    heap_add(m, &(struct model_event){s.begin_us, MODEL_BEGIN, replica, i});
    heap_add(m, &(struct model_event){s.first_us, MODEL_FIRST, replica, i});
    heap_add(m, &(struct model_event){s.end_us, MODEL_END, replica, i});
    return s;
}

bool model_next(struct model *m, uint64_t until_us, struct model_event *ret)
{
    if (m->n == 0 || m->heap[0].us > until_us)
        return false;
    struct model_event e = heap_take(m);
    struct replica *at = &m->replicas[e.replica];
    uint64_t blocks = blocks_of(m, &m->trace->requests[e.request]);
    if (e.kind == MODEL_BEGIN) {
        at->waiting--;
        at->busy_blocks += blocks;
    } else if (e.kind == MODEL_END) {
        CHECK(at->in_flight > 0);
        at->in_flight--;
        at->busy_blocks -= blocks;
    }
    m->now_us = e.us > m->now_us ? e.us : m->now_us;
    *ret = e;
    return true;
}

unsigned model_in_flight(const struct model *m, unsigned replica)
{
    return m->replicas[replica].in_flight;
}

unsigned model_waiting(const struct model *m, unsigned replica)
{
    return m->replicas[replica].waiting;
}

uint64_t model_busy_blocks(const struct model *m, unsigned replica)
{
    return m->replicas[replica].busy_blocks;
}

double model_backlog(const struct model *m, unsigned replica, uint64_t now_us)
{
    uint64_t free_us = m->replicas[replica].free_us;
    return free_us > now_us ? (double)(free_us - now_us) * m->o.prefill_tps / 1e6 : 0;
}
