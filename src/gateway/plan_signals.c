/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/plan_signals.h"

#include <stdlib.h>

#include "base/mem.h"
#include "gateway/plan_parts.h"

static void free_lmcache(const struct lmcache_source *l)
{
    if (!l)
        return;
    struct net_origin o = l->origin;
    origin_fini(&o);
    plan_free_secret((char *)l->auth.p);
    free((void *)l);
}

static void release(struct signals_settings *s)
{
    for (unsigned i = 0; i < s->n_sources; i++) {
        plan_free_secret((char *)s->sources[i].auth.p);
        free_lmcache(s->sources[i].lmcache);
    }
    free(s->sources);
    free(s->kv_feeds);
    plan_unref(s->owner);
}

/* Probes of an engine behind a key need the key as well. */
static struct span auth_line(const struct plan_provider *p)
{
    return span_str(mem_strdup(p->auth_lines[0]));
}

/* As the provider is reached: same roots, same rules. NULL when it has none. */
static const struct lmcache_source *lmcache_source(struct plan *p, const struct plan_provider *pp)
{
    const struct lmcache_settings *s = &pp->settings->lmcache;
    const char *why, *key = s->api_key_env ? getenv(s->api_key_env) : NULL;
    if (!s->present)
        return NULL;
    struct lmcache_source *l = MEM_NEW(struct lmcache_source);
    l->state = pp->state;
    l->settings = s;
    CHECK_MSG(origin_parse(span_str(s->endpoint), &l->origin, &why), "the configuration reader checked this");
    l->origin.ca_bundles = pp->origin.ca_bundles;
    l->origin.n_ca_bundles = pp->origin.n_ca_bundles;
    l->origin.verify = pp->origin.verify;
    l->origin.egress = pp->origin.egress;
    origin_seal(&l->origin);
    if (key && *key)
        l->auth = span_str(mem_printf("authorization: Bearer %s\r\n", key));
    return l;
}

void plan_signals(struct plan *p, struct signals_settings *ret)
{
    const struct settings *s = p->settings;
    *ret = (struct signals_settings){
        .probe = s->health.enabled,
        .scrape = s->metrics_scrape.enabled,
        .probe_interval_ms = secs_to_ms(s->health.interval_secs),
        .probe_timeout_ms = secs_to_ms(s->health.timeout_secs),
        .probe_concurrency = s->health.probe_concurrency,
        .probe_path = s->health.path,
        .scrape_interval_ms = secs_to_ms(s->metrics_scrape.interval_secs),
        .scrape_timeout_ms = secs_to_ms(s->metrics_scrape.timeout_secs),
        .scrape_path = s->metrics_scrape.path,
        .sources = mem_array(p->n_providers, sizeof *ret->sources),
        .n_sources = p->n_providers,
        .release = release,
        .kv_feeds = mem_array(p->n_providers, sizeof *ret->kv_feeds),
        .owner = plan_ref(p),
    };
    for (unsigned i = 0; i < p->n_providers; i++) {
        const struct plan_provider *pp = &p->providers[i];
        if (pp->kv)
            ret->kv_feeds[ret->n_kv_feeds++] =
                (struct kv_feed_settings){pp->kv, pp->state, &pp->settings->kv_events};
    }
    for (unsigned i = 0; i < p->n_providers; i++)
        ret->sources[i] = (struct signal_source){.state = p->providers[i].state,
                                                 .origin = &p->providers[i].origin,
                                                 .auth = auth_line(&p->providers[i]),
                                                 .lmcache = lmcache_source(p, &p->providers[i])};
}
