/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"

void map_init(struct map *m)
{
    *m = (struct map){0};
}

void map_fini(struct map *m)
{
    free(m->slots);
    *m = (struct map){0};
}

static struct map_slot *find(const struct map *m, struct span key, uint64_t hash)
{
    for (size_t i = (size_t)hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_slot *s = &m->slots[i];
        if (!s->value || (s->hash == hash && span_eq(s->key, key)))
            return s;
    }
}

static void grow(struct map *m)
{
    struct map bigger = {.cap = m->cap ? m->cap * 2 : 16, .n = m->n};
    bigger.slots = mem_array(bigger.cap, sizeof *bigger.slots);
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].value)
            *find(&bigger, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    free(m->slots);
    *m = bigger;
}

void *map_put(struct map *m, struct span key, void *value)
{
    CHECK(value != NULL);
    if ((m->n + 1) * 4 > m->cap * 3)
        grow(m);
    uint64_t hash = hash_bytes(key.p, key.n);
    struct map_slot *s = find(m, key, hash);
    void *old = s->value;
    if (!old)
        m->n++;
    *s = (struct map_slot){.key = key, .hash = hash, .value = value};
    return old;
}

void *map_get(const struct map *m, struct span key)
{
    if (m->cap == 0)
        return NULL;
    return find(m, key, hash_bytes(key.p, key.n))->value;
}
