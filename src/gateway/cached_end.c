/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a request that the cache has to do with: counters, its part of the row, everything back; and the
 * request that renews an entry which this one was served stale.
 */
#include <math.h>

#include "base/clock.h"
#include "base/fmt.h"
#include "base/mem.h"
#include "gateway/cached.h"

static void explain(struct request *r)
{
    struct cached *c = r->cached;
    struct explain *book = r->worker->cache->explain;
    struct explain_entry entry;
    if (c->entry)
        entry = (struct explain_entry){c->entry->facts.key, c->entry->facts.owner.scope,
                                       c->entry->facts.created_ms, c->entry->facts.expires_ms};
    if (!c->explained) {
        if (c->result == CACHE_HIT && c->entry)
            explain_hit(book, r->id, cache_kind_name(c->kind), c->reason, &entry, clock_wall_ms());
        return;
    }
    struct explain_outcome o = {
        .layer = c->result == CACHE_HIT ? cache_kind_name(c->kind) : NULL,
        .reason = c->reason,
        .entry = c->entry ? &entry : NULL,
        .partition = semantic_partition_of(r),
        .semantic = semantic_reason(r),
    };
    semantic_similarity(r, &o.similarity);
    explain_settle(book, c->explained, &o);
    c->explained = NULL;
}

void cached_end(struct request *r)
{
    struct cached *c = r->cached;
    store_cancel(&c->wait);
    capture_fail(r, r->client_gone ? "client_gone" : "upstream_failed");
    flight_leave(&c->flight);
    if (!c->is_background)
        explain(r);
    semantic_end(r);
    if (!c->is_background)
        metric_add(c->plan->m_requests[c->kind][c->result], 1);
    entry_unref(c->entry);
    entry_unref(c->stale);
    c->entry = c->stale = NULL;
}

static uint64_t known(uint64_t v)
{
    return v == UINT64_MAX ? 0 : v;
}

/* What the upstream call would have cost that made the entry. */
static void saved(const struct request *r, const struct entry_facts *f, struct row *row)
{
    row->saved_tokens = usage_is_known(&f->usage) ? usage_total(&f->usage) : 0;
    uint64_t prompt = known(f->usage.prompt);
    if (f->dialect == DIALECT_MESSAGES)
        prompt += known(f->usage.cache_read) + known(f->usage.cache_write);
    char target[256] = "";
    memcpy(target, f->target.p, f->target.n < sizeof target ? f->target.n : sizeof target - 1);
    double cost;
    if (plan_cost(r->plan, target, r->route->model, prompt, known(f->usage.cache_read),
                  known(f->usage.completion), &cost))
        row->saved_cost_usd = cost;
}

/* "semantic 0.9731", "not_found, semantic: number" */
static struct span cache_reason(const struct request *r)
{
    const struct cached *c = r->cached;
    double similarity;
    if (c->is_background)
        return SPAN("revalidate");
    if (semantic_similarity(r, &similarity))
        return span_str(arena_printf(r->arena, "%s %.4f", c->reason, similarity));
    if (c->result == CACHE_MISS && semantic_reason(r))
        return span_str(arena_printf(r->arena, "%s, semantic: %s", c->reason, semantic_reason(r)));
    return span_str(c->reason);
}

void cached_row(const struct request *r, struct row *row)
{
    const struct cached *c = r->cached;
    row->cache_hit = c->result == CACHE_HIT;
    if (c->scope) {
        char *hex = arena_alloc(r->arena, 16);
        fmt_hex_bytes(hex, c->scope->digest.b, 8);
        row->cache_scope = span_of(hex, 16);
    }
    row->cache_reason = cache_reason(r);
    if (c->result != CACHE_HIT || !c->entry)
        return;
    const struct entry_facts *f = &c->entry->facts;
    row->provider = f->provider;
    row->target = f->target;
    row->variant = f->variant;
    saved(r, f, row);
}

/* --- renewing --- */

static struct cached *cached_again(struct request *b, const struct cached *of)
{
    struct cached *c = ARENA_NEW(b->arena, struct cached);
    c->request = b;
    c->plan = of->plan;
    c->scope = of->scope;
    c->owner = of->owner;
    c->key = of->key;
    c->asked = of->asked;
    c->stamp = purge_stamp(b->worker->cache->purge, &c->owner);
    c->is_background = true;
    return c;
}

struct request *fill_in_background(struct request *r)
{
    struct cached *c = r->cached;
    /* A connection whose client has gone takes no other request along: the next stale hit renews. */
    if (!c->revalidate || !r->conn || r->client_gone || r->worker->draining)
        return NULL;
    struct request *b = request_new_background(r);
    b->cached = cached_again(b, c);
    metric_add(metric_plain(M_CACHE_REVALIDATIONS), 1);
    return b;
}

void fill_background_start(struct request *b)
{
    semantic_refresh(b);
    request_run(b, STEP_fill);
}
