/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/gateway_affinity.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum { ANSWER_MS = 1000 };

struct gateway_affinity {
    struct plan *const *plan;
    struct placement_queue *queue;
    struct affinity_sync *sync;
    metric_series_t m_full;
};

static void tell(void *arg, bool bad, const char *text)
{
    (void)arg;
    if (bad)
        log_warn("%s; placements are not shared", text);
    else
        log_info("%s", text);
}

static struct redis_server *server_of(const struct settings *s, char *ret_error)
{
    return redis_server_new(&(struct redis_options){.url = s->redis.url,
                                                    .cluster = s->redis.cluster,
                                                    .consumer = "affinity_sync",
                                                    .ca_bundles = s->ca_bundles.item,
                                                    .n_ca_bundles = s->ca_bundles.n,
                                                    .answer_ms = ANSWER_MS,
                                                    .tell = tell},
                            ret_error);
}

/* On a worker, in a pick. */
static void on_placed(void *arg, const struct placement *p)
{
    struct gateway_affinity *a = arg;
    if (!placement_queue_push(a->queue, p, clock_mono_ms()))
        metric_add(a->m_full, 1);
}

static void each_pool(const struct plan *p, void (*fn)(void *arg, struct balancer *b), void *arg)
{
    for (unsigned i = 0; i < p->n_routes; i++) {
        const struct plan_route *r = &p->routes[i];
        if (r->pool.balancer)
            fn(arg, r->pool.balancer);
        for (unsigned k = 0; k < r->n_variants; k++)
            fn(arg, r->variants[k].pool.balancer);
    }
}

struct placing {
    const struct placement *placement;
    enum place_result best;
};

static void place_in(void *arg, struct balancer *b)
{
    struct placing *x = arg;
    enum place_result r = balance_place(b, x->placement);
    if (r == PLACE_DONE || x->best == PLACE_NOBODY)
        x->best = r;
}

/* The replica has the blocks whichever route they came by. */
static enum place_result apply(void *arg, const struct placement *p)
{
    const struct gateway_affinity *a = arg;
    struct placing x = {p, PLACE_NOBODY};
    each_pool(*a->plan, place_in, &x);
    return x.best;
}

static void set_sink(void *arg, struct balancer *b)
{
    balance_set_sink(b, &(struct placement_sink){on_placed, arg});
}

void gateway_affinity_join(struct gateway_affinity *a, const struct plan *p)
{
    if (a)
        each_pool(p, set_sink, a);
}

struct gateway_affinity *gateway_affinity_start(struct plan *const *plan, struct net_loop *loop)
{
    const struct settings *s = (*plan)->settings;
    char error[256];
    if (!s->affinity_sync.enabled || !s->redis.url)
        return NULL;
    struct redis_server *server = server_of(s, error);
    if (!server) {
        log_error("placements are not shared: %s", error);
        return NULL;
    }
    struct gateway_affinity *a = MEM_NEW(struct gateway_affinity);
    a->plan = plan;
    a->queue = placement_queue_new();
    a->m_full = metric_series(M_AFFINITY_DROPPED, "full", NULL, NULL);
    a->sync = affinity_sync_start(
        &(struct affinity_sync_options){
            .settings = &s->affinity_sync, .server = server, .queue = a->queue, .apply = apply, .arg = a},
        loop);
    redis_server_unref(server);
    gateway_affinity_join(a, *plan);
    return a;
}

void gateway_affinity_stop(struct gateway_affinity *a)
{
    if (!a)
        return;
    affinity_sync_stop(a->sync);
    a->sync = NULL;
}

void gateway_affinity_free(struct gateway_affinity *a)
{
    if (!a)
        return;
    CHECK(!a->sync);
    placement_queue_free(a->queue);
    free(a);
}
