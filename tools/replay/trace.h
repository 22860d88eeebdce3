/* SPDX-License-Identifier: Apache-2.0
 *
 * A request trace in Mooncake's format: one JSON object a line,
 *
 *   {"timestamp": 1500, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
 *
 * timestamp in milliseconds, lengths in tokens, one id per block of the prompt (512 tokens unless the caller
 * says otherwise); two prompts whose leading ids are equal have equal leading text. Other members are
 * ignored, so are ids behind input_length. Lines that cannot be read are reported with their number, never
 * passed over in silence.
 *
 * Ids are numbered in the order of their first use ("blocks" below), so that tables over them are arrays;
 * <ids> gives the trace's own back. Memory: heap, trace_fini. Complexity: O(bytes). Thread: one owner.
 */
#ifndef ROLTER_REPLAY_TRACE_H
#define ROLTER_REPLAY_TRACE_H

#include "base/arena.h"
#include "base/span.h"

enum { TRACE_BLOCK_TOKENS = 512, TRACE_LINE_MAX = 16 * 1024 * 1024, TRACE_FAULTS_SHOWN = 20 };

struct trace_request {
    uint64_t at_us;         /* as the trace says it */
    uint32_t input, output; /* tokens */
    size_t first;           /* of trace.blocks */
    uint32_t n;             /* blocks; the last one may be cut by <input> */
};

struct trace {
    struct trace_request *requests; /* in the order of time; equal times in the order of the lines */
    size_t n, cap;
    uint32_t *blocks;
    size_t n_blocks, blocks_cap;
    uint64_t *ids; /* of each block number */
    uint32_t n_ids;
    uint32_t block_tokens;
    uint64_t input_tokens, output_tokens;
    size_t lines, skipped; /* read, and not understood */

    /* ------ while it is read ------ */
    uint32_t *slots; /* hash table of block number + 1 */
    size_t n_slots;
    size_t ids_cap;
    struct arena arena;
};

struct trace_fault {
    size_t column;    /* from 1 */
    const char *what; /* static text */
};

void trace_init(struct trace *t, uint32_t block_tokens);
void trace_fini(struct trace *t);
/* One line without its end; an empty one is nothing. False with the fault, and the trace as it was. */
bool trace_add_line(struct trace *t, struct span line, struct trace_fault *ret) MUST_CHECK;
/* After the last line: puts the requests in order and frees what only reading needs. */
void trace_finish(struct trace *t);

/* A whole file, gzipped or not; "-" is standard input. At most <limit> requests (0: all). Bad lines are told
 * to <tell> as "FILE:LINE:COLUMN: what" (the first TRACE_FAULTS_SHOWN and a sum) and left out. False when the
 * file could not be read to its end (also told). */
typedef void trace_tell_fn(void *arg, const char *text);
bool trace_read_file(struct trace *t, const char *path, size_t limit, trace_tell_fn *tell,
                     void *arg) MUST_CHECK;

static inline const uint32_t *trace_blocks(const struct trace *t, const struct trace_request *r)
{
    return t->blocks ? t->blocks + r->first : NULL; /* a trace without any block has no array */
}
/* Tokens of the leading <blocks> blocks of a request. */
static inline uint32_t trace_tokens(const struct trace *t, const struct trace_request *r, uint32_t blocks)
{
    uint64_t tokens = (uint64_t)blocks * t->block_tokens;
    return tokens < r->input ? (uint32_t)tokens : r->input;
}

#endif
