/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/lmcache.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "json/json.h"
#include "observe/metrics.h"
#include "signals/prometheus.h"

struct lmcache_poller {
    struct net_loop *loop;
    struct pool *pool;
    const struct lmcache_source *source;
    struct call *call;
    uv_timer_t timer;
    bool failed; /* the last one; for one log line per change */
};

const char *lmcache_parse_json(struct span body, struct arena *a, struct lmcache_answer *ret)
{
    struct json_doc d;
    struct json_fault fault;
    const struct json_limits limits = {.max_depth = 16, .max_nodes = 4096};
    double v;
    if (!json_parse(a, body, &limits, &d, &fault) || !json_is(&d, 0, JSON_OBJECT))
        return "no JSON object";
    uint32_t occupancy = json_get(&d, 0, "occupancy"), available = json_get(&d, 0, "cache_available");
    if (!json_is(&d, occupancy, JSON_NUMBER) || !json_double(&d, occupancy, &v))
        return "\"occupancy\" is no number";
    if (available != JSON_NODE_NONE && !json_is(&d, available, JSON_TRUE) &&
        !json_is(&d, available, JSON_FALSE))
        return "\"cache_available\" is neither true nor false";
    *ret = (struct lmcache_answer){v, !json_is(&d, available, JSON_FALSE)};
    return NULL;
}

const char *lmcache_parse_metric(struct span body, const char *metric, struct lmcache_answer *ret)
{
    double largest = -INFINITY;
    bool found = false;
    for (struct prometheus_sample x; prometheus_next(&body, &x);) {
        if (!span_eq(x.name, span_str(metric)))
            continue;
        if (!isfinite(x.value))
            return "the metric is no finite number";
        largest = fmax(largest, x.value);
        found = true;
    }
    if (!found)
        return "the metric is not there";
    *ret = (struct lmcache_answer){largest, true};
    return NULL;
}

double lmcache_score(const struct lmcache_answer *a)
{
    return a->available ? 1 - fmin(fmax(a->occupancy, 0), 1) : 0;
}

static const char *read_reply(struct lmcache_poller *p, const struct call_reply *r,
                              struct lmcache_answer *ret)
{
    if (r->too_large)
        return "the reply is larger than 64 KiB";
    if (r->timed_out)
        return "no reply in time";
    if (r->failed)
        return exchange_fail_name(r->why);
    if (r->status != 200)
        return "the status is not 200";
    const struct lmcache_settings *s = p->source->settings;
    if (s->reads_metric)
        return lmcache_parse_metric(r->body, s->metric, ret);
    struct arena a;
    arena_init(&a, &p->loop->chunks);
    const char *why = lmcache_parse_json(r->body, &a, ret);
    arena_reset(&a);
    return why;
}

static void tell_change(struct lmcache_poller *p, const char *why)
{
    if (p->failed == (why != NULL))
        return;
    p->failed = why != NULL;
    const char *name = provider_name(p->source->state);
    if (why)
        log_warn("LMCache of %s says nothing (%s); it is neutral until it does", name, why);
    else
        log_info("LMCache of %s answers again", name);
}

static void poll_done(struct call *c, void *arg, const struct call_reply *r)
{
    struct lmcache_poller *p = arg;
    struct lmcache_answer answer;
    p->call = NULL;
    const char *why = read_reply(p, r, &answer);
    tell_change(p, why);
    if (why) {
        metric_add(metric_plain(M_LMCACHE_FAILURES), 1);
        provider_forget_lmcache(p->source->state);
        return;
    }
    metric_add(metric_plain(M_LMCACHE_REFRESHES), 1);
    uint64_t now = net_now_ms(p->loop);
    provider_set_lmcache(p->source->state, lmcache_score(&answer), now,
                         now + p->source->settings->stale_secs * UINT64_C(1000));
}

static void poll_now(uv_timer_t *t)
{
    struct lmcache_poller *p = t->data;
    if (p->call)
        return;
    const struct lmcache_source *s = p->source;
    struct call_request q = {
        .origin = &s->origin,
        .method = "GET",
        .path = span_str(s->origin.base_path),
        .headers = s->auth,
        .timeout_ms = s->settings->timeout_ms,
        .max_reply_bytes = LMCACHE_REPLY_MAX,
    };
    p->call = call_start(p->pool, &q, poll_done, p);
}

struct lmcache_poller *lmcache_start(struct net_loop *l, struct pool *pool, const struct lmcache_source *s)
{
    struct lmcache_poller *p = MEM_NEW(struct lmcache_poller);
    p->loop = l;
    p->pool = pool;
    p->source = s;
    CHECK(uv_timer_init(&l->uv, &p->timer) == 0);
    p->timer.data = p;
    uv_timer_start(&p->timer, poll_now, 0, s->settings->refresh_secs * UINT64_C(1000));
    return p;
}

static void closed(uv_handle_t *h)
{
    free(h->data);
}

void lmcache_stop(struct lmcache_poller *p)
{
    if (!p)
        return;
    if (p->call)
        call_cancel(p->call);
    uv_close((uv_handle_t *)&p->timer, closed);
}
