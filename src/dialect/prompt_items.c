/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns, parts and tool traffic as the chat, Messages and Responses dialects have them. They share one
 * reader: a shape that belongs to one dialect does no harm in another, and engines mix them.
 */
#include "dialect/prompt.h"

#include "base/check.h"

enum member {
    AT_ROLE,
    AT_TYPE,
    AT_CONTENT,
    AT_TEXT,
    AT_REFUSAL,
    AT_TOOL_CALLS,
    AT_FUNCTION_CALL,
    AT_FUNCTION,
    AT_CUSTOM,
    AT_NAME,
    AT_ARGUMENTS,
    AT_INPUT,
    AT_OUTPUT,
    MEMBERS
};

static const struct span member_names[MEMBERS] = {
    [AT_ROLE] = SPAN("role"),
    [AT_TYPE] = SPAN("type"),
    [AT_CONTENT] = SPAN("content"),
    [AT_TEXT] = SPAN("text"),
    [AT_REFUSAL] = SPAN("refusal"),
    [AT_TOOL_CALLS] = SPAN("tool_calls"),
    [AT_FUNCTION_CALL] = SPAN("function_call"),
    [AT_FUNCTION] = SPAN("function"),
    [AT_CUSTOM] = SPAN("custom"),
    [AT_NAME] = SPAN("name"),
    [AT_ARGUMENTS] = SPAN("arguments"),
    [AT_INPUT] = SPAN("input"),
    [AT_OUTPUT] = SPAN("output"),
};

/* The members of one object that anybody here asks for, found in one walk; the last of a doubled name. A null
 * counts as absent: clients write both. */
struct members {
    uint32_t at[MEMBERS];
};

static bool is_name(const struct json_doc *d, uint32_t i, struct span want)
{
    const struct json_node *n = &d->node[i];
    if (LIKELY(!(n->flags & JSON_ESCAPED)))
        return n->len == want.n + 2 && memcmp(d->text.p + n->at + 1, want.p, want.n) == 0;
    return json_string_eq(d, i, want);
}

static void read_members(const struct json_doc *d, uint32_t obj, struct members *ret)
{
    for (unsigned k = 0; k < MEMBERS; k++)
        ret->at[k] = JSON_NODE_NONE;
    for (uint32_t i = json_first(d, obj); i != JSON_NODE_NONE; i = json_next(d, obj, i)) {
        for (unsigned k = 0; k < MEMBERS; k++) {
            if (is_name(d, i, member_names[k])) {
                ret->at[k] = d->node[i + 1].type == JSON_NULL ? JSON_NODE_NONE : i + 1;
                break;
            }
        }
    }
}

static bool has(const struct members *m, enum member k)
{
    return m->at[k] != JSON_NODE_NONE;
}

static bool has_string(const struct json_doc *d, const struct members *m, enum member k)
{
    return json_is(d, m->at[k], JSON_STRING);
}

/* Whether a `type` is <suffix> or ends in it: server and MCP tools prefix the two words with their own. */
static bool type_ends(const struct json_doc *d, const struct members *m, struct span suffix)
{
    if (!has_string(d, m, AT_TYPE))
        return false;
    struct span raw = json_raw(d, m->at[AT_TYPE]);
    if (d->node[m->at[AT_TYPE]].flags & JSON_ESCAPED)
        return json_string_eq(d, m->at[AT_TYPE], suffix);
    return raw.n >= suffix.n + 2 && memcmp(raw.p + raw.n - 1 - suffix.n, suffix.p, suffix.n) == 0;
}

static void measure_if(struct prompt_writer *w, const struct members *m, enum member k)
{
    if (has(m, k))
        prompt_measured(w, m->at[k]);
}

/* What a tool answered: a string, blocks (their text is measured, the rest is media), or any other value. */
static void tool_result(struct prompt_writer *w, uint32_t i)
{
    const struct json_doc *d = w->doc;
    if (!json_is(d, i, JSON_ARRAY)) {
        prompt_measured(w, i);
        return;
    }
    for (uint32_t k = json_first(d, i); k != JSON_NODE_NONE; k = json_next(d, i, k)) {
        struct members m;
        read_members(d, k, &m);
        if (json_is(d, k, JSON_STRING))
            prompt_measured(w, k);
        else if (has_string(d, &m, AT_TEXT))
            prompt_measured(w, m.at[AT_TEXT]);
        else
            prompt_media(w, k);
    }
}

static void part(struct prompt_writer *w, uint32_t i)
{
    const struct json_doc *d = w->doc;
    struct members m;
    if (json_is(d, i, JSON_STRING)) {
        prompt_string(w, i);
        return;
    }
    read_members(d, i, &m);
    if (has_string(d, &m, AT_TEXT)) {
        prompt_string(w, m.at[AT_TEXT]);
    } else if (type_ends(d, &m, SPAN("tool_use"))) {
        measure_if(w, &m, AT_NAME);
        measure_if(w, &m, AT_INPUT);
    } else if (type_ends(d, &m, SPAN("tool_result"))) {
        if (has(&m, AT_CONTENT))
            tool_result(w, m.at[AT_CONTENT]);
    } else if (has_string(d, &m, AT_REFUSAL)) {
        prompt_string(w, m.at[AT_REFUSAL]);
    } else {
        prompt_media(w, i);
    }
}

static void content(struct prompt_writer *w, uint32_t i)
{
    const struct json_doc *d = w->doc;
    if (!json_is(d, i, JSON_ARRAY)) {
        part(w, i);
        return;
    }
    for (uint32_t k = json_first(d, i); k != JSON_NODE_NONE; k = json_next(d, i, k))
        part(w, k);
}

/* A turn begins, or ends: of the first user turn it is known where it lies. */
static bool begin_turn(struct prompt_writer *w, bool is_user)
{
    if (w->has_user || !is_user)
        return false;
    w->has_user = true;
    w->head_len = w->len;
    return true;
}

static void end_turn(struct prompt_writer *w, bool is_first)
{
    prompt_literal(w, SPAN("\n"));
    if (is_first)
        w->turn_len = w->len - w->head_len;
}

void prompt_turn(struct prompt_writer *w, struct span role, uint32_t node)
{
    bool is_first = begin_turn(w, span_eq(role, SPAN("user")));
    prompt_literal(w, role);
    prompt_literal(w, SPAN(": "));
    if (node != JSON_NODE_NONE)
        content(w, node);
    end_turn(w, is_first);
}

/* One call of a tool: {"function": {"name", "arguments"}}, {"custom": {"name", "input"}}, or the two members
 * at the top. Ids are left out: they are random and no part of what is prefilled in most templates. */
static void tool_call(struct prompt_writer *w, uint32_t i)
{
    struct members m;
    read_members(w->doc, i, &m);
    if (has(&m, AT_FUNCTION) && json_is(w->doc, m.at[AT_FUNCTION], JSON_OBJECT))
        read_members(w->doc, m.at[AT_FUNCTION], &m);
    else if (has(&m, AT_CUSTOM) && json_is(w->doc, m.at[AT_CUSTOM], JSON_OBJECT))
        read_members(w->doc, m.at[AT_CUSTOM], &m);
    if (!has(&m, AT_NAME) && !has(&m, AT_ARGUMENTS) && !has(&m, AT_INPUT)) {
        prompt_measured(w, i);
        return;
    }
    measure_if(w, &m, AT_NAME);
    measure_if(w, &m, AT_ARGUMENTS);
    measure_if(w, &m, AT_INPUT);
}

/* An item without content: a Responses call or its output, or something that only the digest knows. */
static void bare_item(struct prompt_writer *w, uint32_t i, const struct members *m)
{
    if (has(m, AT_ARGUMENTS) || has(m, AT_INPUT) || has(m, AT_OUTPUT)) {
        measure_if(w, m, AT_NAME);
        measure_if(w, m, AT_ARGUMENTS);
        measure_if(w, m, AT_INPUT);
        if (has(m, AT_OUTPUT))
            tool_result(w, m->at[AT_OUTPUT]);
    } else if (!has(m, AT_TOOL_CALLS) && !has(m, AT_FUNCTION_CALL)) {
        prompt_media(w, i);
    }
}

static void object_item(struct prompt_writer *w, uint32_t i)
{
    const struct json_doc *d = w->doc;
    struct members m;
    bool is_first = false;
    read_members(d, i, &m);
    if (has_string(d, &m, AT_ROLE)) {
        is_first = begin_turn(w, json_string_eq(d, m.at[AT_ROLE], SPAN("user")));
        prompt_string(w, m.at[AT_ROLE]);
    } else {
        prompt_literal(w, SPAN("item"));
    }
    prompt_literal(w, SPAN(": "));
    if (has(&m, AT_CONTENT))
        content(w, m.at[AT_CONTENT]);
    else
        bare_item(w, i, &m);
    end_turn(w, is_first);

    uint32_t calls = m.at[AT_TOOL_CALLS];
    if (has(&m, AT_TOOL_CALLS) && !json_is(d, calls, JSON_ARRAY))
        tool_call(w, calls);
    for (uint32_t k = json_first(d, calls); json_is(d, calls, JSON_ARRAY) && k != JSON_NODE_NONE;
         k = json_next(d, calls, k))
        tool_call(w, k);
    if (has(&m, AT_FUNCTION_CALL))
        tool_call(w, m.at[AT_FUNCTION_CALL]);
}

void prompt_items(struct prompt_writer *w, uint32_t list)
{
    const struct json_doc *d = w->doc;
    if (!json_is(d, list, JSON_ARRAY))
        return;
    for (uint32_t i = json_first(d, list); i != JSON_NODE_NONE; i = json_next(d, list, i)) {
        if (json_is(d, i, JSON_OBJECT))
            object_item(w, i);
        else if (json_is(d, i, JSON_STRING))
            prompt_turn(w, SPAN("item"), i);
        else
            prompt_media(w, i);
    }
}

/* Token ids are the prompt: "1,2,3," is a prefix of "1,2,3,4," as the prompts are of each other. */
static void bare_piece(struct prompt_writer *w, uint32_t i)
{
    if (json_is(w->doc, i, JSON_NUMBER)) {
        prompt_literal(w, json_raw(w->doc, i));
        prompt_literal(w, SPAN(","));
    } else {
        part(w, i);
    }
}

void prompt_bare(struct prompt_writer *w, uint32_t i)
{
    const struct json_doc *d = w->doc;
    if (!json_is(d, i, JSON_ARRAY)) {
        if (i != JSON_NODE_NONE)
            part(w, i);
        return;
    }
    for (uint32_t k = json_first(d, i); k != JSON_NODE_NONE; k = json_next(d, i, k)) {
        if (!json_is(d, k, JSON_ARRAY)) {
            bare_piece(w, k);
            continue;
        }
        for (uint32_t t = json_first(d, k); t != JSON_NODE_NONE; t = json_next(d, k, t))
            bare_piece(w, t);
    }
}
