/* SPDX-License-Identifier: Apache-2.0
 *
 * Guardrails on a stream: what comes out does not depend on how the bytes came in, and a stream without a
 * match stays byte for byte. First byte of the input: dialect and size of the pieces.
 */
#include "base/check.h"
#include "policy/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct policy *make_policy(void)
{
    static struct rule_settings rules[] = {
        {.name = "a", .builtin = "email", .stage = RULE_POST_CALL, .action = RULE_REDACT},
        {.name = "b",
         .pattern = "ab+c|\\bx",
         .stage = RULE_POST_CALL,
         .action = RULE_REDACT,
         .replacement = "<\">"},
        {.name = "c", .pattern = "[0-9]{3,}$", .stage = RULE_POST_CALL, .action = RULE_ANNOTATE},
        {.name = "d", .pattern = "block me", .stage = RULE_POST_CALL, .action = RULE_BLOCK},
    };
    static const struct policy_settings s = {.guardrails = {.enabled = true,
                                                            .max_scan_bytes = 4096,
                                                            .on_budget = BUDGET_PASS,
                                                            .streaming_post_call = STREAM_APPLY,
                                                            .rules = rules,
                                                            .n_rules = ARRAY_LEN(rules)}};
    static const struct strings none;
    static const struct net_egress open;
    return policy_new(&s, NULL, 0, &none, &open);
}

static bool run(const struct policy *p, enum dialect_id d, struct span in, size_t step, struct buf *out)
{
    struct policy_stream *s = policy_stream_new(p, NULL, d, NULL);
    bool good = true;
    buf_init(out, 64 << 20);
    for (size_t at = 0; at < in.n && good; at += step)
        good = policy_stream_feed(s, span_of(in.p + at, in.n - at < step ? in.n - at : step), out);
    good = good && policy_stream_end(s, out);
    CHECK(!good == (policy_stream_reason(s)[0] != '\0'));
    policy_stream_free(s);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct policy *p;
    if (!p)
        p = make_policy();
    if (size == 0)
        return 0;
    static const enum dialect_id dialects[] = {DIALECT_CHAT, DIALECT_COMPLETIONS, DIALECT_MESSAGES,
                                               DIALECT_RESPONSES};
    enum dialect_id d = dialects[data[0] & 3];
    struct span in = span_of((const char *)data + 1, size - 1);
    struct buf whole, pieces;
    bool a = run(p, d, in, in.n + 1, &whole), b = run(p, d, in, 1 + (data[0] >> 2), &pieces);
    CHECK(a == b && span_eq(buf_view(&whole), buf_view(&pieces)));
    buf_fini(&whole);
    buf_fini(&pieces);
    return 0;
}
