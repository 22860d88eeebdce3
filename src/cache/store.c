/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/store.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cache/store_impl.h"

enum { BUDGET_MS = 50, ERROR_BYTES = 256, SWEEP_STEPS = 256, REPLY_MARGIN = 65536 };

static const char NAMESPACE[] = "rolter:cache";

/* ---- the store ---- */

static bool connect_redis(struct cache_store *s, const struct store_options *o, char *ret_error)
{
    const uint64_t body = o->max_entry_bytes ? o->max_entry_bytes : 1u << 30;
    const struct redis_options r = {
        .url = o->redis_url,
        .cluster = o->redis_cluster,
        .consumer = "cache",
        .ca_bundles = o->ca_bundles,
        .n_ca_bundles = o->n_ca_bundles,
        .answer_ms = s->o.budget_ms,
        .max_reply_bytes = body + ENTRY_HEAD_MAX + REPLY_MARGIN,
        .max_queue_bytes = 4 * (body + ENTRY_HEAD_MAX) + (16u << 20),
        .tell = o->tell,
        .tell_arg = o->tell_arg,
    };
    s->server = redis_server_new(&r, ret_error);
    return s->server != NULL;
}

static void register_metrics(struct cache_store *s)
{
    static const char *const NAMES[] = {"hit",     "miss",   "broken", "outdated",
                                        "skipped", "failed", "stored", "not_stored"};
    _Static_assert(ARRAY_LEN(NAMES) == REDIS_RESULTS, "one name each");
    for (int i = 0; i < REDIS_RESULTS; i++)
        s->m_results[i] = metric_series(M_CACHE_REDIS, NAMES[i], NULL, NULL);
}

const char *store_namespace_fault(const char *name_space)
{
    if (!*name_space || strlen(name_space) > STORE_NAMESPACE_MAX)
        return "must have 1 to 200 bytes";
    for (const char *p = name_space; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == '{' || *p == '}' || *p == 0x7f)
            return "must not contain white space or braces";
    return NULL;
}

struct cache_store *store_new(const struct store_options *o, char *ret_error)
{
    const char *name_space = o->name_space ? o->name_space : NAMESPACE;
    const char *why = store_namespace_fault(name_space);
    if (why) {
        snprintf(ret_error, ERROR_BYTES, "the namespace %s", why);
        return NULL;
    }
    struct cache_store *s = MEM_NEW(struct cache_store);
    s->o = *o;
    s->o.redis_url = NULL;
    s->o.ca_bundles = NULL;
    s->o.budget_ms = o->budget_ms ? o->budget_ms : BUDGET_MS;
    if (o->redis_url && !connect_redis(s, o, ret_error)) {
        free(s);
        return NULL;
    }
    s->o.name_space = mem_strdup(name_space);
    s->purges = purge_new();
    s->memory = memory_new(&(struct memory_options){
        .memory_bytes = o->memory_bytes, .max_entry_bytes = o->max_entry_bytes, .purge = s->purges});
    if (s->server)
        s->share = share_new(s);
    register_metrics(s);
    return s;
}

void store_free(struct cache_store *s)
{
    if (!s)
        return;
    share_free(s->share);
    memory_free(s->memory);
    purge_free(s->purges);
    redis_server_unref(s->server);
    free((char *)s->o.name_space);
    free(s);
}

void store_count(struct cache_store *s, enum redis_result r)
{
    atomic_fetch_add_explicit(&s->counts[r], 1, memory_order_relaxed);
    metric_add(s->m_results[r], 1);
}

const char *store_namespace(const struct cache_store *s)
{
    return s->o.name_space;
}

struct cache_purge *store_purges(struct cache_store *s)
{
    return s->purges;
}

void store_purge(struct cache_store *s, enum purge_kind kind, uint64_t id)
{
    const uint64_t generation = purge_now(s->purges, kind, id);
    atomic_fetch_add_explicit(&s->n_purges, 1, memory_order_relaxed);
    if (s->share)
        share_purge(s->share, kind, id, generation);
}

static uint64_t count_of(const struct cache_store *s, enum redis_result r)
{
    return atomic_load_explicit(&s->counts[r], memory_order_relaxed);
}

void store_stats(struct cache_store *s, struct store_stats *ret)
{
    *ret = (struct store_stats){
        .has_redis = s->server != NULL,
        .redis_up = s->server && redis_server_is_up(s->server),
        .redis_hits = count_of(s, FOUND),
        .redis_misses = count_of(s, NOTHING),
        .redis_broken = count_of(s, BROKEN),
        .redis_outdated = count_of(s, OUTDATED),
        .redis_skipped = count_of(s, SKIPPED),
        .redis_failed = count_of(s, FAILED),
        .redis_stored = count_of(s, STORED),
        .redis_not_stored = count_of(s, NOT_STORED),
        .purges = atomic_load_explicit(&s->n_purges, memory_order_relaxed),
    };
    memory_stats(s->memory, &ret->memory);
}

/* ---- the port ---- */

/* One port keeps house for all: purges are told and learnt, memory of dead entries is given back. */
static void on_keeper(uv_timer_t *t)
{
    struct store_port *p = t->data;
    memory_sweep(p->store->memory, clock_wall_ms(), SWEEP_STEPS);
    if (p->redis)
        share_tick(p->store->share, p->redis);
    const bool soon = p->redis && !share_is_known(p->store->share) && redis_client_is_up(p->redis);
    uv_timer_start(t, on_keeper, soon ? SHARE_FIRST_MS : SHARE_EVERY_MS, 0);
}

struct store_port *store_open(struct cache_store *s, struct net_loop *l)
{
    struct store_port *p = MEM_NEW(struct store_port);
    p->store = s;
    p->loop = l;
    list_init(&p->waits);
    if (s->server) {
        p->resolver = resolver_new(l);
        p->redis = redis_client_new(s->server, l, p->resolver);
    }
    if (!atomic_exchange(&s->has_keeper, true)) {
        p->keeper = MEM_NEW(uv_timer_t);
        uv_timer_init(&l->uv, p->keeper);
        p->keeper->data = p;
        uv_timer_start(p->keeper, on_keeper, SHARE_FIRST_MS, 0);
        uv_unref((uv_handle_t *)p->keeper);
    }
    return p;
}

static void on_keeper_closed(uv_handle_t *h)
{
    free(h);
}

void store_close(struct store_port *p)
{
    if (!p)
        return;
    for (struct list *node; (node = list_pop(&p->waits));)
        store_cancel(LIST_ITEM(node, struct store_wait, node));
    if (p->keeper) {
        if (p->store->share)
            share_stop(p->store->share); /* its call is the client's */
        uv_close((uv_handle_t *)p->keeper, on_keeper_closed);
        atomic_store(&p->store->has_keeper, false);
    }
    redis_client_free(p->redis);
    if (p->resolver)
        resolver_free(p->resolver);
    free(p);
}

struct cache_store *store_of(const struct store_port *p)
{
    return p->store;
}

struct redis_client *store_redis(const struct store_port *p)
{
    return p->redis;
}

/* ---- lookups ---- */

void store_budget_begin(const struct cache_store *s, struct store_budget *ret)
{
    ret->left_us = s->o.budget_ms * 1000;
}

/* The wait is over: what it took leaves the budget. */
static void settle(struct store_wait *w)
{
    const uint64_t took = net_now_us(w->port->loop) - w->began_us;
    w->budget->left_us = took < w->budget->left_us ? w->budget->left_us - (unsigned)took : 0;
    list_remove(&w->node);
    w->port = NULL;
}

void store_answered(struct store_wait *w, struct cache_entry *e)
{
    struct cache_store *s = w->port->store;
    struct cache_entry *stale = w->stale;
    const uint64_t now = clock_wall_ms();
    w->stale = NULL;
    settle(w);
    if (e)
        (void)memory_put(s->memory, e, now);
    if (e && stale && e->facts.created_ms < stale->facts.created_ms) { /* memory's is the younger one */
        struct cache_entry *older = e;
        e = stale;
        stale = older;
    } else if (!e) {
        e = stale;
        stale = NULL;
    }
    entry_unref(stale);
    w->fn(w, e);
}

enum store_answer store_get(struct store_port *p, const struct cache_digest *key, uint64_t now_ms,
                            struct store_budget *budget, struct store_wait *w, store_fn *fn,
                            struct cache_entry **ret_entry)
{
    struct cache_entry *e = memory_get(p->store->memory, key, now_ms);
    if (p->redis && fn && !(e && entry_is_fresh(e, now_ms))) {
        *w = (struct store_wait){.fn = fn, .port = p, .budget = budget, .stale = e, .key = *key};
        w->began_us = net_now_us(p->loop);
        if (redis_store_get(p, w)) {
            list_push(&p->waits, &w->node);
            return STORE_WAIT;
        }
        *w = (struct store_wait){0};
    }
    if (!e)
        return STORE_MISS;
    *ret_entry = e;
    return STORE_HIT;
}

void store_cancel(struct store_wait *w)
{
    if (!w->port)
        return;
    if (w->call)
        redis_cancel(w->call);
    w->call = NULL;
    settle(w);
    entry_unref(w->stale);
    w->stale = NULL;
}

enum memory_put_result store_put(struct store_port *p, struct cache_entry *e, uint64_t now_ms)
{
    const enum memory_put_result r = memory_put(p->store->memory, e, now_ms);
    if (p->redis && r != MEMORY_OUTDATED)
        redis_store_put(p, e, now_ms);
    return r;
}

void store_remove(struct store_port *p, const struct cache_digest *key)
{
    memory_remove(p->store->memory, key);
    if (p->redis)
        redis_store_remove(p, key);
}

struct cache_entry *store_peek(struct cache_store *s, const struct cache_digest *key, uint64_t now_ms)
{
    return memory_peek(s->memory, key, now_ms);
}
