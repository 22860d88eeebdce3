/* SPDX-License-Identifier: Apache-2.0
 *
 * Children of a node. Up to 64: an unordered list of first bytes with the children beside it; more: one place
 * for each byte. Readers look without a lock, so a place once given to a byte stays with it: a child that
 * goes leaves an empty place, which the same byte uses again; a new byte is appended before the count is
 * raised. When a list is full, or a quarter full, a new one takes its place.
 */
#include <stdlib.h>

#include "balance/epoch.h"
#include "balance/prefix_tree.h"
#include "base/mem.h"

enum { DIRECT = 256, LIST_MAX = 64, DIRECT_MIN = 41, SMALLEST = 2, PREFETCHED = 16 };

struct kids {
    uint16_t cap;
    uint16_t live; /* under the node's lock */
    atomic_uint_least16_t n;
    _Atomic(struct prefix_node *) at[];
    /* uint8_t byte[cap] behind; not with DIRECT */
};

static uint8_t *bytes_of(const struct kids *k)
{
    return (uint8_t *)&k->at[k->cap];
}

static size_t size_of(unsigned cap)
{
    return sizeof(struct kids) + cap * sizeof(struct prefix_node *) + (cap == DIRECT ? 0 : cap);
}

size_t kids_bytes(const struct kids *k)
{
    return k ? size_of(k->cap) : 0;
}

/* The place of <byte>, or NULL. */
static _Atomic(struct prefix_node *) *place_of(const struct kids *k, uint8_t byte)
{
    struct kids *mutable = (struct kids *)k;
    if (k->cap == DIRECT)
        return &mutable->at[byte];
    unsigned n = atomic_load_explicit(&mutable->n, memory_order_acquire);
    const uint8_t *bytes = bytes_of(k);
    if (n <= 4) {
        for (unsigned i = 0; i < n; i++)
            if (bytes[i] == byte)
                return &mutable->at[i];
        return NULL;
    }
    const uint8_t *found = memchr(bytes, byte, n);
    return found ? &mutable->at[found - bytes] : NULL;
}

struct prefix_node *kids_find(const struct kids *k, uint8_t byte)
{
    _Atomic(struct prefix_node *) *place = k ? place_of(k, byte) : NULL;
    return place ? LOAD(*place) : NULL;
}

unsigned kids_count(const struct kids *k)
{
    return k ? k->live : 0;
}

unsigned kids_list(const struct kids *k, struct prefix_node **ret)
{
    unsigned found = 0;
    unsigned n = !k ? 0 : k->cap == DIRECT ? DIRECT : RELAXED(k->n);
    for (unsigned i = 0; i < n; i++) {
        struct prefix_node *kid = RELAXED(k->at[i]);
        if (kid)
            ret[found++] = kid;
    }
    return found;
}

struct prefix_node *kids_only(const struct kids *k)
{
    struct prefix_node *all[DIRECT];
    return k && k->live == 1 && kids_list(k, all) == 1 ? all[0] : NULL;
}

bool kids_hold(const struct kids *k, uint32_t lane)
{
    unsigned n = !k ? 0 : k->cap == DIRECT ? DIRECT : RELAXED(k->n);
    /* Children lie anywhere in memory; fetching some at a time is much faster than one after the other. */
    for (unsigned i = 0; i < n && i < PREFETCHED; i++)
        __builtin_prefetch(RELAXED(k->at[i]));
    for (unsigned i = 0; i < n; i++) {
        struct prefix_node *kid = RELAXED(k->at[i]);
        if (kid && node_holds(kid, lane))
            return true;
    }
    return false;
}

/* A list of a size for <need> children and a few more. */
static struct kids *kids_new(struct lane *by, unsigned need)
{
    unsigned cap = SMALLEST;
    while (cap <= LIST_MAX && cap < need + need / 4)
        cap *= 2;
    if (cap > LIST_MAX)
        cap = DIRECT;
    struct kids *k = mem_zalloc(size_of(cap));
    k->cap = (uint16_t)cap;
    lane_allocated(by, (int64_t)size_of(cap));
    return k;
}

/* Into a list that no one else sees yet, or whose lock is held; there is room. */
static void append(struct kids *k, uint8_t byte, struct prefix_node *kid)
{
    k->live++;
    if (k->cap == DIRECT) {
        STORE(k->at[byte], kid);
        return;
    }
    unsigned n = RELAXED(k->n);
    STORE(k->at[n], kid);
    bytes_of(k)[n] = byte;
    STORE(k->n, (uint16_t)(n + 1));
}

static struct kids *copy(struct lane *by, const struct kids *k, unsigned need)
{
    struct kids *to = kids_new(by, need);
    unsigned n = k->cap == DIRECT ? DIRECT : RELAXED(k->n);
    for (unsigned i = 0; i < n; i++) {
        struct prefix_node *kid = RELAXED(k->at[i]);
        if (kid)
            append(to, k->cap == DIRECT ? (uint8_t)i : bytes_of(k)[i], kid);
    }
    return to;
}

void kids_retire(struct lane *by, struct kids *k)
{
    if (!k)
        return;
    lane_allocated(by, -(int64_t)size_of(k->cap));
    epoch_retire(k, size_of(k->cap));
}

void kids_put(struct lane *by, struct prefix_node *n, uint8_t byte, struct prefix_node *kid)
{
    struct kids *k = RELAXED(n->kids);
    if (!k) {
        k = kids_new(by, 1);
        append(k, byte, kid);
        STORE(n->kids, k);
        return;
    }
    _Atomic(struct prefix_node *) *place = place_of(k, byte);
    if (place) {
        k->live += RELAXED(*place) == NULL;
        STORE(*place, kid);
    } else if (RELAXED(k->n) < k->cap) {
        append(k, byte, kid);
    } else {
        struct kids *bigger = copy(by, k, k->live + 1u);
        append(bigger, byte, kid);
        STORE(n->kids, bigger);
        kids_retire(by, k);
    }
}

void kids_drop(struct lane *by, struct prefix_node *n, uint8_t byte)
{
    struct kids *k = RELAXED(n->kids);
    _Atomic(struct prefix_node *) *place = place_of(k, byte);
    CHECK(place && RELAXED(*place));
    STORE(*place, NULL);
    k->live--;
    if (k->live > 0 && (k->cap == SMALLEST || k->live >= (k->cap == DIRECT ? DIRECT_MIN : k->cap / 4 + 1)))
        return;
    STORE(n->kids, k->live > 0 ? copy(by, k, k->live) : NULL);
    kids_retire(by, k);
}
