/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "config/reader.h"
#include "net/origin.h"

enum { KIND_REFUSED = -1 };

static const struct kind_row {
    const char *name;
    int kind; /* enum provider_kind, or KIND_REFUSED: known, but its API has another shape */
} kinds[] = {
    {"openai", KIND_OPENAI},
    {"anthropic", KIND_ANTHROPIC},
    {"openai_compatible", KIND_OPENAI_COMPATIBLE},
    {"ollama", KIND_OLLAMA},
    {"llama_cpp", KIND_LLAMA_CPP},
    {"tei", KIND_TEI},
    {"azure_openai", KIND_AZURE_OPENAI},
    {"openrouter", KIND_OPENROUTER},
    {"ai21", KIND_HOSTED},
    {"anyscale", KIND_HOSTED},
    {"baseten", KIND_HOSTED},
    {"cerebras", KIND_HOSTED},
    {"cloudflare", KIND_HOSTED},
    {"cohere", KIND_HOSTED},
    {"databricks", KIND_HOSTED},
    {"deepinfra", KIND_HOSTED},
    {"deepseek", KIND_HOSTED},
    {"fireworks", KIND_HOSTED},
    {"friendli", KIND_HOSTED},
    {"gemini", KIND_HOSTED},
    {"github_models", KIND_HOSTED},
    {"groq", KIND_HOSTED},
    {"huggingface", KIND_HOSTED},
    {"hyperbolic", KIND_HOSTED},
    {"jina", KIND_HOSTED},
    {"lambda", KIND_HOSTED},
    {"minimax", KIND_HOSTED},
    {"mistral", KIND_HOSTED},
    {"moonshot", KIND_HOSTED},
    {"nebius", KIND_HOSTED},
    {"novita", KIND_HOSTED},
    {"nvidia_nim", KIND_HOSTED},
    {"ollama_cloud", KIND_HOSTED},
    {"perplexity", KIND_HOSTED},
    {"qwen", KIND_HOSTED},
    {"sambanova", KIND_HOSTED},
    {"siliconflow", KIND_HOSTED},
    {"together", KIND_HOSTED},
    {"upstage", KIND_HOSTED},
    {"voyage", KIND_HOSTED},
    {"xai", KIND_HOSTED},
    {"zai", KIND_HOSTED},
    {"bedrock", KIND_REFUSED},
    {"vertex", KIND_REFUSED},
    {"gemini_native", KIND_REFUSED},
    {"gemini_interactions", KIND_REFUSED},
};

void kinds_list(struct buf *out, const char *between)
{
    for (unsigned i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i].kind != KIND_REFUSED)
            buf_printf(out, "%s%s", i ? between : "", kinds[i].name);
}

static void check_kind(struct reader *r, struct provider_settings_file *p)
{
    const struct toml_place at = reader_field(r, &p->kind_name);
    if (!p->kind_name)
        return; /* missing: said already */
    for (unsigned i = 0; i < ARRAY_LEN(kinds); i++) {
        if (strcmp(kinds[i].name, p->kind_name) != 0)
            continue;
        if (kinds[i].kind == KIND_REFUSED)
            reader_fault(
                r, at,
                "providers.kind: \"%s\" has an API of a shape that is neither OpenAI's nor Anthropic's",
                p->kind_name);
        else
            p->kind = (enum provider_kind)kinds[i].kind;
        return;
    }
    struct buf list;
    buf_init(&list, 4096);
    kinds_list(&list, ", ");
    reader_fault(r, at, "providers.kind: \"%.100s\" is not known; the kinds are %.*s", p->kind_name,
                 SPAN_FMT(buf_view(&list)));
    buf_fini(&list);
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

bool check_url(struct reader *r, const char *const *field, const char *path, struct net_origin *ret)
{
    if (!*field)
        return false;
    const struct toml_place at = reader_field(r, field);
    const struct egress_settings *e = &r->s->egress;
    const struct net_egress egress = {.block_link_local = e->block_link_local,
                                      .block_loopback = e->block_loopback,
                                      .block_private = e->block_private,
                                      .allow_hosts = e->allow_hosts.item,
                                      .n_allow_hosts = e->allow_hosts.n};
    const char *why = NULL;
    if (!origin_parse(span_str(*field), ret, &why)) {
        reader_fault(r, at, "%s: %s", path, why);
        return false;
    }
    const char *refused = egress_refuses_literal(&egress, ret->host);
    if (refused)
        reader_fault(r, at, "%s: \"%.100s\" is a %s address, which [egress] refuses", path, ret->host,
                     refused);
    return true;
}

static void check_api_base(struct reader *r, const struct provider_settings_file *p)
{
    struct net_origin origin;
    if (!check_url(r, &p->api_base, "providers.api_base", &origin))
        return;
    const struct toml_place at = reader_field(r, &p->api_base);
    if (p->kind == KIND_OLLAMA && ends_with(origin.base_path, "/v1"))
        reader_fault(r, at, "providers.api_base: must not end in \"/v1\" with kind \"ollama\"");
    origin_fini(&origin);
}

static void check_keys(struct reader *r, struct provider_settings_file *p)
{
    const bool hosted = p->kind == KIND_HOSTED || p->kind == KIND_OPENROUTER;
    check_env(r, &p->api_key_env, "providers.api_key_env");
    for (unsigned i = 0; i < p->n_api_keys; i++) {
        struct api_key_settings *k = &p->api_keys[i];
        if (k->weight == 0)
            k->weight = 1;
        if (!k->key && !k->env)
            reader_fault(r, reader_table(r, k), "providers.api_keys: needs \"env\" or \"key\"");
        else if (hosted && k->key)
            reader_fault(r, reader_field(r, &k->key),
                         "providers.api_keys.key: kind \"%s\" takes \"env\" only", p->kind_name);
        check_env(r, &k->env, "providers.api_keys.env");
    }
    if (hosted && p->api_key)
        reader_fault(r, reader_field(r, &p->api_key),
                     "providers.api_key: kind \"%s\" takes \"api_key_env\" only", p->kind_name);
    if (hosted && !p->api_key_env && p->n_api_keys == 0)
        reader_fault(r, reader_table(r, p), "providers: kind \"%s\" needs \"api_key_env\" or \"api_keys\"",
                     p->kind_name);
}

static bool is_metric_name(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:");
    return n > 0 && !s[n] && !(s[0] >= '0' && s[0] <= '9');
}

static void check_lmcache(struct reader *r, const struct lmcache_settings *l)
{
    struct net_origin origin;
    if (!l->present)
        return;
    if (check_url(r, &l->endpoint, "providers.lmcache.endpoint", &origin))
        origin_fini(&origin);
    check_env(r, &l->api_key_env, "providers.lmcache.api_key_env");
    if (l->metric && !is_metric_name(l->metric))
        reader_fault(r, reader_field(r, &l->metric),
                     "providers.lmcache.metric: \"%.100s\" is no metric's name", l->metric);
    if (l->stale_secs < l->refresh_secs)
        reader_warn(
            r, reader_field_or_table(r, &l->stale_secs, l),
            "providers.lmcache.stale_secs: shorter than refresh_secs, so answers expire before the next one");
}

/* False: there is none, or it has a fault. */
static bool check_kv_endpoint(struct reader *r, const struct kv_events_settings *k, const char *const *field,
                              const char *path, bool bind)
{
    if (!*field)
        return false;
    char host[300];
    const struct egress_settings *e = &r->s->egress;
    const struct net_egress egress = {.block_link_local = e->block_link_local,
                                      .block_loopback = e->block_loopback,
                                      .block_private = e->block_private,
                                      .allow_hosts = e->allow_hosts.item,
                                      .n_allow_hosts = e->allow_hosts.n};
    const char *fault = kv_endpoint_fault(*field, k->dp_ranks, bind);
    if (fault) {
        reader_fault(r, reader_field(r, field), "%s: %s", path, fault);
        return false;
    }
    kv_endpoint_host(*field, host, sizeof host);
    const char *refused = bind ? NULL : egress_refuses_literal(&egress, host);
    if (refused)
        reader_fault(r, reader_field(r, field), "%s: \"%.100s\" is a %s address, which [egress] refuses",
                     path, host, refused);
    return !refused;
}

/* Only one socket can listen on an address: the providers before <p>. */
static void check_kv_bind(struct reader *r, const struct provider_settings_file *p)
{
    const struct kv_events_settings *k = &p->kv_events;
    for (const struct provider_settings_file *q = r->s->providers; k->bind && q < p; q++) {
        const struct kv_events_settings *o = &q->kv_events;
        if (!o->present || !o->bind || !o->endpoint ||
            kv_endpoint_fault(o->endpoint, o->dp_ranks, true) != NULL ||
            !kv_endpoints_meet(o->endpoint, o->dp_ranks, k->endpoint, k->dp_ranks))
            continue;
        reader_fault(r, reader_field(r, &k->endpoint),
                     "providers.kv_events.endpoint: another provider listens there already, see line %u",
                     reader_field(r, &o->endpoint).line);
        return;
    }
}

static void check_kv_events(struct reader *r, const struct provider_settings_file *p)
{
    const struct kv_events_settings *k = &p->kv_events;
    if (!k->present)
        return;
    bool live = check_kv_endpoint(r, k, &k->endpoint, "providers.kv_events.endpoint", k->bind);
    bool replay = check_kv_endpoint(r, k, &k->replay_endpoint, "providers.kv_events.replay_endpoint", false);
    if (live)
        check_kv_bind(r, p);
    if (live && replay && !k->bind &&
        kv_endpoints_meet(k->endpoint, k->dp_ranks, k->replay_endpoint, k->dp_ranks))
        reader_fault(r, reader_field(r, &k->replay_endpoint),
                     "providers.kv_events.replay_endpoint: its ports and those of endpoint meet%s",
                     k->dp_ranks > 1 ? " (each of dp_ranks has one of both)" : "");
}

/* Names stand in headers of replies, in labels and in rows. */
static void check_name(struct reader *r, const char *const *field, const char *path)
{
    if (!*field)
        return;
    for (const char *c = *field; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            reader_fault(r, reader_field(r, field), "%s: control characters are not allowed", path);
            return;
        }
}

void check_providers(struct reader *r, struct map *ret_names)
{
    struct map slugs;
    map_init(&slugs);
    for (unsigned i = 0; i < r->s->n_providers; i++) {
        struct provider_settings_file *p = &r->s->providers[i];
        check_kind(r, p);
        check_name(r, &p->name, "providers.name");
        const bool doubled =
            check_unique(r, ret_names, (const char *const *)&p->name, p, "providers.name", false);
        if (p->slug && strchr(p->slug, '/') && !(p->name && strcmp(p->slug, p->name) == 0))
            reader_fault(r, reader_field(r, &p->slug), "providers.slug: must not have a \"/\"");
        check_name(r, &p->slug, "providers.slug");
        if (!p->slug)
            p->slug = p->name;
        if (!doubled)
            check_unique(r, &slugs, (const char *const *)&p->slug, p, "providers.slug", false);
        check_api_base(r, p);
        check_keys(r, p);
        check_kv_events(r, p);
        check_lmcache(r, &p->lmcache);
        check_bundles(r, &p->ca_bundles, "providers.ca_bundles");
    }
    map_fini(&slugs);
}
