/* SPDX-License-Identifier: Apache-2.0 */
#include "prompt_text.h"

#include <stdlib.h>

#include "balance/block_chain.h"
#include "base/hash.h"
#include "base/mem.h"

#define ROLE "user: "

/* Two words of three letters out of 16, from 24 bits of a mixed counter. */
static inline uint64_t words(uint64_t seed)
{
    uint64_t z = (seed ^ seed >> 31) * 0xbf58476d1ce4e5b9u;
    z ^= z >> 29;
    z *= 0x94d049bb133111ebu;
    z ^= z >> 32;
    return (z & 0x000f0f0f000f0f0fu) + 0x2061616120616161u;
}

void block_text_write(char *out, uint64_t id, size_t n)
{
    uint64_t seed = hash_mix(id, 0x626c6f636b) | 1, w;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        w = words(seed += 0x9e3779b97f4a7c15u);
        memcpy(out + i, &w, 8);
    }
    w = words(seed + 0x9e3779b97f4a7c15u);
    memcpy(out + i, &w, n - i);
}

uint64_t prompt_text_bytes(const struct prompt_text *p, const struct trace_request *r)
{
    return (uint64_t)r->input * p->block_bytes / p->trace->block_tokens;
}

size_t prompt_text_write(const struct prompt_text *p, const struct trace_request *r, char *out, size_t max)
{
    uint64_t n = prompt_text_bytes(p, r);
    const uint32_t *blocks = trace_blocks(p->trace, r);
    if (n > max)
        n = max;
    for (size_t at = 0; at < n; at += p->block_bytes) {
        size_t part = n - at < p->block_bytes ? n - at : p->block_bytes;
        block_text_write(out + at, p->trace->ids[*blocks++], part);
    }
    return n;
}

uint64_t prompt_turn_bytes(const struct prompt_text *p, const struct trace_request *r)
{
    return sizeof ROLE - 1 + prompt_text_bytes(p, r) + 1;
}

size_t prompt_turn_write(const struct prompt_text *p, const struct trace_request *r, char *out, size_t max)
{
    size_t n = sizeof ROLE - 1;
    if (max < n) {
        memcpy(out, ROLE, max);
        return max;
    }
    memcpy(out, ROLE, n);
    n += prompt_text_write(p, r, out + n, max - n);
    if (n < max)
        out[n++] = '\n';
    return n;
}

/* The pieces of the turn in order. */
static void each_piece(const struct prompt_text *p, const struct trace_request *r,
                       void (*put)(void *arg, const char *text, size_t n), void *arg)
{
    char part[PROMPT_BLOCK_BYTES];
    uint64_t left = prompt_text_bytes(p, r);
    const uint32_t *blocks = trace_blocks(p->trace, r);
    put(arg, ROLE, sizeof ROLE - 1);
    if (p->block_bytes <= sizeof part) {
        for (; left > 0; blocks++) {
            size_t n = left < p->block_bytes ? left : p->block_bytes;
            block_text_write(part, p->trace->ids[*blocks], n);
            put(arg, part, n);
            left -= n;
        }
    } else {
        char *all = mem_alloc(left + 1);
        put(arg, all, prompt_text_write(p, r, all, left));
        free(all);
    }
    put(arg, "\n", 1);
}

static void put_chain(void *arg, const char *text, size_t n)
{
    block_chain_feed(arg, text, n);
}

uint32_t prompt_turn_blocks(const struct prompt_text *p, const struct trace_request *r, uint64_t *keys,
                            uint64_t *ret_home)
{
    struct block_chain c;
    block_chain_begin(&c, 0, keys, block_chain_room(prompt_turn_bytes(p, r)));
    each_piece(p, r, put_chain, &c);
    *ret_home = block_chain_home(&c, 0, c.bytes);
    return c.n;
}

static void put_hash(void *arg, const char *text, size_t n)
{
    hash_update(arg, text, n);
}

uint64_t prompt_turn_digest(const struct prompt_text *p, const struct trace_request *r)
{
    struct hash_stream h;
    hash_begin(&h);
    each_piece(p, r, put_hash, &h);
    return hash_end(&h);
}
