/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of placements out of a stream: what is good can be read to its end, written again to the same
 * bytes, and put into mirrors.
 */
#include "signals/placement_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint64_t keys[PLACEMENT_KEYS_MAX];
    struct span bytes = span_of((const char *)data, size);
    struct placement_batch b;
    struct placement p;
    if (!placement_batch_open(bytes, &b))
        return 0;
    struct mirror *m = mirror_new();
    const uint64_t identity = 1;
    const uint32_t room = 64;
    uint32_t lane;
    mirror_lanes_get(m, &identity, &room, 1, &lane);
    struct buf again;
    buf_init(&again, PLACEMENT_BATCH_MAX);
    placement_batch_begin(&again, b.gateway);
    while (placement_batch_next(&b, &p, keys)) {
        CHECK(p.n > 0 && p.before + p.n <= PLACEMENT_BLOCKS_MAX);
        CHECK(placement_batch_add(&again, &p));
        mirror_extend(m, lane, p.after, p.before, p.keys, p.n);
    }
    CHECK(b.rest.n == 0 && span_eq(buf_view(&again), bytes));
    buf_fini(&again);
    mirror_unref(m);
    return 0;
}
