/* SPDX-License-Identifier: Apache-2.0
 * Rules of the response cache's keys.
 */
#include "config/reader.h"

/* What a route's table says about who shares entries, in one word. */
static void settle_scope(struct reader *r, struct route_cache_settings *c)
{
    if (c->per_key == TRI_UNSET)
        return;
    enum cache_sharing wanted = c->per_key == TRI_TRUE ? CACHE_SCOPE_KEY : CACHE_SCOPE_ROUTE;
    if (reader_field(r, &c->scope).line > 0 && c->scope != wanted)
        reader_fault(r, reader_field(r, &c->per_key), "routes.cache.per_key: contradicts \"scope\"");
    c->scope = wanted;
}

void check_cache(struct reader *r)
{
    const struct cache_settings *c = &r->s->cache;
    bool any = false;
    for (unsigned i = 0; i < r->s->n_routes; i++) {
        struct route_cache_settings *route = &r->s->routes[i].cache;
        if (!route->present)
            continue;
        any |= route->enabled;
        settle_scope(r, route);
        if (route->enabled && !c->enabled)
            reader_warn(r, reader_field_or_table(r, &route->enabled, &r->s->routes[i]),
                        "routes.cache: nothing is cached while [cache] enabled is false");
    }
    for (unsigned i = 0; i < r->s->n_virtual_keys; i++)
        any |= r->s->virtual_keys[i].cache == TRI_TRUE;
    if (c->enabled && !any)
        reader_warn(r, reader_field(r, &c->enabled),
                    "cache.enabled: no route and no key asks for the cache ([routes.cache])");
    if (c->enabled && c->memory_bytes > 0 && c->max_entry_bytes > c->memory_bytes / 2)
        reader_warn(
            r, reader_field_or_table(r, &c->max_entry_bytes, c),
            "cache.max_entry_bytes: entries of more than half of memory_bytes are not kept in memory");
}
