/* SPDX-License-Identifier: Apache-2.0
 *
 * The books of one lane: in which order its blocks go. Inside of balance/, of mirror.c only. All calls under
 * the lane's lock.
 *
 * Exact "least recently used, ends first" without touching every block: a block is at least as recent as its
 * children and goes after them, so only ends need a place in the order. A note stands where a prompt ended
 * (it is in the list) or where prompts part (it counts the children); a block without a note has one child.
 * When the last child of a block goes, the block takes over the child's place in the order, which is the
 * oldest, unless a later prompt ended there.
 *
 * A block's parent is known only when the block has been read, and every one lies elsewhere in memory: to put
 * out a long prompt would be to wait for one after the other. So the lane remembers in which order blocks
 * came
 * ("trail"), and what goes next is on its way before it is needed. The trail is a ring: what it says of old
 * blocks may be of others by now, and costs no more than the wait.
 */
#ifndef ROLTER_BALANCE_MIRROR_LANE_H
#define ROLTER_BALANCE_MIRROR_LANE_H

#include "balance/block_table.h"

struct lane_note {
    uint32_t slot;
    uint32_t older, newer; /* in the list; newer also links free notes */
    uint32_t next;         /* of the same hash */
    uint32_t kids;         /* children that the lane holds; the top bit: in the list */
    uint32_t serial;       /* of the recording that ended here last; 0 = none that still counts */
    uint32_t trail;        /* where on the trail the block is; TRAIL_END = unknown */
};
#define TRAIL_END UINT32_MAX

struct lane_books {
    struct lane_note *notes; /* [0] is the list's head: newer = oldest note, older = newest one */
    uint32_t *heads;
    uint32_t n_heads, used, free;
    uint32_t *trail; /* room entries: a slot; or, with TRAIL_JUMP, the place of the next one's parent */
    uint32_t trail_at;
    uint32_t count; /* blocks held */
    uint32_t room;
    uint32_t n_notes;
};

void lane_init(struct lane_books *l, uint32_t room);
/* Retires its memory. In a section of epoch.h. */
void lane_retire(struct lane_books *l);
uint64_t lane_memory(const struct lane_books *l);

/* How many of the leading blocks the lane holds. */
uint32_t lane_depth(const struct block_table *t, uint64_t bit, const uint64_t *keys, uint32_t n);
/* Records a prompt in a lane that may hold <size> >= 1 blocks. Returns how many leading blocks it holds now.
 */
uint32_t lane_record(struct lane_books *l, struct block_table *t, uint64_t bit, uint32_t size,
                     const uint64_t *keys, uint32_t n, uint32_t serial, uint32_t *ret_before,
                     uint32_t *ret_evicted);
/* Takes the blocks from <depth> down to <before> back, from the end <key> on. False when nothing was. */
bool lane_withdraw(struct lane_books *l, struct block_table *t, uint64_t bit, uint64_t end, uint32_t before,
                   uint32_t depth, uint32_t serial);
/* Puts blocks out until <keep> are left, at most <most>. Returns how many. */
uint32_t lane_evict(struct lane_books *l, struct block_table *t, uint64_t bit, uint32_t keep, uint32_t most);

/* Recordings that would make the same lane, oldest first: calls <each> with the keys of the path to every
 * place in the list. <keys> has room for <count>. */
void lane_replay(const struct lane_books *l, const struct block_table *t, uint64_t *keys,
                 void (*each)(void *arg, const uint64_t *keys, uint32_t n, uint32_t serial), void *arg);

#endif
