/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/mem.h"

enum { WISH_DELAY_MAX_MS = 86400000 };

/* What happens to one request besides being served: its x-sim-* fields, else the configured rates. */
struct wish {
    uint64_t fail; /* status, 0 = none */
    bool stall, cut_anywhere;
    uint32_t cut, error; /* events, or SIM_NEVER */
    uint64_t tokens, delay_ms;
};

static bool draw(struct sim *s, double rate)
{
    return rate > 0 && rng_unit(&s->faults) < rate;
}

static uint32_t events_of(uint64_t v)
{
    return v < SIM_NEVER ? (uint32_t)v : SIM_NEVER;
}

/* <name>: behind "x-sim-". What cannot be read is as if it were not there. */
static void wish_field(struct wish *w, struct span name, struct span value)
{
    uint64_t v = 0;
    bool is_number = span_to_u64(value, &v);
    if (span_eq_nocase(name, SPAN("stall")))
        w->stall = !is_number || v != 0;
    else if (!is_number)
        return;
    else if (span_eq_nocase(name, SPAN("fail")) && v >= 200 && v <= 599)
        w->fail = v;
    else if (span_eq_nocase(name, SPAN("cut")))
        w->cut = events_of(v);
    else if (span_eq_nocase(name, SPAN("error")))
        w->error = events_of(v);
    else if (span_eq_nocase(name, SPAN("tokens")) && v >= 1)
        w->tokens = v;
    else if (span_eq_nocase(name, SPAN("delay-ms")) && v <= WISH_DELAY_MAX_MS)
        w->delay_ms = v;
}

static struct wish read_wish(struct sim *s, const struct http_head *h)
{
    struct wish w = {
        .cut = SIM_NEVER, .error = SIM_NEVER, .tokens = s->o.tokens, .delay_ms = s->o.head_delay_ms};
    w.stall = draw(s, s->o.stall_rate);
    w.fail = draw(s, s->o.fail_rate) ? s->o.fail_status : 0;
    w.cut_anywhere = draw(s, s->o.cut_rate);
    for (unsigned i = 0; i < h->n_fields; i++) {
        struct span name = h->fields[i].name, value = h->fields[i].value;
        if (name.n < 9 || !span_eq_nocase(span_of(name.p, 6), SPAN("x-sim-")))
            continue;
        wish_field(&w, span_of(name.p + 6, name.n - 6), value);
    }
    return w;
}

static struct sim_request *request_new(struct sim *s, struct conn *c, const struct sim_api *api)
{
    struct arena a;
    arena_init(&a, &s->loop.chunks);
    struct sim_request *r = ARENA_NEW(&a, struct sim_request);
    r->arena = a;
    r->sim = s;
    r->conn = c;
    r->api = api;
    r->id = hash_mix(s->start_wall_ms ^ s->o.seed, ++s->next_id);
    r->cut_after = r->error_after = SIM_NEVER;
    list_push(&s->live, &r->live);
    list_init(&r->dirty);
    list_init(&r->delayed);
    conn_set_user(c, r);
    return r;
}

/* The engine must not have it any more. */
static void request_free(struct sim_request *r)
{
    list_remove(&r->live);
    list_remove(&r->dirty);
    list_remove(&r->delayed);
    struct arena a = r->arena; /* r lies in it */
    arena_reset(&a);
}

static void refuse(struct sim_request *r, int status, const char *code, const char *text)
{
    struct sim *s = r->sim;
    struct conn *c = r->conn;
    bool anthropic = r->api->is_anthropic;
    request_free(r);
    send_error(s, c, anthropic, status, code, text);
}

static void inject(struct sim *s, struct conn *c, const struct sim_api *api, uint64_t status)
{
    s->counts.failed++;
    if (!s->o.error_body) {
        send_error(s, c, api->is_anthropic, (int)status, status == 429 ? "rate_limit_exceeded" : NULL,
                   "injected failure");
        return;
    }
    char extra[48] = "";
    if ((status == 429 || status == 503) && s->o.retry_after)
        snprintf(extra, sizeof extra, "Retry-After: %llu\r\n", (unsigned long long)s->o.retry_after);
    send_whole(s, c, (int)status, SIM_JSON, span_str(s->o.error_body), extra);
}

static struct sim_model_stats *stats_of(struct sim *s, struct span model)
{
    for (unsigned i = 0; i < s->n_models; i++)
        if (span_eq(span_str(s->models[i].name), model))
            return &s->models[i];
    if (s->n_models == SIM_MODELS_SEEN_MAX) /* the last one stands for the rest */
        return &s->models[SIM_MODELS_SEEN_MAX - 1];
    struct sim_model_stats *m = &s->models[s->n_models++];
    *m = (struct sim_model_stats){.name = mem_spandup(model)};
    return m;
}

static void count_done(struct sim_request *r)
{
    struct sim_model_stats *m = stats_of(r->sim, r->model);
    r->sim->counts.answered++;
    m->requests++;
    m->prompt_tokens += r->er.prompt_n;
    m->cached_tokens += r->er.cached_n;
    m->output_tokens += (uint64_t)r->er.output_n * r->n;
}

static void drop(struct sim_request *r)
{
    struct conn *c = r->conn;
    engine_abort(r->sim->engine, &r->er, net_now_us(&r->sim->loop));
    request_free(r);
    conn_set_user(c, NULL);
    conn_abort(c);
}

static void pump_whole(struct sim_request *r)
{
    struct sim *s = r->sim;
    struct conn *c = r->conn;
    if (r->er.state != ENGINE_DONE || r->head_sent)
        return;
    buf_clear(&s->out);
    r->api->whole(r, &s->out);
    if (s->out.full) {
        refuse(r, 500, NULL, "the reply is too large");
    } else if (r->cut_after != SIM_NEVER) {
        s->counts.cut++;
        r->head_sent = r->is_cut = true;
        send_half(s, c, buf_view(&s->out));
        if (conn_queued(c) == 0)
            drop(r);
    } else {
        count_done(r);
        request_free(r);
        send_whole(s, c, 200, SIM_JSON, buf_view(&s->out), NULL);
    }
}

/* Writes the next slice. False when there is nothing to do for now, or the request has ended. */
static bool pump_slice(struct sim_request *r)
{
    struct sim *s = r->sim;
    struct conn *c = r->conn;
    uint32_t to = r->ready - r->sent > SIM_SLICE ? r->sent + SIM_SLICE : r->ready;
    bool last = r->er.state == ENGINE_DONE && to == r->er.output_n, first = !r->head_sent;
    if (to == r->sent && !last)
        return false;
    buf_clear(&s->out);
    if (first)
        r->api->begin(r, &s->out);
    r->api->tokens(r, &s->out, r->sent, to);
    if (last)
        r->api->end(r, &s->out);
    r->head_sent = true;
    r->sent = to;
    bool ends = r->is_cut ? r->is_error || s->o.cut_clean : last;
    send_part(s, c, buf_view(&s->out), first, ends);
    if (r->is_cut)
        s->counts.cut++;
    if (!ends)
        return true;
    if (!r->is_cut)
        count_done(r);
    engine_abort(s->engine, &r->er, net_now_us(&s->loop));
    request_free(r);
    conn_set_user(c, NULL);
    conn_finish(c, true);
    return false;
}

static void pump(struct sim_request *r)
{
    for (;;) {
        if (r->is_cut) { /* what was written must arrive before the reset */
            if (conn_queued(r->conn) == 0)
                drop(r);
            return;
        }
        if (!r->stream) {
            pump_whole(r);
            return;
        }
        if (conn_queued(r->conn) > SIM_QUEUE_MAX || !pump_slice(r))
            return;
    }
}

void serve_flush(struct sim *s)
{
    if (s->flushing)
        return;
    s->flushing = true;
    for (struct list *node; (node = list_pop(&s->dirty));)
        pump(LIST_ITEM(node, struct sim_request, dirty));
    s->flushing = false;
}

static void on_progress(void *arg, struct engine_request *er, uint32_t new_tokens)
{
    struct sim *s = arg;
    struct sim_request *r = CONTAINER_OF(er, struct sim_request, er);
    r->ready += new_tokens;
    if (list_empty(&r->dirty))
        list_push(&s->dirty, &r->dirty);
}

struct engine_events serve_engine_events(struct sim *s)
{
    return (struct engine_events){.progress = on_progress, .arg = s, .blocks = cache_events_observer(s)};
}

static void submit(struct sim_request *r)
{
    struct sim *s = r->sim;
    if (engine_submit(s->engine, &r->er, net_now_us(&s->loop)))
        return;
    s->counts.refused++;
    refuse(r, 503, "queue_full", "too many requests are waiting");
}

static void delay(struct sim_request *r, uint64_t ms)
{
    struct sim *s = r->sim;
    r->submit_us = net_now_us(&s->loop) + ms * 1000;
    struct list *at = s->delayed.prev;
    while (at != &s->delayed && LIST_ITEM(at, struct sim_request, delayed)->submit_us > r->submit_us)
        at = at->prev;
    list_push_front(at, &r->delayed); /* behind <at> */
}

void serve_delayed(struct sim *s, uint64_t now_us)
{
    while (!list_empty(&s->delayed)) {
        struct sim_request *r = LIST_ITEM(s->delayed.next, struct sim_request, delayed);
        if (r->submit_us > now_us)
            return;
        list_remove(&r->delayed);
        submit(r);
    }
}

/* 1 .., 0 = is not among them. */
static unsigned number_of(const struct sim_names *names, struct span name)
{
    for (unsigned i = 0; i < names->n; i++)
        if (span_eq(span_str(names->v[i]), name))
            return i + 1;
    return 0;
}

/* What parts this request's blocks from others with the same tokens, and their hashes. Names given with
 * --model are aliases of one model, as vLLM's are. Without them each name is a model of its own, unless there
 * are events: those have no word for that. */
static void prepare_blocks(struct sim_request *r, const struct json_doc *d)
{
    struct sim *s = r->sim;
    struct engine_request *er = &r->er;
    uint32_t block = (uint32_t)s->o.block_size;
    uint64_t salt = 0;
    r->scope.lora_id = number_of(&s->o.loras, r->model);
    r->scope.lora = r->scope.lora_id ? r->model : SPAN_NONE;
    r->scope.salt = arena_dup(&r->arena, json_string(d, json_get(d, 0, "cache_salt"), &s->scratch));
    if (r->scope.lora.n || (!s->o.models.n && !s->publisher))
        salt = hash_bytes(r->model.p, r->model.n);
    if (r->scope.salt.n)
        salt = hash_bytes_seed(r->scope.salt.p, r->scope.salt.n, salt);
    uint64_t *hashes = arena_alloc(&r->arena, (s->tokens.n / block + 1) * sizeof *hashes);
    engine_hash_blocks(block, salt, s->tokens.v, s->tokens.n, hashes);
    er->hashes = hashes;
    er->block_ids = arena_alloc(&r->arena, engine_blocks_needed(s->engine, er) * sizeof *er->block_ids);
    if (!s->publisher)
        return; /* nobody wants to know the tokens */
    uint32_t *ids = arena_alloc(&r->arena, (s->tokens.n + 1) * sizeof *ids);
    if (s->tokens.n)
        memcpy(ids, s->tokens.v, s->tokens.n * sizeof *ids);
    er->tokens = ids;
}

/* Body to engine request. False: it was refused. */
static bool prepare(struct sim_request *r)
{
    struct sim *s = r->sim;
    struct json_doc d;
    struct json_fault fault;
    char text[160];
    arena_reset(&s->scratch);
    tokens_clear(&s->tokens);
    if (!json_parse(&s->scratch, conn_body(r->conn), NULL, &d, &fault)) {
        snprintf(text, sizeof text, "invalid JSON at byte %zu: %s", fault.at, fault.what);
        refuse(r, 400, NULL, text);
        return false;
    }
    uint32_t model = json_get(&d, 0, "model");
    r->model = arena_dup(&r->arena, json_string(&d, model, &s->scratch));
    if (!r->model.n) {
        refuse(r, 400, NULL, "model is required");
        return false;
    }
    if (s->o.models.n && !number_of(&s->o.models, r->model) && !number_of(&s->o.loras, r->model)) {
        refuse(r, 404, "model_not_found", "the model does not exist");
        return false;
    }
    r->model_json = arena_dup(&r->arena, json_raw(&d, model));
    const char *why = r->api->read(r, &d);
    struct engine_request *er = &r->er;
    if (!why && !er->no_cache && er->prompt_n + (uint64_t)er->output_n > s->o.max_model_len) {
        snprintf(text, sizeof text, "maximum context length is %llu tokens, the prompt has %zu",
                 (unsigned long long)s->o.max_model_len, s->tokens.total - er->output_n);
        refuse(r, 400, "context_length_exceeded", text);
        return false;
    }
    er->choices = r->n;
    if (!why && engine_blocks_needed(s->engine, er) > s->o.blocks)
        why = "the request does not fit into the cache";
    if (why) {
        refuse(r, 400, NULL, why);
        return false;
    }
    if (!er->no_cache)
        prepare_blocks(r, &d);
    return true;
}

void serve_request(struct sim *s, struct conn *c, const struct sim_api *api)
{
    s->counts.requests++;
    struct wish w = read_wish(s, conn_head(c));
    if (sim_is_starting(s)) {
        send_error(s, c, api->is_anthropic, 503, "starting", "the engine is starting");
        return;
    }
    if (w.fail && !w.stall) {
        inject(s, c, api, w.fail);
        return;
    }
    struct sim_request *r = request_new(s, c, api);
    r->natural_n = w.tokens < s->o.max_model_len ? (uint32_t)w.tokens : (uint32_t)s->o.max_model_len;
    r->created_s = (s->start_wall_ms + (net_now_us(&s->loop) - s->start_us) / 1000) / 1000;
    r->cut_after = w.cut;
    r->error_after = w.error;
    if (w.stall) {
        s->counts.stalled++;
        conn_drop_body(c);
        return;
    }
    if (!prepare(r))
        return;
    if (w.cut_anywhere && w.cut == SIM_NEVER)
        r->cut_after = 1 + (uint32_t)rng_below(&s->faults, (uint64_t)r->er.output_n + 1);
    conn_drop_body(c);
    if (w.delay_ms)
        delay(r, w.delay_ms);
    else
        submit(r);
}

void serve_refuse_unfit(struct sim *s)
{
    for (struct list *at = s->live.next, *next; at != &s->live; at = next) {
        struct sim_request *r = LIST_ITEM(at, struct sim_request, live);
        next = at->next;
        bool is_waiting = r->er.state == ENGINE_WAITING || !list_empty(&r->delayed);
        if (!is_waiting || engine_blocks_needed(s->engine, &r->er) <= s->o.blocks)
            continue;
        engine_abort(s->engine, &r->er, net_now_us(&s->loop));
        refuse(r, 400, NULL, "the request does not fit into the cache");
    }
}

void serve_gone(struct sim *s, struct sim_request *r)
{
    s->counts.aborted++;
    engine_abort(s->engine, &r->er, net_now_us(&s->loop));
    request_free(r);
}

void serve_drained(struct sim *s, struct sim_request *r)
{
    if (list_empty(&r->dirty))
        list_push(&s->dirty, &r->dirty);
}

void serve_drop_all(struct sim *s)
{
    while (!list_empty(&s->live))
        drop(LIST_ITEM(s->live.next, struct sim_request, live));
}
