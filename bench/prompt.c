/* SPDX-License-Identifier: Apache-2.0
 *
 * What the prompt context of a chat request costs: bench-prompt [milliseconds per figure, default 200].
 * Nanoseconds for the reader alone and for parse and reader together: the best of some runs.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "dialect/dialect.h"
#include "json/write.h"

static const char *const words[] = {"the", "gateway", "of", "a",  "prefix", "cache",  "request", "is",
                                    "and", "blocks",  "to", "in", "model",  "answer", "with",    "engine"};

/* Turns of about 400 bytes; a line end, which is an escape in JSON, every dozen words. */
static void make_body(struct buf *b, size_t bytes, bool with_tools)
{
    struct rng r;
    struct json_out o;
    struct buf text;
    rng_seed(&r, 7);
    buf_init(&text, 1 << 20);
    buf_clear(b);
    json_out_init(&o, b);
    json_out_object(&o);
    json_out_member_str(&o, "model", "some-model-70b-instruct");
    json_out_member_bool(&o, "stream", true);
    json_out_name(&o, "messages");
    json_out_array(&o);
    for (int turn = 0; b->n + 120 < bytes; turn++) {
        size_t left = bytes - b->n - 80;
        buf_clear(&text);
        while (text.n < 400 && text.n < left) {
            buf_add_str(&text, words[rng_below(&r, ARRAY_LEN(words))]);
            buf_add_char(&text, rng_below(&r, 12) ? ' ' : '\n');
        }
        bool is_tool = with_tools && turn % 4 == 3;
        json_out_object(&o);
        json_out_member_str(&o, "role",
                            turn == 0                  ? "system"
                            : is_tool || turn % 2 == 0 ? "assistant"
                                                       : "user");
        if (is_tool) {
            json_out_name(&o, "tool_calls");
            json_out_array(&o);
            json_out_object(&o);
            json_out_name(&o, "function");
            json_out_object(&o);
            json_out_member_str(&o, "name", "search");
            json_out_member_span(&o, "arguments", buf_view(&text));
            json_out_object_end(&o);
            json_out_object_end(&o);
            json_out_array_end(&o);
        } else {
            json_out_member_span(&o, "content", buf_view(&text));
        }
        json_out_object_end(&o);
    }
    json_out_array_end(&o);
    json_out_object_end(&o);
    CHECK(!b->full);
    buf_fini(&text);
}

static struct arena_pool pool = {.keep = 64};

/* Nanoseconds for one round. The reader alone works on one parsed body. */
static double run_once(struct span body, bool with_parse, uint64_t rounds)
{
    struct arena parsed, a;
    struct json_doc d;
    struct json_fault fault;
    struct prompt_context c;
    uint64_t sum = 0;
    arena_init(&parsed, &pool);
    arena_init(&a, &pool);
    CHECK(json_parse(&parsed, body, NULL, &d, &fault));
    uint64_t start = clock_mono_us();
    for (uint64_t i = 0; i < rounds; i++) {
        if (with_parse)
            CHECK(json_parse(&a, body, NULL, &d, &fault));
        dialect_prompt(DIALECT_CHAT, &d, &a, &c);
        sum += c.digest;
        arena_reset(&a);
    }
    uint64_t us = clock_mono_us() - start;
    CHECK(sum != 1);
    arena_reset(&parsed);
    return (double)us * 1000 / (double)rounds;
}

static double measure(struct span body, bool with_parse, uint64_t ms)
{
    enum { RUNS = 10 };
    double guess = run_once(body, with_parse, 200);
    uint64_t rounds = (uint64_t)((double)ms * 1e6 / RUNS / guess) + 1;
    double best = run_once(body, with_parse, rounds);
    for (int i = 1; i < RUNS; i++) {
        double ns = run_once(body, with_parse, rounds);
        if (ns < best)
            best = ns;
    }
    return best;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {2048, 32768, 262144};
    uint64_t ms = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
    struct buf b;
    buf_init(&b, 1 << 20);
    printf("%-12s %8s %12s %16s\n", "body", "bytes", "prompt ns", "parse+prompt ns");
    for (int tools = 0; tools < 2; tools++) {
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
            make_body(&b, sizes[i], tools);
            printf("%-12s %8zu %12.0f %16.0f\n", tools ? "with tools" : "text", b.n,
                   measure(buf_view(&b), false, ms), measure(buf_view(&b), true, ms));
        }
    }
    buf_fini(&b);
    arena_pool_fini(&pool);
    return 0;
}
