/* SPDX-License-Identifier: Apache-2.0
 *
 * Heap allocations of sizes that we choose: they abort when memory is gone, so nobody tests such paths.
 */
#ifndef ROLTER_BASE_MEM_H
#define ROLTER_BASE_MEM_H

#include <stddef.h>

#include "base/span.h"

void *mem_alloc(size_t n);
void *mem_zalloc(size_t n);
/* Zeroed array; aborts on overflow of n * size. */
void *mem_array(size_t n, size_t size);
void *mem_realloc(void *p, size_t n);
/* NUL-terminated copy; NULL stays NULL. */
char *mem_strdup(const char *s);
char *mem_spandup(struct span s);
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Frees *p and sets it to NULL. */
#define MEM_FREE(p)                                                                                          \
    do {                                                                                                     \
        __typeof__(&(p)) mem_free_at_ = &(p); /* <p> may have side effects */                                \
        free(*mem_free_at_);                                                                                 \
        *mem_free_at_ = NULL;                                                                                \
    } while (0)

#define MEM_NEW(type) ((type *)mem_zalloc(sizeof(type)))

#endif
