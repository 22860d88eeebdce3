/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenAI Chat Completions: `messages`; usage at the root of the reply and of the stream's last chunk (of
 * every chunk with some engines, whose later numbers are the larger ones).
 */
#include "dialect/parts.h"
#include "dialect/prompt.h"

static void prompt(struct prompt_writer *w)
{
    prompt_tools(w, json_get(w->doc, 0, "tools"));
    prompt_items(w, json_get(w->doc, 0, "messages"));
}

const struct dialect dialect_chat = {
    .name = "chat",
    .path = "/v1/chat/completions",
    .has_stream = true,
    .prompt = prompt,
    .reply_usage = usage_at_root,
    .event_usage = usage_at_root,
};
