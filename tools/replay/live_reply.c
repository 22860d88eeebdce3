/* SPDX-License-Identifier: Apache-2.0 */
#include "live_reply.h"

enum { EVENT_MAX = 4 * 1024 * 1024 };

void live_reply_init(struct live_reply *r)
{
    *r = (struct live_reply){0};
    usage_init(&r->usage);
    sse_init(&r->sse, EVENT_MAX);
    arena_init(&r->arena, NULL);
}

void live_reply_fini(struct live_reply *r)
{
    sse_fini(&r->sse);
    arena_reset(&r->arena);
}

static bool has_text(const struct json_doc *d, uint32_t delta, const char *name)
{
    uint32_t i = json_get(d, delta, name);
    return json_is(d, i, JSON_STRING) && json_raw(d, i).n > 2;
}

static bool has_content(const struct json_doc *d)
{
    uint32_t choices = json_get(d, 0, "choices");
    if (!json_is(d, choices, JSON_ARRAY))
        return false;
    for (uint32_t i = json_first(d, choices); i != JSON_NODE_NONE; i = json_next(d, choices, i)) {
        uint32_t delta = json_get(d, i, "delta");
        if (has_text(d, delta, "content") || has_text(d, delta, "reasoning_content") ||
            has_text(d, delta, "reasoning") || json_is(d, json_get(d, delta, "tool_calls"), JSON_ARRAY))
            return true;
    }
    return false;
}

static void on_event(void *arg, const struct sse_event *e)
{
    struct live_reply *r = arg;
    struct json_doc d;
    struct json_fault fault;
    if (span_eq(e->data, SPAN("[DONE]"))) {
        r->is_done = true;
        return;
    }
    /* Most events bring one more token; those need no reading. */
    bool may_fail = span_starts(e->data, SPAN("{\"error\"")) || span_eq(e->type, SPAN("error"));
    if (r->has_content && !may_fail && !dialect_may_have_usage(DIALECT_CHAT, e->data))
        return;
    if (!json_parse(&r->arena, e->data, NULL, &d, &fault)) {
        r->is_broken = true;
    } else {
        uint32_t error = json_get(&d, 0, "error");
        r->is_error |= error != JSON_NODE_NONE && !json_is(&d, error, JSON_NULL);
        r->has_content |= has_content(&d);
        dialect_get(DIALECT_CHAT)->event_usage(&d, &r->usage);
    }
    arena_reset(&r->arena);
}

void live_reply_feed(struct live_reply *r, const char *p, size_t n)
{
    sse_feed(&r->sse, p, n, on_event, r);
}

const char *live_reply_end(struct live_reply *r)
{
    bool was_open = sse_end(&r->sse, on_event, r);
    if (r->is_error)
        return "an error in the stream";
    if (r->sse.broken)
        return "an event that is too long";
    if (was_open && !r->is_done)
        return "the stream broke off";
    if (r->is_broken)
        return "an event that cannot be read";
    /* An engine that leaves [DONE] out may have stopped anywhere. */
    return r->is_done ? NULL : "the stream ended without [DONE]";
}
