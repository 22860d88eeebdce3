/* SPDX-License-Identifier: Apache-2.0
 * Rules of the semantic cache's keys.
 */
#include "config/reader.h"

static bool is_blank(const char *s)
{
    return s[strspn(s, " \t\r\n")] == '\0';
}

static void check_route(struct reader *r, const struct map *providers, struct semantic_settings *s)
{
    if (s->provider && !map_get(providers, span_str(s->provider)))
        reader_fault(r, reader_field(r, &s->provider),
                     "routes.cache.semantic.provider: there is no provider \"%.100s\"", s->provider);
    if (s->model && is_blank(s->model))
        reader_fault(r, reader_field(r, &s->model), "routes.cache.semantic.model: is blank");
    if (s->threshold <= 0)
        reader_fault(r, reader_field(r, &s->threshold), "routes.cache.semantic.threshold: must be above 0");
}

void check_semantic(struct reader *r, const struct map *providers)
{
    for (unsigned i = 0; i < r->s->n_routes; i++) {
        struct semantic_settings *s = &r->s->routes[i].cache.semantic;
        if (s->present)
            check_route(r, providers, s);
    }
}
