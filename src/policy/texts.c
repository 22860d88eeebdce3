/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/texts.h"

#include "base/check.h"

/* What a member's name says about its value. */
enum carrier {
    CARRIES_NOTHING, /* strings are names and ids; texts may stand further inside */
    CARRIES_TEXT,
    CARRIES_JSON,   /* a string with JSON text */
    CARRIES_VALUES, /* every string inside, however deep */
    CARRIES_SKIP,   /* nothing inside is looked at */
};

struct scope {
    bool system;
    uint32_t logprobs;
};

struct walker {
    const struct json_doc *d;
    struct text_list *list;
    bool is_reply;
};

struct name_row {
    struct span name;
    enum carrier carrier;
};
#define ROW(literal, carrier)                                                                                \
    {                                                                                                        \
        SPAN(literal), carrier                                                                               \
    }

static const struct name_row names[] = {
    ROW("content", CARRIES_TEXT),     ROW("text", CARRIES_TEXT),       ROW("refusal", CARRIES_TEXT),
    ROW("arguments", CARRIES_JSON),   ROW("input", CARRIES_TEXT),      ROW("output", CARRIES_TEXT),
    ROW("output_text", CARRIES_TEXT), ROW("summary", CARRIES_TEXT),    ROW("thinking", CARRIES_TEXT),
    ROW("reasoning", CARRIES_TEXT),   ROW("transcript", CARRIES_TEXT), ROW("reasoning_content", CARRIES_TEXT),
    ROW("cited_text", CARRIES_TEXT),  ROW("code", CARRIES_TEXT),       ROW("logs", CARRIES_TEXT),
    ROW("stdout", CARRIES_TEXT),      ROW("stderr", CARRIES_TEXT),     ROW("documents", CARRIES_TEXT),
    ROW("document", CARRIES_TEXT),    ROW("logprobs", CARRIES_SKIP),   ROW("metadata", CARRIES_SKIP),
    ROW("tools", CARRIES_SKIP),
};

static const struct name_row request_roots[] = {
    ROW("messages", CARRIES_TEXT), ROW("input", CARRIES_TEXT),         ROW("prompt", CARRIES_TEXT),
    ROW("suffix", CARRIES_TEXT),   ROW("system", CARRIES_TEXT),        ROW("instructions", CARRIES_TEXT),
    ROW("query", CARRIES_TEXT),    ROW("prediction", CARRIES_NOTHING), ROW("documents", CARRIES_TEXT),
};

static const struct name_row reply_roots[] = {
    ROW("choices", CARRIES_NOTHING),  ROW("content", CARRIES_TEXT),    ROW("output", CARRIES_NOTHING),
    ROW("output_text", CARRIES_TEXT), ROW("results", CARRIES_NOTHING),
};

static const struct name_row event_roots[] = {
    ROW("choices", CARRIES_NOTHING), ROW("delta", CARRIES_NOTHING), ROW("content_block", CARRIES_NOTHING),
    ROW("message", CARRIES_NOTHING), ROW("part", CARRIES_NOTHING),  ROW("item", CARRIES_NOTHING),
    ROW("text", CARRIES_TEXT),       ROW("refusal", CARRIES_TEXT),  ROW("arguments", CARRIES_JSON),
    ROW("input", CARRIES_TEXT),      ROW("code", CARRIES_TEXT),     ROW("transcript", CARRIES_TEXT),
};

static enum carrier find(const struct json_doc *d, uint32_t name, const struct name_row *rows, size_t n,
                         enum carrier otherwise)
{
    const struct json_node *node = &d->node[name];
    const char *p = d->text.p + node->at + 1;
    for (size_t i = 0; i < n; i++) {
        if (node->flags & JSON_ESCAPED
                ? json_string_eq(d, name, rows[i].name)
                : node->len == rows[i].name.n + 2 && memcmp(p, rows[i].name.p, rows[i].name.n) == 0)
            return rows[i].carrier;
    }
    return otherwise;
}

static void add(struct walker *w, uint32_t node, bool json, const struct scope *s)
{
    struct text_list *l = w->list;
    if (l->n == l->cap) {
        unsigned cap = l->cap ? l->cap * 2 : 32;
        struct text_slot *slot = arena_alloc(l->arena, cap * sizeof *slot);
        if (l->n)
            memcpy(slot, l->slot, l->n * sizeof *slot);
        l->slot = slot;
        l->cap = cap;
    }
    l->slot[l->n++] =
        (struct text_slot){.node = node, .system = s->system, .json = json, .logprobs = s->logprobs};
}

static bool is_string(const struct walker *w, uint32_t i, const char *s)
{
    return json_is(w->d, i, JSON_STRING) && json_string_eq(w->d, i, span_str(s));
}

static enum carrier member_carrier(const struct walker *w, uint32_t object, uint32_t name)
{
    const struct json_doc *d = w->d;
    enum carrier c = find(d, name, names, ARRAY_LEN(names), CARRIES_NOTHING);
    /* The arguments of a tool_use block are a value, not text. */
    if (c == CARRIES_TEXT && json_is(d, name + 1, JSON_OBJECT) && json_string_eq(d, name, SPAN("input")))
        return CARRIES_VALUES;
    /* What a model signed must come back as it was. */
    if (c == CARRIES_TEXT && !w->is_reply && json_string_eq(d, name, SPAN("thinking")))
        return CARRIES_SKIP;
    /* A plain-text document has its text where others have base64. */
    if (c == CARRIES_NOTHING && json_string_eq(d, name, SPAN("data")) &&
        is_string(w, json_get(d, object, "type"), "text"))
        return CARRIES_TEXT;
    return c;
}

static void walk(struct walker *w, uint32_t i, enum carrier how, struct scope s);

static void walk_object(struct walker *w, uint32_t i, enum carrier how, struct scope s)
{
    const struct json_doc *d = w->d;
    if (how != CARRIES_VALUES) {
        uint32_t role = json_get(d, i, "role"), logprobs = json_get(d, i, "logprobs");
        s.system |= is_string(w, role, "system") || is_string(w, role, "developer");
        if (logprobs != JSON_NODE_NONE && !json_is(d, logprobs, JSON_NULL))
            s.logprobs = logprobs;
    }
    for (uint32_t k = json_first(d, i); k != JSON_NODE_NONE; k = json_next(d, i, k))
        walk(w, k + 1, how == CARRIES_VALUES ? how : member_carrier(w, i, k), s);
}

/* As deep as the reader lets a document be. */
static void walk(struct walker *w, uint32_t i, enum carrier how, struct scope s)
{
    const struct json_doc *d = w->d;
    switch (d->node[i].type) {
    case JSON_STRING:
        if (how == CARRIES_TEXT || how == CARRIES_VALUES || how == CARRIES_JSON)
            add(w, i, how == CARRIES_JSON, &s);
        return;
    case JSON_ARRAY:
        if (how != CARRIES_SKIP)
            for (uint32_t k = json_first(d, i); k != JSON_NODE_NONE; k = json_next(d, i, k))
                walk(w, k, how, s);
        return;
    case JSON_OBJECT:
        if (how != CARRIES_SKIP)
            walk_object(w, i, how == CARRIES_JSON ? CARRIES_VALUES : how, s);
        return;
    default:
        return;
    }
}

static void begin(struct walker *w, const struct json_doc *d, struct arena *a, struct text_list *list,
                  bool is_reply)
{
    *list = (struct text_list){.arena = a};
    *w = (struct walker){.d = d, .list = list, .is_reply = is_reply};
}

void texts_of_request(const struct json_doc *d, struct arena *a, struct text_list *ret)
{
    struct walker w;
    begin(&w, d, a, ret, false);
    for (uint32_t k = json_first(d, 0); json_is(d, 0, JSON_OBJECT) && k != JSON_NODE_NONE;
         k = json_next(d, 0, k)) {
        struct scope s = {.logprobs = JSON_NODE_NONE};
        s.system = json_string_eq(d, k, SPAN("system")) || json_string_eq(d, k, SPAN("instructions"));
        walk(&w, k + 1, find(d, k, request_roots, ARRAY_LEN(request_roots), CARRIES_SKIP), s);
    }
}

static void walk_members(struct walker *w, uint32_t object, const struct name_row *roots, size_t n)
{
    const struct json_doc *d = w->d;
    uint32_t logprobs = json_get(d, object, "logprobs");
    struct scope s = {.logprobs = json_is(d, logprobs, JSON_NULL) ? JSON_NODE_NONE : logprobs};
    for (uint32_t k = json_first(d, object); json_is(d, object, JSON_OBJECT) && k != JSON_NODE_NONE;
         k = json_next(d, object, k))
        walk(w, k + 1, find(d, k, roots, n, CARRIES_SKIP), s);
}

void texts_of_reply(const struct json_doc *d, struct arena *a, struct text_list *ret)
{
    struct walker w;
    begin(&w, d, a, ret, true);
    walk_members(&w, 0, reply_roots, ARRAY_LEN(reply_roots));
}

void texts_of_event(const struct json_doc *d, struct arena *a, struct text_list *ret)
{
    struct walker w;
    begin(&w, d, a, ret, true);
    walk_members(&w, 0, event_roots, ARRAY_LEN(event_roots));
    /* The last event of a Responses stream has the whole reply. */
    walk_members(&w, json_get(d, 0, "response"), reply_roots, ARRAY_LEN(reply_roots));
}

void texts_of_value(const struct json_doc *d, struct arena *a, struct text_list *ret)
{
    struct walker w;
    begin(&w, d, a, ret, true);
    walk(&w, 0, CARRIES_VALUES, (struct scope){.logprobs = JSON_NODE_NONE});
}
