/* SPDX-License-Identifier: Apache-2.0
 *
 * Kept buffers of one server: bodies and unread input come and go with each request, and touching fresh pages
 * for each would cost more than reading them. Sizes are powers of two from 4 KiB to 1 MiB; larger ones go to
 * malloc. Thread: one owner. Memory: at most <max_bytes> are kept. O(1).
 */
#ifndef ROLTER_NET_KEPT_H
#define ROLTER_NET_KEPT_H

#include <stddef.h>

enum { KEPT_CLASSES = 9, KEPT_MIN_BYTES = 4096 };

struct kept {
    void *free[KEPT_CLASSES];
    size_t bytes;
    size_t max_bytes;
};

void kept_init(struct kept *k, size_t max_bytes);
void kept_fini(struct kept *k);
/* At least <n> bytes; *ret_cap says how many. NULL when memory is gone: <n> may be an outsider's choice. */
char *kept_get(struct kept *k, size_t n, size_t *ret_cap);
/* Gives back what kept_get gave, with its capacity. */
void kept_put(struct kept *k, char *p, size_t cap);

#endif
