/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenAI chat and legacy completions, whole and as streams, with vLLM's additions.
 */
#include "sim.h"

static const char *read_chat(struct sim_request *r, const struct json_doc *d)
{
    struct prompt p = prompt_of(r->sim, d);
    bool newer = json_get(d, 0, "max_completion_tokens") != JSON_NODE_NONE;
    const char *why = reply_read_common(r, d, newer ? "max_completion_tokens" : "max_tokens");
    if (!why)
        why = prompt_chat(&p);
    if (!why)
        reply_plan(r, d, &(struct reply_plan_names){"stop", "function", "parameters"}, p.wants_tool);
    return why;
}

/* Several prompts have a choice each (times n). */
static const char *read_completions(struct sim_request *r, const struct json_doc *d)
{
    struct prompt p = prompt_of(r->sim, d);
    const char *why = reply_read_common(r, d, "max_tokens");
    if (!why)
        why = prompt_completions(&p);
    if (why)
        return why;
    uint32_t prompt = json_get(d, 0, "prompt");
    if (json_is(d, prompt, JSON_ARRAY) && !json_is(d, json_first(d, prompt), JSON_NUMBER)) {
        if ((uint64_t)r->n * d->node[prompt].count > SIM_CHOICES_MAX)
            return "too many prompts";
        r->n *= d->node[prompt].count;
    }
    reply_plan(r, d, &(struct reply_plan_names){"stop", NULL, NULL}, false);
    return NULL;
}

static bool is_chat(const struct sim_request *r)
{
    return r->api == &sim_chat;
}

static void put_usage(struct sim_request *r, struct buf *b, uint32_t completion)
{
    uint64_t out = (uint64_t)completion * r->n;
    BUF_LIT(b, "{\"prompt_tokens\":");
    buf_add_u64(b, r->er.prompt_n);
    BUF_LIT(b, ",\"total_tokens\":");
    buf_add_u64(b, r->er.prompt_n + out);
    BUF_LIT(b, ",\"completion_tokens\":");
    buf_add_u64(b, out);
    BUF_LIT(b, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    buf_add_u64(b, reply_cached(r));
    BUF_LIT(b, "}}");
}

/* {"id":..,"object":..,"created":..,"model":..,"system_fingerprint":..,"choices":[ */
static void put_prefix(struct sim_request *r, struct buf *b, const char *object)
{
    BUF_LIT(b, "{\"id\":\"");
    reply_id(b, is_chat(r) ? "chatcmpl-" : "cmpl-", r->id);
    BUF_LIT(b, "\",\"object\":\"");
    buf_add_str(b, object);
    BUF_LIT(b, "\",\"created\":");
    buf_add_u64(b, r->created_s);
    BUF_LIT(b, ",\"model\":");
    buf_add_span(b, r->model_json);
    BUF_LIT(b, ",\"system_fingerprint\":\"sim-");
    json_escape(b, span_str(r->sim->o.name));
    BUF_LIT(b, "\",\"choices\":[");
}

static void put_call_id(struct sim_request *r, struct buf *b, uint32_t choice)
{
    reply_id(b, "call_", r->id + choice * 0x9e3779b97f4a7c15u);
}

static void put_message(struct sim_request *r, struct buf *b, uint32_t choice)
{
    struct span text = reply_piece(r, choice, 0, r->er.output_n);
    BUF_LIT(b, "{\"role\":\"assistant\",\"content\":");
    if (!r->tool_name.n) {
        buf_add_char(b, '"');
        json_escape(b, text);
        BUF_LIT(b, "\",\"refusal\":null,\"annotations\":[]}");
        return;
    }
    BUF_LIT(b, "null,\"refusal\":null,\"annotations\":[],\"tool_calls\":[{\"id\":\"");
    put_call_id(r, b, choice);
    BUF_LIT(b, "\",\"type\":\"function\",\"function\":{\"name\":\"");
    json_escape(b, r->tool_name);
    BUF_LIT(b, "\",\"arguments\":\"");
    json_escape(b, text);
    BUF_LIT(b, "\"}}]}");
}

static void whole(struct sim_request *r, struct buf *b)
{
    put_prefix(r, b, is_chat(r) ? "chat.completion" : "text_completion");
    for (uint32_t i = 0; i < r->n; i++) {
        if (i)
            buf_add_char(b, ',');
        BUF_LIT(b, "{\"index\":");
        buf_add_u64(b, i);
        if (is_chat(r)) {
            BUF_LIT(b, ",\"message\":");
            put_message(r, b, i);
        } else {
            BUF_LIT(b, ",\"text\":\"");
            json_escape(b, reply_piece(r, i, 0, r->er.output_n));
            buf_add_char(b, '"');
        }
        BUF_LIT(b, ",\"logprobs\":null,\"finish_reason\":\"");
        buf_add_str(b, r->finish);
        BUF_LIT(b, "\"}");
    }
    buf_add_char(b, ']');
    if (!r->sim->o.no_usage) {
        BUF_LIT(b, ",\"usage\":");
        put_usage(r, b, r->er.output_n);
    }
    buf_add_char(b, '}');
}

/* One chunk: {prefix}{"index":I,<middle><text, escaped><close>,"logprobs":null,"finish_reason":F}]} */
struct chunk {
    uint32_t choice;
    const char *middle, *close;
    struct span text;
    const char *finish;
    uint32_t completion; /* tokens so far, for usage */
};

static void put_chunk(struct sim_request *r, struct buf *b, const struct chunk *c)
{
    if (!reply_event(r, b, NULL))
        return;
    buf_add_span(b, r->prefix);
    BUF_LIT(b, "{\"index\":");
    buf_add_u64(b, c->choice);
    buf_add_str(b, c->middle);
    json_escape(b, c->text);
    buf_add_str(b, c->close);
    BUF_LIT(b, ",\"logprobs\":null,\"finish_reason\":");
    if (c->finish) {
        buf_add_char(b, '"');
        buf_add_str(b, c->finish);
        BUF_LIT(b, "\"}]");
    } else {
        BUF_LIT(b, "null}]");
    }
    if (r->chunk_usage) {
        BUF_LIT(b, ",\"usage\":");
        put_usage(r, b, c->completion);
    } else if (r->include_usage) {
        BUF_LIT(b, ",\"usage\":null");
    }
    buf_add_char(b, '}');
    reply_event_end(b);
}

static void put_call_chunk(struct sim_request *r, struct buf *b, uint32_t choice)
{
    if (!reply_event(r, b, NULL))
        return;
    buf_add_span(b, r->prefix);
    BUF_LIT(b, "{\"index\":");
    buf_add_u64(b, choice);
    BUF_LIT(b, ",\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"");
    put_call_id(r, b, choice);
    BUF_LIT(b, "\",\"type\":\"function\",\"function\":{\"name\":\"");
    json_escape(b, r->tool_name);
    BUF_LIT(b, "\",\"arguments\":\"\"}}]},\"logprobs\":null,\"finish_reason\":null}]");
    if (r->include_usage)
        BUF_LIT(b, ",\"usage\":null");
    buf_add_char(b, '}');
    reply_event_end(b);
}

static void begin(struct sim_request *r, struct buf *b)
{
    struct buf *piece = &r->sim->piece;
    buf_clear(piece);
    put_prefix(r, piece, is_chat(r) ? "chat.completion.chunk" : "text_completion");
    r->prefix = arena_dup(&r->arena, buf_view(piece));
    if (!is_chat(r))
        return;
    for (uint32_t i = 0; i < r->n; i++) {
        put_chunk(r, b,
                  &(struct chunk){.choice = i,
                                  .middle = ",\"delta\":{\"role\":\"assistant\",\"content\":\"",
                                  .close = "\",\"refusal\":null}"});
        if (r->tool_name.n)
            put_call_chunk(r, b, i);
    }
}

static void put_tokens(struct sim_request *r, struct buf *b, uint32_t from, uint32_t to)
{
    const char *middle = r->tool_name.n
                             ? ",\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\""
                         : is_chat(r) ? ",\"delta\":{\"content\":\""
                                      : ",\"text\":\"";
    const char *close = r->tool_name.n ? "\"}}]}" : is_chat(r) ? "\"}" : "\"";
    for (uint32_t t = from; t < to; t++) {
        for (uint32_t i = 0; i < r->n; i++) {
            struct span text = reply_piece(r, i, t, t + 1);
            if (text.n)
                put_chunk(r, b, &(struct chunk){i, middle, close, text, NULL, t + 1});
        }
    }
}

static void end(struct sim_request *r, struct buf *b)
{
    for (uint32_t i = 0; i < r->n; i++)
        put_chunk(r, b,
                  &(struct chunk){.choice = i,
                                  .middle = is_chat(r) ? ",\"delta\":{" : ",\"text\":\"",
                                  .close = is_chat(r) ? "}" : "\"",
                                  .finish = r->finish,
                                  .completion = r->er.output_n});
    if (r->include_usage && reply_event(r, b, NULL)) {
        buf_add_span(b, r->prefix);
        BUF_LIT(b, "],\"usage\":");
        put_usage(r, b, r->er.output_n);
        buf_add_char(b, '}');
        reply_event_end(b);
    }
    if (!r->sim->o.no_done && reply_event(r, b, NULL)) {
        BUF_LIT(b, "[DONE]");
        reply_event_end(b);
    }
}

const struct sim_api sim_chat = {false, read_chat, whole, begin, put_tokens, end};
const struct sim_api sim_completions = {false, read_completions, whole, begin, put_tokens, end};
