/* SPDX-License-Identifier: Apache-2.0
 *
 * A borrowed run of bytes. A span never owns memory and never outlives the object it was cut from; whoever
 * stores one in a longer-lived object copies the bytes (arena_dup, strndup). Not NUL-terminated.
 */
#ifndef ROLTER_BASE_SPAN_H
#define ROLTER_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
    const char *p;
    size_t n;
};

#define SPAN(literal) ((struct span){(literal), sizeof(literal) - 1})
#define SPAN_NONE     ((struct span){NULL, 0})
/* For printf: printf("%.*s", SPAN_FMT(s)) */
#define SPAN_FMT(s) (int)(s).n, (s).p

static inline struct span span_of(const char *p, size_t n)
{
    return (struct span){p, n};
}

/* A span over a NUL-terminated string; NULL gives the empty span. */
static inline struct span span_str(const char *s)
{
    return (struct span){s, s ? strlen(s) : 0};
}

static inline bool span_eq(struct span a, struct span b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool span_starts(struct span a, struct span prefix)
{
    return a.n >= prefix.n && (prefix.n == 0 || memcmp(a.p, prefix.p, prefix.n) == 0);
}

/* Equality without regard to ASCII case (field names, schemes). */
bool span_same_nocase(const char *a, const char *b, size_t n);
static inline bool span_eq_nocase(struct span a, struct span b)
{
    return a.n == b.n && span_same_nocase(a.p, b.p, a.n);
}

/* Without leading and trailing spaces and tabs. */
struct span span_trim(struct span s);

/* Takes the part of *<rest> before the first <sep> and moves *<rest> behind it; false when *<rest> is used
 * up. "a,,b" gives "a", "", "b"; "" gives nothing. */
bool span_split(struct span *rest, char sep, struct span *ret_part);

/* Position of <needle> in <hay>, or -1. */
ptrdiff_t span_find(struct span hay, struct span needle);

/* Decimal digits only, no sign or space, no overflow. */
bool span_to_u64(struct span s, uint64_t *ret);

/* Equality in time that depends on the lengths only (secrets). */
bool span_eq_const_time(struct span a, struct span b);

#endif
