/* SPDX-License-Identifier: Apache-2.0
 *
 * Consistent hashing. Each target has VIRTUAL_NODES x weight points on a ring of 64-bit numbers, at the
 * hashes of its identity and 0, 1, 2 ...; a key belongs to the first point at or after its hash. Where a
 * point lies depends on its target alone, not on position or company: taking a target away moves only the
 * keys that it owned, and several gateways with the same pool agree.
 *
 * The ring is built once per configuration and never written again. A pick is one binary search; a key whose
 * owner cannot be used goes on along the ring to the first point of a candidate. Requests without any key
 * take turns.
 */
#include <stdlib.h>

#include "balance/strategy.h"
#include "base/hash.h"
#include "base/mem.h"

/* The share of a target strays by about 1/sqrt(nodes): 8 % here. */
enum { VIRTUAL_NODES = 160 };
/* Memory of a ring: 12 bytes per point. Above, weights are cut down; only by powers of two, so that small
 * changes of the pool do not change the number of everybody's points. */
enum { POINTS_MAX = 1 << 18 };

struct point {
    uint64_t hash;
    uint64_t identity; /* settles equal hashes, whatever the order of the targets */
    uint32_t owner;
};

/* Apart, because a search touches the hashes only. */
struct ring {
    unsigned n;
    uint64_t *hashes;
    uint32_t *owners;
};

static int by_hash(const void *x, const void *y)
{
    const struct point *a = x, *b = y;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    if (a->identity != b->identity)
        return a->identity < b->identity ? -1 : 1;
    return a->owner < b->owner ? -1 : a->owner > b->owner;
}

/* Points of one target when weights are cut by <shift>. */
static uint64_t points_of(const struct balancer *b, unsigned i, unsigned shift)
{
    uint64_t weight = (uint64_t)b->targets[i].weight >> shift;
    return VIRTUAL_NODES * (weight ? weight : 1);
}

static uint64_t points_of_all(const struct balancer *b, unsigned shift)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < b->n; i++)
        sum += points_of(b, i, shift);
    return sum;
}

static void start(struct balancer *b, struct balancer *previous)
{
    unsigned shift = 0;
    while (shift < 31 && points_of_all(b, shift) > POINTS_MAX)
        shift++;
    struct ring *ring = MEM_NEW(struct ring);
    ring->n = (unsigned)points_of_all(b, shift);
    struct point *points = mem_array(ring->n, sizeof *points);
    unsigned at = 0;
    for (unsigned i = 0; i < b->n; i++) {
        uint64_t identity = target_identity(b->targets[i].target);
        for (uint64_t k = 0; k < points_of(b, i, shift); k++)
            points[at++] = (struct point){hash_mix(identity, k), identity, i};
    }
    qsort(points, ring->n, sizeof *points, by_hash);
    ring->hashes = mem_array(ring->n, sizeof *ring->hashes);
    ring->owners = mem_array(ring->n, sizeof *ring->owners);
    for (unsigned i = 0; i < ring->n; i++) {
        ring->hashes[i] = points[i].hash;
        ring->owners[i] = points[i].owner;
    }
    free(points);
    b->state = ring;
    rotation_continue(b, previous);
}

static void stop(struct balancer *b)
{
    struct ring *ring = b->state;
    if (!ring)
        return;
    free(ring->hashes);
    free(ring->owners);
    free(ring);
}

/* First point at or after <hash>, wrapping. */
static unsigned ring_find(const struct ring *ring, uint64_t hash)
{
    const uint64_t *base = ring->hashes;
    for (unsigned n = ring->n; n > 0;) {
        unsigned half = n / 2;
        bool right = base[half] < hash;
        base = right ? base + half + 1 : base;
        n = right ? n - half - 1 : half;
    }
    unsigned at = (unsigned)(base - ring->hashes);
    return at < ring->n ? at : 0;
}

static bool key_of(const struct pick_context *c, uint64_t *ret)
{
    if (c->session.n > 0)
        *ret = hash_bytes(c->session.p, c->session.n);
    else if (c->prompt_len > 0 || c->prompt_digest != 0)
        *ret = c->prompt_digest;
    else
        return false;
    return true;
}

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    const struct ring *ring = b->state;
    uint64_t key;
    if (!key_of(c, &key))
        return (struct choice){(int)rotation_next(b, set), PICK_ROTATION};
    unsigned at = ring_find(ring, key);
    if (candidates_has(set, ring->owners[at]))
        return (struct choice){(int)ring->owners[at], PICK_HASH};
    do
        at = at + 1 < ring->n ? at + 1 : 0;
    while (!candidates_has(set, ring->owners[at]));
    return (struct choice){(int)ring->owners[at], PICK_HASH_NEXT};
}

const struct strategy strategy_hash_ring = {
    .name = "consistent_hash",
    .reads_prompt = true,
    .start = start,
    .stop = stop,
    .choose = choose,
};
