/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of KV-cache events, byte by byte, in every form that engines publish: what they say, what is
 * skipped, what is no batch. The vLLM vectors are those of public msgspec-made captures.
 */
#include "unit.h"

#include "base/buf.h"
#include "base/check.h"
#include "signals/kv_decode.h"

/* Hexadecimal digits, and text between quotes. */
static struct span bytes(const char *text, unsigned char out[4096])
{
    size_t n = 0;
    for (const char *p = text; *p;) {
        if (*p == '"') {
            for (p++; *p != '"'; p++)
                out[n++] = (unsigned char)*p;
            p++;
        } else if (*p == ' ') {
            p++;
        } else {
            unsigned v;
            assert_int_equal(sscanf(p, "%2x", &v), 1);
            out[n++] = (unsigned char)v;
            p += 2;
        }
    }
    return span_of((const char *)out, n);
}

static void add_span(struct buf *b, const char *name, struct span s)
{
    if (s.n)
        buf_printf(b, " %s=%.*s", name, SPAN_FMT(s));
}

/* One event in words. */
static void write_event(struct buf *b, struct kv_event *e)
{
    static const char *const types[] = {"stored", "removed", "cleared"};
    buf_printf(b, "%s", types[e->type]);
    for (uint32_t i = 0; i < e->n_hashes; i++)
        buf_printf(b, "%s%llx", i ? "," : " ", (unsigned long long)e->hash[i]);
    if (e->type == KV_EVENT_STORED) {
        if (e->has_before)
            buf_printf(b, " behind=%llx", (unsigned long long)e->before);
        buf_printf(b, " tokens=");
        for (uint32_t i = 0; i < e->n_tokens + e->overlap; i++)
            buf_printf(b, "%s%u", i ? "," : "", e->token[i]);
        buf_printf(b, "/%u", e->block_size);
        if (e->overlap)
            buf_printf(b, " overlap");
        if (e->is_ragged)
            buf_printf(b, " ragged");
        if (e->adapter_unknown)
            buf_printf(b, " adapter=?");
        add_span(b, "adapter", e->adapter);
        add_span(b, "salt", e->salt);
        for (uint32_t i = 0; e->extras.p != e->extras.end && i < e->n_hashes; i++) {
            struct span salt = SPAN_NONE;
            enum kv_extra x = kv_event_extra(e, i == 0 && !e->has_before, &salt);
            buf_printf(b, " extra=%s%.*s",
                       x == KV_EXTRA_NONE   ? "-"
                       : x == KV_EXTRA_SALT ? "salt:"
                                            : "other",
                       SPAN_FMT(salt));
        }
    }
    if (e->lower_tier)
        buf_printf(b, " lower");
    if (e->is_elsewhere)
        buf_printf(b, " elsewhere");
    if (e->group >= 0)
        buf_printf(b, " group=%d", e->group);
    add_span(b, "kind", e->kind);
}

/* The batch in words: events, "bad", between "; "; or "no batch". */
static const char *decode(struct span payload)
{
    static char out[8192];
    struct buf b;
    struct kv_batch batch;
    struct kv_decoder d = {0};
    struct kv_event e;
    if (!kv_batch_open(payload, &batch))
        return "no batch";
    buf_init(&b, sizeof out);
    for (enum kv_next next; (next = kv_batch_next(&batch, &d, &e)) != KV_NEXT_END;) {
        if (b.n)
            buf_printf(&b, "; ");
        if (next == KV_NEXT_BAD)
            buf_printf(&b, "bad");
        else
            write_event(&b, &e);
    }
    snprintf(out, sizeof out, "%.*s", SPAN_FMT(buf_view(&b)));
    buf_fini(&b);
    kv_decoder_fini(&d);
    return out;
}

#define TS  "cb3ff8000000000000 "
#define ONE "93 " TS "91 "

static const struct {
    const char *name, *bytes, *want;
} vectors[] = {
    {"0.9.0, no rank", "92 " TS "91 96 ab\"BlockStored\" 91 ce12345678 63 94 01 02 03 cd012c 04 c0",
     "stored 12345678 behind=63 tokens=1,2,3,300/4"},
    {"0.9.0 remove", "92 " TS "91 92 ac\"BlockRemoved\" 91 fe", "removed fffffffffffffffe"},
    {"0.10.2", ONE "97 ab\"BlockStored\" 91 ce12345678 63 94 01 02 03 cd012c 04 c0 a3\"GPU\" 00",
     "stored 12345678 behind=63 tokens=1,2,3,300/4"},
    {"0.22",
     ONE "9c ab\"BlockStored\" 91 ce12345678 63 94010203cd012c 04 c0 a3\"GPU\" c0 91c0 00 "
         "ae\"full_attention\" c0 00",
     "stored 12345678 behind=63 tokens=1,2,3,300/4 extra=- group=0 kind=full_attention"},
    {"0.24 map",
     ONE "8b a4\"type\" ab\"BlockStored\" ac\"block_hashes\" 91ce12345678 b1\"parent_block_hash\" 63 "
         "a9\"token_ids\" 94010203cd012c aa\"block_size\" 04 a7\"lora_id\" c0 a6\"medium\" a3\"GPU\" "
         "a9\"lora_name\" c0 aa\"extra_keys\" 91c0 a9\"group_idx\" 00 "
         "b2\"kv_cache_spec_kind\" ae\"full_attention\" 00",
     "stored 12345678 behind=63 tokens=1,2,3,300/4 extra=- group=0 kind=full_attention"},
    {"0.24 remove",
     ONE "84 a4\"type\" ac\"BlockRemoved\" ac\"block_hashes\" 91ce12345678 a6\"medium\" a3\"GPU\" "
         "a9\"group_idx\" 00 00",
     "removed 12345678 group=0"},
    {"hash of 32 bytes",
     ONE "85 a4\"type\" ab\"BlockStored\" ac\"block_hashes\" 91 c420 "
         "1111111111111111 1111111111111111 1111111111111111 0000000012345678 "
         "b1\"parent_block_hash\" c0 a9\"token_ids\" 9405060708 aa\"block_size\" 04 00",
     "stored 12345678 tokens=5,6,7,8/4"},
    {"short and empty hashes",
     "92 " TS
     "93 92 ac\"BlockRemoved\" 91 c402abcd 92 ac\"BlockRemoved\" 91 c400 92 ac\"BlockRemoved\" 91 a178",
     "removed abcd; bad; bad"},
    {"clear, array", ONE "91 b0\"AllBlocksCleared\" 00", "cleared"},
    {"clear, map", ONE "81 a4\"type\" b0\"AllBlocksCleared\" 00", "cleared"},
    {"batch as a map",
     "83 a2\"ts\" " TS "a6\"events\" 91 91 b0\"AllBlocksCleared\" b2\"data_parallel_rank\" 00", "cleared"},
    {"time as an int, slots to come", "95 ce00000001 91 92 b0\"AllBlocksCleared\" 01 00 c3 80", "cleared"},
    {"adapter, image and salt",
     ONE "88 a4\"type\" ab\"BlockStored\" ac\"block_hashes\" 92 0102 b1\"parent_block_hash\" c0 "
         "a9\"token_ids\" 9205 06 "
         "aa\"block_size\" 01 a9\"lora_name\" a2\"ad\" a6\"medium\" a3\"gpu\" aa\"extra_keys\" 92 "
         "93 a2\"ad\" 92 a3\"img\" 02 a1\"s\" 91 a2\"ad\" 00",
     "stored 1,2 tokens=5,6/1 adapter=ad extra=other extra=-"},
    {"salt in the first block",
     ONE "86 a4\"type\" ab\"BlockStored\" ac\"block_hashes\" 92 0102 b1\"parent_block_hash\" c0 "
         "a9\"token_ids\" 9205 06 "
         "aa\"block_size\" 01 aa\"extra_keys\" 92 91 a1\"s\" 91 a1\"s\" 00",
     "stored 1,2 tokens=5,6/1 extra=salt:s extra=other"},
    {"salt beside the adapter",
     ONE "87 a4\"type\" ab\"BlockStored\" ac\"block_hashes\" 91 01 b1\"parent_block_hash\" c0 "
         "a9\"token_ids\" 9105 "
         "aa\"block_size\" 01 a9\"lora_name\" a2\"ad\" aa\"extra_keys\" 91 92 a2\"ad\" a1\"s\" 00",
     "stored 1 tokens=5/1 adapter=ad extra=salt:s"},
    {"only the adapter's number", ONE "97 ab\"BlockStored\" 91 01 c0 9105 01 07 a3\"GPU\" 00",
     "stored 1 tokens=5/1 adapter=?"},
    {"place of offloaded blocks",
     ONE
     "88 a4\"type\" ab\"BlockStored\" ac\"block_hashes\" 91 01 b1\"parent_block_hash\" c0 a9\"token_ids\" 90 "
     "aa\"block_size\" 00 a7\"lora_id\" c0 a6\"medium\" a3\"CPU\" a9\"lora_name\" c0 00",
     "stored 1 tokens=/0 lower"},
    {"SGLang, oldest", "92 " TS "91 96 ab\"BlockStored\" 92 d3fffffffffffffff0 07 c0 9401020304 02 c0",
     "stored fffffffffffffff0,7 tokens=1,2,3,4/2"},
    {"SGLang, salted array",
     ONE "98 ab\"BlockStored\" 91fe c0 9401020304 04 c0 a3\"GPU\" 81 aa\"cache_salt\" a1\"s\" 00",
     "stored fffffffffffffffe tokens=1,2,3,4/4 salt=s"},
    {"SGLang, salted map, a tier of its own",
     ONE "87 a4\"type\" ab\"BlockStored\" ac\"block_hashes\" 91fe b1\"parent_block_hash\" 05 a9\"token_ids\" "
         "9101 "
         "aa\"block_size\" 01 a6\"medium\" aa\"CPU_PINNED\" aa\"cache_salt\" a1\"s\" 00",
     "stored fffffffffffffffe behind=5 tokens=1/1 salt=s lower"},
    {"SGLang, pairs", ONE "96 ab\"BlockStored\" 91 01 c0 92 920506 920607 02 c0 00",
     "stored 1 tokens=5,6,7/2 overlap"},
    {"pairs that do not follow each other", ONE "96 ab\"BlockStored\" 91 01 c0 92 920506 920707 02 c0 00",
     "bad"},
    {"numbers in their widest form",
     ONE
     "96 ab\"BlockStored\" dd00000001 cf0000000000000009 cf0000000000000000 dd00000001 cf000000000000012c "
     "ce00000001 c0 00",
     "stored 9 behind=0 tokens=300/1"},
    {"another group, sparse",
     ONE "87 a4\"type\" ab\"BlockStored\" ac\"block_hashes\" 91 01 b1\"parent_block_hash\" c0 "
         "a9\"token_ids\" 9205 06 "
         "aa\"block_size\" 01 a9\"group_idx\" 02 b2\"kv_cache_spec_kind\" a5\"mamba\" 00",
     "stored 1 tokens=5,6/1 ragged group=2 kind=mamba"},
    {"somebody else's memory",
     ONE "84 a4\"type\" ac\"BlockRemoved\" ac\"block_hashes\" 9101 a8\"locality\" a6\"REMOTE\" "
         "a9\"ownership\" a1\"x\" 00",
     "removed 1 elsewhere"},
    {"unknown fields of unknown types",
     ONE "84 a4\"type\" b0\"AllBlocksCleared\" 07 c0 a1\"x\" 82 01 c0 02 93 c2c3 c7010005 c403aabbcc 91 "
         "d60001020304 00",
     "cleared"},
    {"faults one by one",
     "92 " TS "9a 90 80 05 91 a7\"Unheard\" 91 c0 81 a4\"type\" 01 95 ab\"BlockStored\" 9101 c0 9105 00 "
     "94 ab\"BlockStored\" 9101 c0 9105 91 ac\"BlockRemoved\" 91 b0\"AllBlocksCleared\"",
     "bad; bad; bad; bad; bad; bad; bad; bad; bad; cleared"},
    {"faults of stores",
     "92 " TS "97 96 ab\"BlockStored\" 9105 05 9105 01 c0 96 ab\"BlockStored\" 920505 c0 92 0506 01 c0 "
     "96 ab\"BlockStored\" 9105 c0 91ff 01 c0 96 ab\"BlockStored\" 9105 c0 91cf0000000100000000 01 c0 "
     "96 ab\"BlockStored\" 9105 c0 9105 ce00010001 c0 96 ab\"BlockStored\" 05 c0 9105 01 c0 "
     "91 b0\"AllBlocksCleared\"",
     "bad; bad; bad; bad; bad; bad; cleared"},
    {"nothing", "", "no batch"},
    {"a number", "05", "no batch"},
    {"no events", "91 " TS, "no batch"},
    {"events that are none", "92 " TS "05", "no batch"},
    {"no time", "92 a0 90", "no batch"},
    {"something behind it", "92 " TS "90 00", "no batch"},
    {"empty", "92 " TS "90", ""},
    {"more items than bytes", "92 " TS "dd7fffffff c0", "no batch"},
    {"text longer than the rest", "92 " TS "91 92 ac\"BlockRemoved\" 91 dbffffffff", "no batch"},
    {"not in use", "92 " TS "91 c1", "no batch"},
};

static void all_forms(void **state)
{
    (void)state;
    unsigned char out[4096];
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        const char *got = decode(bytes(vectors[i].bytes, out));
        if (strcmp(got, vectors[i].want) != 0)
            fail_msg("%s: %s, not %s", vectors[i].name, got, vectors[i].want);
    }
}

/* However it is cut, a batch is none; whatever byte is another, nothing breaks. */
static void cut_and_bent(void **state)
{
    (void)state;
    unsigned char out[4096];
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        struct span s = bytes(vectors[i].bytes, out);
        if (strcmp(vectors[i].want, "no batch") == 0)
            continue;
        for (size_t n = 0; n < s.n; n++) {
            char *copy = malloc(n ? n : 1); /* so that a sanitizer sees a read behind the end */
            assert_non_null(copy);
            memcpy(copy, s.p, n);
            assert_string_equal(decode(span_of(copy, n)), "no batch");
            free(copy);
        }
        for (size_t at = 0; at < s.n; at++)
            for (unsigned bit = 0; bit < 8; bit++) {
                out[at] ^= (unsigned char)(1u << bit);
                decode(s);
                out[at] ^= (unsigned char)(1u << bit);
            }
        assert_string_equal(decode(s), vectors[i].want);
    }
}

static void nesting(void **state)
{
    (void)state;
    enum { DEPTH = 1 << 20 };
    char *deep = malloc(DEPTH + 20);
    assert_non_null(deep);
    memcpy(deep, "\x92\x01\x91", 3);
    memset(deep + 3, 0x91, DEPTH);
    deep[3 + DEPTH] = 0x05;
    assert_string_equal(decode(span_of(deep, DEPTH + 4)), "bad");
    assert_string_equal(decode(span_of(deep, DEPTH + 3)), "no batch");
    free(deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_forms), cmocka_unit_test(cut_and_bent),
                                       cmocka_unit_test(nesting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
