/* SPDX-License-Identifier: Apache-2.0
 *
 * Rerank has no conversation: its prompt is the bounded raw body (R20), which dialect_prompt gives when a
 * reader finds nothing.
 */
#include "dialect/parts.h"
#include "dialect/prompt.h"

static void prompt(struct prompt_writer *w)
{
    (void)w;
}

const struct dialect dialect_rerank = {
    .name = "rerank",
    .path = "/v1/rerank",
    .prompt = prompt,
    .reply_usage = usage_at_root,
    .event_usage = usage_at_root,
};
