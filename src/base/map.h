/* SPDX-License-Identifier: Apache-2.0
 *
 * Hash map from bytes to pointers, for tables that are built once and read often (names of routes, providers,
 * configuration keys). The map borrows its keys: they live at least as long as the entry.
 * Complexity: O(1) expected. Thread: many readers, or one writer.
 */
#ifndef ROLTER_BASE_MAP_H
#define ROLTER_BASE_MAP_H

#include "base/span.h"

struct map_slot {
    struct span key;
    uint64_t hash;
    void *value;
};

struct map {
    struct map_slot *slots;
    size_t cap; /* a power of two, or 0 */
    size_t n;
};

void map_init(struct map *m);
void map_fini(struct map *m);
/* Sets <key>; returns the value that stood there before, or NULL. <value> is not NULL. */
void *map_put(struct map *m, struct span key, void *value);
void *map_get(const struct map *m, struct span key);

#endif
