/* SPDX-License-Identifier: Apache-2.0
 *
 * Guardrails over a chat body of 32 KiB in which nothing matches: the four built-in patterns and twenty
 * others.
 *
 *   build-release/bench/bench-policy
 *
 * scan: the one pass over all patterns. apply: walk of the body, joining of its texts, that pass. parse +
 * apply: the body read before. Medians of many runs. Goal: apply within 150 us.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/rng.h"
#include "json/json.h"
#include "policy/guardrails.h"
#include "policy/policy.h"
#include "policy/stream.h"

enum { BODY_BYTES = 32768, RUNS = 2000 };

static const char *const custom[] = {
    "\\b[0-9]{3}-[0-9]{2}-[0-9]{4}\\b",
    "(?i)internal use only",
    "-----BEGIN [A-Z ]+ PRIVATE KEY-----",
    "\\bDE[0-9]{20}\\b",
    "project-[a-z]{4}-[0-9]+",
    "(?i)password\\s*[:=]\\s*\\S+",
    "eyJ[A-Za-z0-9_-]{10,}\\.[A-Za-z0-9_-]{10,}",
    "\\b(?:10|192\\.168)\\.[0-9]{1,3}\\.[0-9]{1,3}\\b",
    "(?i)\\bconfidential\\b",
    "AIza[0-9A-Za-z_-]{35}",
    "employee\\s+id\\s+[0-9]{6}",
    "[A-Z]{2}[0-9]{2}(?: ?[0-9A-Z]{4}){4,7}",
    "https?://intranet\\.[a-z.]+",
    "(?i)top[ -]secret",
    "glpat-[A-Za-z0-9_-]{20}",
    "\\bACME-[0-9]{4,}\\b",
    "mongodb://[^\\s]+",
    "(?i)social security",
    "case\\s+#[0-9]+",
    "\\bMRN[: ]?[0-9]{7}\\b",
};

static const char *const words[] = {
    "the",    "quick", "brown",   "fox",  "jumps", "over",    "a",    "lazy",     "dog",       "while",
    "In",     "2024",  "we",      "saw",  "43",    "models",  "and",  "found",    "latency",   "of",
    "12.5",   "ms",    "too",     "high", "so",    "team",    "A",    "decided",  "to",        "rewrite",
    "case",   "of",    "Project", "sec",  "pass",  "worthy,", "that", "employee", "secretary", "end.",
    "\\n\\n", "(see",  "figure)", "3",    "x = y", "return;", "http", "https",    "e-mail",    "@",
};

static void make_body(struct buf *b, unsigned turns)
{
    struct rng rng;
    rng_seed(&rng, 7);
    BUF_LIT(b, "{\"model\":\"m\",\"messages\":[");
    for (unsigned t = 0; t < turns; t++) {
        buf_printf(b, "%s{\"role\":\"%s\",\"content\":\"", t ? "," : "", t % 2 ? "assistant" : "user");
        bool number = false;
        while (b->n < (size_t)BODY_BYTES * (t + 1) / turns) {
            const char *w = words[rng_below(&rng, ARRAY_LEN(words))];
            bool digit = w[0] >= '0' && w[0] <= '9';
            if (digit && number) /* two in a row would be a phone number */
                continue;
            number = digit;
            buf_printf(b, "%s ", w);
        }
        BUF_LIT(b, "\"}");
    }
    BUF_LIT(b, "]}");
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static unsigned rule_list(struct rule_settings *rules, enum rule_stage stage)
{
    static const char *const builtins[] = {"email", "phone", "api_token", "payment_card"};
    unsigned n = 0;
    for (unsigned i = 0; i < ARRAY_LEN(builtins); i++)
        rules[n++] = (struct rule_settings){
            .name = builtins[i], .builtin = builtins[i], .stage = stage, .action = RULE_BLOCK};
    for (unsigned i = 0; i < ARRAY_LEN(custom); i++)
        rules[n++] = (struct rule_settings){
            .name = "custom", .pattern = custom[i], .stage = stage, .action = RULE_REDACT};
    return n;
}

static struct guardrails *make_rules(void)
{
    struct rule_settings rules[ARRAY_LEN(custom) + 4];
    unsigned n = rule_list(rules, RULE_PRE_CALL);
    return guardrails_new(&(struct guardrail_settings){
        .enabled = true, .max_scan_bytes = 262144, .rules = rules, .n_rules = n});
}

static uint64_t apply(const struct guardrails *g, const uint64_t *mask, struct span body,
                      const struct json_doc *doc, struct arena *a)
{
    struct guard_result r;
    uint64_t begun = now_ns();
    guardrails_apply(g, RULE_PRE_CALL, mask, body, doc, a, &r);
    uint64_t took = now_ns() - begun;
    if (r.verdict != GUARD_SAME) {
        fprintf(stderr, "the body matches a rule: %s\n", r.rule ? r.rule : "?");
        exit(1);
    }
    return took;
}

static void run(const struct guardrails *g, const uint64_t *mask, unsigned turns)
{
    static uint64_t scan_ns[RUNS], apply_ns[RUNS], whole_ns[RUNS];
    struct arena_pool pool;
    struct arena a;
    struct buf b;
    uint64_t bits[1];
    arena_pool_init(&pool, 64);
    arena_init(&a, &pool);
    buf_init(&b, 1 << 20);
    make_body(&b, turns);
    for (unsigned i = 0; i < RUNS; i++) {
        struct json_doc doc;
        struct json_fault fault;
        uint64_t begun = now_ns();
        if (!json_parse(&a, buf_view(&b), NULL, &doc, &fault))
            exit(1);
        uint64_t parsed = now_ns() - begun;
        apply_ns[i] = apply(g, mask, buf_view(&b), &doc, &a);
        whole_ns[i] = parsed + apply_ns[i];
        begun = now_ns();
        patterns_scan(g->stage[RULE_PRE_CALL].patterns, buf_view(&b), bits);
        scan_ns[i] = now_ns() - begun;
        arena_reset(&a);
    }
    qsort(scan_ns, RUNS, sizeof *scan_ns, by_value);
    qsort(apply_ns, RUNS, sizeof *apply_ns, by_value);
    qsort(whole_ns, RUNS, sizeof *whole_ns, by_value);
    printf("%5u turns: scan %6.1f us   apply %6.1f us   parse + apply %6.1f us\n", turns,
           (double)scan_ns[RUNS / 2] / 1e3, (double)apply_ns[RUNS / 2] / 1e3,
           (double)whole_ns[RUNS / 2] / 1e3);
    buf_fini(&b);
    arena_reset(&a);
    arena_pool_fini(&pool);
}

/* What the rules add to each event of a stream: one token an event, nothing matches. */
static void run_stream(enum dialect_id dialect, const char *name, const char *before, const char *behind)
{
    static uint64_t took[RUNS];
    struct rule_settings rules[ARRAY_LEN(custom) + 4];
    const struct policy_settings s = {.guardrails = {.enabled = true,
                                                     .max_scan_bytes = 1 << 30,
                                                     .streaming_post_call = STREAM_APPLY,
                                                     .rules = rules,
                                                     .n_rules = rule_list(rules, RULE_POST_CALL)}};
    static const struct strings none;
    static const struct net_egress open;
    struct policy *p = policy_new(&s, NULL, 0, &none, &open);
    struct policy_stream *stream = policy_stream_new(p, NULL, dialect, NULL);
    struct rng rng;
    struct buf in, out;
    rng_seed(&rng, 3);
    buf_init(&in, 4096);
    buf_init(&out, 1 << 20);
    for (unsigned i = 0; i < RUNS; i++) {
        buf_clear(&in);
        buf_clear(&out);
        buf_printf(&in, "%s\" %s\"%s\n\n", before, words[rng_below(&rng, 10)], behind);
        uint64_t begun = now_ns();
        if (!policy_stream_feed(stream, buf_view(&in), &out))
            exit(1);
        took[i] = now_ns() - begun;
    }
    qsort(took, RUNS, sizeof *took, by_value);
    printf("%-12s an event of one word: median %5.1f us, 99 of 100 within %5.1f us\n", name,
           (double)took[RUNS / 2] / 1e3, (double)took[RUNS * 99 / 100] / 1e3);
    policy_stream_free(stream);
    policy_free(p);
    buf_fini(&in);
    buf_fini(&out);
}

int main(void)
{
    struct guardrails *g = make_rules();
    uint64_t *mask = guard_mask_new(&g->stage[RULE_PRE_CALL], NULL);
    printf("%u rules, body of %d bytes\n", g->stage[RULE_PRE_CALL].n, BODY_BYTES);
    run(g, mask, 1);
    run(g, mask, 16);
    run(g, mask, 200);
    run_stream(DIALECT_CHAT, "chat",
               "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,"
               "\"delta\":{\"content\":",
               "},\"finish_reason\":null}]}");
    run_stream(
        DIALECT_MESSAGES, "messages",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"
        "\"text_delta\",\"text\":",
        "}}");
    free(mask);
    guardrails_free(g);
    return 0;
}
