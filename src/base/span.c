/* SPDX-License-Identifier: Apache-2.0 */
#include "base/span.h"

static inline unsigned char lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c | 0x20) : c;
}

bool span_same_nocase(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (lower((unsigned char)a[i]) != lower((unsigned char)b[i]))
            return false;
    return true;
}

struct span span_trim(struct span s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

bool span_split(struct span *rest, char sep, struct span *ret_part)
{
    if (rest->p == NULL)
        return false;
    const char *hit = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
    if (!hit) {
        *ret_part = *rest;
        *rest = SPAN_NONE;
        return true;
    }
    size_t n = (size_t)(hit - rest->p);
    *ret_part = span_of(rest->p, n);
    *rest = span_of(hit + 1, rest->n - n - 1);
    return true;
}

ptrdiff_t span_find(struct span hay, struct span needle)
{
    if (needle.n == 0)
        return 0;
    if (hay.n < needle.n)
        return -1;
    const char *hit = memmem(hay.p, hay.n, needle.p, needle.n);
    return hit ? hit - hay.p : -1;
}

bool span_to_u64(struct span s, uint64_t *ret)
{
    if (s.n == 0 || s.n > 20)
        return false;
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned d = (unsigned)(s.p[i] - '0');
        if (d > 9 || __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, d, &v))
            return false;
    }
    *ret = v;
    return true;
}

bool span_eq_const_time(struct span a, struct span b)
{
    if (a.n != b.n)
        return false;
    volatile uint64_t diff = 0; /* no early end, also none that the compiler thinks of */
    size_t i = 0;
    for (uint64_t x, y; a.n - i >= 8; i += 8) {
        memcpy(&x, a.p + i, 8);
        memcpy(&y, b.p + i, 8);
        diff = diff | (x ^ y);
    }
    for (; i < a.n; i++)
        diff = diff | (unsigned char)(a.p[i] ^ b.p[i]);
    return diff == 0;
}
