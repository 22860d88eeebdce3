/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/prefill_claims.h"

uint32_t prefill_claim_begin(struct prefill_claims *c, uint32_t lane, const uint64_t *keys, uint32_t n)
{
    uint64_t taken = atomic_load_explicit(&c->taken, memory_order_relaxed);
    unsigned i;
    do {
        if (taken == UINT64_MAX)
            return 0;
        i = (unsigned)__builtin_ctzll(~taken);
    } while (!atomic_compare_exchange_weak_explicit(&c->taken, &taken, taken | (uint64_t)1 << i,
                                                    memory_order_acquire, memory_order_relaxed));
    struct prefill_claim *x = &c->claim[i];
    uint32_t n_keys = 0;
    for (uint32_t at = 1; at <= n && n_keys < CLAIM_KEYS; at = 2 * at + 1)
        atomic_store_explicit(&x->key[n_keys++], keys[at - 1], memory_order_relaxed);
    atomic_store_explicit(&x->lane, lane, memory_order_relaxed);
    atomic_store_explicit(&x->n_keys, n_keys, memory_order_relaxed);
    atomic_fetch_or_explicit(&c->shown, (uint64_t)1 << i, memory_order_release);
    return i + 1;
}

void prefill_claim_end(struct prefill_claims *c, uint32_t id)
{
    if (id == 0)
        return;
    uint64_t bit = (uint64_t)1 << (id - 1);
    atomic_fetch_and_explicit(&c->shown, ~bit, memory_order_relaxed);
    atomic_fetch_and_explicit(&c->taken, ~bit, memory_order_release);
}

uint32_t prefill_claim_match(const struct prefill_claims *c, unsigned i, const uint64_t *keys, uint32_t n,
                             uint32_t *ret_lane)
{
    const struct prefill_claim *x = &c->claim[i];
    uint32_t n_keys = atomic_load_explicit(&x->n_keys, memory_order_relaxed), depth = 0, k = 0;
    for (uint32_t at = 1; at <= n && k < n_keys && k < CLAIM_KEYS; at = 2 * at + 1, k++) {
        if (atomic_load_explicit(&x->key[k], memory_order_relaxed) != keys[at - 1])
            break;
        depth = at;
    }
    *ret_lane = atomic_load_explicit(&x->lane, memory_order_relaxed);
    return depth;
}
