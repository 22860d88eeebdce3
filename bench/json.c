/* SPDX-License-Identifier: Apache-2.0
 *
 * What reading a chat request costs: bench-json [milliseconds per figure, default 200]. Bodies are generated;
 * the arena's chunks stay warm, as a worker's do. Prints nanoseconds per parse: the best of some runs, since
 * the machine's other work only adds.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "json/json.h"
#include "json/write.h"

#ifdef HAVE_JANSSON
void other_parse(struct span text); /* json_jansson.c: the library has function names in common with ours */
#endif

enum kind { PROSE, CODE, CHINESE, TOKENS, KINDS };
static const char *const kind_name[KINDS] = {"prose", "code", "chinese", "tokens"};

static void add_words(struct buf *text, struct rng *r, enum kind kind, size_t bytes)
{
    static const char *const words[] = {"the",     "gateway", "of",     "a",      "prefix", "cache",
                                        "request", "is",      "and",    "blocks", "to",     "engine",
                                        "in",      "model",   "answer", "with"};
    static const char *const chars[] = {"的", "一", "是", "不", "了", "人", "我", "在",
                                        "有", "他", "这", "中", "大", "来", "上", "国"};
    size_t from = text->n;
    while (text->n - from < bytes) {
        uint64_t x = rng_below(r, 16);
        if (kind == CHINESE) {
            buf_add_str(text, chars[x]);
            continue;
        }
        buf_add_str(text, words[x]);
        /* A paragraph ends now and then; a line of code has quotes and ends soon. */
        uint64_t y = rng_below(r, kind == CODE ? 8 : 60);
        buf_add_str(text, y == 0                   ? "\n    "
                          : y == 1 && kind == CODE ? "(\""
                          : y == 2 && kind == CODE ? "\");"
                                                   : " ");
    }
}

/* A chat request of about <bytes>: a system prompt, then turns of about 1.5 KB. */
static void make_body(struct buf *b, enum kind kind, size_t bytes)
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
    json_out_member_u64(&o, "max_tokens", 512);
    json_out_member_double(&o, "temperature", 0.7);
    json_out_member_bool(&o, "stream", true);
    json_out_name(&o, kind == TOKENS ? "prompt" : "messages");
    json_out_array(&o);
    for (int turn = 0; b->n + 100 < bytes; turn++) {
        if (kind == TOKENS) {
            json_out_u64(&o, rng_below(&r, 128000));
            continue;
        }
        size_t left = bytes - b->n - 60;
        buf_clear(&text);
        add_words(&text, &r, kind, left < 1500 ? left : 1500);
        json_out_object(&o);
        json_out_member_str(&o, "role", turn == 0 ? "system" : turn & 1 ? "user" : "assistant");
        json_out_member_span(&o, "content", buf_view(&text));
        json_out_object_end(&o);
    }
    json_out_array_end(&o);
    json_out_object_end(&o);
    buf_fini(&text);
}

static void own_parse(struct span text)
{
    static struct arena_pool pool = {.keep = 64};
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    arena_init(&a, &pool);
    CHECK(json_parse(&a, text, NULL, &d, &fault));
    arena_reset(&a);
}

static double measure(void (*parse)(struct span), struct span text, uint64_t ms)
{
    enum { RUNS = 10 };
    double best = 0;
    uint64_t rounds = 1, us = 0;
    for (;; rounds *= 2) {
        uint64_t start = clock_mono_us();
        for (uint64_t i = 0; i < rounds; i++)
            parse(text);
        us = clock_mono_us() - start;
        if (us * RUNS > ms * 1000)
            break;
    }
    for (int run = 0; run < RUNS; run++) {
        uint64_t start = clock_mono_us();
        for (uint64_t i = 0; i < rounds; i++)
            parse(text);
        double ns = (double)(clock_mono_us() - start) * 1000 / (double)rounds;
        if (run == 0 || ns < best)
            best = ns;
    }
    return best;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {2048, 32768};
    uint64_t ms = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
    struct buf b;
    buf_init(&b, 1 << 20);
    printf("%-10s %8s %12s %8s %12s\n", "body", "bytes", "ns", "GB/s", "jansson ns");
    for (unsigned k = 0; k < KINDS; k++) {
        for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
            make_body(&b, k, sizes[i]);
            double ns = measure(own_parse, buf_view(&b), ms);
            printf("%-10s %8zu %12.0f %8.2f", kind_name[k], b.n, ns, (double)b.n / ns);
#ifdef HAVE_JANSSON
            printf(" %12.0f", measure(other_parse, buf_view(&b), ms));
#endif
            printf("\n");
        }
    }
    buf_fini(&b);
    return 0;
}
