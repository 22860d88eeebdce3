/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/entry_heap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/span.h"

/* jemalloc's, when it is linked. */
int mallctl(const char *name, void *old, size_t *old_n, void *new_value, size_t new_n) __attribute__((weak));
void *mallocx(size_t n, int flags) __attribute__((weak));
void dallocx(void *p, int flags) __attribute__((weak));

enum {
    PAGE = 4096,
    LARGE = 16384,           /* from here on an allocation has pages of its own */
    NO_THREAD_CACHE = 0x100, /* MALLOCX_TCACHE_NONE */
    ARENA_SHIFT = 20,        /* MALLOCX_ARENA(a) */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int flags; /* 0: plain malloc */

static void make_arena(void)
{
    unsigned arena;
    size_t n = sizeof arena;
    ssize_t at_once = 0;
    char name[64];
    if (!mallctl || !mallocx || !dallocx || mallctl("arenas.create", &arena, &n, NULL, 0) != 0)
        return;
    static const char *const decays[] = {"dirty", "muzzy"};
    for (size_t i = 0; i < ARRAY_LEN(decays); i++) {
        snprintf(name, sizeof name, "arena.%u.%s_decay_ms", arena, decays[i]);
        if (mallctl(name, NULL, NULL, &at_once, sizeof at_once) != 0)
            return;
    }
    flags = (int)((arena + 1) << ARENA_SHIFT) | NO_THREAD_CACHE;
}

void *entry_heap_alloc(size_t n)
{
    pthread_once(&once, make_arena);
    if (flags == 0)
        return mem_alloc(n);
    void *p = mallocx(n, flags);
    CHECK_MSG(p != NULL, "out of memory");
    return p;
}

void entry_heap_free(void *p)
{
    if (flags == 0)
        free(p);
    else
        dallocx(p, NO_THREAD_CACHE);
}

size_t entry_heap_bytes(const void *p, size_t n)
{
    size_t usable = malloc_usable_size((void *)p);
    if (usable < LARGE)
        return usable;
    return (((uintptr_t)p & (PAGE - 1)) + n + PAGE - 1) & ~(size_t)(PAGE - 1);
}
