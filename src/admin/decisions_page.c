/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/decisions_page.h"

#include <stdlib.h>

#include "admin/query.h"
#include "base/fmt.h"
#include "base/mem.h"
#include "gateway/decisions.h"
#include "json/write.h"

static void text(struct json_out *o, const char *name, const char *value)
{
    if (value && *value)
        json_out_member_str(o, name, value);
}

/* A share or a score, without the digits that a float does not have. */
static void decimal(struct json_out *o, const char *name, float v)
{
    json_out_member_double(o, name, (double)(int64_t)((double)v * 10000 + 0.5) / 10000);
}

static void ms(struct json_out *o, const char *name, uint64_t us)
{
    json_out_member_double(o, name, (double)(us / 10) / 100);
}

/* What the strategy compared: the names of rows' pick_detail. */
static void pick(struct json_out *o, const struct decision *d)
{
    const struct pick_why *y = &d->why;
    json_out_name(o, "pick");
    json_out_object(o);
    if (y->has_share)
        decimal(o, "share", y->share);
    if (y->has_resident)
        decimal(o, "resident", y->resident);
    else
        text(o, "not_resident", y->not_resident);
    if (y->has_load) {
        json_out_member_u64(o, "load", y->load);
        json_out_member_u64(o, "least", y->least);
    }
    if (y->guard != GUARD_NOT_ASKED)
        json_out_member_str(o, "guard", y->guard == GUARD_OK ? "ok" : "overloaded");
    if (y->has_lmcache)
        decimal(o, "lmcache", y->lmcache);
    if (y->has_score)
        decimal(o, "score", y->score);
    if (y->has_cost) {
        decimal(o, "cost_ms", y->cost_ms);
        json_out_member_u64(o, "backlog", y->backlog);
        json_out_member_u64(o, "uncached", y->uncached);
    }
    text(o, "runner_up", d->runner_up);
    if (*d->runner_up && y->has_score)
        decimal(o, "runner_up_score", y->runner_up_score);
    if (*d->runner_up && y->has_cost)
        decimal(o, "runner_up_cost_ms", y->runner_up_cost_ms);
    json_out_object_end(o);
}

static void decision(struct json_out *o, const struct decision *d)
{
    char ts[FMT_TIME_MAX];
    json_out_object(o);
    json_out_member_span(o, "ts", span_of(ts, fmt_time(ts, d->started_ms)));
    json_out_member_str(o, "request_id", d->request_id);
    json_out_member_str(o, "route", d->route);
    text(o, "provider", d->provider);
    text(o, "target", d->target);
    text(o, "variant", d->variant);
    if (d->strategy) {
        json_out_member_str(o, "strategy", d->strategy);
        json_out_member_str(o, "reason", d->reason);
        json_out_member_u64(o, "provider_load", d->load);
        pick(o, d);
    }
    json_out_member_u64(o, "attempts", d->attempts);
    text(o, "cache", d->cache);
    text(o, "cache_kind", d->cache_kind);
    text(o, "cache_reason", d->cache_reason);
    text(o, "semantic_reason", d->semantic_reason);
    if (d->similarity >= 0)
        decimal(o, "similarity", d->similarity);
    json_out_member_u64(o, "status", (uint64_t)d->status);
    json_out_member_bool(o, "stream", d->stream);
    text(o, "error", d->error);
    ms(o, "latency_ms", d->latency_us);
    if (d->ttft_us)
        ms(o, "ttft_ms", d->ttft_us);
    if (d->queue_us)
        ms(o, "queue_ms", d->queue_us);
    if (d->prompt_tokens != UINT64_MAX)
        json_out_member_u64(o, "prompt_tokens", d->prompt_tokens);
    if (d->cached_tokens != UINT64_MAX)
        json_out_member_u64(o, "cached_tokens", d->cached_tokens);
    json_out_object_end(o);
}

int decisions_page(struct gateway *g, struct span query, struct buf *out)
{
    char limit[QUERY_VALUE_MAX];
    uint64_t max = DECISIONS_KEPT;
    struct span given = query_value(query, SPAN("limit"), limit);
    if (given.n && (!span_to_u64(given, &max) || max > DECISIONS_KEPT)) {
        buf_printf(out, "{\"error\":\"limit: a number up to %d\"}\n", DECISIONS_KEPT);
        return 400;
    }
    struct decision *d = mem_array(DECISIONS_KEPT, sizeof *d);
    unsigned n = gateway_decisions(g, d, (unsigned)max);
    struct json_out o;
    json_out_init(&o, out);
    json_out_array(&o);
    for (unsigned i = 0; i < n; i++)
        decision(&o, &d[i]);
    json_out_array_end(&o);
    buf_add_char(out, '\n');
    free(d);
    return 200;
}
