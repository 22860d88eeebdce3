/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompts as tokens. Tools first, then the turns, then the mark that the assistant speaks next; each piece of
 * text is ended before the next begins. So a conversation that goes on extends its token list, and a reply
 * that comes back as a turn is exactly the tokens that the engine made.
 */
#include "base/hash.h"
#include "sim.h"

enum { TEMPLATE_MAX = 65536 };

static const struct span USER = {"user", 4}, ASSISTANT = {"assistant", 9}, SYSTEM = {"system", 6};

struct prompt prompt_of(struct sim *s, const struct json_doc *d)
{
    uint64_t n = s->o.template_tokens < TEMPLATE_MAX ? s->o.template_tokens : TEMPLATE_MAX;
    return (struct prompt){.d = d, .a = &s->scratch, .t = &s->tokens, .template_n = n};
}

/* What every prompt of turns begins with: nothing, unless another template is wanted. */
static void put_template(struct prompt *p)
{
    for (uint64_t i = 0; i < p->template_n; i++)
        tokens_mark(p->t, TOKEN_FIRST_TEXT + (uint32_t)(hash_mix(p->template_n, i) % 100000));
}

void prompt_text(struct prompt *p, uint32_t node)
{
    json_string_each(p->d, node, tokens_put, p->t);
    tokens_end(p->t);
}

static void put_json(struct prompt *p, uint32_t node)
{
    json_compact_each(p->d, node, tokens_put, p->t);
    tokens_end(p->t);
}

static void put_beginning(struct prompt *p)
{
    put_template(p);
    uint32_t tools = json_get(p->d, 0, "tools");
    if (!json_is(p->d, tools, JSON_ARRAY) || p->d->node[tools].count == 0)
        return;
    tokens_mark(p->t, TOKEN_TOOLS);
    put_json(p, tools);
    tokens_mark(p->t, TOKEN_END);
}

static void put_call(struct prompt *p, uint32_t name, uint32_t arguments)
{
    tokens_mark(p->t, TOKEN_CALL);
    if (json_is(p->d, name, JSON_STRING))
        prompt_text(p, name);
    if (json_is(p->d, arguments, JSON_STRING))
        prompt_text(p, arguments);
    else if (arguments != JSON_NODE_NONE)
        put_json(p, arguments);
}

static bool says_use_the_tool(struct prompt *p, uint32_t node)
{
    return span_find(json_string(p->d, node, p->a), SPAN("use the tool")) >= 0;
}

/* A text, or parts of any dialect. *io_tool: whether some text of it says "use the tool"; a tool's result
 * says no. */
static void put_content(struct prompt *p, uint32_t content, bool *io_tool)
{
    if (json_is(p->d, content, JSON_STRING)) {
        prompt_text(p, content);
        *io_tool |= says_use_the_tool(p, content);
        return;
    }
    if (!json_is(p->d, content, JSON_ARRAY))
        return;
    bool is_result = false;
    for (uint32_t i = json_first(p->d, content); i != JSON_NODE_NONE; i = json_next(p->d, content, i)) {
        uint32_t type = json_get(p->d, i, "type"), text = json_get(p->d, i, "text"), inner;
        if (json_is(p->d, i, JSON_STRING) || json_is(p->d, text, JSON_STRING)) {
            uint32_t at = json_is(p->d, i, JSON_STRING) ? i : text;
            prompt_text(p, at);
            *io_tool |= says_use_the_tool(p, at);
        } else if (json_string_eq(p->d, type, SPAN("tool_use"))) {
            put_call(p, json_get(p->d, i, "name"), json_get(p->d, i, "input"));
        } else if (json_string_eq(p->d, type, SPAN("tool_result"))) {
            is_result = true;
            tokens_role(p->t, SPAN("tool"));
            inner = json_get(p->d, i, "content");
            if (json_is(p->d, inner, JSON_STRING))
                prompt_text(p, inner);
            else if (inner != JSON_NODE_NONE)
                put_json(p, inner);
        } else {
            tokens_mark(p->t, TOKEN_MEDIA);
            put_json(p, i);
        }
    }
    *io_tool &= !is_result;
}

/* One message of chat or Messages. */
static const char *put_message(struct prompt *p, uint32_t m)
{
    uint32_t role = json_get(p->d, m, "role");
    if (!json_is(p->d, m, JSON_OBJECT) || !json_is(p->d, role, JSON_STRING))
        return "each message needs a role";
    uint32_t content = json_get(p->d, m, "content");
    if (!json_is(p->d, content, JSON_STRING) && !json_is(p->d, content, JSON_ARRAY) &&
        !json_is(p->d, content, JSON_NULL) && content != JSON_NODE_NONE)
        return "content must be a string or an array";
    bool tool = false;
    tokens_role(p->t, json_string(p->d, role, p->a));
    put_content(p, content, &tool);
    uint32_t calls = json_get(p->d, m, "tool_calls");
    for (uint32_t i = json_first(p->d, calls); i != JSON_NODE_NONE; i = json_next(p->d, calls, i)) {
        uint32_t f = json_get(p->d, i, "function");
        put_call(p, json_get(p->d, f, "name"), json_get(p->d, f, "arguments"));
    }
    tokens_mark(p->t, TOKEN_END);
    p->wants_tool = tool && json_string_eq(p->d, role, USER);
    return NULL;
}

static const char *put_messages(struct prompt *p)
{
    uint32_t all = json_get(p->d, 0, "messages");
    if (!json_is(p->d, all, JSON_ARRAY) || p->d->node[all].count == 0)
        return "messages must be a non-empty array";
    for (uint32_t i = json_first(p->d, all); i != JSON_NODE_NONE; i = json_next(p->d, all, i)) {
        const char *why = put_message(p, i);
        if (why)
            return why;
    }
    if (!json_is(p->d, json_get(p->d, 0, "add_generation_prompt"), JSON_FALSE))
        tokens_role(p->t, ASSISTANT);
    return NULL;
}

const char *prompt_chat(struct prompt *p)
{
    put_beginning(p);
    return put_messages(p);
}

const char *prompt_messages(struct prompt *p)
{
    put_beginning(p);
    uint32_t system = json_get(p->d, 0, "system");
    if (json_is(p->d, system, JSON_STRING) || json_is(p->d, system, JSON_ARRAY)) {
        bool tool = false;
        tokens_role(p->t, SYSTEM);
        put_content(p, system, &tool);
        tokens_mark(p->t, TOKEN_END);
    }
    return put_messages(p);
}

static void put_ids(struct prompt *p, uint32_t array)
{
    for (uint32_t i = json_first(p->d, array); i != JSON_NODE_NONE; i = json_next(p->d, array, i)) {
        uint64_t id = 0;
        if (json_u64(p->d, i, &id))
            tokens_mark(p->t, (uint32_t)id);
    }
}

/* Several prompts are one after the other: one request for the engine. */
const char *prompt_completions(struct prompt *p)
{
    uint32_t prompt = json_get(p->d, 0, "prompt");
    if (json_is(p->d, prompt, JSON_STRING)) {
        prompt_text(p, prompt);
        return NULL;
    }
    if (!json_is(p->d, prompt, JSON_ARRAY) || p->d->node[prompt].count == 0)
        return "prompt must be a string, an array of strings or an array of token ids";
    uint32_t first = json_first(p->d, prompt);
    if (json_is(p->d, first, JSON_NUMBER)) {
        put_ids(p, prompt);
        return NULL;
    }
    for (uint32_t i = first; i != JSON_NODE_NONE; i = json_next(p->d, prompt, i)) {
        if (i != first)
            tokens_mark(p->t, TOKEN_SEPARATOR);
        if (json_is(p->d, i, JSON_STRING))
            prompt_text(p, i);
        else if (json_is(p->d, i, JSON_ARRAY))
            put_ids(p, i);
        else
            return "prompt must hold strings or arrays of token ids";
    }
    return NULL;
}

static const char *put_item(struct prompt *p, uint32_t item)
{
    uint32_t type = json_get(p->d, item, "type"), role = json_get(p->d, item, "role");
    if (!json_is(p->d, item, JSON_OBJECT))
        return "each input item must be an object";
    p->wants_tool = false;
    if (json_string_eq(p->d, type, SPAN("function_call"))) {
        tokens_role(p->t, ASSISTANT);
        put_call(p, json_get(p->d, item, "name"), json_get(p->d, item, "arguments"));
        tokens_mark(p->t, TOKEN_END);
        return NULL;
    }
    if (json_is(p->d, role, JSON_STRING))
        return put_message(p, item);
    tokens_role(p->t, SPAN("tool"));
    uint32_t output = json_get(p->d, item, "output");
    if (json_is(p->d, output, JSON_STRING))
        prompt_text(p, output);
    else
        put_json(p, item);
    tokens_mark(p->t, TOKEN_END);
    return NULL;
}

const char *prompt_responses(struct prompt *p)
{
    put_beginning(p);
    uint32_t instructions = json_get(p->d, 0, "instructions"), input = json_get(p->d, 0, "input");
    if (json_is(p->d, instructions, JSON_STRING)) {
        tokens_role(p->t, SYSTEM);
        prompt_text(p, instructions);
        tokens_mark(p->t, TOKEN_END);
    }
    if (json_is(p->d, input, JSON_STRING)) {
        tokens_role(p->t, USER);
        prompt_text(p, input);
        tokens_mark(p->t, TOKEN_END);
        p->wants_tool = says_use_the_tool(p, input);
    } else if (json_is(p->d, input, JSON_ARRAY) && p->d->node[input].count) {
        for (uint32_t i = json_first(p->d, input); i != JSON_NODE_NONE; i = json_next(p->d, input, i)) {
            const char *why = put_item(p, i);
            if (why)
                return why;
        }
    } else {
        return "input must be a string or a non-empty array of items";
    }
    tokens_role(p->t, ASSISTANT);
    return NULL;
}
