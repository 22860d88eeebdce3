/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fmt.h"
#include "base/mem.h"

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_fini(struct buf *b)
{
    free(b->p);
    *b = (struct buf){.max = b->max};
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    b->full = false;
}

bool buf_grow(struct buf *b, size_t n)
{
    if (n > b->max || b->n > b->max - n) {
        b->full = true;
        return false;
    }
    size_t cap = b->cap < 128 ? 256 : b->cap * 2;
    if (cap < b->n + n)
        cap = b->n + n;
    if (cap > b->max)
        cap = b->max;
    b->p = mem_realloc(b->p, cap);
    b->cap = cap;
    return true;
}

bool buf_add_u64(struct buf *b, uint64_t v)
{
    if (LIKELY(b->cap - b->n >= FMT_U64_MAX)) {
        b->n += fmt_u64(b->p + b->n, v);
        return true;
    }
    char tmp[FMT_U64_MAX];
    return buf_add(b, tmp, fmt_u64(tmp, v));
}

bool buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    CHECK(n >= 0);
    if (buf_reserve(b, (size_t)n + 1)) {
        va_start(ap, fmt);
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap);
        va_end(ap);
        b->n += (size_t)n;
        return true;
    }
    return false;
}

void buf_consume(struct buf *b, size_t n)
{
    CHECK(n <= b->n);
    if (n < b->n && n > 0)
        memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}
