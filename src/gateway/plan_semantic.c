/* SPDX-License-Identifier: Apache-2.0
 *
 * The semantic layer of each route that has one: where its vectors come from, ready to be asked.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "gateway/plan_parts.h"
#include "gateway/semantic.h"

static const char *const verdict_words[SEMANTIC_VERDICTS] = {"agrees", "differs", "unknown"};
static const struct {
    double from;
    const char *name;
} bands[SEMANTIC_BANDS] = {{0.98, "0.98-1.00"}, {0.96, "0.96-0.98"}, {0.94, "0.94-0.96"}, {0.92, "0.92-0.94"},
                           {0.90, "0.90-0.92"}, {0.85, "0.85-0.90"}, {0.80, "0.80-0.85"}, {-1, "below 0.80"}};

unsigned semantic_band(double similarity)
{
    unsigned i = 0;
    while (i + 1 < SEMANTIC_BANDS && similarity < bands[i].from)
        i++;
    return i;
}

const char *semantic_band_name(unsigned band)
{
    return bands[band].name;
}

static char *header_lines(const struct plan *p, const struct plan_provider *provider)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    BUF_LIT(&b, "content-type: application/json\r\naccept: application/json\r\n");
    if (provider->n_keys)
        buf_add_str(&b, provider->auth_lines[0]);
    buf_add_span(&b, p->injected);
    char *lines = mem_spandup(buf_view(&b));
    explicit_bzero(b.p, b.n);
    buf_fini(&b);
    return lines;
}

static void build(struct plan *p, struct plan_route *r)
{
    const struct semantic_settings *s = &r->settings->cache.semantic;
    struct plan_semantic *m = MEM_NEW(struct plan_semantic);
    for (unsigned i = 0; i < p->n_providers; i++)
        if (strcmp(p->providers[i].settings->name, s->provider) == 0)
            m->provider = &p->providers[i];
    CHECK_MSG(m->provider, "the configuration reader checked this");
    m->settings = s;
    m->api_base = span_str(m->provider->settings->api_base);
    m->model = span_str(s->model);
    m->headers = header_lines(p, m->provider);
    m->path = mem_printf("%s%s", m->provider->origin.base_path,
                         m->provider->strip_v1 ? "/embeddings" : "/v1/embeddings");
    m->m_ok = metric_series(M_SEMANTIC_EMBEDDINGS, m->provider->settings->name, "ok", NULL);
    m->m_error = metric_series(M_SEMANTIC_EMBEDDINGS, m->provider->settings->name, "error", NULL);
    m->m_ms = metric_series(M_SEMANTIC_EMBEDDING_MS, m->provider->settings->name, NULL, NULL);
    for (unsigned b = 0; b < SEMANTIC_BANDS; b++)
        for (unsigned v = 0; v < SEMANTIC_VERDICTS; v++)
            m->m_shadow[b][v] = metric_series(M_SEMANTIC_SHADOW, r->model, bands[b].name, verdict_words[v]);
    r->cache.semantic = m;
}

void plan_build_semantic(struct plan *p)
{
    for (unsigned i = 0; i < p->n_routes; i++)
        if (p->routes[i].settings && p->routes[i].settings->cache.semantic.present)
            build(p, &p->routes[i]);
}

void plan_free_semantic(struct plan *p)
{
    for (unsigned i = 0; i < p->n_routes; i++) {
        struct plan_semantic *m = p->routes[i].cache.semantic;
        if (!m)
            continue;
        plan_free_secret(m->headers);
        free(m->path);
        free(m);
    }
}
