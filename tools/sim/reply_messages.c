/* SPDX-License-Identifier: Apache-2.0
 *
 * Anthropic Messages. input_tokens leaves out what was read from or written to the cache.
 */
#include "sim.h"

static const char *read_messages(struct sim_request *r, const struct json_doc *d)
{
    struct prompt p = prompt_of(r->sim, d);
    if (json_get(d, 0, "max_tokens") == JSON_NODE_NONE)
        return "max_tokens: Field required";
    const char *why = reply_read_common(r, d, "max_tokens");
    if (!why)
        why = prompt_messages(&p);
    if (!why)
        reply_plan(r, d, &(struct reply_plan_names){"stop_sequences", NULL, "input_schema"}, p.wants_tool);
    r->n = 1;
    return why;
}

static void put_usage(struct sim_request *r, struct buf *b, uint64_t output)
{
    BUF_LIT(b, "{\"input_tokens\":");
    buf_add_u64(b, r->er.prompt_n - reply_cached(r));
    BUF_LIT(b, ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":");
    buf_add_u64(b, reply_cached(r));
    BUF_LIT(b, ",\"output_tokens\":");
    buf_add_u64(b, output);
    BUF_LIT(b, ",\"service_tier\":\"standard\"}");
}

static void put_stop(struct sim_request *r, struct buf *b)
{
    const char *reason = r->tool_name.n                     ? "tool_use"
                         : r->stop_sequence.n               ? "stop_sequence"
                         : strcmp(r->finish, "length") == 0 ? "max_tokens"
                                                            : "end_turn";
    BUF_LIT(b, "\"stop_reason\":\"");
    buf_add_str(b, reason);
    BUF_LIT(b, "\",\"stop_sequence\":");
    struct json_out o;
    json_out_init(&o, b);
    if (r->stop_sequence.n)
        json_out_string(&o, r->stop_sequence);
    else
        json_out_null(&o);
}

/* {"id":..,"type":"message","role":"assistant","model":..,"content": */
static void put_head(struct sim_request *r, struct buf *b)
{
    BUF_LIT(b, "{\"id\":\"");
    reply_id(b, "msg_", r->id);
    BUF_LIT(b, "\",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    buf_add_span(b, r->model_json);
    BUF_LIT(b, ",\"content\":[");
}

static void put_tool_head(struct sim_request *r, struct buf *b)
{
    BUF_LIT(b, "{\"type\":\"tool_use\",\"id\":\"");
    reply_id(b, "toolu_", r->id);
    BUF_LIT(b, "\",\"name\":\"");
    json_escape(b, r->tool_name);
    BUF_LIT(b, "\",\"input\":");
}

static void whole(struct sim_request *r, struct buf *b)
{
    put_head(r, b);
    if (r->tool_name.n) {
        put_tool_head(r, b);
        buf_add_span(b, r->tool_args);
        buf_add_char(b, '}');
    } else {
        BUF_LIT(b, "{\"type\":\"text\",\"text\":\"");
        json_escape(b, reply_piece(r, 0, 0, r->er.output_n));
        BUF_LIT(b, "\"}");
    }
    BUF_LIT(b, "],");
    put_stop(r, b);
    if (!r->sim->o.no_usage) {
        BUF_LIT(b, ",\"usage\":");
        put_usage(r, b, r->er.output_n);
    }
    buf_add_char(b, '}');
}

static void begin(struct sim_request *r, struct buf *b)
{
    if (!reply_event(r, b, "message_start"))
        return;
    BUF_LIT(b, "{\"type\":\"message_start\",\"message\":");
    put_head(r, b);
    BUF_LIT(b, "],\"stop_reason\":null,\"stop_sequence\":null");
    if (!r->sim->o.no_usage) {
        BUF_LIT(b, ",\"usage\":");
        put_usage(r, b, 0);
    }
    BUF_LIT(b, "}}");
    reply_event_end(b);
    if (!reply_event(r, b, "content_block_start"))
        return;
    BUF_LIT(b, "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":");
    if (r->tool_name.n) {
        put_tool_head(r, b);
        BUF_LIT(b, "{}}");
    } else {
        BUF_LIT(b, "{\"type\":\"text\",\"text\":\"\"}");
    }
    buf_add_char(b, '}');
    reply_event_end(b);
    if (!reply_event(r, b, "ping"))
        return;
    BUF_LIT(b, "{\"type\":\"ping\"}");
    reply_event_end(b);
}

static void put_tokens(struct sim_request *r, struct buf *b, uint32_t from, uint32_t to)
{
    for (uint32_t t = from; t < to; t++) {
        struct span text = reply_piece(r, 0, t, t + 1);
        if (!text.n)
            continue;
        if (!reply_event(r, b, "content_block_delta"))
            return;
        BUF_LIT(b, "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":");
        if (r->tool_name.n)
            BUF_LIT(b, "\"input_json_delta\",\"partial_json\":\"");
        else
            BUF_LIT(b, "\"text_delta\",\"text\":\"");
        json_escape(b, text);
        BUF_LIT(b, "\"}}");
        reply_event_end(b);
    }
}

static void end(struct sim_request *r, struct buf *b)
{
    if (!reply_event(r, b, "content_block_stop"))
        return;
    BUF_LIT(b, "{\"type\":\"content_block_stop\",\"index\":0}");
    reply_event_end(b);
    if (!reply_event(r, b, "message_delta"))
        return;
    BUF_LIT(b, "{\"type\":\"message_delta\",\"delta\":{");
    put_stop(r, b);
    buf_add_char(b, '}');
    if (!r->sim->o.no_usage) {
        BUF_LIT(b, ",\"usage\":{\"output_tokens\":");
        buf_add_u64(b, r->er.output_n);
        buf_add_char(b, '}');
    }
    buf_add_char(b, '}');
    reply_event_end(b);
    if (!reply_event(r, b, "message_stop"))
        return;
    BUF_LIT(b, "{\"type\":\"message_stop\"}");
    reply_event_end(b);
}

const struct sim_api sim_messages = {true, read_messages, whole, begin, put_tokens, end};
