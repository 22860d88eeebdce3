/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored replies as they come from Redis: what parses writes the same bytes again. Most random inputs fail at
 * the sum, so the second half of the inputs gets a right one.
 */
#include "base/check.h"
#include "base/hash.h"
#include "cache/entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct span bytes)
{
    struct cache_entry *e = entry_parse(bytes);
    if (!e)
        return;
    struct buf b;
    buf_init(&b, bytes.n);
    CHECK(entry_write_head(e, &b) && buf_add_span(&b, e->body));
    CHECK(span_eq(buf_view(&b), bytes));
    CHECK(e->facts.created_ms <= e->facts.expires_ms && e->facts.expires_ms <= e->facts.stale_until_ms);
    buf_fini(&b);
    entry_unref(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { BODY_LENGTH_AT = 12 + 4 + 32 + 96, TEXTS = 6 };
    struct buf b;
    buf_init(&b, size + 1);
    buf_add(&b, data, size);
    check(buf_view(&b));
    if (size > BODY_LENGTH_AT + 4 + 2 * TEXTS) {
        uint32_t body;
        memcpy(&body, b.p + BODY_LENGTH_AT, sizeof body);
        if (body <= size - 12) {
            uint64_t sum =
                hash_mix(hash_bytes(b.p + 12, size - 12 - body), hash_bytes(b.p + size - body, body));
            memcpy(b.p, "rolc", 4);
            memcpy(b.p + 4, &sum, sizeof sum);
            check(buf_view(&b));
        }
    }
    buf_fini(&b);
    return 0;
}
