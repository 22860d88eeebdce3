/* SPDX-License-Identifier: Apache-2.0 */
#include "msgpack.h"

/* A type byte and <n> bytes of <v>, the highest first. */
static void put(struct buf *b, unsigned type, uint64_t v, unsigned n)
{
    uint8_t out[9] = {(uint8_t)type};
    for (unsigned i = 0; i < n; i++)
        out[1 + i] = (uint8_t)(v >> (8 * (n - 1 - i)));
    buf_add(b, out, 1 + n);
}

void msgpack_nil(struct buf *b)
{
    put(b, 0xc0, 0, 0);
}

void msgpack_uint(struct buf *b, uint64_t v)
{
    if (v < 128)
        put(b, (unsigned)v, 0, 0);
    else if (v <= UINT8_MAX)
        put(b, 0xcc, v, 1);
    else if (v <= UINT16_MAX)
        put(b, 0xcd, v, 2);
    else if (v <= UINT32_MAX)
        put(b, 0xce, v, 4);
    else
        put(b, 0xcf, v, 8);
}

void msgpack_int(struct buf *b, int64_t v)
{
    if (v >= 0)
        msgpack_uint(b, (uint64_t)v);
    else if (v >= -32)
        put(b, (uint8_t)v, 0, 0);
    else if (v >= INT8_MIN)
        put(b, 0xd0, (uint64_t)v, 1);
    else if (v >= INT16_MIN)
        put(b, 0xd1, (uint64_t)v, 2);
    else if (v >= INT32_MIN)
        put(b, 0xd2, (uint64_t)v, 4);
    else
        put(b, 0xd3, (uint64_t)v, 8);
}

void msgpack_double(struct buf *b, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put(b, 0xcb, bits, 8);
}

/* A length: small ones inside the type byte <fix> (below <fix_n>), then <type> for 16 bits, <type> + 1
 * for 32. */
static void put_length(struct buf *b, unsigned fix, size_t fix_n, unsigned type, size_t n)
{
    if (n < fix_n)
        put(b, fix | (unsigned)n, 0, 0);
    else if (n <= UINT16_MAX)
        put(b, type, n, 2);
    else
        put(b, type + 1, n, 4);
}

void msgpack_str(struct buf *b, struct span s)
{
    if (s.n >= 32 && s.n <= UINT8_MAX)
        put(b, 0xd9, s.n, 1);
    else
        put_length(b, 0xa0, 32, 0xda, s.n);
    buf_add_span(b, s);
}

void msgpack_bin(struct buf *b, struct span s)
{
    if (s.n <= UINT8_MAX)
        put(b, 0xc4, s.n, 1);
    else
        put_length(b, 0, 0, 0xc5, s.n);
    buf_add_span(b, s);
}

void msgpack_array(struct buf *b, uint32_t n)
{
    put_length(b, 0x90, 16, 0xdc, n);
}

void msgpack_map(struct buf *b, uint32_t n)
{
    put_length(b, 0x80, 16, 0xde, n);
}
