/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenAI embeddings: `input` is a string, strings, token ids or lists of token ids; some engines take
 * `messages` (pictures beside text) instead.
 */
#include "dialect/parts.h"
#include "dialect/prompt.h"

static void prompt(struct prompt_writer *w)
{
    uint32_t input = json_get(w->doc, 0, "input");
    if (input != JSON_NODE_NONE)
        prompt_bare(w, input);
    else
        prompt_items(w, json_get(w->doc, 0, "messages"));
}

const struct dialect dialect_embeddings = {
    .name = "embeddings",
    .path = "/v1/embeddings",
    .prompt = prompt,
    .reply_usage = usage_at_root,
    .event_usage = usage_at_root,
};
