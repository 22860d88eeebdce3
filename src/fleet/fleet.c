/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists rather than tables: hundreds of entries at most, looked up while a configuration is being read.
 */
#include "fleet/fleet.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "fleet/internal.h"

struct fleet {
    pthread_mutex_t lock; /* before a provider's lock */
    uint64_t keep_ms;
    struct list providers, targets; /* in the order they were made */
};

struct fleet *fleet_new(uint64_t keep_ms)
{
    struct fleet *f = MEM_NEW(struct fleet);
    CHECK(pthread_mutex_init(&f->lock, NULL) == 0);
    f->keep_ms = keep_ms;
    list_init(&f->providers);
    list_init(&f->targets);
    return f;
}

void fleet_free(struct fleet *f)
{
    if (!f)
        return;
    LIST_EACH(node, &f->targets)
    {
        target_free(LIST_ITEM(node, struct target, node));
    }
    LIST_EACH(pnode, &f->providers)
    {
        provider_free(LIST_ITEM(pnode, struct provider, node));
    }
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* Under the lock. */
static struct provider *find_or_make_provider(struct fleet *f, const char *name)
{
    LIST_EACH(node, &f->providers)
    {
        struct provider *p = LIST_ITEM(node, struct provider, node);
        if (strcmp(p->name, name) == 0)
            return p;
    }
    struct provider *p = provider_new(name);
    list_push(&f->providers, &p->node);
    return p;
}

struct provider *fleet_provider_get(struct fleet *f, const char *name)
{
    pthread_mutex_lock(&f->lock);
    struct provider *p = find_or_make_provider(f, name);
    p->refs++;
    pthread_mutex_unlock(&f->lock);
    return p;
}

void fleet_provider_put(struct fleet *f, struct provider *p, uint64_t now_ms)
{
    if (!p)
        return;
    MAGIC_CHECK(p, PROVIDER_MAGIC);
    pthread_mutex_lock(&f->lock);
    CHECK_MSG(p->refs > 0, "more references given back than taken");
    p->refs--;
    p->idle_since_ms = now_ms;
    pthread_mutex_unlock(&f->lock);
}

static bool is_target(const struct target *t, uint64_t identity, const char *provider, const char *api_base,
                      const char *model)
{
    return t->identity == identity && strcmp(t->provider->name, provider) == 0 &&
           strcmp(t->api_base, api_base) == 0 && strcmp(t->model, model) == 0;
}

struct target *fleet_target_get(struct fleet *f, const char *provider, const char *api_base,
                                const char *model)
{
    uint64_t identity = target_identity_of(provider, api_base, model);
    struct target *t = NULL;
    pthread_mutex_lock(&f->lock);
    LIST_EACH(node, &f->targets)
    {
        struct target *other = LIST_ITEM(node, struct target, node);
        if (is_target(other, identity, provider, api_base, model)) {
            t = other;
            break;
        }
    }
    if (!t) {
        struct provider *p = find_or_make_provider(f, provider);
        p->n_targets++;
        t = target_new(p, api_base, model);
        list_push(&f->targets, &t->node);
    }
    t->refs++;
    pthread_mutex_unlock(&f->lock);
    return t;
}

void fleet_target_put(struct fleet *f, struct target *t, uint64_t now_ms)
{
    if (!t)
        return;
    MAGIC_CHECK(t, TARGET_MAGIC);
    pthread_mutex_lock(&f->lock);
    CHECK_MSG(t->refs > 0, "more references given back than taken");
    t->refs--;
    t->idle_since_ms = now_ms;
    /* So that a provider without references of its own is not gone before its targets' time is up. */
    if (t->provider->idle_since_ms < now_ms)
        t->provider->idle_since_ms = now_ms;
    pthread_mutex_unlock(&f->lock);
}

static bool is_over(const struct fleet *f, unsigned refs, uint64_t idle_since_ms, uint64_t now_ms)
{
    return refs == 0 && now_ms > idle_since_ms && now_ms - idle_since_ms > f->keep_ms;
}

void fleet_sweep(struct fleet *f, uint64_t now_ms)
{
    pthread_mutex_lock(&f->lock);
    LIST_EACH(node, &f->targets)
    {
        struct target *t = LIST_ITEM(node, struct target, node);
        if (is_over(f, t->refs, t->idle_since_ms, now_ms) && target_in_flight(t) == 0) {
            CHECK(t->provider->n_targets > 0);
            t->provider->n_targets--;
            target_free(t);
        }
    }
    LIST_EACH(pnode, &f->providers)
    {
        struct provider *p = LIST_ITEM(pnode, struct provider, node);
        if (is_over(f, p->refs + p->n_targets, p->idle_since_ms, now_ms) && provider_is_idle(p))
            provider_free(p);
    }
    pthread_mutex_unlock(&f->lock);
}

void fleet_each_provider(struct fleet *f, void (*each)(struct provider *p, void *arg), void *arg)
{
    pthread_mutex_lock(&f->lock);
    LIST_EACH(node, &f->providers)
    {
        each(LIST_ITEM(node, struct provider, node), arg);
    }
    pthread_mutex_unlock(&f->lock);
}

void fleet_each_target(struct fleet *f, void (*each)(struct target *t, void *arg), void *arg)
{
    pthread_mutex_lock(&f->lock);
    LIST_EACH(node, &f->targets)
    {
        each(LIST_ITEM(node, struct target, node), arg);
    }
    pthread_mutex_unlock(&f->lock);
}
