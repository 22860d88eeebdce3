/* SPDX-License-Identifier: Apache-2.0 */
#include "block_events.h"

#include <stdio.h>
#include <stdlib.h>

#include "balance/kv_ids.h"
#include "base/hash.h"
#include "base/mem.h"
#include "rules.h"

/* As many as a provider keeps unless it is told; no model is as large. */
enum { MAX_BLOCKS = 1000000, SWEEP_BLOCKS = 100000, VOCABULARY = 1 << 17 };

struct pending {
    uint64_t us;
    unsigned replica;
    struct model_change *change;
};

struct block_events {
    const struct trace *trace;
    unsigned replicas;
    uint64_t lag_us;
    struct kv_source *sources[RULES_REPLICAS_MAX];
    struct rule_history *view;
    uint64_t *digests; /* of each block's tokens; 0: not made yet */
    uint32_t *before;  /* the block in front of each one + 1; 0: it is the first */
    uint32_t *scratch;
    struct pending *queue;
    size_t first, n, cap;
};

static void block_ids(const struct trace *t, uint32_t block, uint32_t *out, size_t n)
{
    uint64_t x = hash_mix(t->ids[block], 0x746f6b656e) | 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 0x5851f42d4c957f2d + 0x14057b7ef767814f;
        out[i] = (uint32_t)(x >> 33) & (VOCABULARY - 1);
    }
}

size_t block_events_ids(const struct trace *t, const struct trace_request *r, uint32_t *out)
{
    const uint32_t *blocks = trace_blocks(t, r);
    size_t n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        size_t left = r->input - n, part = left < t->block_tokens ? left : t->block_tokens;
        block_ids(t, blocks[i], out + n, part);
        n += part;
    }
    return n;
}

/* Ids of a trace stand for a block and all before it, so each has one predecessor. */
static void find_predecessors(struct block_events *e)
{
    for (size_t i = 0; i < e->trace->n; i++) {
        const struct trace_request *r = &e->trace->requests[i];
        const uint32_t *blocks = trace_blocks(e->trace, r);
        for (uint32_t k = 1; k < r->n; k++)
            e->before[blocks[k]] = blocks[k - 1] + 1;
    }
}

struct block_events *block_events_new(const struct trace *t, unsigned replicas, uint64_t lag_us)
{
    CHECK(replicas <= RULES_REPLICAS_MAX && t->block_tokens <= KV_BLOCK_TOKENS_MAX);
    struct block_events *e = MEM_NEW(struct block_events);
    e->trace = t;
    e->replicas = replicas;
    e->lag_us = lag_us;
    e->view = rule_history_new(t, replicas);
    e->digests = mem_array((size_t)t->n_ids + 1, sizeof *e->digests);
    e->before = mem_array((size_t)t->n_ids + 1, sizeof *e->before);
    e->scratch = mem_array(t->block_tokens, sizeof *e->scratch);
    find_predecessors(e);
    for (unsigned i = 0; i < replicas; i++) {
        char name[32];
        snprintf(name, sizeof name, "replica %u", i);
        e->sources[i] = kv_source_get(name, 1);
        kv_source_configure(e->sources[i], MAX_BLOCKS, UINT64_MAX / 2);
        kv_source_trust(e->sources[i], 0, true);
        kv_source_alive(e->sources[i], 0, 1);
    }
    return e;
}

void block_events_free(struct block_events *e)
{
    if (!e)
        return;
    for (unsigned i = 0; i < e->replicas; i++) {
        kv_source_stop(e->sources[i]);
        kv_source_unref(e->sources[i]);
    }
    while (kv_sources_sweep(SWEEP_BLOCKS))
        ;
    while (e->n > 0)
        free(e->queue[e->first + --e->n].change);
    rule_history_free(e->view);
    free(e->digests);
    free(e->before);
    free(e->scratch);
    free(e->queue);
    free(e);
}

struct kv_source *const *block_events_sources(const struct block_events *e)
{
    return e->sources;
}

struct rule_history *block_events_view(const struct block_events *e)
{
    return e->view;
}

/* An engine's name for a block; never 0. */
static uint64_t hash_of(const struct trace *t, uint32_t block)
{
    return hash_mix(t->ids[block], 0x68617368) | 1;
}

static void store(struct block_events *e, unsigned replica, uint32_t block)
{
    const struct trace *t = e->trace;
    if (!e->digests[block]) {
        block_ids(t, block, e->scratch, t->block_tokens);
        e->digests[block] = kv_digest(e->scratch, t->block_tokens);
    }
    uint32_t before = e->before[block];
    struct kv_store s = {
        .hash = hash_of(t, block),
        .is_first = before == 0,
        .before = before ? hash_of(t, before - 1) : 0,
        .root = kv_root(SPAN_NONE, SPAN_NONE),
        .digest = e->digests[block],
    };
    kv_source_store(e->sources[replica], 0, &s, t->block_tokens, 0);
}

static void apply(struct block_events *e, const struct pending *p)
{
    const struct model_change *c = p->change;
    for (uint32_t i = 0; i < c->n_removed; i++) {
        uint32_t block = c->block[c->n_stored + i];
        if (!rule_history_has(e->view, p->replica, block))
            continue;
        rule_history_set(e->view, p->replica, block, false);
        kv_source_remove(e->sources[p->replica], 0, hash_of(e->trace, block), KV_TIER_GPU);
    }
    for (uint32_t i = 0; i < c->n_stored; i++) {
        if (rule_history_has(e->view, p->replica, c->block[i]))
            continue;
        rule_history_set(e->view, p->replica, c->block[i], true);
        store(e, p->replica, c->block[i]);
    }
    kv_source_alive(e->sources[p->replica], 0, p->us / 1000);
}

void block_events_add(struct block_events *e, unsigned replica, struct model_change *c, uint64_t us)
{
    if (e->first + e->n == e->cap) { /* at the end: to the front, or more room */
        struct pending *to = e->queue;
        if (e->n * 2 >= e->cap) {
            e->cap = e->cap ? e->cap * 2 : 256;
            to = mem_array(e->cap, sizeof *to);
        }
        if (e->n)
            memmove(to, e->queue + e->first, e->n * sizeof *to);
        if (to != e->queue) {
            free(e->queue);
            e->queue = to;
        }
        e->first = 0;
    }
    e->queue[e->first + e->n++] = (struct pending){us, replica, c};
}

void block_events_apply(struct block_events *e, uint64_t now_us)
{
    while (e->n > 0 && e->queue[e->first].us <= now_us && now_us - e->queue[e->first].us >= e->lag_us) {
        struct pending *p = &e->queue[e->first++];
        e->n--;
        apply(e, p);
        free(p->change);
    }
    kv_sources_sweep(SWEEP_BLOCKS);
}
