/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/gateway.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/decisions.h"
#include "gateway/gateway_affinity.h"
#include "gateway/gateway_limits.h"
#include "gateway/reply_cache.h"
#include "gateway/semantic.h"
#include "gateway/request.h"
#include "gateway/row_writer.h"
#include "gateway/worker.h"

enum {
    ROW_RING_BYTES = 1 << 20,
    POOL_IDLE_PER_ORIGIN = 512,
    POOL_IDLE_MS = 60000,
    DRAIN_POLL_MS = 10,
    FLEET_KEEP_MS = 600000,
    TOKEN_CACHE_BYTES = 64 << 20
};

/* Memory of its own: its handle outlives a gateway that is stopped before the drain is over. */
struct drain {
    uv_timer_t timer;
    struct gateway *gateway; /* NULL: stopped */
};

struct gateway {
    pthread_mutex_t servers_lock; /* the workers' listeners go, and others count them, under it; a leaf */
    struct net_loop *signals;
    struct fleet *fleet;
    struct token_cache *token_cache;
    struct plan *plan;
    struct reply_cache *cache; /* made when a configuration first asks for it */
    struct worker *workers;
    unsigned n_workers;
    struct row_ring **rings;
    struct decision_ring **decisions; /* NULL: there is no admin listener to ask for them */
    struct row_writer *writer;
    struct limits_share *limits_share; /* NULL: no limits, or no Redis */
    struct gateway_affinity *affinity; /* NULL: placements are not shared */
    uint16_t port;
    char url[300];
    bool draining;
    struct drain *drain; /* NULL: none, or over */
    uint64_t drain_deadline_ms;
    void (*drain_done)(void *arg);
    void *drain_arg;
};

static struct server_options tcp_options(const struct settings *s, uint16_t port, struct tls_context *tls)
{
    return (struct server_options){
        .host = s->server.host,
        .port = port,
        .reuse_port = true,
        .tls = tls,
        .max_head_bytes = s->server.max_head_bytes,
        .head_ms = secs_to_ms(s->timeouts.head_secs),
        .body_ms = secs_to_ms(s->timeouts.body_secs),
        .idle_ms = secs_to_ms(s->timeouts.idle_secs),
    };
}

static struct server_options unix_options(const struct settings *s)
{
    struct server_options o = tcp_options(s, 0, NULL);
    o.host = NULL;
    o.unix_path = s->server.unix_path;
    return o;
}

/* Before the plan that asks for it gets to the workers. */
static bool make_cache(struct gateway *g, char *ret_error)
{
    const struct settings *s = g->plan->settings;
    if (s->cache.enabled && !g->cache)
        g->cache = reply_cache_new(s, g->n_workers, ret_error);
    return !s->cache.enabled || g->cache;
}

static void worker_take_cache(struct worker *w)
{
    w->cache = w->gateway->cache;
    if (!w->cache || w->store)
        return;
    w->store = store_open(w->cache->store, &w->loop);
    w->semantic = (struct semantic_port){.index = w->cache->semantic,
                                         .redis = store_redis(w->store),
                                         .name_space = store_namespace(w->cache->store)};
}

static bool worker_init(struct gateway *g, struct worker *w, unsigned index, char *ret_error)
{
    const struct settings *s = g->plan->settings;
    w->gateway = g;
    w->plan = plan_ref(g->plan);
    list_init(&w->requests);
    list_init(&w->free_requests);
    list_init(&w->lookups);
    buf_init(&w->out, 64 << 20);
    buf_init(&w->whole, WORKER_WHOLE_MAX);
    buf_init(&w->row_text, 1 << 20);
    buf_init(&w->pick_text, 4096);
    CHECK_MSG(net_loop_init(&w->loop, index) == 0, "cannot make an event loop");
    w->loop.user = w;
    arena_init(&w->scratch, &w->loop.chunks);
    worker_take_cache(w);
    w->rows = g->rings[index];
    w->decisions = g->decisions ? g->decisions[index] : NULL;
    w->row_writer = g->writer;
    w->pool = pool_new(&w->loop, POOL_IDLE_PER_ORIGIN, POOL_IDLE_MS);
    w->token_cache = g->token_cache;
    w->tokenizer = tokenizer_new(w->pool, g->token_cache);
    if (s->server.tls_cert) {
        w->tls = tls_server_new(s->server.tls_cert, s->server.tls_key, ret_error);
        if (!w->tls)
            return false;
    }
    struct server_options o = tcp_options(s, index == 0 ? (uint16_t)s->server.port : g->port, w->tls);
    o.port_alone = index == 0 && o.port != 0;
    w->server = server_open(&w->loop, &o, &worker_server_events, w, ret_error);
    if (!w->server)
        return false;
    if (index == 0)
        g->port = server_port(w->server);
    if (!s->server.unix_path)
        return true;
    o = unix_options(s);
    if (index > 0) {
        o.unix_path = NULL; /* one socket file, accepted from by all */
        o.unix_of = g->workers[0].unix_server;
    }
    w->unix_server = server_open(&w->loop, &o, &worker_server_events, w, ret_error);
    return w->unix_server != NULL;
}

/* On the worker's thread, or before it started. Requests in flight end as if their clients had gone. */
static void worker_close(struct worker *w)
{
    pthread_mutex_lock(&w->gateway->servers_lock);
    struct server *servers[] = {w->server, w->unix_server};
    w->server = w->unix_server = NULL;
    pthread_mutex_unlock(&w->gateway->servers_lock);
    for (size_t i = 0; i < ARRAY_LEN(servers); i++)
        if (servers[i])
            server_close(servers[i]);
    /* What is left goes on without a client. */
    LIST_EACH(node, &w->requests)
    request_run(LIST_ITEM(node, struct request, node), STEP_finish);
    CHECK(list_empty(&w->requests));
    semantic_close_worker(w);
    store_close(w->store);
    w->store = NULL;
    tokenizer_free(w->tokenizer);
    w->tokenizer = NULL;
    if (w->pool)
        pool_free(w->pool);
    w->pool = NULL;
}

static void worker_fini(struct worker *w)
{
    if (!w->gateway)
        return;
    worker_close(w);
    tls_context_unref(w->tls);
    arena_reset(&w->scratch);
    net_loop_fini(&w->loop);
    for (struct list *node; (node = list_pop(&w->free_requests));)
        free(LIST_ITEM(node, struct request, node));
    buf_fini(&w->out);
    buf_fini(&w->whole);
    buf_fini(&w->row_text);
    buf_fini(&w->pick_text);
    plan_unref(w->plan);
}

static void worker_main(void *arg)
{
    struct worker *w = arg;
    net_loop_run(&w->loop);
}

static void free_all(struct gateway *g)
{
    for (unsigned i = 0; i < g->n_workers; i++)
        worker_fini(&g->workers[i]);
    row_writer_stop(g->writer);
    for (unsigned i = 0; i < g->n_workers; i++) {
        row_ring_free(g->rings[i]);
        if (g->decisions)
            decision_ring_free(g->decisions[i]);
    }
    reply_cache_free(g->cache);
    plan_unref(g->plan);
    gateway_affinity_free(g->affinity);
    fleet_free(g->fleet);
    token_cache_free(g->token_cache);
    free(g->workers);
    free(g->rings);
    free(g->decisions);
    pthread_mutex_destroy(&g->servers_lock);
    free(g);
}

static void make_url(struct gateway *g)
{
    const struct settings *s = g->plan->settings;
    const char *host = s->server.host;
    bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0, v6 = strchr(host, ':') != NULL;
    snprintf(g->url, sizeof g->url, "%s://%s%s%s:%u", s->server.tls_cert ? "https" : "http",
             v6 && !any ? "[" : "", any ? "127.0.0.1" : host, v6 && !any ? "]" : "", g->port);
}

struct gateway *gateway_start(struct settings *settings, struct net_loop *signals, char *ret_error)
{
    struct gateway *g = MEM_NEW(struct gateway);
    CHECK(pthread_mutex_init(&g->servers_lock, NULL) == 0);
    g->signals = signals;
    g->fleet = fleet_new(FLEET_KEEP_MS);
    g->token_cache = token_cache_new(TOKEN_CACHE_BYTES);
    g->plan = plan_build(settings, g->fleet, NULL, net_now_ms(signals));
    unsigned n = settings->server.workers ? settings->server.workers : uv_available_parallelism();
    g->workers = mem_array(n, sizeof *g->workers);
    g->rings = mem_array(n, sizeof *g->rings);
    g->n_workers = n;
    if (settings->admin.present)
        g->decisions = mem_array(n, sizeof(struct decision_ring *));
    for (unsigned i = 0; i < n; i++) {
        g->rings[i] = row_ring_new(ROW_RING_BYTES);
        if (g->decisions)
            g->decisions[i] = decision_ring_new();
    }
    g->writer = row_writer_start(&settings->logging, g->rings, n, ret_error);
    if (!g->writer || !make_cache(g, ret_error)) {
        free_all(g);
        return NULL;
    }
    for (unsigned i = 0; i < n; i++)
        if (!worker_init(g, &g->workers[i], i, ret_error)) {
            free_all(g);
            return NULL;
        }
    make_url(g);
    g->limits_share = gateway_share_limits(g->plan, signals);
    g->affinity = gateway_affinity_start(&g->plan, signals);
    metric_set(metric_plain(M_CONFIG_VERSION), (double)g->plan->version);
    for (unsigned i = 0; i < n; i++)
        CHECK(uv_thread_create(&g->workers[i].thread, worker_main, &g->workers[i]) == 0);
    return g;
}

const char *gateway_url(const struct gateway *g)
{
    return g->url;
}

/* A message to one worker. */
struct worker_message {
    struct net_post post;
    struct plan *plan;
};

static void send_to_workers(struct gateway *g, void (*fn)(struct net_post *, struct net_loop *),
                            struct plan *plan)
{
    for (unsigned i = 0; i < g->n_workers; i++) {
        struct worker_message *m = MEM_NEW(struct worker_message);
        m->post.fn = fn;
        m->plan = plan ? plan_ref(plan) : NULL;
        net_loop_post(&g->workers[i].loop, &m->post);
    }
}

/* A certificate that is renewed, added or taken away counts for the next connections. */
static void renew_tls(struct worker *w, const struct settings *s)
{
    char error[256];
    struct tls_context *t = NULL;
    if (s->server.tls_cert) {
        t = tls_server_new(s->server.tls_cert, s->server.tls_key, error);
        if (!t) {
            log_warn("reload: the certificate cannot be used, the old one stays: %s", error);
            return;
        }
    }
    tls_context_unref(w->tls);
    w->tls = t;
}

static void take_plan(struct net_post *p, struct net_loop *l)
{
    struct worker_message *m = CONTAINER_OF(p, struct worker_message, post);
    struct worker *w = l->user;
    struct plan *old = w->plan;
    w->plan = m->plan;
    worker_take_cache(w);
    free(m);
    const struct settings *s = w->plan->settings;
    renew_tls(w, s);
    struct server_options o = tcp_options(s, server_port(w->server), w->tls);
    server_update(w->server, &o);
    if (w->unix_server) {
        o = unix_options(s);
        server_update(w->unix_server, &o);
    }
    plan_unref(old);
}

void gateway_reload(struct gateway *g, struct settings *settings)
{
    char error[256];
    struct plan *next = plan_build(settings, g->fleet, g->plan, net_now_ms(g->signals));
    if (!row_writer_update(g->writer, &settings->logging, error))
        log_warn("reload: rows go on as before: %s", error);
    plan_unref(g->plan);
    g->plan = next;
    if (!make_cache(g, error))
        log_warn("reload: no response cache: %s", error);
    gateway_affinity_join(g->affinity, next);
    send_to_workers(g, take_plan, next);
    if (!g->limits_share)
        g->limits_share = gateway_share_limits(next, g->signals);
    metric_set(metric_plain(M_CONFIG_VERSION), (double)next->version);
}

struct plan *gateway_plan(struct gateway *g)
{
    return g->plan;
}

struct reply_cache *gateway_cache(const struct gateway *g)
{
    return g->cache;
}

struct fleet *gateway_fleet(struct gateway *g)
{
    return g->fleet;
}

static void take_drain(struct net_post *p, struct net_loop *l)
{
    struct worker *w = l->user;
    free(CONTAINER_OF(p, struct worker_message, post));
    w->draining = true;
    server_drain(w->server);
    if (w->unix_server)
        server_drain(w->unix_server);
}

static void drain_closed(uv_handle_t *h)
{
    struct drain *d = h->data;
    struct gateway *g = d->gateway;
    free(d);
    if (!g)
        return;
    g->drain = NULL;
    g->drain_done(g->drain_arg);
}

/* Over all listeners: what <count> says of each. */
static size_t sum_servers(struct gateway *g, size_t (*count)(const struct server *s))
{
    size_t n = 0;
    pthread_mutex_lock(&g->servers_lock);
    for (unsigned i = 0; i < g->n_workers; i++) {
        const struct worker *w = &g->workers[i];
        n += w->server ? count(w->server) : 0;
        n += w->unix_server ? count(w->unix_server) : 0;
    }
    pthread_mutex_unlock(&g->servers_lock);
    return n;
}

static void drain_tick(uv_timer_t *t)
{
    struct gateway *g = ((struct drain *)t->data)->gateway;
    /* A request is over when its reply is written; a slow client may have the end of it still to come. */
    bool busy = gateway_requests_in_flight(g) > 0 || sum_servers(g, server_unsent) > 0;
    if (busy && net_now_ms(g->signals) < g->drain_deadline_ms)
        return;
    uv_close((uv_handle_t *)t, drain_closed);
}

/* Nobody is told any more. */
static void drain_forget(struct gateway *g)
{
    struct drain *d = g->drain;
    if (!d)
        return;
    d->gateway = NULL;
    if (!uv_is_closing((uv_handle_t *)&d->timer))
        uv_close((uv_handle_t *)&d->timer, drain_closed);
}

void gateway_drain(struct gateway *g, uint64_t limit_ms, void (*done)(void *arg), void *arg)
{
    CHECK(!g->draining);
    g->draining = true;
    g->drain_done = done;
    g->drain_arg = arg;
    g->drain_deadline_ms = net_now_ms(g->signals) + limit_ms;
    send_to_workers(g, take_drain, NULL);
    struct drain *d = MEM_NEW(struct drain);
    d->gateway = g;
    CHECK(uv_timer_init(&g->signals->uv, &d->timer) == 0);
    d->timer.data = d;
    uv_timer_start(&d->timer, drain_tick, DRAIN_POLL_MS, DRAIN_POLL_MS);
    g->drain = d;
}

bool gateway_is_draining(const struct gateway *g)
{
    return g->draining;
}

static void take_stop(struct net_post *p, struct net_loop *l)
{
    struct worker *w = l->user;
    free(CONTAINER_OF(p, struct worker_message, post));
    worker_close(w);
    net_loop_stop(l);
}

void gateway_stop(struct gateway *g)
{
    drain_forget(g);
    limits_share_stop(g->limits_share);
    gateway_affinity_stop(g->affinity);
    send_to_workers(g, take_stop, NULL);
    for (unsigned i = 0; i < g->n_workers; i++)
        uv_thread_join(&g->workers[i].thread);
    free_all(g);
}

struct worker *gateway_worker(struct gateway *g, unsigned i)
{
    return &g->workers[i];
}

unsigned gateway_decisions(const struct gateway *g, struct decision *ret, unsigned max)
{
    return g->decisions ? decisions_newest(g->decisions, g->n_workers, ret, max) : 0;
}

unsigned gateway_workers(const struct gateway *g)
{
    return g->n_workers;
}

unsigned gateway_requests_in_flight(const struct gateway *g)
{
    unsigned n = 0;
    for (unsigned i = 0; i < g->n_workers; i++)
        n += atomic_load_explicit(&g->workers[i].in_flight, memory_order_acquire);
    return n;
}

unsigned gateway_connections(struct gateway *g)
{
    return (unsigned)sum_servers(g, server_connections);
}

void gateway_refresh_gauges(struct gateway *g, const struct plan *plan)
{
    plan_refresh_gauges(plan);
    metric_set(metric_plain(M_INFLIGHT_REQUESTS), gateway_requests_in_flight(g));
    metric_set(metric_plain(M_CLIENT_CONNECTIONS), gateway_connections(g));
}
