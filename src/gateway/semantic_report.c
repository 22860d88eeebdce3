/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/semantic_report.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/gateway.h"
#include "gateway/row_writer.h"

/* For whom a call is made; lives until it is over. */
struct purpose {
    struct worker *worker;
    struct plan *plan; /* a reference */
    const struct plan_semantic *route;
    const struct plan_route *asker;
    const struct plan_key *key; /* or NULL */
    char *request_id, *trace_id;
};

static void write_row(const struct purpose *u, const struct embed_report *e, double cost)
{
    struct worker *w = u->worker;
    const struct logging_settings *o = &u->plan->settings->logging;
    if (!o->file && !o->clickhouse_url)
        return;
    uint64_t tokens = e->tokens == UINT64_MAX ? 0 : e->tokens;
    struct row row = {
        .ts_ms = e->started_ms,
        .request_id = span_str(u->request_id),
        .trace_id = span_str(u->trace_id),
        .virtual_key = u->key ? u->key->name_span : SPAN_NONE,
        .virtual_key_id = u->key ? span_of(u->key->id, sizeof(u->key->id) - 1) : SPAN_NONE,
        .path = SPAN("/v1/embeddings"),
        .model = span_str(u->asker->model),
        .provider = u->route->provider->name,
        .target = u->route->model,
        .status = e->status ? e->status : 502,
        .prompt_tokens = tokens,
        .total_tokens = tokens,
        .cost_usd = cost,
        .usage_unknown = !e->error && e->tokens == UINT64_MAX,
        .latency_ms = e->took_ms,
        .attempts = 1,
        .cache_reason = SPAN("embedding"),
        .error = span_str(e->error),
    };
    buf_clear(&w->row_text);
    row_format(&w->row_text, &row);
    if (w->row_text.n == 0 || !row_ring_put(w->rows, buf_view(&w->row_text)))
        metric_add(metric_plain(M_LOGS_DROPPED), 1);
    row_writer_note(w->row_writer, &w->unsaid_rows, w->row_text.n);
}

static void charge(const struct purpose *u, const struct embed_report *e, double cost)
{
    uint64_t now = clock_wall_ms(), tokens = e->tokens == UINT64_MAX ? 0 : e->tokens;
    if (u->key && u->key->limits.n)
        limits_charge(&u->key->limits, cost, tokens, now);
    if (u->asker->limits.n)
        limits_charge(&u->asker->limits, cost, tokens, now);
}

static void release(void *owner, const struct embed_report *e)
{
    struct purpose *u = owner;
    if (e) {
        double cost = 0;
        metric_add(e->error ? u->route->m_error : u->route->m_ok, 1);
        metric_observe(u->route->m_ms, (double)e->took_ms);
        plan_key_judged(u->route->provider, u->route->provider->n_keys ? 0 : -1, e->status,
                        net_now_ms(&u->worker->loop));
        if (e->tokens != UINT64_MAX &&
            !plan_cost(u->plan, u->route->settings->model, u->asker->model, e->tokens, 0, 0, &cost))
            cost = 0;
        write_row(u, e, cost);
        charge(u, e, cost);
    }
    plan_unref(u->plan);
    free(u->request_id);
    free(u->trace_id);
    free(u);
}

void semantic_source_of(struct request *r, const struct plan_semantic *m, struct embed_source *ret)
{
    struct purpose *u = MEM_NEW(struct purpose);
    u->worker = r->worker;
    u->plan = plan_ref(r->plan);
    u->route = m;
    u->asker = r->route;
    u->key = r->key;
    u->request_id = mem_spandup(r->id);
    u->trace_id = mem_spandup(request_trace_id(r));
    *ret = (struct embed_source){
        .provider = m->provider->name,
        .api_base = m->api_base,
        .model = m->model,
        .origin = &m->provider->origin,
        .path = span_str(m->path),
        .headers = span_str(m->headers),
        .timeout_ms = m->settings->embedding_timeout_ms,
        .release = release,
        .owner = u,
    };
}
