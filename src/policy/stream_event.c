/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/stream_event.h"

#include "policy/texts.h"

/* Members that carry pieces of a running text. */
static const struct {
    struct span name;
    bool json;
} carriers[] = {
    {SPAN("content"), false},           {SPAN("text"), false},      {SPAN("refusal"), false},
    {SPAN("reasoning_content"), false}, {SPAN("reasoning"), false}, {SPAN("thinking"), false},
    {SPAN("transcript"), false},        {SPAN("input"), false},     {SPAN("arguments"), true},
    {SPAN("partial_json"), true},
};

static uint64_t mix(uint64_t base, const struct json_doc *d, uint32_t name)
{
    struct span s = json_raw(d, name);
    return hash_bytes_seed(s.p, s.n, base) | 1;
}

static uint64_t number(const struct json_doc *d, uint32_t object, const char *name, uint64_t otherwise)
{
    uint64_t v;
    return json_u64(d, json_get(d, object, name), &v) ? v : otherwise;
}

static bool is_word(const struct json_doc *d, uint32_t object, const char *name, const char *word)
{
    return json_string_eq(d, json_get(d, object, name), span_str(word));
}

static void add(struct event_texts *t, struct event_text text)
{
    if (t->n == t->cap) {
        unsigned cap = t->cap ? t->cap * 2 : 8;
        struct event_text *list = arena_alloc(t->arena, cap * sizeof *list);
        if (t->n)
            memcpy(list, t->text, t->n * sizeof *list);
        t->text = list;
        t->cap = cap;
    }
    t->text[t->n++] = text;
}

static void end_group(struct event_texts *t, uint64_t group)
{
    t->ends_groups = true;
    if (t->n_groups == EVENT_GROUPS_MAX)
        t->ends_all = true;
    else
        t->group[t->n_groups++] = group;
}

static bool is_carrier(const struct json_doc *d, uint32_t name, bool *ret_json)
{
    for (size_t i = 0; i < ARRAY_LEN(carriers); i++)
        if (json_string_eq(d, name, carriers[i].name)) {
            *ret_json = carriers[i].json;
            return true;
        }
    return false;
}

struct place {
    uint64_t key, group;
    uint32_t logprobs;
};

/* Pieces inside of a delta: each member, and each tool call by its index, has a text of its own. */
static void pieces(struct event_texts *t, const struct json_doc *d, uint32_t object, struct place at)
{
    for (uint32_t k = json_first(d, object); json_is(d, object, JSON_OBJECT) && k != JSON_NODE_NONE;
         k = json_next(d, object, k)) {
        struct place inner = at;
        bool json;
        inner.key = mix(at.key, d, k);
        if (json_is(d, k + 1, JSON_STRING) && is_carrier(d, k, &json)) {
            add(t, (struct event_text){k + 1, inner.key, at.group, json, at.logprobs});
        } else if (json_is(d, k + 1, JSON_OBJECT)) {
            pieces(t, d, k + 1, inner);
        } else if (json_is(d, k + 1, JSON_ARRAY)) {
            uint64_t place = 0;
            for (uint32_t i = json_first(d, k + 1); i != JSON_NODE_NONE;
                 i = json_next(d, k + 1, i), place++) {
                struct place item = inner;
                item.key = hash_mix(inner.key, number(d, i, "index", place)) | 1;
                pieces(t, d, i, item);
            }
        }
    }
}

static uint32_t logprobs_of(const struct json_doc *d, uint32_t object)
{
    uint32_t i = json_get(d, object, "logprobs");
    return json_is(d, i, JSON_NULL) ? JSON_NODE_NONE : i;
}

/* Chat completions, completions. */
static void choices_event(struct event_texts *t, const struct json_doc *d)
{
    uint32_t choices = json_get(d, 0, "choices");
    uint64_t place = 0;
    for (uint32_t i = json_first(d, choices); json_is(d, choices, JSON_ARRAY) && i != JSON_NODE_NONE;
         i = json_next(d, choices, i), place++) {
        uint64_t group = number(d, i, "index", place);
        struct place at = {hash_mix(1, group) | 1, group, logprobs_of(d, i)};
        uint32_t text = json_get(d, i, "text"), finish = json_get(d, i, "finish_reason");
        if (json_is(d, text, JSON_STRING))
            add(t, (struct event_text){text, at.key, group, false, at.logprobs});
        pieces(t, d, json_get(d, i, "delta"), at);
        if (json_is(d, finish, JSON_STRING) && json_raw(d, finish).n > 2)
            end_group(t, group);
    }
}

static void messages_event(struct event_texts *t, const struct json_doc *d)
{
    uint64_t group = number(d, 0, "index", 0);
    struct place at = {hash_mix(2, group) | 1, group, JSON_NODE_NONE};
    if (is_word(d, 0, "type", "content_block_delta"))
        pieces(t, d, json_get(d, 0, "delta"), at);
    else if (is_word(d, 0, "type", "content_block_start")) {
        uint32_t text = json_get(d, json_get(d, 0, "content_block"), "text");
        for (uint32_t k = json_first(d, 0); json_is(d, text, JSON_STRING) && k != JSON_NODE_NONE;
             k = json_next(d, 0, k))
            if (json_string_eq(d, k, SPAN("content_block")))
                pieces(t, d, k + 1, at);
    } else if (is_word(d, 0, "type", "content_block_stop"))
        end_group(t, group);
    else if (is_word(d, 0, "type", "message_delta") || is_word(d, 0, "type", "message_stop") ||
             is_word(d, 0, "type", "error"))
        t->ends_all = true;
}

static bool ends_with(struct span s, struct span end)
{
    return s.n >= end.n && memcmp(s.p + s.n - end.n, end.p, end.n) == 0;
}

static bool has(struct span s, const char *what)
{
    return span_find(s, span_str(what)) >= 0;
}

static void responses_event(struct event_texts *t, const struct json_doc *d, struct arena *a)
{
    struct span type = json_string(d, json_get(d, 0, "type"), a);
    uint64_t group = number(d, 0, "output_index", 0);
    t->sequence = json_get(d, 0, "sequence_number");
    if (ends_with(type, SPAN(".delta"))) {
        uint32_t delta = json_get(d, 0, "delta");
        uint64_t key = hash_bytes_seed(type.p, type.n, hash_mix(3, group));
        key = hash_mix(key, number(d, 0, "content_index", 0));
        key = hash_mix(key, number(d, 0, "summary_index", 0)) | 1;
        if (json_is(d, delta, JSON_STRING) && (!has(type, "audio") || has(type, "transcript")))
            add(t, (struct event_text){delta, key, group, has(type, "arguments"), logprobs_of(d, 0)});
    } else if (ends_with(type, SPAN(".done"))) {
        end_group(t, group);
    } else if (ends_with(type, SPAN(".completed")) || ends_with(type, SPAN(".failed")) ||
               ends_with(type, SPAN(".incomplete")) || span_eq(type, SPAN("error"))) {
        t->ends_all = true;
    }
}

static bool is_known(const struct event_texts *t, unsigned n, uint32_t node)
{
    for (unsigned i = 0; i < n; i++)
        if (t->text[i].node == node)
            return true;
    return false;
}

/* Texts that stand there whole: of events that repeat what the pieces said, of engines that send a message
 * at once. */
static void whole_texts(struct event_texts *t, const struct json_doc *d)
{
    struct text_list list;
    texts_of_event(d, t->arena, &list);
    const unsigned n = t->n;
    for (unsigned i = 0; i < list.n; i++)
        if (!is_known(t, n, list.slot[i].node))
            add(t, (struct event_text){list.slot[i].node, EVENT_KEY_WHOLE, 0, list.slot[i].json,
                                       list.slot[i].logprobs});
}

/* One choice with nothing but that text: clients add up what deltas repeat, a role or a name as well. */
static bool has_one_piece(const struct json_doc *d)
{
    uint32_t choices = json_get(d, 0, "choices");
    if (!json_is(d, choices, JSON_ARRAY) || d->node[choices].count != 1)
        return false;
    uint32_t delta = json_get(d, json_first(d, choices), "delta");
    unsigned members = 0;
    for (uint32_t k = json_first(d, delta); json_is(d, delta, JSON_OBJECT) && k != JSON_NODE_NONE;
         k = json_next(d, delta, k))
        members += !json_is(d, k + 1, JSON_NULL);
    return members <= 1;
}

void event_texts(enum dialect_id dialect, const struct json_doc *d, struct arena *a, struct event_texts *ret)
{
    ret->arena = a;
    ret->text = NULL;
    ret->n = ret->cap = ret->n_groups = 0;
    ret->ends_all = ret->ends_groups = false;
    ret->sequence = JSON_NODE_NONE;
    switch (dialect) {
    case DIALECT_MESSAGES:
        messages_event(ret, d);
        break;
    case DIALECT_RESPONSES:
        responses_event(ret, d, a);
        break;
    default:
        choices_event(ret, d);
        break;
    }
    ret->is_single = ret->n == 1 && !ret->ends_all && !ret->ends_groups &&
                     (dialect == DIALECT_MESSAGES    ? is_word(d, 0, "type", "content_block_delta")
                      : dialect == DIALECT_RESPONSES ? true
                                                     : has_one_piece(d));
    whole_texts(ret, d);
    ret->is_single =
        ret->is_single && ret->n == 1 && !ret->text[0].json && ret->text[0].logprobs == JSON_NODE_NONE;
}
