/* SPDX-License-Identifier: Apache-2.0
 *
 * Payloads byte for byte, against what the engines' own encoder makes of the same events.
 */
#include "unit.h"

#include "event_batch.h"
#include "msgpack.h"

#define TS "\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00" /* 1.5 */
#define STORED                                                                                               \
    "\xab"                                                                                                   \
    "BlockStored"
#define REMOVED                                                                                              \
    "\xac"                                                                                                   \
    "BlockRemoved"
#define CLEARED                                                                                              \
    "\xb0"                                                                                                   \
    "AllBlocksCleared"
#define TYPE                                                                                                 \
    "\xa4"                                                                                                   \
    "type"
#define HASH "\xce\x12\x34\x56\x78"
#define HASHES                                                                                               \
    "\xac"                                                                                                   \
    "block_hashes"                                                                                           \
    "\x91" HASH
#define TOKENS "\x94\x01\x02\x03\xcd\x01\x2c"
#define MEDIUM                                                                                               \
    "\xa6"                                                                                                   \
    "medium"                                                                                                 \
    "\xa3"                                                                                                   \
    "GPU"
#define GROUP                                                                                                \
    "\xa9"                                                                                                   \
    "group_idx"                                                                                              \
    "\x00"
#define KIND                                                                                                 \
    "\xae"                                                                                                   \
    "full_attention"
#define BYTES(literal) span_of((literal), sizeof(literal) - 1)

static const uint32_t ids[] = {1, 2, 3, 300};

static struct event_batch make(enum event_format format)
{
    struct event_batch b;
    event_batch_init(&b, &(struct event_style){.format = format, .block_size = 4});
    return b;
}

static void store(struct event_batch *b, uint64_t hash, uint64_t parent, struct event_scope s)
{
    event_batch_stored(b, &(struct block_content){.hash = hash, .parent = parent, .tokens = ids}, &s);
}

static void is(struct event_batch *b, struct span expected)
{
    struct span got = event_batch_end(b, 1.5);
    assert_int_equal(got.n, expected.n);
    assert_memory_equal(got.p, expected.p, got.n);
    assert_true(event_batch_empty(b));
    event_batch_fini(b);
}

static void vllm_stores(void **state)
{
    const struct event_scope none = {0};
    struct event_batch b = make(EVENT_VLLM_MAP);
    store(&b, 0x12345678, 99, none);
    is(&b, BYTES("\x93" TS "\x91\x8b" TYPE STORED HASHES "\xb1"
                 "parent_block_hash"
                 "\x63\xa9"
                 "token_ids" TOKENS "\xaa"
                 "block_size"
                 "\x04\xa7"
                 "lora_id"
                 "\xc0" MEDIUM "\xa9"
                 "lora_name"
                 "\xc0\xaa"
                 "extra_keys"
                 "\x91\xc0" GROUP "\xb2"
                 "kv_cache_spec_kind" KIND "\x00"));
    b = make(EVENT_VLLM_ARRAY);
    store(&b, 0x12345678, 99, none);
    is(&b, BYTES("\x93" TS "\x91\x9c" STORED "\x91" HASH "\x63" TOKENS "\x04\xc0\xa3"
                 "GPU"
                 "\xc0\x91\xc0\x00" KIND "\xc0\x00"));
}

static void removes_and_clears(void **state)
{
    struct event_batch b = make(EVENT_VLLM_MAP);
    event_batch_removed(&b, 0x12345678);
    is(&b, BYTES("\x93" TS "\x91\x84" TYPE REMOVED HASHES MEDIUM GROUP "\x00"));
    b = make(EVENT_VLLM_MAP);
    event_batch_cleared(&b);
    is(&b, BYTES("\x93" TS "\x91\x81" TYPE CLEARED "\x00"));
    b = make(EVENT_SGLANG_ARRAY);
    event_batch_cleared(&b);
    is(&b, BYTES("\x93" TS "\x91\x91" CLEARED "\x00"));
}

static void sglang_puts_the_salt_behind_the_medium_and_hashes_are_signed(void **state)
{
    struct event_batch b = make(EVENT_SGLANG_ARRAY);
    store(&b, (uint64_t)-2, 0, (struct event_scope){.salt = SPAN("s")});
    is(&b, BYTES("\x93" TS "\x91\x98" STORED "\x91\xfe\xc0" TOKENS "\x04\xc0\xa3"
                 "GPU"
                 "\x81\xaa"
                 "cache_salt"
                 "\xa1s\x00"));
}

static void a_chain_is_one_event_and_a_new_root_another(void **state)
{
    struct event_batch b = make(EVENT_SGLANG_ARRAY), c = make(EVENT_SGLANG_ARRAY);
    const struct event_scope none = {0};
    store(&b, 1, 0, none);
    store(&b, 2, 1, none);
    store(&b, 5, 0, none);
    event_batch_removed(&b, 7);
    is(&b,
       BYTES("\x93" TS "\x93"
             "\x97" STORED "\x92\x01\x02\xc0\x98\x01\x02\x03\xcd\x01\x2c\x01\x02\x03\xcd\x01\x2c\x04\xc0\xa3"
             "GPU"
             "\x97" STORED "\x91\x05\xc0" TOKENS "\x04\xc0\xa3"
             "GPU"
             "\x93" REMOVED "\x91\x07\xa3"
             "GPU"
             "\x00"));
    store(&c, 1, 0, none);
    event_batch_drop(&c);
    assert_true(event_batch_empty(&c));
    is(&c, BYTES("\x93" TS "\x90\x00"));
}

static void numbers_and_lengths_take_their_shortest_form(void **state)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    const uint64_t sizes[] = {0, 127, 128, 255, 256, 65535, 65536, UINT32_MAX, (uint64_t)UINT32_MAX + 1};
    const size_t bytes[] = {1, 1, 2, 2, 3, 3, 5, 5, 9};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        buf_clear(&b);
        msgpack_uint(&b, sizes[i]);
        assert_int_equal(b.n, bytes[i]);
    }
    const int64_t negative[] = {-1, -32, -33, -128, -129, -32768, -32769, INT32_MIN, (int64_t)INT32_MIN - 1};
    for (size_t i = 0; i < ARRAY_LEN(negative); i++) {
        buf_clear(&b);
        msgpack_int(&b, negative[i]);
        assert_int_equal(b.n, bytes[i]);
    }
    const size_t lengths[] = {31, 32, 255, 256, 65535, 65536}, heads[] = {1, 2, 2, 3, 3, 5};
    char *text = calloc(1, 65536);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        buf_clear(&b);
        msgpack_str(&b, span_of(text, lengths[i]));
        assert_int_equal(b.n, heads[i] + lengths[i]);
    }
    free(text);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm_stores),
        cmocka_unit_test(removes_and_clears),
        cmocka_unit_test(sglang_puts_the_salt_behind_the_medium_and_hashes_are_signed),
        cmocka_unit_test(a_chain_is_one_event_and_a_new_root_another),
        cmocka_unit_test(numbers_and_lengths_take_their_shortest_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
