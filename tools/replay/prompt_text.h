/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for the prompts of a trace: each block id has its own fixed text of three-letter words, four bytes a
 * token, so that equal leading ids give equal leading bytes; the blocks of a request joined and cut to its
 * input_length. The same in every run and process. Needs no escapes in JSON.
 *
 * With another number of bytes per block (a multiple of 8) the prompts shrink or grow in proportion. Costs
 * about a nanosecond for eight bytes, so nobody keeps texts.
 */
#ifndef ROLTER_REPLAY_PROMPT_TEXT_H
#define ROLTER_REPLAY_PROMPT_TEXT_H

#include "trace.h"

enum { PROMPT_BLOCK_BYTES = 2048, PROMPT_BLOCK_BYTES_MAX = 1 << 20 };

struct prompt_text {
    const struct trace *trace;
    uint32_t block_bytes;
};

/* The first <n> bytes of the text of a block. */
void block_text_write(char *out, uint64_t id, size_t n);
/* Bytes of a request's text. */
uint64_t prompt_text_bytes(const struct prompt_text *p, const struct trace_request *r);
/* Its first <max> bytes at most; returns how many. */
size_t prompt_text_write(const struct prompt_text *p, const struct trace_request *r, char *out, size_t max);

/* What the gateway makes of that text, sent as the one user turn of a chat: role, text, line end. */
uint64_t prompt_turn_bytes(const struct prompt_text *p, const struct trace_request *r);
size_t prompt_turn_write(const struct prompt_text *p, const struct trace_request *r, char *out, size_t max);
/* Block keys of the whole turn (balance/block_chain.h) and, in *ret_home, what the gateway takes for the
 * conversation: the key at the turn's first 4 KiB. <keys> has room for prompt_turn_bytes / 64. */
uint32_t prompt_turn_blocks(const struct prompt_text *p, const struct trace_request *r, uint64_t *keys,
                            uint64_t *ret_home);
/* XXH3 of the whole turn. */
uint64_t prompt_turn_digest(const struct prompt_text *p, const struct trace_request *r);

#endif
