/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads msgpack value by value, without allocation and without recursion. What a length says is believed only
 * as far as there are bytes left. Strings and binaries are slices of the text. Thread: none of its own.
 */
#ifndef ROLTER_SIGNALS_MSGPACK_H
#define ROLTER_SIGNALS_MSGPACK_H

#include "base/span.h"

enum msgpack_type {
    MSGPACK_NIL,
    MSGPACK_BOOL,
    MSGPACK_UINT, /* 0 and above */
    MSGPACK_INT,  /* below 0 */
    MSGPACK_FLOAT,
    MSGPACK_STR,
    MSGPACK_BIN,
    MSGPACK_ARRAY, /* <count> values follow */
    MSGPACK_MAP,   /* <count> pairs of values follow */
    MSGPACK_EXT,
};

struct msgpack {
    const unsigned char *p, *end;
};

struct msgpack_value {
    enum msgpack_type type;
    uint64_t number; /* of an int its two's complement; of a bool 0 or 1 */
    double real;
    struct span bytes; /* STR, BIN, EXT */
    uint32_t count;
};

static inline struct msgpack msgpack_of(struct span s)
{
    return (struct msgpack){(const unsigned char *)s.p, (const unsigned char *)s.p + s.n};
}

/* The next value; of a container its head only. False at the end and at what is not msgpack; then neither
 * <m> nor *ret has changed. */
bool msgpack_next(struct msgpack *m, struct msgpack_value *ret);
/* Steps over one value with all that is in it. O(values). */
bool msgpack_skip(struct msgpack *m);
/* The same, and where it was. */
bool msgpack_cut(struct msgpack *m, struct msgpack *ret);
/* One value, complete, and nothing behind it. */
bool msgpack_is_whole(struct span s);

/* A string with this text. */
bool msgpack_is_str(const struct msgpack_value *v, struct span text);

#endif
