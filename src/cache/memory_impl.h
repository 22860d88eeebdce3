/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard of the memory store: index, scopes, queues. Inside of cache/. Everything here happens under the
 * shard's lock; what is taken out is handed to the caller, who frees it after unlocking.
 */
#ifndef ROLTER_CACHE_MEMORY_IMPL_H
#define ROLTER_CACHE_MEMORY_IMPL_H

#include <pthread.h>

#include "base/list.h"
#include "cache/memory.h"

enum queue_kind { QUEUE_SMALL, QUEUE_MAIN, QUEUES };
/* What scopes are ranked by: their bytes in one of the queues, or in both. */
enum { RANK_TOTAL = QUEUES, RANKS };

enum { FREQ_MAX = 3 };

struct scope {
    uint64_t id;
    size_t bytes[RANKS];
    unsigned heap_at[RANKS];
    unsigned n;
    struct list queue[QUEUES]; /* of struct node, oldest first */
};

struct node {
    struct list link; /* in its scope's queue; in the list of victims when it was taken out */
    struct cache_entry *entry;
    struct scope *scope;
    size_t bytes; /* of node and entry */
    uint8_t kind; /* enum queue_kind */
    uint8_t freq;
};

/* Open table from 64-bit numbers to pointers. Numbers may repeat: the caller looks at all of them. */
struct table_slot {
    uint64_t hash;
    void *p; /* NULL: free */
};
struct table {
    struct table_slot *slot;
    size_t cap; /* a power of two */
    size_t n;
};

/* What left the small queue lately: fingerprint and when, in a table that forgets by being overwritten. */
struct ghost {
    uint32_t print, when;
};

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    size_t budget, bytes;
    struct table nodes, scopes;
    struct scope **heap[RANKS]; /* the scope with most bytes on top; each holds all scopes */
    size_t heap_cap;
    size_t queue_bytes[QUEUES];
    size_t n_main;
    struct ghost *ghost;
    size_t ghost_cap;
    uint32_t ghost_now; /* evictions from the small queue so far */
    size_t sweep_at;
    struct memory_stats stats;
};

void shard_init(struct shard *s, size_t budget);
void shard_fini(struct shard *s);

struct node *shard_find(const struct shard *s, const struct cache_digest *key);
/* A hit. */
static inline void shard_touch(struct node *n)
{
    if (n->freq < FREQ_MAX)
        n->freq++;
}
/* Takes the node out into <victims>. */
void shard_take(struct shard *s, struct node *n, struct list *victims);
/* Takes out what S3-FIFO says until <bytes> more fit, at most <most>; false when they still do not. */
bool shard_make_room(struct shard *s, size_t bytes, unsigned most, struct list *victims);
/* <n> has its entry and bytes. <kept> is the node that it replaces, already taken out, or NULL. */
void shard_insert(struct shard *s, struct node *n, const struct node *kept);

void table_init(struct table *t);
void table_fini(struct table *t);
size_t table_bytes(const struct table *t);
void table_add(struct table *t, uint64_t hash, void *p);
void table_remove(struct table *t, uint64_t hash, const void *p);
/* The next pointer with this number from *io_at on (begin with SIZE_MAX); NULL: no more. */
void *table_next(const struct table *t, uint64_t hash, size_t *io_at);

#endif
