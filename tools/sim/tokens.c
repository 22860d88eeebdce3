/* SPDX-License-Identifier: Apache-2.0 */
#include "tokens.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"

void tokens_init(struct tokens *t, size_t max)
{
    *t = (struct tokens){.max = max};
}

void tokens_fini(struct tokens *t)
{
    MEM_FREE(t->v);
    t->n = t->total = t->cap = 0;
}

void tokens_clear(struct tokens *t)
{
    t->n = t->total = 0;
    t->held_n = 0;
}

static void push(struct tokens *t, uint32_t id)
{
    t->total++;
    if (t->n == t->max)
        return;
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 256;
        if (cap > t->max)
            cap = t->max;
        t->v = mem_realloc(t->v, cap * sizeof *t->v);
        t->cap = cap;
    }
    t->v[t->n++] = id;
}

/* The length goes in, so that "a" and "a\0" differ. */
static uint32_t id_of(uint32_t word, unsigned n)
{
    uint64_t x = ((uint64_t)n << 32 | word) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return TOKEN_FIRST_TEXT + (uint32_t)((x >> 32) % (TOKEN_VOCABULARY - TOKEN_FIRST_TEXT));
}

static uint32_t word_of(const void *p, unsigned n)
{
    const uint8_t *b = p;
    uint32_t w = 0;
    for (unsigned i = 0; i < n; i++)
        w |= (uint32_t)b[i] << (8 * i);
    return w;
}

void tokens_text(struct tokens *t, const char *p, size_t n)
{
    if (t->held_n) {
        for (; n && t->held_n < TOKEN_BYTES; n--)
            t->held[t->held_n++] = (uint8_t)*p++;
        if (t->held_n < TOKEN_BYTES)
            return;
        push(t, id_of(word_of(t->held, TOKEN_BYTES), TOKEN_BYTES));
        t->held_n = 0;
    }
    for (; n >= TOKEN_BYTES; p += TOKEN_BYTES, n -= TOKEN_BYTES)
        push(t, id_of(word_of(p, TOKEN_BYTES), TOKEN_BYTES));
    for (; n; n--)
        t->held[t->held_n++] = (uint8_t)*p++;
}

void tokens_put(void *arg, const char *p, size_t n)
{
    tokens_text(arg, p, n);
}

void tokens_end(struct tokens *t)
{
    if (t->held_n)
        push(t, id_of(word_of(t->held, t->held_n), t->held_n));
    t->held_n = 0;
}

void tokens_mark(struct tokens *t, uint32_t id)
{
    tokens_end(t);
    push(t, id);
}

void tokens_role(struct tokens *t, struct span role)
{
    tokens_mark(t, TOKEN_ROLE_FIRST + (uint32_t)(hash_bytes(role.p, role.n) & 255));
}

size_t tokens_count(size_t bytes)
{
    return (bytes + TOKEN_BYTES - 1) / TOKEN_BYTES;
}
