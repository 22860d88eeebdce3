/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/entry_heap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
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

enum { KEPT_BLOCKS = 16, KEPT_BYTES = 1 << 20 };

/* Large blocks whose entries have gone, the oldest first. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block {
    void *p;
    size_t usable, touched; /* the latter from the page of <p> on */
} kept[KEPT_BLOCKS];
static unsigned n_kept;
static size_t kept_bytes;

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

/* Bytes of the pages that <n> bytes at <p> touch. */
static size_t pages_at(const void *p, size_t n)
{
    return (((uintptr_t)p & (PAGE - 1)) + n + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* Under the lock. */
static struct block take(unsigned i)
{
    struct block b = kept[i];
    memmove(kept + i, kept + i + 1, (--n_kept - i) * sizeof *kept);
    kept_bytes -= b.touched;
    return b;
}

/* A kept block that is not much longer than <n>, or NULL. */
static void *reuse(size_t n)
{
    struct block b = {0};
    pthread_mutex_lock(&kept_lock);
    for (unsigned i = 0; i < n_kept && !b.p; i++)
        if (kept[i].usable >= n && kept[i].usable <= n + n / 4 + PAGE)
            b = take(i);
    pthread_mutex_unlock(&kept_lock);
    if (!b.p)
        return NULL;
    size_t pages = pages_at(b.p, n);
    if (b.touched > pages)
        madvise((char *)b.p - ((uintptr_t)b.p & (PAGE - 1)) + pages, b.touched - pages, MADV_DONTNEED);
    return b.p;
}

/* Keeps the block; the oldest ones give way, so that those of a size that nobody wants do not stay. */
static void keep(void *p, size_t touched)
{
    void *gone[KEPT_BLOCKS];
    unsigned n_gone = 0;
    pthread_mutex_lock(&kept_lock);
    while (n_kept == KEPT_BLOCKS || kept_bytes + touched > KEPT_BYTES)
        gone[n_gone++] = take(0).p;
    kept[n_kept++] = (struct block){p, malloc_usable_size(p), touched};
    kept_bytes += touched;
    pthread_mutex_unlock(&kept_lock);
    for (unsigned i = 0; i < n_gone; i++)
        dallocx(gone[i], NO_THREAD_CACHE);
}

void *entry_heap_alloc(size_t n)
{
    pthread_once(&once, make_arena);
    if (flags == 0)
        return mem_alloc(n);
    void *p = n >= LARGE ? reuse(n) : NULL;
    if (!p)
        p = mallocx(n, flags);
    CHECK_MSG(p != NULL, "out of memory");
    return p;
}

void entry_heap_free(void *p, size_t touched)
{
    if (flags == 0) {
        free(p);
        return;
    }
    if (malloc_usable_size(p) >= LARGE && touched <= KEPT_BYTES / 4)
        keep(p, touched);
    else
        dallocx(p, NO_THREAD_CACHE);
}

size_t entry_heap_bytes(const void *p, size_t n)
{
    size_t usable = malloc_usable_size((void *)p);
    return usable < LARGE ? usable : pages_at(p, n);
}
