/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/msgpack.h"

#include <string.h>

static uint64_t big_endian(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

/* A number of <n> bytes behind the tag. */
static bool number(const unsigned char **p, const unsigned char *end, size_t n, uint64_t *ret)
{
    if ((size_t)(end - *p) < n)
        return false;
    *ret = big_endian(*p, n);
    *p += n;
    return true;
}

static bool signed_number(const unsigned char **p, const unsigned char *end, size_t n,
                          struct msgpack_value *ret)
{
    uint64_t v;
    if (!number(p, end, n, &v))
        return false;
    if (n < 8 && v >> (8 * n - 1))
        v |= UINT64_MAX << (8 * n);
    ret->type = v >> 63 ? MSGPACK_INT : MSGPACK_UINT;
    ret->number = v;
    return true;
}

static bool real(const unsigned char **p, const unsigned char *end, size_t n, struct msgpack_value *ret)
{
    uint64_t v;
    if (!number(p, end, n, &v))
        return false;
    ret->type = MSGPACK_FLOAT;
    if (n == 8) {
        memcpy(&ret->real, &v, sizeof v);
    } else {
        uint32_t bits = (uint32_t)v;
        float f;
        memcpy(&f, &bits, sizeof bits);
        ret->real = (double)f;
    }
    return true;
}

static bool bytes(const unsigned char **p, const unsigned char *end, uint64_t n, enum msgpack_type type,
                  struct msgpack_value *ret)
{
    if ((uint64_t)(end - *p) < n)
        return false;
    ret->type = type;
    ret->bytes = span_of((const char *)*p, (size_t)n);
    *p += n;
    return true;
}

/* Each value has a byte at least. */
static bool container(const unsigned char *p, const unsigned char *end, uint64_t n, enum msgpack_type type,
                      struct msgpack_value *ret)
{
    if ((uint64_t)(end - p) < n * (type == MSGPACK_MAP ? 2 : 1))
        return false;
    ret->type = type;
    ret->count = (uint32_t)n;
    return true;
}

static bool sized(const unsigned char **p, const unsigned char *end, unsigned tag, struct msgpack_value *v)
{
    uint64_t n;
    switch (tag) {
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return number(p, end, (size_t)1 << (tag - 0xc4), &n) && bytes(p, end, n, MSGPACK_BIN, v);
    case 0xc7:
    case 0xc8:
    case 0xc9: /* a byte says what it is */
        return number(p, end, (size_t)1 << (tag - 0xc7), &n) && bytes(p, end, n + 1, MSGPACK_EXT, v);
    case 0xca:
        return real(p, end, 4, v);
    case 0xcb:
        return real(p, end, 8, v);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        v->type = MSGPACK_UINT;
        return number(p, end, (size_t)1 << (tag - 0xcc), &v->number);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return signed_number(p, end, (size_t)1 << (tag - 0xd0), v);
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        return bytes(p, end, ((uint64_t)1 << (tag - 0xd4)) + 1, MSGPACK_EXT, v);
    case 0xd9:
    case 0xda:
    case 0xdb:
        return number(p, end, (size_t)1 << (tag - 0xd9), &n) && bytes(p, end, n, MSGPACK_STR, v);
    case 0xdc:
    case 0xdd:
        return number(p, end, (size_t)2 << (tag - 0xdc), &n) && container(*p, end, n, MSGPACK_ARRAY, v);
    case 0xde:
    case 0xdf:
        return number(p, end, (size_t)2 << (tag - 0xde), &n) && container(*p, end, n, MSGPACK_MAP, v);
    default: /* 0xc1 is not in use */
        return false;
    }
}

bool msgpack_next(struct msgpack *m, struct msgpack_value *ret)
{
    const unsigned char *p = m->p;
    if (p == m->end)
        return false;
    unsigned tag = *p++;
    struct msgpack_value v = {.type = MSGPACK_NIL};
    bool ok = true;
    if (tag < 0x80) {
        v.type = MSGPACK_UINT;
        v.number = tag;
    } else if (tag >= 0xe0) {
        v.type = MSGPACK_INT;
        v.number = (uint64_t)(int64_t)(int8_t)tag;
    } else if (tag < 0x90) {
        ok = container(p, m->end, tag & 15, MSGPACK_MAP, &v);
    } else if (tag < 0xa0) {
        ok = container(p, m->end, tag & 15, MSGPACK_ARRAY, &v);
    } else if (tag < 0xc0) {
        ok = bytes(&p, m->end, tag & 31, MSGPACK_STR, &v);
    } else if (tag == 0xc2 || tag == 0xc3) {
        v.type = MSGPACK_BOOL;
        v.number = tag & 1;
    } else if (tag != 0xc0) {
        ok = sized(&p, m->end, tag, &v);
    }
    if (!ok)
        return false;
    m->p = p;
    *ret = v;
    return true;
}

bool msgpack_skip(struct msgpack *m)
{
    struct msgpack at = *m;
    struct msgpack_value v;
    for (uint64_t left = 1; left > 0; left--) {
        if (!msgpack_next(&at, &v))
            return false;
        if (v.type == MSGPACK_ARRAY)
            left += v.count;
        else if (v.type == MSGPACK_MAP)
            left += (uint64_t)v.count * 2;
    }
    *m = at;
    return true;
}

bool msgpack_cut(struct msgpack *m, struct msgpack *ret)
{
    const unsigned char *from = m->p;
    if (!msgpack_skip(m))
        return false;
    *ret = (struct msgpack){from, m->p};
    return true;
}

bool msgpack_is_whole(struct span s)
{
    struct msgpack m = msgpack_of(s);
    return msgpack_skip(&m) && m.p == m.end;
}

bool msgpack_is_str(const struct msgpack_value *v, struct span text)
{
    return v->type == MSGPACK_STR && span_eq(v->bytes, text);
}
