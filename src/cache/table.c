/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear probing; a removal moves what stands behind it back, so there are no marks of what was deleted.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "cache/memory_impl.h"

enum { TABLE_LEAST = 64 };

void table_init(struct table *t)
{
    *t = (struct table){mem_array(TABLE_LEAST, sizeof *t->slot), TABLE_LEAST, 0};
}

void table_fini(struct table *t)
{
    free(t->slot);
}

size_t table_bytes(const struct table *t)
{
    return t->cap * sizeof *t->slot;
}

static void place(struct table *t, uint64_t hash, void *p)
{
    size_t i = hash & (t->cap - 1);
    while (t->slot[i].p)
        i = (i + 1) & (t->cap - 1);
    t->slot[i] = (struct table_slot){hash, p};
}

void table_add(struct table *t, uint64_t hash, void *p)
{
    if (t->n >= t->cap / 4 * 3) {
        struct table bigger = {mem_array(t->cap * 2, sizeof *t->slot), t->cap * 2, t->n};
        for (size_t i = 0; i < t->cap; i++)
            if (t->slot[i].p)
                place(&bigger, t->slot[i].hash, t->slot[i].p);
        free(t->slot);
        *t = bigger;
    }
    place(t, hash, p);
    t->n++;
}

void *table_next(const struct table *t, uint64_t hash, size_t *io_at)
{
    size_t mask = t->cap - 1;
    size_t i = *io_at == SIZE_MAX ? hash & mask : (*io_at + 1) & mask;
    for (; t->slot[i].p; i = (i + 1) & mask) {
        if (t->slot[i].hash == hash) {
            *io_at = i;
            return t->slot[i].p;
        }
    }
    return NULL;
}

void table_remove(struct table *t, uint64_t hash, const void *p)
{
    size_t mask = t->cap - 1, hole = SIZE_MAX;
    void *at;
    while ((at = table_next(t, hash, &hole)) != p)
        CHECK_MSG(at != NULL, "what is removed is in the table");
    for (size_t i = (hole + 1) & mask; t->slot[i].p; i = (i + 1) & mask) {
        size_t home = t->slot[i].hash & mask;
        /* It may move into the hole unless its home lies between the hole and where it stands. */
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            t->slot[hole] = t->slot[i];
            hole = i;
        }
    }
    t->slot[hole].p = NULL;
    t->n--;
}
