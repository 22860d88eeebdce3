/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/signals.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/call.h"
#include "observe/metrics.h"
#include "signals/engine_metrics.h"

enum { PROBE_REPLY_MAX = 65536, SCRAPE_REPLY_MAX = 8 << 20, BACK_OFF_MAX = 8, POOL_IDLE_MS = 30000 };

/* Both kinds of round over all sources. */
struct watched {
    struct signals *signals;
    const struct signal_source *source;
    struct call *probe, *scrape;
    struct lmcache_poller *lmcache;
    unsigned skip_rounds, back_off; /* after a 429 */
    bool scrape_failed;
    metric_series_t m_scrape_up, m_queue, m_running, m_kv;
};

struct signals {
    struct net_loop *loop;
    struct pool *pool;
    struct signals_settings settings;
    struct watched *watched;
    struct kv_feeds *kv_feeds;
    unsigned next_probe, probes_left, probing;
    uv_timer_t probe_timer, scrape_timer;
    unsigned open_timers;
};

/* Probes */

static void probe_more(struct signals *s);

static void judge(struct watched *w, bool ok, const char *detail)
{
    const char *name = provider_name(w->source->state);
    if (!provider_report_probe(w->source->state, ok))
        return;
    metric_add(metric_plain(ok ? M_HEALTH_RECOVERED : M_HEALTH_DOWN), 1);
    if (ok)
        log_info("health: %s is up again", name);
    else
        log_warn("health: %s is down: %s", name, detail);
}

static void probe_done(struct call *c, void *arg, const struct call_reply *r)
{
    struct watched *w = arg;
    struct signals *s = w->signals;
    w->probe = NULL;
    s->probing--;
    char detail[64];
    if (!r->failed && r->status == 429) {
        w->back_off = w->back_off == 0 ? 1 : w->back_off * 2 > BACK_OFF_MAX ? BACK_OFF_MAX : w->back_off * 2;
        w->skip_rounds = w->back_off;
    } else {
        w->back_off = 0;
        snprintf(detail, sizeof detail, "status %d", r->status);
        judge(w, !r->failed && r->status < 500, r->failed ? exchange_fail_name(r->why) : detail);
    }
    probe_more(s);
}

static struct call *ask(struct watched *w, const char *path, unsigned timeout_ms, size_t max, call_fn *done)
{
    char full[2048];
    const struct net_origin *o = w->source->origin;
    snprintf(full, sizeof full, "%s", path[0] == '/' ? path : "/");
    struct call_request q = {
        .origin = o,
        .method = "GET",
        .path = span_str(full),
        .headers = w->source->auth,
        .timeout_ms = timeout_ms,
        .max_reply_bytes = max,
    };
    return call_start(w->signals->pool, &q, done, w);
}

/* Starts probes of the present round while the limit allows. */
static void probe_more(struct signals *s)
{
    const struct signals_settings *g = &s->settings;
    while (s->probes_left > 0 && s->probing < g->probe_concurrency) {
        struct watched *w = &s->watched[s->next_probe];
        s->next_probe = (s->next_probe + 1) % g->n_sources;
        s->probes_left--;
        if (w->probe)
            continue;
        if (w->skip_rounds > 0) {
            w->skip_rounds--;
            continue;
        }
        s->probing++;
        w->probe = ask(w, g->probe_path, g->probe_timeout_ms, PROBE_REPLY_MAX, probe_done);
    }
}

static void probe_round(uv_timer_t *t)
{
    struct signals *s = t->data;
    s->probes_left = s->settings.n_sources;
    probe_more(s);
}

/* Engine metrics */

static void show(metric_series_t m, double v)
{
    if (!isnan(v))
        metric_set(m, v);
}

static void scrape_done(struct call *c, void *arg, const struct call_reply *r)
{
    struct watched *w = arg;
    w->scrape = NULL;
    struct engine_metrics m;
    bool ok = !r->failed && r->status == 200 && engine_metrics_parse(r->body, &m);
    metric_set(w->m_scrape_up, ok ? 1 : 0);
    if (ok == w->scrape_failed) { /* the state changed */
        w->scrape_failed = !ok;
        const char *name = provider_name(w->source->state);
        if (ok)
            log_info("metrics of %s can be read again", name);
        else
            log_warn("metrics of %s cannot be read (%s); its load is what this gateway sends", name,
                     r->failed          ? exchange_fail_name(r->why)
                     : r->status != 200 ? "status"
                                        : "no known names");
    }
    if (!ok)
        return;
    metric_add(metric_plain(M_METRICS_SCRAPES), 1);
    show(w->m_queue, m.waiting);
    show(w->m_running, m.running);
    show(w->m_kv, m.kv_usage);
    provider_set_engine(w->source->state, &m, net_now_ms(w->signals->loop));
}

static void scrape_round(uv_timer_t *t)
{
    struct signals *s = t->data;
    for (unsigned i = 0; i < s->settings.n_sources; i++) {
        struct watched *w = &s->watched[i];
        if (!w->scrape)
            w->scrape =
                ask(w, s->settings.scrape_path, s->settings.scrape_timeout_ms, SCRAPE_REPLY_MAX, scrape_done);
    }
}

/* Life cycle */

static void take(struct signals *s, const struct signals_settings *settings)
{
    s->settings = *settings;
    s->watched = mem_array(settings->n_sources, sizeof *s->watched);
    s->next_probe = s->probes_left = s->probing = 0;
    for (unsigned i = 0; i < settings->n_sources; i++) {
        struct watched *w = &s->watched[i];
        const char *name = provider_name(settings->sources[i].state);
        w->signals = s;
        w->source = &settings->sources[i];
        if (w->source->lmcache)
            w->lmcache = lmcache_start(s->loop, s->pool, w->source->lmcache);
        else
            provider_forget_lmcache(w->source->state);
        if (!settings->scrape)
            continue;
        w->m_scrape_up = metric_series(M_UPSTREAM_SCRAPE_UP, name, NULL, NULL);
        w->m_queue = metric_series(M_UPSTREAM_QUEUE, name, NULL, NULL);
        w->m_running = metric_series(M_UPSTREAM_RUNNING, name, NULL, NULL);
        w->m_kv = metric_series(M_UPSTREAM_KV, name, NULL, NULL);
    }
    kv_feeds_update(s->kv_feeds, settings->kv_feeds, settings->n_kv_feeds);
    if (settings->n_sources == 0)
        return;
    if (settings->probe)
        uv_timer_start(&s->probe_timer, probe_round, 0, settings->probe_interval_ms);
    if (settings->scrape)
        uv_timer_start(&s->scrape_timer, scrape_round, 0, settings->scrape_interval_ms);
}

static void drop(struct signals *s)
{
    uv_timer_stop(&s->probe_timer);
    uv_timer_stop(&s->scrape_timer);
    for (unsigned i = 0; i < s->settings.n_sources; i++) {
        if (s->watched[i].probe)
            call_cancel(s->watched[i].probe);
        if (s->watched[i].scrape)
            call_cancel(s->watched[i].scrape);
        lmcache_stop(s->watched[i].lmcache);
    }
    free(s->watched);
    s->watched = NULL;
    s->settings.release(&s->settings);
}

struct signals *signals_start(struct net_loop *l, const struct signals_settings *settings)
{
    struct signals *s = MEM_NEW(struct signals);
    s->loop = l;
    s->pool = pool_new(l, 2, POOL_IDLE_MS);
    s->kv_feeds = kv_feeds_new(l);
    CHECK(uv_timer_init(&l->uv, &s->probe_timer) == 0);
    CHECK(uv_timer_init(&l->uv, &s->scrape_timer) == 0);
    s->probe_timer.data = s->scrape_timer.data = s;
    take(s, settings);
    return s;
}

void signals_update(struct signals *s, const struct signals_settings *settings)
{
    drop(s);
    take(s, settings);
}

static void timer_closed(uv_handle_t *h)
{
    struct signals *s = h->data;
    if (--s->open_timers == 0)
        free(s);
}

void signals_stop(struct signals *s)
{
    drop(s);
    kv_feeds_free(s->kv_feeds);
    pool_free(s->pool);
    s->open_timers = 2;
    uv_close((uv_handle_t *)&s->probe_timer, timer_closed);
    uv_close((uv_handle_t *)&s->scrape_timer, timer_closed);
}
