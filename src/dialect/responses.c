/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenAI Responses: `instructions` as a system turn, then `input`: a string is one user turn, an array is
 * items. A stream's last event (response.completed, .incomplete, .failed) has the whole reply under
 * `response`.
 */
#include "dialect/parts.h"
#include "dialect/prompt.h"

static void prompt(struct prompt_writer *w)
{
    uint32_t instructions = json_get(w->doc, 0, "instructions"), input = json_get(w->doc, 0, "input");
    prompt_tools(w, json_get(w->doc, 0, "tools"));
    if (json_is(w->doc, instructions, JSON_STRING))
        prompt_turn(w, SPAN("system"), instructions);
    if (json_is(w->doc, input, JSON_STRING))
        prompt_turn(w, SPAN("user"), input);
    else
        prompt_items(w, input);
}

static void event_usage(const struct json_doc *d, struct usage *io)
{
    usage_read(d, json_get(d, json_get(d, 0, "response"), "usage"), io);
}

const struct dialect dialect_responses = {
    .name = "responses",
    .path = "/v1/responses",
    .has_stream = true,
    .prompt = prompt,
    .reply_usage = usage_at_root,
    .event_usage = event_usage,
};
