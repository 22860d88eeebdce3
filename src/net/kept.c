/* SPDX-License-Identifier: Apache-2.0 */
#include "net/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void kept_init(struct kept *k, size_t max_bytes)
{
    *k = (struct kept){.max_bytes = max_bytes};
}

void kept_fini(struct kept *k)
{
    for (unsigned i = 0; i < KEPT_CLASSES; i++) {
        void *next;
        for (void *p = k->free[i]; p; p = next) {
            memcpy(&next, p, sizeof next);
            free(p);
        }
        k->free[i] = NULL;
    }
    k->bytes = 0;
}

/* KEPT_CLASSES for sizes beyond the largest class. */
static unsigned class_of(size_t n)
{
    unsigned i = 0;
    for (size_t size = KEPT_MIN_BYTES; i < KEPT_CLASSES && size < n; size *= 2)
        i++;
    return i;
}

char *kept_get(struct kept *k, size_t n, size_t *ret_cap)
{
    unsigned i = class_of(n);
    if (i == KEPT_CLASSES) {
        char *large = malloc(n);
        if (large)
            *ret_cap = n;
        return large;
    }
    size_t size = (size_t)KEPT_MIN_BYTES << i;
    char *p = k->free[i];
    if (p) {
        memcpy(&k->free[i], p, sizeof(void *));
        k->bytes -= size;
    } else {
        p = malloc(size);
        if (!p)
            return NULL;
    }
    *ret_cap = size;
    return p;
}

void kept_put(struct kept *k, char *p, size_t cap)
{
    if (!p)
        return;
    unsigned i = class_of(cap);
    if (i == KEPT_CLASSES || k->bytes + cap > k->max_bytes) {
        free(p);
        return;
    }
    CHECK(cap == (size_t)KEPT_MIN_BYTES << i);
    memcpy(p, &k->free[i], sizeof(void *));
    k->free[i] = p;
    k->bytes += cap;
}
