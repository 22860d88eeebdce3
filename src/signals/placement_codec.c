/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/placement_codec.h"

static const char MAGIC[4] = {'R', 'A', 'P', 1};
enum { HEAD_BYTES = 12, ITEM_BYTES = 14 };

static void add_int(struct buf *b, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        buf_add_char(b, (char)(v >> (8 * i)));
}

static uint64_t int_at(const char *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

void placement_batch_begin(struct buf *b, uint64_t gateway)
{
    buf_add(b, MAGIC, sizeof MAGIC);
    add_int(b, gateway, 8);
}

bool placement_batch_add(struct buf *b, const struct placement *p)
{
    CHECK(p->n > 0 && p->n <= PLACEMENT_KEYS_MAX);
    size_t bytes = ITEM_BYTES + (p->before > 0 ? 8 : 0) + (size_t)p->n * 8;
    if (b->n + bytes > PLACEMENT_BATCH_MAX || !buf_reserve(b, bytes))
        return false;
    add_int(b, p->target, 8);
    add_int(b, p->before, 4);
    add_int(b, p->n, 2);
    if (p->before > 0)
        add_int(b, p->after, 8);
    for (uint32_t i = 0; i < p->n; i++)
        add_int(b, p->keys[i], 8);
    return true;
}

/* One placement; <keys> may be NULL. False: it cannot be. */
static bool read_item(struct span *rest, struct placement *ret, uint64_t *keys)
{
    if (rest->n < ITEM_BYTES)
        return false;
    const char *p = rest->p;
    *ret = (struct placement){.target = int_at(p, 8),
                              .before = (uint32_t)int_at(p + 8, 4),
                              .n = (uint32_t)int_at(p + 12, 2),
                              .keys = keys};
    size_t after = ret->before > 0 ? 8 : 0, bytes = ITEM_BYTES + after + (size_t)ret->n * 8;
    if (ret->n == 0 || ret->n > PLACEMENT_KEYS_MAX || ret->before > PLACEMENT_BLOCKS_MAX - ret->n ||
        rest->n < bytes)
        return false;
    p += ITEM_BYTES;
    ret->after = after ? int_at(p, 8) : 0;
    if (after && ret->after == 0)
        return false;
    p += after;
    for (uint32_t i = 0; i < ret->n; i++, p += 8) {
        uint64_t key = int_at(p, 8);
        if (key == 0) /* no block has that key */
            return false;
        if (keys)
            keys[i] = key;
    }
    *rest = span_of(rest->p + bytes, rest->n - bytes);
    return true;
}

bool placement_batch_open(struct span bytes, struct placement_batch *ret)
{
    if (bytes.n < HEAD_BYTES || bytes.n > PLACEMENT_BATCH_MAX || memcmp(bytes.p, MAGIC, sizeof MAGIC) != 0)
        return false;
    *ret = (struct placement_batch){int_at(bytes.p + sizeof MAGIC, 8),
                                    span_of(bytes.p + HEAD_BYTES, bytes.n - HEAD_BYTES)};
    struct span rest = ret->rest;
    struct placement p;
    while (rest.n > 0)
        if (!read_item(&rest, &p, NULL))
            return false;
    return true;
}

bool placement_batch_next(struct placement_batch *b, struct placement *ret, uint64_t *keys)
{
    return b->rest.n > 0 && read_item(&b->rest, ret, keys);
}
