/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= HASH_STREAM_BYTES, "XXH3 state fits its place");

uint64_t hash_bytes(const void *p, size_t n)
{
    return XXH3_64bits(p, n);
}

uint64_t hash_bytes_seed(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

uint64_t hash_mix(uint64_t a, uint64_t b)
{
    uint64_t both[2] = {a, b};
    return XXH3_64bits(both, sizeof both);
}

void hash_begin(struct hash_stream *h)
{
    XXH3_64bits_reset((XXH3_state_t *)h->state);
}

void hash_update(struct hash_stream *h, const void *p, size_t n)
{
    XXH3_64bits_update((XXH3_state_t *)h->state, p, n);
}

uint64_t hash_end(const struct hash_stream *h)
{
    return XXH3_64bits_digest((const XXH3_state_t *)h->state);
}
