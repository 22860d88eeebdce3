/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum { RECORD_BODY_MAX = 65536 };

static void page_json(struct sim *s, struct conn *c)
{
    send_whole(s, c, 200, SIM_JSON, buf_view(&s->out), NULL);
}

static void page_done(struct sim *s, struct conn *c)
{
    send_whole(s, c, 200, SIM_JSON, SPAN("{\"ok\":true}"), NULL);
}

/* Parses the body into the scratch arena. False: it was answered. */
static bool page_body(struct sim *s, struct conn *c, bool anthropic, struct json_doc *ret)
{
    struct json_fault fault;
    arena_reset(&s->scratch);
    if (json_parse(&s->scratch, conn_body(c), NULL, ret, &fault))
        return true;
    char text[160];
    snprintf(text, sizeof text, "invalid JSON at byte %zu: %s", fault.at, fault.what);
    send_error(s, c, anthropic, 400, NULL, text);
    return false;
}

void page_health(struct sim *s, struct conn *c)
{
    send_whole(s, c, sim_is_starting(s) ? 503 : (int)s->o.health_status, SIM_TEXT, SPAN_NONE, NULL);
}

static void put_model(struct sim *s, struct json_out *o, const char *name, const char *parent)
{
    json_out_object(o);
    json_out_member_str(o, "id", name);
    json_out_member_str(o, "object", "model");
    json_out_member_u64(o, "created", s->start_wall_ms / 1000);
    json_out_member_str(o, "owned_by", "vllm");
    json_out_member_str(o, "root", name);
    json_out_member_str(o, "parent", parent);
    json_out_member_u64(o, "max_model_len", s->o.max_model_len);
    json_out_object_end(o);
}

void page_models(struct sim *s, struct conn *c)
{
    struct json_out o;
    buf_clear(&s->out);
    json_out_init(&o, &s->out);
    json_out_object(&o);
    json_out_member_str(&o, "object", "list");
    json_out_name(&o, "data");
    json_out_array(&o);
    for (unsigned i = 0; i < s->o.models.n; i++)
        put_model(s, &o, s->o.models.v[i], NULL);
    if (!s->o.models.n)
        put_model(s, &o, s->o.name, NULL);
    for (unsigned i = 0; i < s->o.loras.n; i++)
        put_model(s, &o, s->o.loras.v[i], s->o.models.n ? s->o.models.v[0] : s->o.name);
    json_out_array_end(&o);
    json_out_object_end(&o);
    page_json(s, c);
}

/* One family with one series. vLLM labels with the first served name and the engine's rank. */
static void put_metric(struct sim *s, const char *name, const char *type, const char *help, double value)
{
    struct buf *b = &s->out;
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n%s{engine=\"0\",model_name=\"", name, help, name, type, name);
    for (const char *p = s->o.models.n ? s->o.models.v[0] : s->o.name; *p; p++) {
        if (*p == '"' || *p == '\\')
            buf_add_char(b, '\\');
        buf_add_char(b, *p == '\n' ? ' ' : *p);
    }
    buf_printf(b, "\"} %.15g\n", value);
}

/* What a cache that stands beside the engine would say: how full it is. */
static void put_occupancy(struct sim *s)
{
    const struct blocks *b = engine_blocks(s->engine);
    if (s->o.lmcache_occupancy)
        buf_add_str(&s->out, s->o.lmcache_occupancy);
    else
        buf_printf(&s->out, "%.15g", (double)blocks_resident(b) / blocks_total(b));
}

void page_metrics(struct sim *s, struct conn *c)
{
    const struct engine_totals *t = engine_totals(s->engine);
    struct blocks *blocks = engine_blocks(s->engine);
    double usage = (double)blocks_pinned(blocks) / blocks_total(blocks);
    buf_clear(&s->out);
    put_metric(s, "vllm:num_requests_running", "gauge", "Requests in prefill or decode.",
               engine_running(s->engine));
    put_metric(s, "vllm:num_requests_waiting", "gauge", "Requests that wait.", engine_waiting(s->engine));
    put_metric(s, "vllm:kv_cache_usage_perc", "gauge", "Share of blocks that running requests hold.", usage);
    put_metric(s, "vllm:gpu_cache_usage_perc", "gauge", "The same under its old name.", usage);
    put_metric(s, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for.",
               (double)t->prompt_tokens);
    put_metric(s, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.",
               (double)t->cached_tokens);
    put_metric(s, "vllm:prompt_tokens_total", "counter", "Prompt tokens.", (double)t->prompt_tokens);
    put_metric(s, "vllm:prompt_tokens_cached_total", "counter", "Prompt tokens not computed.",
               (double)t->cached_tokens);
    put_metric(s, "vllm:generation_tokens_total", "counter", "Generated tokens.", (double)t->output_tokens);
    put_metric(s, "vllm:num_preemptions_total", "counter", "Preempted requests: none, blocks are reserved.",
               0);
    buf_printf(
        &s->out,
        "# HELP vllm:request_success_total Finished requests.\n# TYPE vllm:request_success_total counter\n"
        "vllm:request_success_total{engine=\"0\"} %llu\n",
        (unsigned long long)t->finished);
    buf_printf(&s->out,
               "# HELP vllm:cache_config_info Cache settings.\n# TYPE vllm:cache_config_info gauge\n"
               "vllm:cache_config_info{block_size=\"%llu\",engine=\"0\",num_gpu_blocks=\"%llu\"} 1\n",
               (unsigned long long)s->o.block_size,
               (unsigned long long)(s->o.told_blocks ? s->o.told_blocks : s->o.blocks));
    BUF_LIT(
        &s->out,
        "# HELP lmcache_mp_l1_usage_ratio How full the cache is.\n# TYPE lmcache_mp_l1_usage_ratio gauge\n"
        "lmcache_mp_l1_usage_ratio ");
    put_occupancy(s);
    buf_add_char(&s->out, '\n');
    buf_printf(
        &s->out,
        "# HELP process_start_time_seconds Start of the engine.\n# TYPE process_start_time_seconds gauge\n"
        "process_start_time_seconds %.3f\n",
        (double)s->start_wall_ms / 1000);
    send_whole(s, c, 200, SIM_TEXT, buf_view(&s->out), NULL);
}

void page_tokenize(struct sim *s, struct conn *c)
{
    struct json_doc d;
    if (!page_body(s, c, false, &d))
        return;
    struct prompt p = prompt_of(s, &d);
    tokens_clear(&s->tokens);
    const char *why = NULL;
    if (json_get(&d, 0, "messages") != JSON_NODE_NONE)
        why = prompt_chat(&p);
    else if (json_is(&d, json_get(&d, 0, "prompt"), JSON_STRING))
        prompt_text(&p, json_get(&d, 0, "prompt"));
    else
        why = "prompt or messages is required";
    if (why) {
        send_error(s, c, false, 400, NULL, why);
        return;
    }
    buf_clear(&s->out);
    buf_printf(&s->out, "{\"count\":%zu,\"max_model_len\":%llu,\"tokens\":[", s->tokens.n,
               (unsigned long long)s->o.max_model_len);
    for (size_t i = 0; i < s->tokens.n; i++) {
        if (i)
            buf_add_char(&s->out, ',');
        buf_add_u64(&s->out, s->tokens.v[i]);
    }
    BUF_LIT(&s->out, "],\"token_strs\":null}");
    page_json(s, c);
}

void page_count_tokens(struct sim *s, struct conn *c)
{
    struct json_doc d;
    if (!page_body(s, c, true, &d))
        return;
    struct prompt p = prompt_of(s, &d);
    tokens_clear(&s->tokens);
    const char *why = prompt_messages(&p);
    if (why) {
        send_error(s, c, true, 400, NULL, why);
        return;
    }
    buf_clear(&s->out);
    buf_printf(&s->out, "{\"input_tokens\":%zu}", s->tokens.total);
    page_json(s, c);
}

void page_faults(struct sim *s, struct conn *c)
{
    struct json_doc d;
    char why[256];
    if (!page_body(s, c, false, &d))
        return;
    if (!sim_options_set_faults(&s->o, &d, &s->scratch, why)) {
        send_error(s, c, false, 400, NULL, why);
        return;
    }
    if (s->o.blocks != blocks_total(engine_blocks(s->engine))) {
        engine_resize(s->engine, (uint32_t)s->o.blocks, net_now_us(&s->loop));
        serve_refuse_unfit(s);
    }
    page_done(s, c);
}

void page_restart(struct sim *s, struct conn *c)
{
    sim_restart(s);
    page_done(s, c);
}

void page_silent_restart(struct sim *s, struct conn *c)
{
    s->events_muted = true;
    blocks_clear(engine_blocks(s->engine));
    s->events_muted = false;
    page_done(s, c);
}

void page_restart_events(struct sim *s, struct conn *c)
{
    cache_events_renumber(s);
    page_done(s, c);
}

void page_lmcache(struct sim *s, struct conn *c)
{
    if (s->o.lmcache_stall)
        return; /* the connection stays open */
    buf_clear(&s->out);
    if (s->o.lmcache_body) {
        buf_add_str(&s->out, s->o.lmcache_body);
    } else {
        BUF_LIT(&s->out, "{\"occupancy\":");
        put_occupancy(s);
        BUF_LIT(&s->out, ",\"cache_available\":true}");
    }
    send_whole(s, c, (int)s->o.lmcache_status, SIM_JSON, buf_view(&s->out), NULL);
}

void page_reset_cache(struct sim *s, struct conn *c)
{
    blocks_clear(engine_blocks(s->engine));
    send_whole(s, c, 200, SIM_TEXT, SPAN_NONE, NULL);
}

static void put_models(struct sim *s, struct json_out *o)
{
    json_out_name(o, "models");
    json_out_object(o);
    for (unsigned i = 0; i < s->n_models; i++) {
        const struct sim_model_stats *m = &s->models[i];
        json_out_name(o, m->name);
        json_out_object(o);
        json_out_member_u64(o, "requests", m->requests);
        json_out_member_u64(o, "prompt_tokens", m->prompt_tokens);
        json_out_member_u64(o, "cached_tokens", m->cached_tokens);
        json_out_member_u64(o, "completion_tokens", m->output_tokens);
        json_out_object_end(o);
    }
    json_out_object_end(o);
}

static void put_events(struct sim *s, struct json_out *o)
{
    if (!s->publisher)
        return;
    const struct publisher_counts *n = publisher_counts(s->publisher);
    json_out_name(o, "events");
    json_out_object(o);
    json_out_member_str(o, "endpoint", publisher_endpoint(s->publisher));
    json_out_member_str(o, "replay_endpoint", publisher_replay_endpoint(s->publisher));
    json_out_member_u64(o, "subscriptions", n->subscriptions);
    json_out_member_u64(o, "batches", n->batches);
    json_out_member_u64(o, "events", s->batch.total);
    json_out_member_u64(o, "dropped", n->dropped);
    json_out_member_u64(o, "malformed", n->malformed);
    json_out_member_u64(o, "duplicated", n->duplicated);
    json_out_member_u64(o, "replays", n->replays);
    json_out_member_u64(o, "replayed", n->replayed);
    json_out_object_end(o);
}

void page_stats(struct sim *s, struct conn *c)
{
    const struct engine_totals *t = engine_totals(s->engine);
    struct blocks *blocks = engine_blocks(s->engine);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"requests", s->counts.requests},
        {"answered", s->counts.answered},
        {"aborted", s->counts.aborted},
        {"failed", s->counts.failed},
        {"stalled", s->counts.stalled},
        {"cut", s->counts.cut},
        {"refused", s->counts.refused},
        {"running", engine_running(s->engine)},
        {"waiting", engine_waiting(s->engine)},
        {"in_flight", server_requests_in_flight(s->server)},
        {"connections", server_connections(s->server)},
        {"prompt_tokens", t->prompt_tokens},
        {"cached_tokens", t->cached_tokens},
        {"completion_tokens", t->output_tokens},
        {"block_size", s->o.block_size},
        {"blocks", blocks_total(blocks)},
        {"blocks_resident", blocks_resident(blocks)},
        {"blocks_pinned", blocks_pinned(blocks)},
        {"start_time_ms", s->start_wall_ms},
    };
    struct json_out o;
    buf_clear(&s->out);
    json_out_init(&o, &s->out);
    json_out_object(&o);
    json_out_member_str(&o, "name", s->o.name);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        json_out_member_u64(&o, numbers[i].name, numbers[i].value);
    put_models(s, &o);
    put_events(s, &o);
    json_out_object_end(&o);
    page_json(s, c);
}

void page_record(struct sim *s, struct conn *c)
{
    const struct http_head *h = conn_head(c);
    struct span body = conn_body(c);
    struct json_out o;
    buf_clear(&s->out);
    json_out_init(&o, &s->out);
    json_out_object(&o);
    json_out_member_span(&o, "method", h->method);
    json_out_member_span(&o, "target", h->target);
    json_out_name(&o, "headers");
    json_out_array(&o);
    for (unsigned i = 0; i < h->n_fields; i++) {
        json_out_array(&o);
        json_out_string(&o, h->fields[i].name);
        json_out_string(&o, h->fields[i].value);
        json_out_array_end(&o);
    }
    json_out_array_end(&o);
    json_out_member_u64(&o, "body_bytes", body.n);
    json_out_member_span(&o, "body", span_of(body.p, body.n < RECORD_BODY_MAX ? body.n : RECORD_BODY_MAX));
    json_out_object_end(&o);
    char **at = &s->recorded[s->n_recorded++ % s->o.record];
    free(*at);
    *at = mem_spandup(buf_view(&s->out));
}

/* Oldest first. */
void page_requests(struct sim *s, struct conn *c)
{
    uint64_t n = s->n_recorded < s->o.record ? s->n_recorded : s->o.record;
    buf_clear(&s->out);
    BUF_LIT(&s->out, "{\"requests\":[");
    for (uint64_t i = s->n_recorded - n; i < s->n_recorded; i++) {
        buf_add_str(&s->out, s->recorded[i % s->o.record]);
        if (i + 1 < s->n_recorded)
            buf_add_char(&s->out, ',');
    }
    BUF_LIT(&s->out, "]}");
    page_json(s, c);
}
