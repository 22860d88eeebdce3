/* SPDX-License-Identifier: Apache-2.0
 *
 * Anthropic Messages: `system` (a string or text blocks), then `messages`. A stream's usage is split:
 * message_start has it under `message`, message_delta at the root; the fields are cumulative, so the last
 * value of each counts.
 */
#include "dialect/parts.h"
#include "dialect/prompt.h"

static void prompt(struct prompt_writer *w)
{
    uint32_t system = json_get(w->doc, 0, "system");
    prompt_tools(w, json_get(w->doc, 0, "tools"));
    if (json_is(w->doc, system, JSON_STRING) || json_is(w->doc, system, JSON_ARRAY))
        prompt_turn(w, SPAN("system"), system);
    prompt_items(w, json_get(w->doc, 0, "messages"));
}

static void event_usage(const struct json_doc *d, struct usage *io)
{
    usage_read(d, json_get(d, json_get(d, 0, "message"), "usage"), io);
    usage_at_root(d, io);
}

const struct dialect dialect_messages = {
    .name = "messages",
    .path = "/v1/messages",
    .has_stream = true,
    .anthropic_errors = true,
    .prompt = prompt,
    .reply_usage = usage_at_root,
    .event_usage = event_usage,
};
