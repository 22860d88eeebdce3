/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include "base/fmt.h"
#include "base/hash.h"
#include "text.h"

enum { SCHEMA_DEPTH_MAX = 8 };

static bool is_true(const struct json_doc *d, const char *name)
{
    return json_is(d, json_get(d, 0, name), JSON_TRUE);
}

const char *reply_read_common(struct sim_request *r, const struct json_doc *d, const char *max_name)
{
    uint32_t max = json_get(d, 0, max_name), n = json_get(d, 0, "n"),
             options = json_get(d, 0, "stream_options");
    uint64_t choices = 1;
    if (max != JSON_NODE_NONE && !json_is(d, max, JSON_NULL) &&
        (!json_u64(d, max, &r->max_tokens) || !r->max_tokens))
        return "the maximum of tokens must be a positive integer";
    if (n != JSON_NODE_NONE && !json_is(d, n, JSON_NULL) &&
        (!json_u64(d, n, &choices) || choices < 1 || choices > SIM_CHOICES_MAX))
        return "n must be between 1 and 128";
    r->n = (uint32_t)choices;
    r->stream = is_true(d, "stream");
    r->ignore_eos = is_true(d, "ignore_eos");
    r->include_usage = json_is(d, json_get(d, options, "include_usage"), JSON_TRUE);
    r->chunk_usage =
        json_is(d, json_get(d, options, "continuous_usage_stats"), JSON_TRUE) || r->sim->o.chunk_usage;
    if (r->sim->o.no_usage)
        r->include_usage = r->chunk_usage = false;
    return NULL;
}

struct choice {
    bool must, never;
    uint32_t name;
};

/* "required", "none", {"type": "tool", "name"}, {"type": "function", "function": {"name"}}... */
static struct choice read_tool_choice(const struct json_doc *d)
{
    uint32_t c = json_get(d, 0, "tool_choice"),
             word = json_is(d, c, JSON_OBJECT) ? json_get(d, c, "type") : c;
    struct choice ret = {.name = JSON_NODE_NONE};
    ret.never = json_string_eq(d, word, SPAN("none"));
    ret.must = json_string_eq(d, word, SPAN("required")) || json_string_eq(d, word, SPAN("any"));
    if (json_is(d, c, JSON_OBJECT) &&
        (json_string_eq(d, word, SPAN("tool")) || json_string_eq(d, word, SPAN("function")))) {
        ret.must = true;
        ret.name = json_get(d, c, "name");
        if (ret.name == JSON_NODE_NONE)
            ret.name = json_get(d, json_get(d, c, "function"), "name");
    }
    return ret;
}

static uint32_t find_tool(struct sim_request *r, const struct json_doc *d, const char *wrap, uint32_t name)
{
    struct span wanted = name == JSON_NODE_NONE ? SPAN_NONE : json_string(d, name, &r->sim->scratch);
    uint32_t tools = json_get(d, 0, "tools");
    if (!json_is(d, tools, JSON_ARRAY))
        return JSON_NODE_NONE;
    for (uint32_t i = json_first(d, tools); i != JSON_NODE_NONE; i = json_next(d, tools, i)) {
        uint32_t t = wrap ? json_get(d, i, wrap) : i, its = json_get(d, t, "name");
        if (json_is(d, its, JSON_STRING) && (!wanted.n || json_string_eq(d, its, wanted)))
            return t;
    }
    return JSON_NODE_NONE;
}

static void put_value(struct json_out *o, const struct json_doc *d, uint32_t schema, int depth)
{
    uint32_t type = json_get(d, schema, "type"), values = json_get(d, schema, "enum");
    uint32_t fixed = json_get(d, schema, "const"), properties = json_get(d, schema, "properties");
    if (json_is(d, values, JSON_ARRAY) && d->node[values].count)
        fixed = json_first(d, values);
    if (fixed != JSON_NODE_NONE) {
        json_out_raw(o, json_raw(d, fixed));
    } else if (json_is(d, properties, JSON_OBJECT) && depth < SCHEMA_DEPTH_MAX) {
        json_out_object(o);
        for (uint32_t i = json_first(d, properties); i != JSON_NODE_NONE; i = json_next(d, properties, i)) {
            struct span name = json_raw(d, i); /* stays escaped */
            if (o->comma)
                buf_add_char(o->b, ',');
            buf_add_span(o->b, name);
            buf_add_char(o->b, ':');
            o->comma = false;
            put_value(o, d, i + 1, depth + 1);
        }
        json_out_object_end(o);
    } else if (json_string_eq(d, type, SPAN("integer")) || json_string_eq(d, type, SPAN("number"))) {
        json_out_u64(o, 7);
    } else if (json_string_eq(d, type, SPAN("boolean"))) {
        json_out_bool(o, true);
    } else if (json_string_eq(d, type, SPAN("array"))) {
        json_out_raw(o, SPAN("[]"));
    } else if (json_string_eq(d, type, SPAN("string"))) {
        json_out_str(o, "Paris");
    } else if (json_string_eq(d, type, SPAN("null"))) {
        json_out_null(o);
    } else {
        json_out_raw(o, SPAN("{}"));
    }
}

static void plan_call(struct sim_request *r, const struct json_doc *d, uint32_t tool, const char *schema)
{
    struct sim *s = r->sim;
    struct json_out o;
    buf_clear(&s->piece);
    json_out_init(&o, &s->piece);
    put_value(&o, d, json_get(d, tool, schema), 0);
    r->tool_args = arena_dup(&r->arena, buf_view(&s->piece));
    r->tool_name = arena_dup(&r->arena, json_string(d, json_get(d, tool, "name"), &s->scratch));
    r->finish = "tool_calls";
    r->tool_head = 1 + (uint32_t)tokens_count(r->tool_name.n);
    r->natural_n = r->tool_head + (uint32_t)tokens_count(r->tool_args.n);
    tokens_mark(&s->tokens, TOKEN_CALL);
    tokens_text(&s->tokens, r->tool_name.p, r->tool_name.n);
    tokens_end(&s->tokens);
    tokens_text(&s->tokens, r->tool_args.p, r->tool_args.n);
    tokens_end(&s->tokens);
    r->er.output_n = r->natural_n;
}

static void try_stop(struct sim_request *r, const struct json_doc *d, uint32_t stop)
{
    struct span s = json_string(d, stop, &r->sim->scratch);
    ptrdiff_t at = s.n ? span_find(span_of(r->sim->piece.p, r->text_n), s) : -1;
    if (at < 0)
        return;
    r->text_n = (size_t)at;
    r->finish = "stop";
    r->stop_sequence = arena_dup(&r->arena, s);
}

static void plan_text(struct sim_request *r, const struct json_doc *d, const char *stop_name)
{
    struct sim *s = r->sim;
    uint64_t room = s->o.max_model_len > s->tokens.n ? s->o.max_model_len - s->tokens.n : 1;
    uint64_t n = r->ignore_eos && r->max_tokens ? UINT64_MAX : r->natural_n;
    uint64_t most = r->max_tokens && r->max_tokens < room ? r->max_tokens : room;
    r->finish = n <= most ? "stop" : "length";
    if (n > most)
        n = most;
    r->text_n = n * TOKEN_BYTES;
    buf_clear(&s->piece);
    CHECK(buf_reserve(&s->piece, r->text_n + 1));
    text_write(s->piece.p, r->seed, 0, n);
    uint32_t stop = json_get(d, 0, stop_name);
    if (json_is(d, stop, JSON_STRING))
        try_stop(r, d, stop);
    else if (json_is(d, stop, JSON_ARRAY))
        for (uint32_t i = json_first(d, stop); i != JSON_NODE_NONE; i = json_next(d, stop, i))
            try_stop(r, d, i);
    if (r->stop_sequence.p) /* the tokens that make the stop sequence complete were made, too */
        n = tokens_count(r->text_n + r->stop_sequence.n);
    r->er.output_n = (uint32_t)n;
    tokens_text(&s->tokens, s->piece.p, n * TOKEN_BYTES);
    tokens_end(&s->tokens);
}

void reply_plan(struct sim_request *r, const struct json_doc *d, const struct reply_plan_names *names,
                bool wants_tool)
{
    struct sim *s = r->sim;
    tokens_end(&s->tokens);
    r->er.prompt_n = (uint32_t)s->tokens.n;
    r->seed = hash_bytes(s->tokens.v, s->tokens.n * sizeof *s->tokens.v);
    if (names->schema) {
        struct choice c = read_tool_choice(d);
        uint32_t tool =
            c.never || !(c.must || wants_tool) ? JSON_NODE_NONE : find_tool(r, d, names->tool_wrap, c.name);
        if (tool != JSON_NODE_NONE) {
            plan_call(r, d, tool, names->schema);
            return;
        }
    }
    plan_text(r, d, names->stop);
}

/* The first character boundary at or behind <at>. */
static size_t boundary(struct span s, size_t at)
{
    while (at < s.n && ((unsigned char)s.p[at] & 0xc0) == 0x80)
        at++;
    return at < s.n ? at : s.n;
}

struct span reply_piece(struct sim_request *r, uint32_t choice, uint32_t from, uint32_t to)
{
    if (r->tool_name.n) {
        size_t a = from > r->tool_head ? (size_t)(from - r->tool_head) * TOKEN_BYTES : 0;
        size_t b = to > r->tool_head ? (size_t)(to - r->tool_head) * TOKEN_BYTES : 0;
        a = boundary(r->tool_args, a);
        b = boundary(r->tool_args, b);
        return span_of(r->tool_args.p + a, b - a);
    }
    size_t a = (size_t)from * TOKEN_BYTES, b = (size_t)to * TOKEN_BYTES;
    if (b > r->text_n)
        b = r->text_n;
    if (a >= b)
        return SPAN_NONE;
    buf_clear(&r->sim->piece);
    CHECK(buf_reserve(&r->sim->piece, (size_t)(to - from) * TOKEN_BYTES));
    text_write(r->sim->piece.p, choice ? hash_mix(r->seed, choice) : r->seed, from, to);
    return span_of(r->sim->piece.p, b - a);
}

bool reply_event(struct sim_request *r, struct buf *b, const char *type)
{
    if (r->is_cut)
        return false;
    if (r->events >= r->cut_after || r->events >= r->error_after) {
        r->is_cut = true;
        if (r->events < r->cut_after) {
            r->is_error = true;
            buf_add_str(b, r->api->is_anthropic ? "event: error\ndata: " : "data: ");
            send_error_object(b, r->api->is_anthropic, 500, NULL, "injected error in the stream");
            reply_event_end(b);
        }
        return false;
    }
    r->events++;
    if (type) {
        BUF_LIT(b, "event: ");
        buf_add_str(b, type);
        buf_add_char(b, '\n');
    }
    BUF_LIT(b, "data: ");
    return true;
}

void reply_event_end(struct buf *b)
{
    BUF_LIT(b, "\n\n");
}

void reply_id(struct buf *b, const char *prefix, uint64_t id)
{
    uint8_t bytes[8];
    char hex[16];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(id >> (56 - 8 * i));
    fmt_hex_bytes(hex, bytes, sizeof bytes);
    buf_add_str(b, prefix);
    buf_add(b, hex, sizeof hex);
}

uint64_t reply_cached(const struct sim_request *r)
{
    return r->er.cached_n;
}
