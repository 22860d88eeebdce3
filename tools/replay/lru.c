/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes in one array, linked by index in the order of use; a hash table with linear probing from block number
 * to node.
 */
#include "lru.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"

/* Node 0 is the ring's head: next = most recent, prev = least recent. As a table entry it means empty. */
struct node {
    uint32_t block, next, prev;
};

struct lru {
    uint32_t cap, n;
    uint32_t mask; /* table size - 1 */
    struct node *nodes;
    uint32_t *table;
    void (*evicted)(void *arg, uint32_t block);
    void *arg;
};

struct lru *lru_new(uint32_t cap)
{
    CHECK(cap >= 1 && cap <= 1u << 30);
    struct lru *l = MEM_NEW(struct lru);
    uint32_t size = 16;
    while (size / 2 < cap)
        size *= 2;
    l->cap = cap;
    l->mask = size - 1;
    l->nodes = mem_array((size_t)cap + 1, sizeof *l->nodes);
    l->table = mem_array(size, sizeof *l->table);
    return l;
}

void lru_watch(struct lru *l, void (*evicted)(void *arg, uint32_t block), void *arg)
{
    l->evicted = evicted;
    l->arg = arg;
}

void lru_free(struct lru *l)
{
    if (!l)
        return;
    free(l->nodes);
    free(l->table);
    free(l);
}

uint32_t lru_count(const struct lru *l)
{
    return l->n;
}

static inline uint32_t home(const struct lru *l, uint32_t block)
{
    return (uint32_t)(block * 0x9e3779b97f4a7c15u >> 32) & l->mask;
}

/* Where the block stands in the table, or the empty place where it would. */
static inline uint32_t place(const struct lru *l, uint32_t block)
{
    uint32_t at = home(l, block);
    while (l->table[at] && l->nodes[l->table[at]].block != block)
        at = (at + 1) & l->mask;
    return at;
}

bool lru_has(const struct lru *l, uint32_t block)
{
    return l->table[place(l, block)] != 0;
}

uint32_t lru_match(const struct lru *l, const uint32_t *blocks, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && lru_has(l, blocks[i]))
        i++;
    return i;
}

/* Empties a place and moves up those behind it that would not be found any more. */
static void table_remove(struct lru *l, uint32_t at)
{
    for (uint32_t i = (at + 1) & l->mask; l->table[i]; i = (i + 1) & l->mask) {
        uint32_t from = home(l, l->nodes[l->table[i]].block);
        if (((i - from) & l->mask) < ((i - at) & l->mask))
            continue; /* its home lies behind the gap */
        l->table[at] = l->table[i];
        at = i;
    }
    l->table[at] = 0;
}

static inline void unlink_node(struct lru *l, uint32_t i)
{
    struct node *x = &l->nodes[i];
    l->nodes[x->prev].next = x->next;
    l->nodes[x->next].prev = x->prev;
}

static inline void link_first(struct lru *l, uint32_t i)
{
    struct node *x = &l->nodes[i], *head = &l->nodes[0];
    x->prev = 0;
    x->next = head->next;
    l->nodes[head->next].prev = i;
    head->next = i;
}

static void use(struct lru *l, uint32_t block)
{
    uint32_t at = place(l, block), i = l->table[at];
    if (i) {
        unlink_node(l, i);
        link_first(l, i);
        return;
    }
    if (l->n < l->cap) {
        i = ++l->n;
    } else {
        i = l->nodes[0].prev;
        if (l->evicted)
            l->evicted(l->arg, l->nodes[i].block);
        table_remove(l, place(l, l->nodes[i].block));
        unlink_node(l, i);
        at = place(l, block); /* the gap may have moved it */
    }
    l->nodes[i].block = block;
    l->table[at] = i;
    link_first(l, i);
}

void lru_use(struct lru *l, const uint32_t *blocks, uint32_t n)
{
    while (n > 0)
        use(l, blocks[--n]);
}
