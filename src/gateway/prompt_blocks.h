/* SPDX-License-Identifier: Apache-2.0
 *
 * A request's whole prompt as block keys (balance/block_chain.h), for strategies that look at those: tools
 * first, then the conversation as its dialect has it, every byte once and none copied. Salt is what else the
 * engine's cache depends on: the body's `cache_salt`, and the adapter where the body names it (`lora_path`,
 * SGLang's). The upstream model is no salt: it belongs to the target, and so does its cache.
 */
#ifndef ROLTER_GATEWAY_PROMPT_BLOCKS_H
#define ROLTER_GATEWAY_PROMPT_BLOCKS_H

#include "balance/balance.h"
#include "dialect/dialect.h"

/* The keys are in <a>: 8 bytes for 64 of the body. <ret_context>: lengths only. O(bytes of the body). */
void prompt_blocks_read(enum dialect_id id, const struct json_doc *d, struct arena *a,
                        struct prompt_blocks *ret, struct prompt_context *ret_context);

#endif
