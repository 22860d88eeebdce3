/* SPDX-License-Identifier: Apache-2.0
 *
 * Which prompts each target of a pool has served: the memory behind `cache_aware` (A1, A14-A16, A18).
 *
 * One radix tree for all targets. A run of text that several targets or prompts share is stored once, with
 * the set of targets that hold it, so one walk down the tree answers for all targets how many leading bytes
 * of a prompt each of them has: exact to the byte. A target is a slot, found by identity, which survives a
 * reload; the index is shared by all balancers that come after each other in one place.
 *
 * Built for: prompts of 1 to 32 KiB (longer ones are cut, the beginning is kept), a few to a few hundred
 * targets, a million nodes per target, every worker matching and recording at each request.
 *
 * Bounds (A15, R21): per slot at most max_nodes nodes that it holds and max_bytes of memory. A slot is
 * charged for every node that it holds as if it were alone with it (node, text, its share of a table of
 * children) and for each of its prompts, so the sum over the slots is never below what is allocated. Past a
 * cap the least recently recorded prompt goes, and only what no other prompt uses is freed; matching
 * refreshes nothing. The prompt recorded last always stays: other slots' prompts may cut its path into more
 * than max_nodes pieces.
 *
 * Threads: any, at any time. prefix_match takes no lock and never waits; recording locks single nodes and the
 * slot, for tens of nanoseconds plus the copying of new text. Costs: matching compares each byte once, at
 * memcmp's speed; recording likewise, or just a refresh with a hint; a walk goes through at most 1,024 nodes,
 * whatever prompts have been made for it, and then claims less than is there; nothing walks the whole index,
 * nothing recurses. It knows no targets, loads or strategies.
 */
#ifndef ROLTER_BALANCE_PREFIX_INDEX_H
#define ROLTER_BALANCE_PREFIX_INDEX_H

#include "base/span.h"

enum {
    PREFIX_PROMPT_MAX = 32 * 1024,
    PREFIX_SLOTS_MAX = 384, /* more targets are legal; those without a slot are always cold */
    PREFIX_NO_SLOT = UINT32_MAX
};

struct prefix_limits {
    uint64_t max_nodes; /* per slot, >= 1 */
    uint64_t max_bytes; /* per slot; at least PREFIX_MAX_BYTES_MIN is used */
};
enum { PREFIX_MAX_BYTES_MIN = 4096 };
#define PREFIX_LIMITS_DEFAULT ((struct prefix_limits){.max_nodes = 1000000, .max_bytes = 268435456})

struct prefix_index;
struct prefix_node;

/* Reference counted, made with one reference. The last unref frees it, about 0.1 microseconds a node: nobody
 * is inside by then. */
struct prefix_index *prefix_index_new(struct prefix_limits limits);
struct prefix_index *prefix_index_ref(struct prefix_index *ix);
void prefix_index_unref(struct prefix_index *ix);
/* New limits count from the next prompt that is recorded for a slot; a slot that is far above them comes down
 * to them by up to 2048 prompts with each. */
void prefix_limits_set(struct prefix_index *ix, struct prefix_limits limits);

/* Slots. One per identity, shared by all who ask for it. A slot that everybody has put back keeps what it
 * knows for a target that returns, until slots run short or more of them are idle than in use (and more than
 * 8): then the one that is idle longest is emptied. O(PREFIX_SLOTS_MAX), at reloads. PREFIX_NO_SLOT: all in
 * use. */
uint32_t prefix_slot_get(struct prefix_index *ix, uint64_t identity);
void prefix_slot_put(struct prefix_index *ix, uint32_t slot);

/* What one slot has of a prompt. <at> is for prefix_record and only valid in the section it was made in. */
struct prefix_hit {
    uint32_t bytes;
    struct prefix_node *at;
};

/* Leading bytes of <prompt> that each of the <n> slots has, in one walk. Slots may be PREFIX_NO_SLOT (0
 * bytes); one that occurs twice is answered twice. <ret> has room for <n>. */
void prefix_match(struct prefix_index *ix, struct span prompt, const uint32_t *slots, unsigned n,
                  struct prefix_hit *ret);

/* A match and the recording that follows it stand in one section, if the hint is to be used
 * (balance/epoch.h). */
void prefix_section_begin(void);
void prefix_section_end(void);

/* What prefix_withdraw needs; all zero: nothing was recorded. */
struct prefix_receipt {
    uint64_t serial;
    uint32_t lane, entry;
    uint32_t evicted; /* how many prompts the caps put out for it */
};

/* Records that the slot's target serves <prompt> now: it becomes the slot's most recent one, and the slot's
 * warmth rises by one. <hint>: what prefix_match said for this slot and prompt in this section, or NULL.
 * An empty prompt or PREFIX_NO_SLOT records nothing. */
struct prefix_receipt prefix_record(struct prefix_index *ix, uint32_t slot, struct span prompt,
                                    const struct prefix_hit *hint);
/* The same for an attempt that may fail yet: what the caps would put out for it stays, so that a failed
 * attempt displaces nothing (A14). prefix_settle or prefix_withdraw follows. The slot may be above its caps
 * by a sixteenth of them and PREFIX_PENDING_NODES or PREFIX_PENDING_BYTES meanwhile, not by more. */
struct prefix_receipt prefix_record_pending(struct prefix_index *ix, uint32_t slot, struct span prompt,
                                            const struct prefix_hit *hint);
enum { PREFIX_PENDING_NODES = 64, PREFIX_PENDING_BYTES = 1 << 20 };
/* The attempt stands: the slot comes down to its caps. How many prompts that put out. */
uint32_t prefix_settle(struct prefix_index *ix, struct prefix_receipt receipt);
/* Takes one recording back, at most once per receipt: the warmth falls, and the prompt goes if no other
 * recording of it stands (A14: what was resident before stays, as recent as this recording made it). Nothing
 * happens when the prompt has been evicted or the slot reset meanwhile. */
void prefix_withdraw(struct prefix_index *ix, struct prefix_receipt receipt);

/* The slot's target has lost its cache: nothing matches from now on, the warmth is 0 (A18). O(1); the memory
 * comes back in small pieces with the recordings that follow, or by prefix_tidy. */
void prefix_reset(struct prefix_index *ix, uint32_t slot);
/* The target's generation, told before a match: when it is higher than the last time, the slot is reset; a
 * lower one is late news. The first one that a slot is told counts as known. One atomic read when nothing has
 * changed. */
void prefix_slot_generation(struct prefix_index *ix, uint32_t slot, unsigned generation);
/* Empties up to <prompts> prompts of slots that were reset or given up; true when there are no more. */
bool prefix_tidy(struct prefix_index *ix, size_t prompts);

/* Recordings of the slot not withdrawn since its last reset (R1). Lock-free. */
uint64_t prefix_warmth(const struct prefix_index *ix, uint32_t slot);

struct prefix_stats {
    uint64_t nodes, bytes, prompts; /* now */
    uint64_t evictions;             /* prompts put out by the caps, ever; survives resets */
    uint64_t warmth;
    unsigned node_bytes, prompt_bytes;   /* what a node without its text, and a prompt, are charged with */
    unsigned chunk_bytes, chunk_prompts; /* and what the places for so many prompts are */
};
void prefix_stats(const struct prefix_index *ix, uint32_t slot, struct prefix_stats *ret);
/* Bytes that the index has asked the allocator for and not yet given up. */
uint64_t prefix_memory(const struct prefix_index *ix);

/* For tests: walks everything, aborts when an invariant does not hold. Nobody else may be at it. */
void prefix_check(struct prefix_index *ix);

#endif
