/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "net/pool_impl.h"

struct pool *pool_new(struct net_loop *l, unsigned max_idle_per_origin, unsigned idle_ms)
{
    struct pool *p = MEM_NEW(struct pool);
    p->loop = l;
    p->max_idle = max_idle_per_origin;
    p->idle_ms = idle_ms;
    p->resolver = resolver_new(l);
    map_init(&p->groups);
    list_init(&p->group_list);
    list_init(&p->roots);
    list_init(&p->free_exchanges);
    uv_timer_init(&l->uv, &p->sweep);
    return p;
}

static void on_sweep_closed(uv_handle_t *h)
{
    free(CONTAINER_OF((uv_timer_t *)h, struct pool, sweep));
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    CHECK_MSG(p->n_active == 0, "exchanges are still running");
    LIST_EACH(node, &p->group_list)
    {
        struct pool_group *g = LIST_ITEM(node, struct pool_group, node);
        LIST_EACH(idle, &g->idle)
        pool_conn_close(LIST_ITEM(idle, struct pool_conn, node), false);
        free(g->key);
        free(g);
    }
    LIST_EACH(root, &p->roots)
    {
        struct pool_roots *r = LIST_ITEM(root, struct pool_roots, node);
        tls_context_unref(r->tls);
        free(r->key);
        free(r);
    }
    map_fini(&p->groups);
    resolver_free(p->resolver);
    exchange_free_kept(p);
    uv_close((uv_handle_t *)&p->sweep, on_sweep_closed);
}

size_t pool_idle(const struct pool *p)
{
    return p->n_idle;
}

struct net_loop *pool_loop(const struct pool *p)
{
    return p->loop;
}

struct pool_counts pool_counts(const struct pool *p)
{
    return p->counts;
}

struct pool_group *pool_group_for(struct pool *p, const struct net_origin *o)
{
    struct pool_group *g = map_get(&p->groups, span_str(o->key));
    if (g)
        return g;
    g = MEM_NEW(struct pool_group);
    g->pool = p;
    g->key = mem_strdup(o->key);
    list_init(&g->idle);
    list_push(&p->group_list, &g->node);
    map_put(&p->groups, span_str(g->key), g);
    return g;
}

struct tls_context *pool_tls(struct pool_group *g, const struct net_origin *o, char *ret_error)
{
    if (g->tls)
        return g->tls;
    LIST_EACH(node, &g->pool->roots)
    {
        struct pool_roots *r = LIST_ITEM(node, struct pool_roots, node);
        if (strcmp(r->key, o->roots))
            continue;
        return g->tls = r->tls;
    }
    struct tls_context *tls = tls_client_new(o->ca_bundles, o->n_ca_bundles, o->verify, ret_error);
    if (!tls)
        return NULL;
    struct pool_roots *r = MEM_NEW(struct pool_roots);
    r->key = mem_strdup(o->roots);
    r->tls = tls;
    list_push(&g->pool->roots, &r->node);
    return g->tls = tls;
}

/* ---- kept connections ---- */

static void unlink_idle(struct pool_conn *c)
{
    if (list_empty(&c->node))
        return;
    list_remove(&c->node);
    c->group->n_idle--;
    c->group->pool->n_idle--;
}

void pool_conn_close(struct pool_conn *c, bool reset)
{
    unlink_idle(c);
    stream_close(c->stream, reset);
    free(c);
}

struct pool_conn *pool_conn_take(struct pool_group *g)
{
    if (list_empty(&g->idle))
        return NULL;
    struct pool_conn *c = LIST_ITEM(g->idle.next, struct pool_conn, node);
    unlink_idle(c);
    return c;
}

struct pool_conn *pool_conn_new(struct pool_group *g, struct stream *s)
{
    struct pool_conn *c = MEM_NEW(struct pool_conn);
    c->stream = s;
    c->group = g;
    list_init(&c->node);
    return c;
}

/* Closes what has been idle for too long. Oldest stand at the back, so it looks at no more than it closes,
 * and one for each origin. */
static void on_sweep(uv_timer_t *timer)
{
    struct pool *p = CONTAINER_OF(timer, struct pool, sweep);
    uint64_t now = net_now_ms(p->loop), next = UINT64_MAX;
    LIST_EACH(node, &p->group_list)
    {
        struct pool_group *g = LIST_ITEM(node, struct pool_group, node);
        while (!list_empty(&g->idle)) {
            struct pool_conn *oldest = LIST_ITEM(g->idle.prev, struct pool_conn, node);
            if (oldest->idle_until > now) {
                next = oldest->idle_until < next ? oldest->idle_until : next;
                break;
            }
            pool_conn_close(oldest, false);
        }
    }
    if (next != UINT64_MAX)
        uv_timer_start(&p->sweep, on_sweep, next - now, 0);
}

void pool_conn_put(struct pool_conn *c)
{
    struct pool_group *g = c->group;
    struct pool *p = g->pool;
    if (g->n_idle >= p->max_idle)
        pool_conn_close(LIST_ITEM(g->idle.prev, struct pool_conn, node), false);
    c->idle_until = net_now_ms(p->loop) + p->idle_ms;
    list_push_front(&g->idle, &c->node);
    g->n_idle++;
    p->n_idle++;
    if (!uv_is_active((uv_handle_t *)&p->sweep))
        uv_timer_start(&p->sweep, on_sweep, p->idle_ms, 0);
}
