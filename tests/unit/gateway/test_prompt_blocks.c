/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "balance/block_chain.h"
#include "base/arena.h"
#include "base/buf.h"
#include "gateway/prompt_blocks.h"

#define LONG                                                                                                 \
    "Tell me about the history of tea, from its beginnings to the present day, in as much detail as you "    \
    "like, and do not leave out the clippers, the gardens and the ceremony; then go on with coffee. "

struct reading {
    struct arena arena;
    struct prompt_blocks blocks;
    struct prompt_context context;
};

static void read_body(struct reading *r, enum dialect_id id, const char *body)
{
    struct json_doc d;
    struct json_fault fault;
    arena_init(&r->arena, NULL);
    assert_true(json_parse(&r->arena, span_str(body), NULL, &d, &fault));
    prompt_blocks_read(id, &d, &r->arena, &r->blocks, &r->context);
    assert_true(r->blocks.n == r->blocks.bytes / BLOCK_BYTES);
    assert_int_equal(r->context.text.n, 0); /* nothing is copied */
}

/* Leading keys that two bodies have in common; -1: all of both. */
static int common(enum dialect_id id, const char *a, const char *b, bool *ret_same_home)
{
    struct reading x, y;
    read_body(&x, id, a);
    read_body(&y, id, b);
    unsigned i = 0, least = x.blocks.n < y.blocks.n ? x.blocks.n : y.blocks.n;
    while (i < least && x.blocks.key[i] == y.blocks.key[i])
        i++;
    *ret_same_home = x.blocks.home == y.blocks.home && x.blocks.home != 0;
    bool is_all = i == x.blocks.n && i == y.blocks.n;
    arena_reset(&x.arena);
    arena_reset(&y.arena);
    return is_all ? -1 : (int)i;
}

#define CHAT(more, first, rest)                                                                              \
    "{\"model\":\"m\"" more ",\"messages\":[{\"role\":\"system\",\"content\":\"" LONG "\"},"                 \
    "{\"role\":\"user\",\"content\":\"" first LONG "\"}" rest "]}"

static void test_bodies(void **state)
{
    bool home;
    /* How the JSON is written, and what is no prompt, does not matter. */
    assert_int_equal(common(DIALECT_CHAT, CHAT("", "a", ""),
                            CHAT(",\"temperature\" : 1.5, \"stream\":true", "\\u0061", ""), &home),
                     -1);
    assert_true(home);
    /* A next turn shares all full blocks but the last, and the home. */
    int n = common(DIALECT_CHAT, CHAT("", "a", ""),
                   CHAT("", "a", ",{\"role\":\"assistant\",\"content\":\"" LONG "\"}"), &home);
    assert_true(n >= 5);
    assert_true(home);
    /* Another first question: another home. */
    assert_in_range(common(DIALECT_CHAT, CHAT("", "a", ""), CHAT("", "b", ""), &home), 2, 3);
    assert_false(home);
    /* Tools stand before everything. */
    assert_int_equal(
        common(DIALECT_CHAT, CHAT("", "a", ""),
               CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", "a", ""), &home),
        0);
}

static void test_salts(void **state)
{
    bool home;
    assert_int_equal(common(DIALECT_CHAT, CHAT("", "a", ""), CHAT(",\"cache_salt\":\"x\"", "a", ""), &home),
                     0);
    assert_int_equal(common(DIALECT_CHAT, CHAT(",\"cache_salt\":\"y\"", "a", ""),
                            CHAT(",\"cache_salt\":\"x\"", "a", ""), &home),
                     0);
    assert_int_equal(common(DIALECT_CHAT, CHAT(",\"lora_path\":\"x\"", "a", ""),
                            CHAT(",\"cache_salt\":\"x\"", "a", ""), &home),
                     0);
    assert_int_equal(common(DIALECT_CHAT, CHAT(",\"cache_salt\":\"x\"", "a", ""),
                            CHAT(",\"cache_salt\":\"x\"", "a", ""), &home),
                     -1);
}

#define IMAGE(url)                                                                                           \
    ",{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}},"         \
    "{\"type\":\"text\",\"text\":\"" LONG LONG "\"}]}"

static void test_images(void **state)
{
    bool home;
    int n = common(DIALECT_CHAT, CHAT("", "a", IMAGE("data:1")), CHAT("", "a", IMAGE("data:2")), &home);
    assert_in_range(n, 5, 7); /* the text before is shared, the same text behind another image is not */
    assert_int_equal(
        common(DIALECT_CHAT, CHAT("", "a", IMAGE("data:1")), CHAT("", "a", IMAGE("data:1")), &home), -1);
}

static void test_other_shapes(void **state)
{
    bool home;
    int n = common(DIALECT_COMPLETIONS, "{\"prompt\":\"" LONG LONG LONG "\"}",
                   "{\"prompt\":\"" LONG LONG LONG LONG "\"}", &home);
    assert_true(n >= 8);
    n = common(DIALECT_MESSAGES,
               "{\"system\":\"" LONG "\",\"messages\":[{\"role\":\"user\",\"content\":\"" LONG "\"}]}",
               "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" LONG
               "\"}]}],\"system\":[{\"type\":\"text\",\"text\":\"" LONG "\"}]}",
               &home);
    assert_int_equal(n, -1);
    assert_true(home);
    struct reading r;
    read_body(&r, DIALECT_CHAT, "{}");
    assert_int_equal(r.blocks.n, 0);
    assert_int_equal(r.blocks.home, 0);
    arena_reset(&r.arena);
    read_body(&r, DIALECT_RERANK, "{\"query\":\"" LONG "\",\"documents\":[\"" LONG "\"]}");
    assert_true(r.blocks.n >= 5); /* the raw body */
    arena_reset(&r.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_salts),
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_other_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
