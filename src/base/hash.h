/* SPDX-License-Identifier: Apache-2.0
 *
 * XXH3, 64 bits, compiled in rather than called: Debian's shared library is built for SSE2 only.
 * Not for secrets; digests of keys use SHA-256.
 */
#ifndef ROLTER_BASE_HASH_H
#define ROLTER_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *p, size_t n);
uint64_t hash_bytes_seed(const void *p, size_t n, uint64_t seed);
/* Mixes two hashes; not symmetric. */
uint64_t hash_mix(uint64_t a, uint64_t b);

/* Streaming: equal to hash_bytes over the concatenation, however it is cut. */
enum { HASH_STREAM_BYTES = 576 };
struct hash_stream {
    _Alignas(64) unsigned char state[HASH_STREAM_BYTES];
};
void hash_begin(struct hash_stream *h);
void hash_update(struct hash_stream *h, const void *p, size_t n);
uint64_t hash_end(const struct hash_stream *h);

#endif
