/* SPDX-License-Identifier: Apache-2.0
 *
 * A publisher's messages, each a length of two bytes and a payload, go through the decoder into an index with
 * a small cap. A payload is a batch exactly when it is one msgpack value with events in it; the index stays
 * in agreement with itself and below its cap, whatever the events say, and is empty after a clear.
 */
#include <stdlib.h>

#include "balance/kv_parts.h"
#include "base/check.h"
#include "signals/kv_apply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CAP = 20 };

static void check(const struct kv_source *s)
{
    const struct kv_blocks *b = s->stream[0].blocks;
    if (b)
        kv_blocks_check(b);
    CHECK(kv_source_blocks(s) <= CAP && kv_source_blocks(s) == (b ? kv_blocks_held(b) : 0));
}

static void ask(struct kv_source *s)
{
    static const uint32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 1, 1, 5, 5, 5, 5};
    struct token_ids ids = {.id = tokens, .n = ARRAY_LEN(tokens)};
    struct kv_ask question = {s, "ad"};
    struct kv_share got;
    CHECK(kv_match(&ids, SPAN("s"), 1, &question, 1, &got));
    CHECK(got.share >= 0 && got.share <= 1 && got.tokens <= ids.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_decoder decoder = {0};
    struct kv_source *s = kv_source_get("fuzz", 1);
    struct kv_applying a = {.source = s, .groups = KV_GROUPS_NONE, .decoder = &decoder};
    kv_source_configure(s, CAP, 1000);
    kv_source_alive(s, 0, 1);
    kv_source_trust(s, 0, true);
    bool waiting = false;
    while (size > 2) {
        size_t n = (size_t)data[0] << 8 | data[1];
        data += 2;
        size -= 2;
        n = n < size ? n : size;
        /* A copy of its own, so that reading behind it shows. */
        char *copy = malloc(n ? n : 1);
        CHECK(copy);
        memcpy(copy, data, n);
        struct kv_applied r = kv_apply(&a, span_of(copy, n), waiting);
        CHECK(!r.is_batch || msgpack_is_whole(span_of(copy, n)));
        CHECK(r.is_batch || (!r.cleared && r.applied + r.bad == 0));
        free(copy);
        check(s);
        ask(s);
        waiting = !r.is_batch || (waiting && !r.cleared);
        data += n;
        size -= n;
    }
    kv_source_stop(s);
    kv_source_unref(s);
    while (kv_sources_sweep(SIZE_MAX))
        ;
    CHECK(!kv_bank(0) || kv_map_blocks(kv_bank(0)) == 0);
    kv_decoder_fini(&decoder);
    return 0;
}
