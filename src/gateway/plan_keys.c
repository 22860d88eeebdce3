/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/plan.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/fmt.h"
#include "base/mem.h"
#include "cache/digest.h"
#include "gateway/plan_parts.h"

void plan_key_digest(const char *pepper, struct span key, uint8_t ret[32])
{
    struct digest_writer w;
    struct cache_digest d;
    digest_begin(&w);
    if (pepper)
        digest_add(&w, pepper, strlen(pepper));
    digest_add(&w, "\x1f", 1);
    digest_add(&w, key.p, key.n);
    digest_end(&w, &d);
    memcpy(ret, d.b, sizeof d.b);
}

const struct plan_key *plan_find_key(const struct plan *p, struct span key)
{
    uint8_t digest[32];
    if (key.n == 0 || key.n > 4096)
        return NULL;
    plan_key_digest(p->settings->server.key_pepper, key, digest);
    struct span d = span_of((const char *)digest, sizeof digest);
    const struct plan_key *k = map_get(&p->key_by_digest, d);
    /* The table compares digests, of which an outsider learns nothing by timing; once more in constant time
     * all the same, so that the statement does not rest on the table. */
    if (!k || !span_eq_const_time(d, span_of((const char *)k->digest, sizeof k->digest)))
        return NULL;
    return k;
}

bool plan_key_is_valid(const struct plan_key *k, int64_t wall_ms)
{
    return !k->disabled && wall_ms < k->expires_at_ms;
}

bool plan_key_allows_model(const struct plan_key *k, struct span model)
{
    return !k || k->all_models || map_get(&k->models, model) != NULL;
}

bool plan_key_allows_provider(const struct plan_key *k, const struct plan_provider *p)
{
    return !k || k->all_providers || (k->providers[p->index / 64] >> (p->index % 64) & 1);
}

void plan_build_keys(struct plan *p)
{
    const struct settings *s = p->settings;
    p->n_keys = s->n_virtual_keys;
    p->keys = mem_array(p->n_keys, sizeof *p->keys);
    map_init(&p->key_by_digest);
    static char present = 1; /* any non-NULL value: the maps of models are sets */
    for (unsigned i = 0; i < p->n_keys; i++) {
        const struct virtual_key_settings *v = &s->virtual_keys[i];
        struct plan_key *k = &p->keys[i];
        plan_key_digest(s->server.key_pepper, span_str(v->key), k->digest);
        fmt_hex_bytes(k->id, k->digest, 8);
        k->name = v->name ? v->name : "";
        k->name_span = span_str(k->name);
        k->disabled = v->disabled;
        k->explain = v->explain;
        k->cache = v->cache;
        key_scope_of_key(k->digest, &k->scope);
        k->purge_id = purge_name(k->name_span);
        k->expires_at_ms = v->expires_at_ms;
        k->all_models = v->models.n == 0;
        map_init(&k->models);
        for (unsigned m = 0; m < v->models.n; m++)
            map_put(&k->models, span_str(v->models.item[m]), &present);
        k->all_providers = v->providers.n == 0;
        k->providers = mem_array(p->n_providers / 64 + 1, sizeof *k->providers);
        for (unsigned m = 0; m < v->providers.n; m++)
            for (unsigned q = 0; q < p->n_providers; q++)
                if (strcmp(p->providers[q].settings->name, v->providers.item[m]) == 0)
                    k->providers[q / 64] |= (uint64_t)1 << (q % 64);
        map_put(&p->key_by_digest, span_of((const char *)k->digest, sizeof k->digest), k);
    }
    /* Without keys the gateway is open unless it was told otherwise (reference 1.1). */
    p->open = p->n_keys == 0 && s->server.require_auth != TRI_TRUE;
}

void plan_free_keys(struct plan *p)
{
    for (unsigned i = 0; i < p->n_keys; i++) {
        map_fini(&p->keys[i].models);
        free(p->keys[i].providers);
    }
    free(p->keys);
    map_fini(&p->key_by_digest);
}
