/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/plan.h"
#include "gateway/plan_parts.h"

static void set_init(struct plan *p, struct limit_set *set, enum limit_scope scope, const char *id)
{
    const struct settings *s = p->settings;
    limit_set_init(set, p->limits, scope, id, s->budgets, s->n_budgets, s->rate_limits, s->n_rate_limits);
}

void plan_build_limits(struct plan *p, struct plan *previous)
{
    p->limits = previous ? limits_ref(previous->limits) : limits_new();
    for (unsigned i = 0; i < p->n_keys; i++)
        if (p->keys[i].name_span.n)
            set_init(p, &p->keys[i].limits, LIMIT_KEY, p->keys[i].name);
    for (unsigned i = 0; i < p->n_routes; i++)
        set_init(p, &p->routes[i].limits, LIMIT_ROUTE, p->routes[i].model);
}

void plan_free_limits(struct plan *p)
{
    for (unsigned i = 0; i < p->n_keys; i++)
        limit_set_fini(&p->keys[i].limits);
    for (unsigned i = 0; i < p->n_routes; i++)
        limit_set_fini(&p->routes[i].limits);
    limits_unref(p->limits);
}
