/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/plan_signals.h"

#include <stdlib.h>

#include "base/mem.h"

static void release(struct signals_settings *s)
{
    for (unsigned i = 0; i < s->n_sources; i++)
        free((char *)s->sources[i].auth.p);
    free(s->sources);
    plan_unref(s->owner);
}

/* Probes of an engine behind a key need the key as well. */
static struct span auth_line(const struct plan_provider *p)
{
    return span_str(mem_strdup(p->auth_lines[0]));
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
        .owner = plan_ref(p),
    };
    for (unsigned i = 0; i < p->n_providers; i++)
        ret->sources[i] = (struct signal_source){.state = p->providers[i].state,
                                                 .origin = &p->providers[i].origin,
                                                 .auth = auth_line(&p->providers[i])};
}
