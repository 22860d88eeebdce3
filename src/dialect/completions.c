/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenAI's legacy completions: `prompt` is a string, strings, token ids or lists of token ids. Usage as in
 * chat.
 */
#include "dialect/parts.h"
#include "dialect/prompt.h"

static void prompt(struct prompt_writer *w)
{
    prompt_bare(w, json_get(w->doc, 0, "prompt"));
}

const struct dialect dialect_completions = {
    .name = "completions",
    .path = "/v1/completions",
    .has_stream = true,
    .prompt = prompt,
    .reply_usage = usage_at_root,
    .event_usage = usage_at_root,
};
