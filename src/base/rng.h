/* SPDX-License-Identifier: Apache-2.0
 *
 * Small fast random numbers (xoshiro256**) for balancing, jitter and tests; not for secrets or ids.
 * rng_secure_bytes asks the kernel and is for ids and salts.
 */
#ifndef ROLTER_BASE_RNG_H
#define ROLTER_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t s[4];
};

/* The same seed gives the same numbers. */
void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_u64(struct rng *r);
/* Uniform in 0 .. n-1 without bias; n > 0. */
uint64_t rng_below(struct rng *r, uint64_t n);
/* Uniform in [0, 1). */
double rng_unit(struct rng *r);
void rng_secure_bytes(void *out, size_t n);

#endif
