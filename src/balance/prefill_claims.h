/* SPDX-License-Identifier: Apache-2.0
 *
 * Picks whose prompt is not recorded yet, so that siblings that other threads pick meanwhile see it. A claim
 * says which lane gets a prompt, by some of its keys: those at the places 1, 3, 7, 15 and so on. So of what
 * two prompts share at least half is seen. Inside of balance/.
 *
 * Threads: any, without locks. A claim that is read while it gives way to another may count for the wrong
 * lane, for one pick. Cost: one atomic read when nobody claims anything.
 */
#ifndef ROLTER_BALANCE_PREFILL_CLAIMS_H
#define ROLTER_BALANCE_PREFILL_CLAIMS_H

#include <stdatomic.h>
#include <stdint.h>

enum { CLAIMS_MAX = 64, CLAIM_KEYS = 27 }; /* 2^27 blocks are the most of a lane */

struct prefill_claim {
    _Alignas(64) _Atomic uint32_t lane, n_keys;
    _Atomic uint64_t key[CLAIM_KEYS];
};

struct prefill_claims {
    _Alignas(64) _Atomic uint64_t shown; /* a bit for each claim */
    _Atomic uint64_t taken;
    struct prefill_claim claim[CLAIMS_MAX];
};

/* A prompt that the lane gets, 0 when there is no room; else for prefill_claim_end, once. */
uint32_t prefill_claim_begin(struct prefill_claims *c, uint32_t lane, const uint64_t *keys, uint32_t n);
void prefill_claim_end(struct prefill_claims *c, uint32_t id);

/* How many leading blocks of a prompt claim <i>'s lane gets; 0: it is another prompt. */
uint32_t prefill_claim_match(const struct prefill_claims *c, unsigned i, const uint64_t *keys, uint32_t n,
                             uint32_t *ret_lane);

#endif
