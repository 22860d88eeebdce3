/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/rng.h"
#include "json/parser.h"

enum {
    FEW = 16, /* up to here names are compared with each other, behind a filter of 64 bits */
    /* Hash table on the stack (4 KiB) for objects of up to half as many members, in the arena for larger
       ones. */
    STACK_SLOTS = 512,
    STACK_NAME = 256,
};

struct slot {
    uint32_t name; /* node, 0 = free: the object itself stands in front of every name */
    uint32_t hash;
};

/* Clients choose the names, so they must not know which ones collide. */
static uint64_t hash_seed(void)
{
    static _Atomic uint64_t kept;
    uint64_t seed = atomic_load_explicit(&kept, memory_order_relaxed);
    if (seed == 0) {
        uint64_t fresh;
        rng_secure_bytes(&fresh, sizeof(fresh));
        fresh |= 1;
        if (atomic_compare_exchange_strong(&kept, &seed, fresh))
            seed = fresh;
    }
    return seed;
}

static struct span name_raw(const struct json_parser *ps, uint32_t i)
{
    return span_of(ps->text + ps->node[i].at + 1, ps->node[i].len - 2);
}

/* The name as it is meant; unescaped into <room> or the arena where it has escapes. */
static struct span name_plain(const struct json_parser *ps, uint32_t i, char room[STACK_NAME])
{
    struct span raw = name_raw(ps, i);
    if (!(ps->node[i].flags & JSON_ESCAPED))
        return raw;
    size_t cap = raw.n + JSON_UNESCAPE_ROOM;
    char *to = cap <= STACK_NAME ? room : arena_alloc(ps->arena, cap);
    const char *at = raw.p;
    return span_of(to, json_unescape(&at, raw.p + raw.n, to, cap));
}

static bool same_name(const struct json_parser *ps, uint32_t a, uint32_t b)
{
    char room_a[STACK_NAME], room_b[STACK_NAME];
    return span_eq(name_plain(ps, a, room_a), name_plain(ps, b, room_b));
}

static bool repeat_hashed(const struct json_parser *ps, uint32_t obj)
{
    struct slot stack[STACK_SLOTS], *slot = stack;
    uint32_t end = ps->node[obj].end;
    uint64_t slots = 64;
    while (slots < (uint64_t)ps->node[obj].count * 2)
        slots *= 2;
    if (slots > STACK_SLOTS)
        slot = arena_alloc(ps->arena, slots * sizeof(*slot));
    memset(slot, 0, slots * sizeof(*slot));
    uint64_t seed = hash_seed();
    for (uint32_t i = obj + 1; i < end; i = ps->node[i + 1].end) {
        char room[STACK_NAME];
        struct span name = name_plain(ps, i, room);
        uint64_t h = hash_bytes_seed(name.p, name.n, seed);
        uint64_t at = h & (slots - 1);
        for (; slot[at].name; at = (at + 1) & (slots - 1)) {
            if (slot[at].hash == (uint32_t)(h >> 32) && same_name(ps, slot[at].name, i))
                return true;
        }
        slot[at] = (struct slot){i, (uint32_t)(h >> 32)};
    }
    return false;
}

bool json_names_repeat(const struct json_parser *ps, uint32_t obj)
{
    const struct json_node *node = ps->node;
    if (node[obj].count > FEW)
        return repeat_hashed(ps, obj);
    uint64_t filter = 0;
    uint32_t end = node[obj].end;
    for (uint32_t i = obj + 1; i < end; i = node[i + 1].end) {
        if (UNLIKELY(node[i].flags & JSON_ESCAPED))
            return repeat_hashed(ps, obj);
        /* First and last byte; of an empty name these are its quotes. */
        const char *p = ps->text + node[i].at;
        uint32_t len = node[i].len;
        unsigned mix = (unsigned char)p[1] * 5u + (unsigned char)p[len - 2] * 11u + len * 23u;
        uint64_t bit = (uint64_t)1 << (mix & 63);
        if (UNLIKELY(filter & bit)) {
            for (uint32_t j = obj + 1; j < i; j = node[j + 1].end) {
                if (node[j].len == len && memcmp(ps->text + node[j].at, p, len) == 0)
                    return true;
            }
        }
        filter |= bit;
    }
    return false;
}
