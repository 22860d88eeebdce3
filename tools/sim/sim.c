/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

struct route {
    struct span method, path;
    const struct sim_api *api;
    void (*page)(struct sim *s, struct conn *c);
    bool is_open; /* without the key */
};

static const struct route routes[] = {
    {{"POST", 4}, {"/v1/chat/completions", 20}, .api = &sim_chat},
    {{"POST", 4}, {"/v1/messages", 12}, .api = &sim_messages},
    {{"POST", 4}, {"/v1/responses", 13}, .api = &sim_responses},
    {{"POST", 4}, {"/v1/completions", 15}, .api = &sim_completions},
    {{"POST", 4}, {"/v1/embeddings", 14}, .api = &sim_embeddings},
    {{"POST", 4}, {"/v1/rerank", 10}, .api = &sim_rerank},
    {{"POST", 4}, {"/v1/messages/count_tokens", 25}, .page = page_count_tokens},
    {{"GET", 3}, {"/v1/models", 10}, .page = page_models},
    {{"POST", 4}, {"/tokenize", 9}, .page = page_tokenize, .is_open = true},
    {{"GET", 3}, {"/metrics", 8}, .page = page_metrics, .is_open = true},
    {{"GET", 3}, {"/health", 7}, .page = page_health, .is_open = true},
    {{"POST", 4}, {"/reset_prefix_cache", 19}, .page = page_reset_cache, .is_open = true},
    {{"GET", 3}, {"/sim/stats", 10}, .page = page_stats, .is_open = true},
    {{"GET", 3}, {"/sim/requests", 13}, .page = page_requests, .is_open = true},
    {{"POST", 4}, {"/sim/faults", 11}, .page = page_faults, .is_open = true},
    {{"POST", 4}, {"/sim/restart", 12}, .page = page_restart, .is_open = true},
    {{"POST", 4}, {"/sim/silent-restart", 19}, .page = page_silent_restart, .is_open = true},
    {{"POST", 4}, {"/sim/restart-events", 19}, .page = page_restart_events, .is_open = true},
    {{"GET", 3}, {"/lmcache", 8}, .page = page_lmcache, .is_open = true},
};

bool sim_is_starting(struct sim *s)
{
    return s->o.slow_start_ms && net_now_us(&s->loop) - s->start_us < s->o.slow_start_ms * 1000;
}

static void on_timer(uv_timer_t *t);

static void arm(struct sim *s)
{
    uint64_t next = engine_next_us(s->engine);
    if (!list_empty(&s->delayed)) {
        uint64_t first = LIST_ITEM(s->delayed.next, struct sim_request, delayed)->submit_us;
        next = first < next ? first : next;
    }
    if (next == UINT64_MAX) {
        uv_timer_stop(&s->timer);
        return;
    }
    uint64_t now = net_now_us(&s->loop);
    uv_timer_start(&s->timer, on_timer, next > now ? (next - now + 999) / 1000 : 0, 0);
}

/* One huge reply must not keep its memory for ever. */
static void trim(struct buf *b)
{
    size_t max = b->max;
    if (b->cap <= SIM_KEEP_BYTES)
        return;
    buf_fini(b);
    buf_init(b, max);
}

/* After anything that may have moved the engine. */
static void settle(struct sim *s)
{
    if (s->flushing) /* inside the flush of an outer call, which settles */
        return;
    serve_flush(s);
    cache_events_flush(s);
    trim(&s->out);
    trim(&s->piece);
    arm(s);
}

static void on_timer(uv_timer_t *t)
{
    struct sim *s = t->data;
    uint64_t now = net_now_us(&s->loop);
    serve_delayed(s, now);
    engine_advance(s->engine, now);
    settle(s);
}

static bool has_key(const struct sim *s, const struct http_head *h)
{
    struct span bearer = http_field_get(h, HTTP_F_AUTHORIZATION), key = span_str(s->o.api_key);
    if (span_eq(http_field_get(h, HTTP_F_X_API_KEY), key))
        return true;
    return bearer.n > 7 && span_eq_nocase(span_of(bearer.p, 7), SPAN("bearer ")) &&
           span_eq(span_trim(span_of(bearer.p + 7, bearer.n - 7)), key);
}

/* *ret_path_known: another method would have been right. */
static const struct route *route_of(const struct http_head *h, bool *ret_path_known)
{
    *ret_path_known = false;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!span_eq(routes[i].path, h->path))
            continue;
        *ret_path_known = true;
        if (span_eq(routes[i].method, h->method))
            return &routes[i];
    }
    return NULL;
}

static void on_head(struct conn *c, void *arg)
{
    conn_want_body(c, SIM_BODY_MAX);
}

static void on_body(struct conn *c, void *arg)
{
    struct sim *s = arg;
    const struct http_head *h = conn_head(c);
    bool known;
    const struct route *r = route_of(h, &known);
    if (s->o.record && !span_starts(h->path, SPAN("/sim/")))
        page_record(s, c);
    if (!r)
        send_error(s, c, false, known ? 405 : 404, NULL, known ? "method not allowed" : "no such path");
    else if (!r->is_open && s->o.api_key && !has_key(s, h))
        send_error(s, c, r->api ? r->api->is_anthropic : span_starts(r->path, SPAN("/v1/messages")), 401,
                   "invalid_api_key", "the API key is wrong or missing");
    else if (r->api)
        serve_request(s, c, r->api);
    else
        r->page(s, c);
    settle(s);
}

static void on_reject(struct conn *c, void *arg, int status, const char *text)
{
    struct sim *s = arg;
    buf_clear(&s->out);
    send_error_object(&s->out, false, status, NULL, text);
    char head[256];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: "
                     "close\r\n\r\n",
                     status, http_status_text(status), s->out.n);
    struct iovec v[] = {{head, (size_t)n}, {s->out.p, s->out.n}};
    conn_writev(c, v, 2);
}

static void on_gone(struct conn *c, void *arg)
{
    struct sim *s = arg;
    struct sim_request *r = conn_user(c);
    if (!r)
        return;
    serve_gone(s, r);
    settle(s);
}

static void on_drain(struct conn *c, void *arg)
{
    struct sim *s = arg;
    struct sim_request *r = conn_user(c);
    if (!r)
        return;
    serve_drained(s, r);
    settle(s);
}

static void forget_models(struct sim *s)
{
    while (s->n_models)
        free(s->models[--s->n_models].name);
}

static void forget_requests(struct sim *s)
{
    for (uint64_t i = 0; i < s->o.record; i++)
        MEM_FREE(s->recorded[i]);
    s->n_recorded = 0;
}

void sim_restart(struct sim *s)
{
    s->events_muted = true;
    serve_drop_all(s);
    engine_restart(s->engine);
    s->events_muted = false;
    cache_events_restart(s);
    forget_models(s);
    forget_requests(s);
    s->counts = (struct sim_counts){0};
    s->start_us = net_now_us(&s->loop);
    /* Never the same start twice, or a restart could not be seen. */
    uint64_t wall = clock_wall_ms();
    s->start_wall_ms = wall > s->start_wall_ms ? wall : s->start_wall_ms + 1;
}

static void on_signal(uv_signal_t *h, int signum)
{
    struct sim *s = h->data;
    net_loop_stop(&s->loop);
}

/* "host:port", "[v6]:port". False: no such shape. <host> has room for 256. */
static bool split_listen(const char *listen, char *host, uint16_t *ret_port)
{
    const char *colon = strrchr(listen, ':');
    uint64_t port;
    if (!colon || !span_to_u64(span_str(colon + 1), &port) || port > 65535)
        return false;
    size_t n = (size_t)(colon - listen);
    bool brackets = n >= 2 && listen[0] == '[' && listen[n - 1] == ']';
    if (n == 0 || n > 255)
        return false;
    snprintf(host, 256, "%.*s", (int)(brackets ? n - 2 : n), listen + brackets);
    *ret_port = (uint16_t)port;
    return true;
}

static void open_state(struct sim *s)
{
    struct engine_options eo = {
        .block_size = (uint32_t)s->o.block_size,
        .blocks = (uint32_t)s->o.blocks,
        .prefill_tps = s->o.prefill_tps,
        .decode_tps = s->o.decode_tps,
        .max_running = (uint32_t)s->o.max_running,
        .max_waiting = s->o.max_waiting < UINT32_MAX ? (uint32_t)s->o.max_waiting : UINT32_MAX,
    };
    struct engine_events ev = serve_engine_events(s);
    s->engine = engine_new(&eo, &ev);
    list_init(&s->live);
    list_init(&s->dirty);
    list_init(&s->delayed);
    rng_seed(&s->faults, s->o.seed);
    arena_init(&s->scratch, &s->loop.chunks);
    /* A prompt at the limit, and an output behind it. */
    tokens_init(&s->tokens, 2 * s->o.max_model_len);
    buf_init(&s->head, 65536);
    buf_init(&s->out, SIM_REPLY_MAX);
    buf_init(&s->piece, 2 * (size_t)SIM_REPLY_MAX);
    s->recorded = mem_array(s->o.record + 1, sizeof *s->recorded);
}

int sim_open(struct sim *s, char *ret_error)
{
    char host[256];
    uint16_t port;
    if (!split_listen(s->o.listen, host, &port)) {
        snprintf(ret_error, 256, "--listen wants HOST:PORT");
        return -1;
    }
    if (net_loop_init(&s->loop, 0) < 0) {
        snprintf(ret_error, 256, "cannot make an event loop");
        return -1;
    }
    if (cache_events_open(s, ret_error) < 0)
        return -1;
    open_state(s);
    const struct server_options so = {.host = host,
                                      .port = port,
                                      .max_head_bytes = HTTP_HEAD_BYTES_DEFAULT,
                                      .head_ms = 60000,
                                      .body_ms = 60000,
                                      .idle_ms = 600000,
                                      .write_ms = 300000};
    const struct server_events ev = {on_head, on_body, on_reject, on_gone, on_drain};
    s->server = server_open(&s->loop, &so, &ev, s, ret_error);
    if (!s->server)
        return -1;
    uv_timer_init(&s->loop.uv, &s->timer);
    uv_signal_init(&s->loop.uv, &s->on_term);
    uv_signal_init(&s->loop.uv, &s->on_int);
    s->timer.data = s->on_term.data = s->on_int.data = s;
    uv_signal_start(&s->on_term, on_signal, SIGTERM);
    uv_signal_start(&s->on_int, on_signal, SIGINT);
    sim_restart(s);
    return 0;
}

void sim_close(struct sim *s)
{
    serve_drop_all(s);
    server_close(s->server);
    uv_close((uv_handle_t *)&s->timer, NULL);
    uv_close((uv_handle_t *)&s->on_term, NULL);
    uv_close((uv_handle_t *)&s->on_int, NULL);
    arena_reset(&s->scratch);
    cache_events_close(s);
    net_loop_fini(&s->loop);
    forget_models(s);
    forget_requests(s);
    free(s->recorded);
    tokens_fini(&s->tokens);
    buf_fini(&s->head);
    buf_fini(&s->out);
    buf_fini(&s->piece);
    engine_free(s->engine);
    sim_options_fini(&s->o);
}
