/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets and rate limits: whom they name.
 */
#include <string.h>

#include "config/reader.h"

static bool has_key(const struct settings *s, const char *name)
{
    for (unsigned i = 0; i < s->n_virtual_keys; i++)
        if (s->virtual_keys[i].name && strcmp(s->virtual_keys[i].name, name) == 0)
            return true;
    return false;
}

static bool has_route(const struct settings *s, const char *model)
{
    for (unsigned i = 0; i < s->n_routes; i++)
        if (strcmp(s->routes[i].model, model) == 0)
            return true;
    return false;
}

static void check_whom(struct reader *r, const char *section, const unsigned *scope, const char *const *id)
{
    if (*scope > LIMIT_ROUTE)
        reader_warn(r, reader_field(r, scope), "%s.scope: has no effect here; \"key\" and \"route\" have",
                    section);
    else if (*scope == LIMIT_KEY && *id && !has_key(r->s, *id))
        reader_fault(r, reader_field(r, id), "%s.id: there is no virtual key with the name \"%.100s\"",
                     section, *id);
    else if (*scope == LIMIT_ROUTE && *id && !has_route(r->s, *id))
        reader_fault(r, reader_field(r, id), "%s.id: there is no route with the model \"%.100s\"", section,
                     *id);
}

void check_limits(struct reader *r)
{
    for (unsigned i = 0; i < r->s->n_budgets; i++) {
        const struct budget_settings *b = &r->s->budgets[i];
        check_whom(r, "budgets", &b->scope, &b->id);
        if (!(b->limit_usd > 0) && reader_field(r, &b->limit_usd).line)
            reader_fault(r, reader_field(r, &b->limit_usd), "budgets.limit_usd: must be above 0");
        if (r->s->n_model_prices == 0)
            reader_warn(r, reader_table(r, b), "budgets: without [[model_prices]] nothing costs anything");
    }
    for (unsigned i = 0; i < r->s->n_rate_limits; i++) {
        const struct rate_limit_settings *l = &r->s->rate_limits[i];
        check_whom(r, "rate_limits", &l->scope, &l->id);
        if (!l->rpm && !l->tpm)
            reader_fault(r, reader_table(r, l), "rate_limits: needs \"rpm\" or \"tpm\"");
    }
}
