/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/token_question.h"

#include "base/hash.h"
#include "json/write.h"

/* Members of a chat request that the template reads or that /tokenize takes beside the messages. */
static const char *const chat_members[] = {
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "mm_processor_kwargs",
    "media_io_kwargs",
};
static const char *const prompt_members[] = {"add_special_tokens"};

struct names {
    const char *const *v;
    size_t n;
};

static struct names names_of(const struct token_question *q)
{
    if (q->prompt != JSON_NODE_NONE)
        return (struct names){prompt_members, ARRAY_LEN(prompt_members)};
    /* The other dialects' members of these names, tools above all, have another shape. */
    return (struct names){chat_members, q->dialect == DIALECT_CHAT ? ARRAY_LEN(chat_members) : 0};
}

/* The member as it goes up: the body's, else the route's. Empty when there is none. */
static struct span member(const struct token_question *q, const char *name)
{
    uint32_t node = json_get(q->d, 0, name);
    if (node != JSON_NODE_NONE)
        return json_raw(q->d, node);
    for (unsigned i = 0; q->params && i < q->params->n; i++)
        if (span_eq(q->params->item[i].name, span_str(name)))
            return q->params->item[i].value;
    return SPAN_NONE;
}

static uint64_t mix(uint64_t h, struct span s)
{
    return hash_bytes_seed(s.p, s.n, h);
}

/* Content */

static bool is_text_part(const struct json_doc *d, uint32_t part)
{
    uint32_t type = json_get(d, part, "type");
    return json_is(d, json_get(d, part, "text"), JSON_STRING) &&
           (json_string_eq(d, type, SPAN("text")) || json_string_eq(d, type, SPAN("input_text")) ||
            json_string_eq(d, type, SPAN("output_text")));
}

/* A text, or parts that are all texts. */
static bool is_text(const struct json_doc *d, uint32_t content)
{
    if (json_is(d, content, JSON_STRING))
        return true;
    if (!json_is(d, content, JSON_ARRAY))
        return false;
    for (uint32_t i = json_first(d, content); i != JSON_NODE_NONE; i = json_next(d, content, i))
        if (!is_text_part(d, i))
            return false;
    return true;
}

/* Whether a chat message can say what <item> says. */
static bool can_ask(enum dialect_id dialect, const struct json_doc *d, uint32_t item)
{
    uint32_t content = json_get(d, item, "content");
    if (!json_is(d, item, JSON_OBJECT) || !json_is(d, json_get(d, item, "role"), JSON_STRING))
        return false;
    if (dialect == DIALECT_CHAT && (content == JSON_NODE_NONE || json_is(d, content, JSON_NULL)))
        return true; /* tool calls */
    return is_text(d, content);
}

/* Reading */

static void read_messages(struct token_question *q, uint64_t h)
{
    size_t from = 0; /* of the ring of beginnings */
    for (uint32_t i = json_first(q->d, q->list); i != JSON_NODE_NONE; i = json_next(q->d, q->list, i)) {
        if (!can_ask(q->dialect, q->d, i))
            break;
        if (q->n > 0) {
            q->beginning[from++ % TOKEN_BEGINNINGS_MAX] = (struct token_beginning){h, q->bytes};
            q->n_beginnings += q->n_beginnings < TOKEN_BEGINNINGS_MAX;
        }
        struct span raw = json_raw(q->d, i);
        h = mix(h, raw);
        q->bytes += raw.n;
        q->n++;
    }
    q->key = h;
    /* Longest first. */
    struct token_beginning sorted[TOKEN_BEGINNINGS_MAX];
    for (unsigned k = 0; k < q->n_beginnings; k++)
        sorted[k] = q->beginning[(from - 1 - k) % TOKEN_BEGINNINGS_MAX];
    memcpy(q->beginning, sorted, q->n_beginnings * sizeof *sorted);
}

static bool read_ids(struct token_question *q, uint32_t array, struct arena *a)
{
    uint32_t *id = ARENA_ARRAY(a, uint32_t, q->d->node[array].count);
    size_t n = 0;
    for (uint32_t i = json_first(q->d, array); i != JSON_NODE_NONE; i = json_next(q->d, array, i), n++) {
        uint64_t v;
        if (!json_u64(q->d, i, &v) || v > UINT32_MAX)
            return false;
        id[n] = (uint32_t)v;
    }
    q->given = (struct token_ids){.id = id, .n = n};
    return n > 0;
}

/* A text, an array with one text, or the ids themselves. Several prompts are several requests for an engine.
 */
static bool read_completion(struct token_question *q, uint64_t h, struct arena *a)
{
    uint32_t prompt = json_get(q->d, 0, "prompt");
    if (json_is(q->d, prompt, JSON_ARRAY)) {
        uint32_t first = json_first(q->d, prompt);
        if (json_is(q->d, first, JSON_NUMBER))
            return read_ids(q, prompt, a);
        if (q->d->node[prompt].count != 1)
            return false;
        if (json_is(q->d, first, JSON_ARRAY))
            return read_ids(q, first, a);
        prompt = first;
    }
    if (!json_is(q->d, prompt, JSON_STRING))
        return false;
    q->prompt = prompt;
    q->bytes = json_raw(q->d, prompt).n;
    q->key = mix(mix(h, member(q, "add_special_tokens")), json_raw(q->d, prompt));
    return true;
}

static bool read_conversation(struct token_question *q, uint64_t h, const char *list, const char *lead)
{
    q->list = json_get(q->d, 0, list);
    q->lead = lead ? json_get(q->d, 0, lead) : JSON_NODE_NONE;
    if (q->lead != JSON_NODE_NONE && !json_is(q->d, q->lead, JSON_NULL)) {
        if (!is_text(q->d, q->lead))
            return false;
        h = mix(h, json_raw(q->d, q->lead));
    } else {
        q->lead = JSON_NODE_NONE;
    }
    if (q->dialect == DIALECT_RESPONSES && json_is(q->d, q->list, JSON_STRING)) {
        q->bytes = json_raw(q->d, q->list).n;
        q->n = 1;
        q->key = mix(h, json_raw(q->d, q->list));
        return true;
    }
    if (!json_is(q->d, q->list, JSON_ARRAY))
        return false;
    struct names names = names_of(q);
    for (size_t i = 0; i < names.n; i++)
        h = mix(hash_mix(h, i), member(q, names.v[i]));
    read_messages(q, h);
    return q->n > 0;
}

bool token_question_read(enum dialect_id dialect, const struct json_doc *d, const struct json_members *params,
                         uint64_t seed, struct arena *a, struct token_question *ret)
{
    *ret = (struct token_question){.dialect = dialect,
                                   .d = d,
                                   .params = params,
                                   .list = JSON_NODE_NONE,
                                   .prompt = JSON_NODE_NONE,
                                   .lead = JSON_NODE_NONE};
    uint64_t h = hash_mix(seed, dialect);
    switch (dialect) {
    case DIALECT_CHAT:
        return read_conversation(ret, h, "messages", NULL);
    case DIALECT_MESSAGES:
        return read_conversation(ret, h, "messages", "system");
    case DIALECT_RESPONSES:
        return read_conversation(ret, h, "input", "instructions");
    case DIALECT_COMPLETIONS:
        return read_completion(ret, h, a);
    default:
        return false;
    }
}

/* Writing */

static void write_content(struct json_out *o, const struct json_doc *d, uint32_t content)
{
    if (json_is(d, content, JSON_STRING)) {
        json_out_raw(o, json_raw(d, content));
        return;
    }
    json_out_array(o);
    for (uint32_t i = json_first(d, content); i != JSON_NODE_NONE; i = json_next(d, content, i)) {
        json_out_object(o);
        json_out_member_str(o, "type", "text");
        json_out_name(o, "text");
        json_out_raw(o, json_raw(d, json_get(d, i, "text")));
        json_out_object_end(o);
    }
    json_out_array_end(o);
}

static void write_message(struct json_out *o, const struct json_doc *d, struct span role, uint32_t content)
{
    json_out_object(o);
    json_out_name(o, "role");
    json_out_raw(o, role);
    json_out_name(o, "content");
    write_content(o, d, content);
    json_out_object_end(o);
}

/* The parts of a system prompt are one text for the engine. */
static void write_lead(struct json_out *o, const struct json_doc *d, uint32_t lead, struct arena *a)
{
    if (json_is(d, lead, JSON_STRING)) {
        write_message(o, d, SPAN("\"system\""), lead);
        return;
    }
    struct buf text;
    buf_init(&text, json_raw(d, lead).n);
    for (uint32_t i = json_first(d, lead); i != JSON_NODE_NONE; i = json_next(d, lead, i))
        buf_add_span(&text, json_string(d, json_get(d, i, "text"), a));
    json_out_object(o);
    json_out_member_str(o, "role", "system");
    json_out_member_span(o, "content", buf_view(&text));
    json_out_object_end(o);
    buf_fini(&text);
}

static void write_messages(const struct token_question *q, struct json_out *o, struct arena *a)
{
    json_out_name(o, "messages");
    json_out_array(o);
    if (q->lead != JSON_NODE_NONE)
        write_lead(o, q->d, q->lead, a);
    uint32_t left = q->n;
    if (json_is(q->d, q->list, JSON_STRING))
        write_message(o, q->d, SPAN("\"user\""), q->list);
    else
        for (uint32_t i = json_first(q->d, q->list); left-- > 0; i = json_next(q->d, q->list, i)) {
            if (q->dialect == DIALECT_CHAT) /* as the engine gets it */
                json_out_raw(o, json_raw(q->d, i));
            else
                write_message(o, q->d, json_raw(q->d, json_get(q->d, i, "role")),
                              json_get(q->d, i, "content"));
        }
    json_out_array_end(o);
}

void token_question_write(const struct token_question *q, struct span model, struct arena *a, struct buf *out)
{
    struct json_out o;
    json_out_init(&o, out);
    json_out_object(&o);
    json_out_name(&o, "model");
    json_out_raw(&o, model);
    if (q->prompt != JSON_NODE_NONE) {
        json_out_name(&o, "prompt");
        json_out_raw(&o, json_raw(q->d, q->prompt));
    } else {
        write_messages(q, &o, a);
    }
    struct names names = names_of(q);
    for (size_t i = 0; i < names.n; i++) {
        struct span v = member(q, names.v[i]);
        if (!v.n)
            continue;
        json_out_name(&o, names.v[i]);
        json_out_raw(&o, v);
    }
    json_out_object_end(&o);
}

/* Answers */

bool token_answer_read(struct span body, struct arena *a, struct token_ids *ret)
{
    struct json_doc d;
    struct json_fault fault;
    if (!json_parse(a, body, NULL, &d, &fault) || !json_is(&d, 0, JSON_OBJECT))
        return false;
    uint32_t tokens = json_get(&d, 0, "tokens");
    if (!json_is(&d, tokens, JSON_ARRAY) || d.node[tokens].count == 0)
        return false;
    uint32_t *id = ARENA_ARRAY(a, uint32_t, d.node[tokens].count);
    size_t n = 0;
    for (uint32_t i = json_first(&d, tokens); i != JSON_NODE_NONE; i = json_next(&d, tokens, i), n++) {
        uint64_t v;
        if (!json_u64(&d, i, &v) || v > UINT32_MAX)
            return false;
        id[n] = (uint32_t)v;
    }
    *ret = (struct token_ids){.id = id, .n = n};
    return true;
}
