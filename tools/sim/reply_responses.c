/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenAI Responses: one output item, a message or a function call. Nothing is stored on this side: an id
 * cannot be fetched or chained later.
 */
#include "sim.h"

static const char *read_responses(struct sim_request *r, const struct json_doc *d)
{
    struct prompt p = prompt_of(r->sim, d);
    const char *why = reply_read_common(r, d, "max_output_tokens");
    if (!why)
        why = prompt_responses(&p);
    if (!why)
        reply_plan(r, d, &(struct reply_plan_names){"stop", NULL, "parameters"}, p.wants_tool);
    r->n = 1;
    return why;
}

static bool is_cut_short(const struct sim_request *r)
{
    return strcmp(r->finish, "length") == 0;
}

static struct span all_text(struct sim_request *r)
{
    return reply_piece(r, 0, 0, r->er.output_n);
}

static void put_part(struct buf *b, struct span text)
{
    BUF_LIT(b, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\"");
    json_escape(b, text);
    BUF_LIT(b, "\"}");
}

/* The output item, empty as it begins or with its contents. */
static void put_item(struct sim_request *r, struct buf *b, bool is_done)
{
    const char *status = !is_done ? "in_progress" : is_cut_short(r) ? "incomplete" : "completed";
    BUF_LIT(b, "{\"id\":\"");
    reply_id(b, r->tool_name.n ? "fc_" : "msg_", r->id);
    BUF_LIT(b, "\",\"status\":\"");
    buf_add_str(b, status);
    if (r->tool_name.n) {
        BUF_LIT(b, "\",\"type\":\"function_call\",\"call_id\":\"");
        reply_id(b, "call_", r->id);
        BUF_LIT(b, "\",\"name\":\"");
        json_escape(b, r->tool_name);
        BUF_LIT(b, "\",\"arguments\":\"");
        if (is_done)
            json_escape(b, r->tool_args);
        BUF_LIT(b, "\"}");
        return;
    }
    BUF_LIT(b, "\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
    if (is_done)
        put_part(b, all_text(r));
    BUF_LIT(b, "]}");
}

static void put_usage(struct sim_request *r, struct buf *b)
{
    BUF_LIT(b, "{\"input_tokens\":");
    buf_add_u64(b, r->er.prompt_n);
    BUF_LIT(b, ",\"input_tokens_details\":{\"cached_tokens\":");
    buf_add_u64(b, reply_cached(r));
    BUF_LIT(b, "},\"output_tokens\":");
    buf_add_u64(b, r->er.output_n);
    BUF_LIT(b, ",\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":");
    buf_add_u64(b, (uint64_t)r->er.prompt_n + r->er.output_n);
    buf_add_char(b, '}');
}

static void put_response(struct sim_request *r, struct buf *b, bool is_done)
{
    BUF_LIT(b, "{\"id\":\"");
    reply_id(b, "resp_", r->id);
    BUF_LIT(b, "\",\"object\":\"response\",\"created_at\":");
    buf_add_u64(b, r->created_s);
    BUF_LIT(b, ",\"status\":\"");
    buf_add_str(b, !is_done ? "in_progress" : is_cut_short(r) ? "incomplete" : "completed");
    BUF_LIT(b, "\",\"error\":null,\"incomplete_details\":");
    buf_add_str(b, is_done && is_cut_short(r) ? "{\"reason\":\"max_output_tokens\"}" : "null");
    BUF_LIT(b, ",\"model\":");
    buf_add_span(b, r->model_json);
    BUF_LIT(b, ",\"output\":[");
    if (is_done)
        put_item(r, b, true);
    BUF_LIT(
        b, "],\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"tools\":[],\"metadata\":{},\"usage\":");
    if (is_done && !r->sim->o.no_usage)
        put_usage(r, b);
    else
        BUF_LIT(b, "null");
    buf_add_char(b, '}');
}

static void whole(struct sim_request *r, struct buf *b)
{
    put_response(r, b, true);
}

static bool event_begin(struct sim_request *r, struct buf *b, const char *type)
{
    uint32_t number = r->events;
    if (!reply_event(r, b, type))
        return false;
    BUF_LIT(b, "{\"type\":\"");
    buf_add_str(b, type);
    BUF_LIT(b, "\",\"sequence_number\":");
    buf_add_u64(b, number);
    return true;
}

static void event_end(struct buf *b)
{
    buf_add_char(b, '}');
    reply_event_end(b);
}

/* ,"item_id":..,"output_index":0[,"content_index":0] */
static void put_place(struct sim_request *r, struct buf *b)
{
    BUF_LIT(b, ",\"item_id\":\"");
    reply_id(b, r->tool_name.n ? "fc_" : "msg_", r->id);
    BUF_LIT(b, "\",\"output_index\":0");
    if (!r->tool_name.n)
        BUF_LIT(b, ",\"content_index\":0");
}

static void put_response_event(struct sim_request *r, struct buf *b, const char *type, bool is_done)
{
    if (!event_begin(r, b, type))
        return;
    BUF_LIT(b, ",\"response\":");
    put_response(r, b, is_done);
    event_end(b);
}

static void put_item_event(struct sim_request *r, struct buf *b, const char *type, bool is_done)
{
    if (!event_begin(r, b, type))
        return;
    BUF_LIT(b, ",\"output_index\":0,\"item\":");
    put_item(r, b, is_done);
    event_end(b);
}

static void put_part_event(struct sim_request *r, struct buf *b, const char *type, struct span text)
{
    if (!event_begin(r, b, type))
        return;
    put_place(r, b);
    BUF_LIT(b, ",\"part\":");
    put_part(b, text);
    event_end(b);
}

static void begin(struct sim_request *r, struct buf *b)
{
    put_response_event(r, b, "response.created", false);
    put_response_event(r, b, "response.in_progress", false);
    put_item_event(r, b, "response.output_item.added", false);
    if (!r->tool_name.n)
        put_part_event(r, b, "response.content_part.added", SPAN_NONE);
}

static void put_text_event(struct sim_request *r, struct buf *b, const char *type, const char *name,
                           struct span text)
{
    if (!event_begin(r, b, type))
        return;
    put_place(r, b);
    BUF_LIT(b, ",\"");
    buf_add_str(b, name);
    BUF_LIT(b, "\":\"");
    json_escape(b, text);
    buf_add_char(b, '"');
    event_end(b);
}

static void put_tokens(struct sim_request *r, struct buf *b, uint32_t from, uint32_t to)
{
    const char *type =
        r->tool_name.n ? "response.function_call_arguments.delta" : "response.output_text.delta";
    for (uint32_t t = from; t < to; t++) {
        struct span text = reply_piece(r, 0, t, t + 1);
        if (text.n)
            put_text_event(r, b, type, "delta", text);
    }
}

static void end(struct sim_request *r, struct buf *b)
{
    if (r->tool_name.n) {
        put_text_event(r, b, "response.function_call_arguments.done", "arguments", r->tool_args);
    } else {
        put_text_event(r, b, "response.output_text.done", "text", all_text(r));
        put_part_event(r, b, "response.content_part.done", all_text(r));
    }
    put_item_event(r, b, "response.output_item.done", true);
    put_response_event(r, b, is_cut_short(r) ? "response.incomplete" : "response.completed", true);
}

const struct sim_api sim_responses = {false, read_responses, whole, begin, put_tokens, end};
