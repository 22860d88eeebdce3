/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fmt.h"
#include "config/reader.h"

static void check_strategy(struct reader *r, struct route_settings *route)
{
    /* Names of other versions and of the gateway with the same configuration format. */
    static const char *const known[] = {"adaptive", "lora_aware"};
    if (strategy_by_name(span_str(route->strategy_text), &route->strategy))
        return;
    struct buf list;
    buf_init(&list, 4096);
    for (unsigned i = 0; i < STRATEGY_COUNT; i++)
        buf_printf(&list, "%s%s", i ? ", " : "", strategy_name((enum strategy_id)i));
    const char *what = "is not known";
    for (unsigned i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(known[i], route->strategy_text) == 0)
            what = "is not available in this version";
    reader_fault(r, reader_field(r, &route->strategy_text), "routes.strategy: \"%.100s\" %s; there are %.*s",
                 route->strategy_text, what, SPAN_FMT(buf_view(&list)));
    buf_fini(&list);
}

static void check_provider(struct reader *r, const struct map *providers, const char *const *field,
                           const char *path)
{
    if (*field && !map_get(providers, span_str(*field)))
        reader_fault(r, reader_field(r, field), "%s: there is no provider \"%.100s\"", path, *field);
}

static void check_variants(struct reader *r, const struct route_settings *route, const struct map *providers)
{
    struct map names;
    map_init(&names);
    for (unsigned i = 0; i < route->n_variants; i++) {
        const struct variant_settings *v = &route->variants[i];
        check_unique(r, &names, &v->name, v, "routes.variants.name", false);
        const struct toml_place at = reader_field(r, &v->targets);
        if (v->n_targets == 0 && at.line > 0) /* else: missing, said already */
            reader_fault(r, at, "routes.variants.targets: must not be empty");
        for (unsigned j = 0; j < v->n_targets; j++)
            check_provider(r, providers, &v->targets[j].provider, "routes.variants.targets.provider");
    }
    map_fini(&names);
}

/* The providers of a pool in which something that <has> looks for is configured. */
static bool any_provider(const struct settings *s, const struct target_settings *targets, unsigned n,
                         bool (*has)(const struct provider_settings_file *p))
{
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < s->n_providers; k++) {
            const struct provider_settings_file *p = &s->providers[k];
            if (has(p) && p->name && targets[i].provider && strcmp(p->name, targets[i].provider) == 0)
                return true;
        }
    return false;
}

static bool has_lmcache(const struct provider_settings_file *p)
{
    return p->lmcache.present;
}

static bool has_kv_events(const struct provider_settings_file *p)
{
    return p->kv_events.present;
}

/* Strategies that hear from caches, on routes where no cache speaks. */
static void check_signals(struct reader *r, const struct route_settings *route)
{
    if (route->tokenize_by_engine && !strategy_reads_tokens(route->strategy))
        reader_warn(r, reader_field(r, &route->tokenize_by_engine),
                    "routes.tokenize: strategy \"%.100s\" does not look at token ids", route->strategy_text);
    static const struct {
        enum strategy_id strategy;
        bool (*has)(const struct provider_settings_file *p);
        const char *table;
    } rows[] = {{STRATEGY_LMCACHE_AWARE, has_lmcache, "lmcache"},
                {STRATEGY_PRECISE_CACHE_AWARE, has_kv_events, "kv_events"}};
    for (unsigned k = 0; k < ARRAY_LEN(rows); k++) {
        if (route->strategy != rows[k].strategy)
            continue;
        bool any = any_provider(r->s, route->targets, route->n_targets, rows[k].has);
        for (unsigned i = 0; i < route->n_variants; i++)
            any |= any_provider(r->s, route->variants[i].targets, route->variants[i].n_targets, rows[k].has);
        if (!any)
            reader_warn(
                r, reader_field(r, &route->strategy_text),
                "routes.strategy: no provider of this route has [providers.%s]; the least load decides",
                rows[k].table);
    }
}

void check_routes(struct reader *r, const struct map *providers)
{
    struct map models;
    map_init(&models);
    for (unsigned i = 0; i < r->s->n_routes; i++) {
        struct route_settings *route = &r->s->routes[i];
        check_unique(r, &models, (const char *const *)&route->model, route, "routes.model", false);
        check_strategy(r, route);
        if (route->n_targets == 0 && route->n_variants == 0)
            reader_fault(r, reader_table(r, route), "routes: needs \"targets\" or \"variants\"");
        else if (route->n_targets > 0 && route->n_variants > 0)
            reader_warn(r, reader_field(r, &route->targets),
                        "routes.targets: not used, because there are variants");
        for (unsigned j = 0; j < route->n_targets; j++)
            check_provider(r, providers, &route->targets[j].provider, "routes.targets.provider");
        check_variants(r, route, providers);
        check_signals(r, route);
    }
    map_fini(&models);
}

void check_virtual_keys(struct reader *r, const struct map *providers)
{
    struct map keys;
    map_init(&keys);
    for (unsigned i = 0; i < r->s->n_virtual_keys; i++) {
        struct virtual_key_settings *k = &r->s->virtual_keys[i];
        check_unique(r, &keys, &k->key, k, "virtual_keys.key", true);
        for (unsigned j = 0; j < k->providers.n; j++)
            check_provider(r, providers, &k->providers.item[j], "virtual_keys.providers");
        k->expires_at_ms = INT64_MAX;
        if (k->expires_at_text && !fmt_parse_time(span_str(k->expires_at_text), &k->expires_at_ms))
            reader_fault(r, reader_field(r, &k->expires_at_text),
                         "virtual_keys.expires_at: \"%.100s\" is not an instant like 2030-01-31T00:00:00Z",
                         k->expires_at_text);
    }
    map_fini(&keys);
}
