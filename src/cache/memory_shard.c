/* SPDX-License-Identifier: Apache-2.0
 *
 * S3-FIFO over the queues of many scopes. With one scope it is plain S3-FIFO.
 */
#include <malloc.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "cache/memory_impl.h"

enum {
    SMALL_SHARE = 10,    /* the small queues have a tenth of the room */
    WANTED = 1,          /* asked for so often while in the small queue, an entry moves to the main queue */
    SECOND_CHANCES = 32, /* looked at for one eviction, at most */
    GHOST_WAYS = 4,
};

/* The heaps. */

/* Equal ones in a fixed order, so that what is evicted never depends on the heap's history. */
static bool is_heavier(const struct scope *a, const struct scope *b, unsigned k)
{
    return a->bytes[k] != b->bytes[k] ? a->bytes[k] > b->bytes[k] : a->id < b->id;
}

static void heap_set(struct shard *s, unsigned k, unsigned i, struct scope *c)
{
    s->heap[k][i] = c;
    c->heap_at[k] = i;
}

static void heap_up(struct shard *s, unsigned k, struct scope *c)
{
    unsigned i = c->heap_at[k];
    for (; i > 0; i = (i - 1) / 2) {
        struct scope *parent = s->heap[k][(i - 1) / 2];
        if (!is_heavier(c, parent, k))
            break;
        heap_set(s, k, i, parent);
    }
    heap_set(s, k, i, c);
}

static void heap_down(struct shard *s, unsigned k, struct scope *c)
{
    unsigned i = c->heap_at[k], n = (unsigned)s->scopes.n;
    for (;;) {
        unsigned child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && is_heavier(s->heap[k][child + 1], s->heap[k][child], k))
            child++;
        if (!is_heavier(s->heap[k][child], c, k))
            break;
        heap_set(s, k, i, s->heap[k][child]);
        i = child;
    }
    heap_set(s, k, i, c);
}

static size_t heap_bytes(const struct shard *s)
{
    return RANKS * s->heap_cap * sizeof *s->heap[0];
}

/* The scopes. */

/* Everything besides nodes and entries. */
static size_t fixed_bytes(const struct shard *s)
{
    return table_bytes(&s->nodes) + table_bytes(&s->scopes) + heap_bytes(s) + s->ghost_cap * sizeof *s->ghost;
}

static struct scope *find_scope(const struct shard *s, uint64_t id)
{
    size_t at = SIZE_MAX;
    return table_next(&s->scopes, id, &at);
}

static struct scope *add_scope(struct shard *s, uint64_t id)
{
    struct scope *c = MEM_NEW(struct scope);
    c->id = id;
    if (s->scopes.n == s->heap_cap) {
        s->heap_cap = s->heap_cap ? 2 * s->heap_cap : 8;
        for (unsigned k = 0; k < RANKS; k++)
            s->heap[k] = mem_realloc(s->heap[k], s->heap_cap * sizeof *s->heap[k]);
    }
    for (unsigned k = 0; k < QUEUES; k++)
        list_init(&c->queue[k]);
    for (unsigned k = 0; k < RANKS; k++) {
        heap_set(s, k, (unsigned)s->scopes.n, c);
        heap_up(s, k, c);
    }
    table_add(&s->scopes, id, c);
    s->bytes += malloc_usable_size(c);
    return c;
}

static void remove_scope(struct shard *s, struct scope *c)
{
    table_remove(&s->scopes, c->id, c);
    for (unsigned k = 0; k < RANKS; k++) {
        struct scope *last = s->heap[k][s->scopes.n];
        if (last == c)
            continue;
        heap_set(s, k, c->heap_at[k], last);
        heap_up(s, k, last);
        heap_down(s, k, last);
    }
    s->bytes -= malloc_usable_size(c);
    free(c);
}

static void queue_add(struct shard *s, struct node *n, enum queue_kind k)
{
    struct scope *c = n->scope;
    n->kind = (uint8_t)k;
    list_push(&c->queue[k], &n->link);
    c->bytes[k] += n->bytes;
    c->bytes[RANK_TOTAL] += n->bytes;
    s->queue_bytes[k] += n->bytes;
    s->n_main += k == QUEUE_MAIN;
    heap_up(s, k, c);
    heap_up(s, RANK_TOTAL, c);
}

static void queue_remove(struct shard *s, struct node *n)
{
    enum queue_kind k = n->kind;
    struct scope *c = n->scope;
    list_remove(&n->link);
    c->bytes[k] -= n->bytes;
    c->bytes[RANK_TOTAL] -= n->bytes;
    s->queue_bytes[k] -= n->bytes;
    s->n_main -= k == QUEUE_MAIN;
    heap_down(s, k, c);
    heap_down(s, RANK_TOTAL, c);
}

/* The ghosts. */

static uint32_t ghost_print(const struct node *n)
{
    return (uint32_t)(digest_short(&n->entry->facts.key) >> 16);
}

static struct ghost *ghost_bucket(struct ghost *g, size_t cap, uint32_t print)
{
    return g + (print & (cap - 1) & ~(size_t)(GHOST_WAYS - 1));
}

static void ghost_put(struct ghost *all, size_t cap, struct ghost g)
{
    struct ghost *b = ghost_bucket(all, cap, g.print), *oldest = b;
    for (int i = 0; i < GHOST_WAYS; i++)
        if (b[i].when < oldest->when)
            oldest = &b[i];
    *oldest = g;
}

/* As many slots as the index has: the ghosts that count are as many as the main queue has entries. */
static void ghost_fit(struct shard *s)
{
    size_t cap = s->nodes.cap;
    if (cap <= s->ghost_cap)
        return;
    struct ghost *bigger = mem_array(cap, sizeof *bigger);
    for (size_t i = 0; i < s->ghost_cap; i++)
        if (s->ghost[i].when)
            ghost_put(bigger, cap, s->ghost[i]);
    free(s->ghost);
    s->ghost = bigger;
    s->ghost_cap = cap;
}

static void ghost_add(struct shard *s, const struct node *n)
{
    if (++s->ghost_now == 0) { /* after four thousand million evictions: forget, start anew */
        memset(s->ghost, 0, s->ghost_cap * sizeof *s->ghost);
        s->ghost_now = 1;
    }
    ghost_put(s->ghost, s->ghost_cap, (struct ghost){ghost_print(n), s->ghost_now});
}

static bool ghost_has(struct shard *s, const struct node *n)
{
    uint32_t print = ghost_print(n);
    struct ghost *b = ghost_bucket(s->ghost, s->ghost_cap, print);
    for (int i = 0; i < GHOST_WAYS; i++) {
        if (b[i].when && b[i].print == print) {
            bool is_recent = s->ghost_now - b[i].when < s->n_main;
            b[i].when = 0;
            return is_recent;
        }
    }
    return false;
}

/* The shard. */

void shard_init(struct shard *s, size_t budget)
{
    *s = (struct shard){.budget = budget};
    CHECK(pthread_mutex_init(&s->lock, NULL) == 0);
    table_init(&s->nodes);
    table_init(&s->scopes);
    ghost_fit(s);
    s->bytes = fixed_bytes(s);
}

static void free_node(struct node *n)
{
    entry_unref(n->entry);
    free(n);
}

void shard_fini(struct shard *s)
{
    for (size_t i = 0; i < s->nodes.cap; i++)
        if (s->nodes.slot[i].p)
            free_node(s->nodes.slot[i].p);
    for (size_t i = 0; i < s->scopes.cap; i++)
        free(s->scopes.slot[i].p);
    for (unsigned k = 0; k < RANKS; k++)
        free(s->heap[k]);
    table_fini(&s->nodes);
    table_fini(&s->scopes);
    free(s->ghost);
    pthread_mutex_destroy(&s->lock);
}

struct node *shard_find(const struct shard *s, const struct cache_digest *key)
{
    size_t at = SIZE_MAX;
    struct node *n;
    while ((n = table_next(&s->nodes, digest_short(key), &at)))
        if (digest_eq(&n->entry->facts.key, key))
            return n;
    return NULL;
}

void shard_take(struct shard *s, struct node *n, struct list *victims)
{
    struct scope *c = n->scope;
    queue_remove(s, n);
    table_remove(&s->nodes, digest_short(&n->entry->facts.key), n);
    s->bytes -= n->bytes;
    list_push(victims, &n->link);
    if (--c->n == 0)
        remove_scope(s, c);
}

void shard_insert(struct shard *s, struct node *n, const struct node *kept)
{
    size_t before = fixed_bytes(s);
    uint64_t id = n->entry->facts.owner.scope;
    struct scope *c = find_scope(s, id);
    if (!c)
        c = add_scope(s, id);
    n->scope = c;
    n->freq = kept ? kept->freq : 0;
    c->n++;
    table_add(&s->nodes, digest_short(&n->entry->facts.key), n);
    ghost_fit(s);
    bool known = ghost_has(s, n);
    queue_add(s, n, kept ? kept->kind : known ? QUEUE_MAIN : QUEUE_SMALL);
    s->bytes += n->bytes + fixed_bytes(s) - before;
}

/* The one to look at next, and the queue that it stands in. Half of an equal share is everybody's own: a
 * scope with less than that loses nothing, the one that holds most of all gives way for it. */
static struct node *candidate(const struct shard *s)
{
    bool small = s->queue_bytes[QUEUE_SMALL] > s->budget / SMALL_SHARE || s->queue_bytes[QUEUE_MAIN] == 0;
    struct scope *c = s->heap[small ? QUEUE_SMALL : QUEUE_MAIN][0];
    if (c->bytes[RANK_TOTAL] < s->budget / (2 * s->scopes.n)) {
        c = s->heap[RANK_TOTAL][0];
        small = c->bytes[QUEUE_SMALL] > c->bytes[RANK_TOTAL] / SMALL_SHARE || c->bytes[QUEUE_MAIN] == 0;
    }
    return LIST_ITEM(c->queue[small ? QUEUE_SMALL : QUEUE_MAIN].next, struct node, link);
}

/* To the main queue, or to its end. */
static void move_to_main(struct shard *s, struct node *n)
{
    queue_remove(s, n);
    queue_add(s, n, QUEUE_MAIN);
}

static void evict_one(struct shard *s, struct list *victims)
{
    for (unsigned looked = 0;; looked++) {
        struct node *n = candidate(s);
        bool small = n->kind == QUEUE_SMALL;
        if (looked < SECOND_CHANCES && n->freq >= (small ? WANTED : 1)) {
            n->freq = small ? 0 : n->freq - 1;
            move_to_main(s, n);
            continue;
        }
        if (small)
            ghost_add(s, n);
        s->stats.evicted++;
        shard_take(s, n, victims);
        return;
    }
}

bool shard_make_room(struct shard *s, size_t bytes, unsigned most, struct list *victims)
{
    for (; s->bytes + bytes > s->budget && s->nodes.n > 0; most--) {
        if (most == 0)
            return false;
        evict_one(s, victims);
    }
    return true;
}
