/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash of a block does not depend on the one before, so that the processor works at several; only the
 * last multiplication of each is chained. Products of 128 bits, folded, as wyhash has them.
 */
#include "balance/block_chain.h"

#include <string.h>

__extension__ typedef unsigned __int128 u128;

/* Odd numbers without structure (digits of pi and e). */
static const uint64_t secret[8] = {0x243f6a8885a308d3, 0x13198a2e03707345, 0xa4093822299f31d1,
                                   0x082efa98ec4e6c89, 0xb7e151628aed2a6b, 0xbf7158809cf4f3c7,
                                   0x62e7160f38b4da57, 0xa784d9045190cfef};

static inline uint64_t fold(uint64_t a, uint64_t b)
{
    u128 m = (u128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t word(const unsigned char *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif
    return w;
}

static inline uint64_t block_hash(const unsigned char *p)
{
    uint64_t a = fold(word(p) ^ secret[0], word(p + 8) ^ secret[1]);
    uint64_t b = fold(word(p + 16) ^ secret[2], word(p + 24) ^ secret[3]);
    uint64_t c = fold(word(p + 32) ^ secret[4], word(p + 40) ^ secret[5]);
    uint64_t d = fold(word(p + 48) ^ secret[6], word(p + 56) ^ secret[7]);
    return (a + (b << 32 | b >> 32)) ^ (c + (d << 32 | d >> 32));
}

void block_chain_begin(struct block_chain *c, uint64_t salt, uint64_t *keys, uint32_t cap)
{
    c->keys = keys;
    c->n = c->part_bytes = 0;
    c->cap = cap;
    c->bytes = 0;
    c->last = salt ^ secret[7];
}

/* Full blocks. 0 is no key: tables take it for an empty place. */
static void add_blocks(struct block_chain *c, const unsigned char *p, size_t n)
{
    uint64_t last = c->last;
    for (; n > 0 && c->n < c->cap; n--, p += BLOCK_BYTES) {
        uint64_t h = fold(last ^ block_hash(p), secret[0]) + last;
        last = h ? h : 1;
        c->keys[c->n++] = last;
    }
    c->last = last;
}

void block_chain_feed(struct block_chain *c, const void *data, size_t n)
{
    const unsigned char *p = data;
    c->bytes += n;
    if (c->part_bytes > 0) {
        size_t want = BLOCK_BYTES - c->part_bytes, part = n < want ? n : want;
        memcpy(c->part + c->part_bytes, p, part);
        c->part_bytes += (uint32_t)part;
        p += part;
        n -= part;
        if (c->part_bytes < BLOCK_BYTES)
            return;
        add_blocks(c, c->part, 1);
        c->part_bytes = 0;
    }
    add_blocks(c, p, n / BLOCK_BYTES);
    p += n / BLOCK_BYTES * BLOCK_BYTES;
    c->part_bytes = (uint32_t)(n % BLOCK_BYTES);
    memcpy(c->part, p, c->part_bytes);
}
