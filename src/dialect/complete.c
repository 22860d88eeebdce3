/* SPDX-License-Identifier: Apache-2.0 */
#include "dialect/complete.h"

#include <stdlib.h>

#include "base/mem.h"
#include "dialect/complete_impl.h"

enum { EVENT_MAX = 64 << 20 };

static const struct complete_judge *const judges[DIALECT_COUNT] = {
    [DIALECT_CHAT] = &judge_chat,
    [DIALECT_COMPLETIONS] = &judge_completions,
    [DIALECT_MESSAGES] = &judge_messages,
    [DIALECT_RESPONSES] = &judge_responses,
    [DIALECT_EMBEDDINGS] = &judge_embeddings,
};

const char *complete_word(enum complete_verdict v)
{
    static const char *const words[] = {
#define X(name, word) word,
        COMPLETE_VERDICTS(X)
#undef X
    };
    CHECK((unsigned)v < COMPLETE_VERDICT_COUNT);
    return words[v];
}

/* What the judges share. */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void look_for_text(void *arg, const char *p, size_t n)
{
    bool *found = arg;
    for (size_t i = 0; i < n && !*found; i++)
        *found = !is_blank(p[i]);
}

bool has_text(const struct json_doc *d, uint32_t i)
{
    bool found = false;
    json_string_each(d, i, look_for_text, &found);
    return found;
}

bool is_full_array(const struct json_doc *d, uint32_t i)
{
    return json_is(d, i, JSON_ARRAY) && d->node[i].count > 0;
}

bool part_index(const struct json_doc *d, uint32_t obj, const char *name, unsigned otherwise, uint64_t *ret)
{
    uint32_t i = member(d, obj, name);
    uint64_t v = otherwise;
    if ((i != JSON_NODE_NONE && !json_u64(d, i, &v)) || v >= COMPLETE_PARTS_MAX)
        return false;
    *ret = v;
    return true;
}

enum complete_verdict reason_verdict(const struct json_doc *d, uint32_t reason,
                                     const struct reason_word *table, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_word(d, reason, table[i].word))
            return table[i].verdict;
    return COMPLETE_UNKNOWN_REASON;
}

void judge_reason(struct complete *c, enum complete_verdict v)
{
    if (v == COMPLETE_LENGTH) {
        c->length_cut = true;
        if (c->o.store_truncated)
            v = COMPLETE_OK;
    }
    if (v == COMPLETE_OK)
        c->ended = true;
    else
        judge_against(c, v);
}

/* The request. */

static uint64_t prompts_of(const struct json_doc *d, uint32_t prompt)
{
    if (!json_is(d, prompt, JSON_ARRAY))
        return 1;
    if (d->node[prompt].count == 0)
        return 0;
    /* Token ids of one prompt, or several prompts. */
    return json_is(d, prompt + 1, JSON_NUMBER) ? 1 : d->node[prompt].count;
}

unsigned complete_asked(enum dialect_id dialect, const struct json_doc *request)
{
    uint64_t n = 1, each = 1;
    uint32_t wanted;
    switch (dialect) {
    case DIALECT_CHAT:
    case DIALECT_COMPLETIONS:
        wanted = member(request, 0, "n");
        if (wanted != JSON_NODE_NONE && !json_u64(request, wanted, &n))
            return 0;
        if (dialect == DIALECT_COMPLETIONS)
            each = prompts_of(request, json_get(request, 0, "prompt"));
        break;
    case DIALECT_EMBEDDINGS:
        each = member(request, 0, "input") == JSON_NODE_NONE
                   ? 0
                   : prompts_of(request, json_get(request, 0, "input"));
        break;
    default:
        break;
    }
    return n > UINT32_MAX || each > UINT32_MAX || n * each > UINT32_MAX ? 0 : (unsigned)(n * each);
}

/* The judge. */

struct complete *complete_new(const struct complete_options *o)
{
    struct complete *c = MEM_NEW(struct complete);
    CHECK((unsigned)o->dialect < DIALECT_COUNT && o->scratch);
    c->o = *o;
    c->judge = judges[o->dialect];
    if (!c->judge || (o->is_stream && !c->judge->event))
        c->verdict = COMPLETE_DIALECT;
    if (o->is_stream)
        sse_init(&c->sse, o->max_bytes ? o->max_bytes : EVENT_MAX);
    return c;
}

void complete_free(struct complete *c)
{
    if (!c)
        return;
    if (c->o.is_stream)
        sse_fini(&c->sse);
    free(c);
}

enum complete_verdict complete_so_far(const struct complete *c)
{
    return c->verdict;
}

/* Names that occur twice: readers do not agree on what such a text says. */
static bool read_object(struct complete *c, struct span text, struct json_doc *ret)
{
    struct json_fault fault;
    return json_parse(c->o.scratch, text, NULL, ret, &fault) && json_is(ret, 0, JSON_OBJECT) &&
           !(ret->odd & JSON_ODD_DUPLICATE);
}

static void on_event(void *arg, const struct sse_event *e)
{
    struct complete *c = arg;
    struct json_doc d;
    if (c->verdict != COMPLETE_OK)
        return;
    if (span_eq(e->data, SPAN("[DONE]"))) {
        if (c->judge->done_is_terminal && c->over)
            judge_against(c, COMPLETE_UNREADABLE); /* twice */
        else if (!c->judge->done_is_terminal && !c->over)
            judge_against(c, COMPLETE_NO_TERMINAL_EVENT);
        c->over = true;
        return;
    }
    if (span_eq(e->type, SPAN("error")))
        judge_against(c, COMPLETE_ERROR);
    else if (!read_object(c, e->data, &d))
        judge_against(c, COMPLETE_UNREADABLE);
    else if (member(&d, 0, "error") != JSON_NODE_NONE || is_word(&d, json_get(&d, 0, "type"), "error"))
        judge_against(c, COMPLETE_ERROR);
    else if (c->over && !is_word(&d, json_get(&d, 0, "type"), "ping"))
        judge_against(c, COMPLETE_UNREADABLE); /* behind the end */
    else
        c->judge->event(c, &d, e->type);
    arena_reset(c->o.scratch);
}

void complete_feed(struct complete *c, const char *p, size_t n)
{
    if (n == 0 || !c->o.is_stream || c->verdict != COMPLETE_OK)
        return;
    c->saw_lf |= memchr(p, '\n', n) != NULL;
    c->last_byte = p[n - 1];
    sse_feed(&c->sse, p, n, on_event, c);
    if (c->sse.broken)
        judge_against(c, COMPLETE_UNREADABLE);
}

static void end_stream(struct complete *c)
{
    /* A line that begins where the stream stops, or half of the last line's end. */
    if (sse_end(&c->sse, on_event, c) || (c->last_byte == '\r' && c->saw_lf))
        judge_against(c, COMPLETE_CUT);
    else if (!c->over)
        judge_against(c, COMPLETE_NO_TERMINAL_EVENT);
    else if (c->judge->done)
        c->judge->done(c);
}

static void end_json(struct complete *c, struct span body)
{
    struct json_doc d;
    if (!read_object(c, body, &d))
        judge_against(c, COMPLETE_UNREADABLE);
    else if (member(&d, 0, "error") != JSON_NODE_NONE || is_word(&d, json_get(&d, 0, "type"), "error"))
        judge_against(c, COMPLETE_ERROR);
    else
        c->judge->json(c, &d);
    arena_reset(c->o.scratch);
}

enum complete_verdict complete_end(struct complete *c, bool framed, struct span body, bool *ret_truncated)
{
    if (!framed)
        judge_against(c, COMPLETE_CUT);
    if (c->verdict == COMPLETE_OK) {
        if (c->o.is_stream)
            end_stream(c);
        else
            end_json(c, body);
    }
    if (!c->ended || c->open.n > 0)
        judge_against(c, COMPLETE_UNFINISHED);
    if (!c->any_output)
        judge_against(c, COMPLETE_EMPTY);
    if (c->verdict == COMPLETE_OK && ret_truncated)
        *ret_truncated = c->length_cut;
    return c->verdict;
}
