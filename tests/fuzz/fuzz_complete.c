/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge of replies: a stream gets one verdict however it is cut; nothing is kept whose framing is broken;
 * what is kept with store_truncated off is kept with it on. First byte: dialect and kind; second: the size of
 * the pieces.
 */
#include <stdlib.h>

#include "base/check.h"
#include "dialect/complete.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum complete_verdict judge(struct complete_options o, struct span in, size_t step, bool framed)
{
    struct arena scratch;
    arena_init(&scratch, NULL);
    o.scratch = &scratch;
    struct complete *c = complete_new(&o);
    for (size_t at = 0; at < in.n; at += step) {
        size_t n = step < in.n - at ? step : in.n - at;
        char *copy = malloc(n);
        CHECK(copy);
        memcpy(copy, in.p + at, n);
        complete_feed(c, copy, n);
        free(copy);
    }
    enum complete_verdict v = complete_end(c, framed, in, NULL);
    complete_free(c);
    arena_reset(&scratch);
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    struct span in = span_of((const char *)data + 2, size - 2);
    struct complete_options o = {
        .dialect = (enum dialect_id)(data[0] % DIALECT_COUNT),
        .is_stream = data[0] & 0x80,
        .asked = data[0] >> 5 & 3,
    };
    enum complete_verdict whole = judge(o, in, in.n, true);
    CHECK(judge(o, in, 1 + data[1], true) == whole);
    CHECK(judge(o, in, 1, true) == whole);
    CHECK(judge(o, in, in.n, false) != COMPLETE_OK);
    o.store_truncated = true;
    enum complete_verdict kept = judge(o, in, in.n, true);
    CHECK(whole != COMPLETE_OK || kept == COMPLETE_OK);
    o.store_truncated = false;
    o.max_bytes = 64;
    CHECK(judge(o, in, 1 + data[1], true) == judge(o, in, 1, true));
    return 0;
}
