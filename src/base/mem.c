/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

void *mem_alloc(size_t n)
{
    void *p = malloc(n ? n : 1);
    CHECK_MSG(p != NULL, "out of memory");
    return p;
}

void *mem_zalloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    CHECK_MSG(p != NULL, "out of memory");
    return p;
}

void *mem_array(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);
    CHECK_MSG(p != NULL, "out of memory");
    return p;
}

void *mem_realloc(void *p, size_t n)
{
    p = realloc(p, n ? n : 1);
    CHECK_MSG(p != NULL, "out of memory");
    return p;
}

char *mem_strdup(const char *s)
{
    return s ? mem_spandup(span_str(s)) : NULL;
}

char *mem_spandup(struct span s)
{
    char *p = mem_alloc(s.n + 1);
    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = 0;
    return p;
}

char *mem_printf(const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    CHECK(n >= 0);
    char *p = mem_alloc((size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}
