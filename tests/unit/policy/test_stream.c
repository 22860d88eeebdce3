/* SPDX-License-Identifier: Apache-2.0
 *
 * Guardrails on streams, held against what the same rules make of the whole text.
 */
#include "rig.h"

#include "json/write.h"
#include "policy/stream_frame.h"

/* ---- making streams ---- */

enum shape { CHAT, TOOL, LEGACY, TEXT, BLOCK, OUTPUT, SHAPES };

static const enum dialect_id dialects[SHAPES] = {
    [CHAT] = DIALECT_CHAT,        [TOOL] = DIALECT_CHAT,      [LEGACY] = DIALECT_CHAT,
    [TEXT] = DIALECT_COMPLETIONS, [BLOCK] = DIALECT_MESSAGES, [OUTPUT] = DIALECT_RESPONSES,
};

static void add_event(struct buf *b, enum shape shape, struct span piece, unsigned n)
{
    static const struct {
        const char *before, *behind;
    } frames[SHAPES] = {
        [CHAT] = {"data: {\"id\":\"x\", \"choices\":[{\"index\":0,\"delta\":{\"content\":",
                  "},\"finish_reason\":null}]}"},
        [TOOL] = {"data: "
                  "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":{"
                  "\"arguments\":",
                  "}}]}}]}"},
        [LEGACY] = {"id: 7\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"refusal\":", "}}]}\r"},
        [TEXT] = {"data:{\"choices\":[{\"text\":", ",\"index\":0}]}"},
        [BLOCK] = {"event: content_block_delta\ndata: "
                   "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":"
                   "\"text_delta\",\"text\":",
                   "}}"},
        [OUTPUT] = {"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\","
                    "\"output_index\":0,\"content_index\":0,\"delta\":",
                    NULL},
    };
    struct json_out o;
    buf_add_str(b, frames[shape].before);
    json_out_init(&o, b);
    json_out_string(&o, piece);
    if (shape == OUTPUT)
        buf_printf(b, ",\"sequence_number\":%u}", n);
    else
        buf_add_str(b, frames[shape].behind);
    buf_add_str(b, shape == LEGACY ? "\n\r\n" : "\n\n");
}

static const char *const ends[SHAPES] = {
    [CHAT] =
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    [TOOL] = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: "
             "[DONE]\n\n",
    [LEGACY] = "data: [DONE]\r\n\r\n",
    [TEXT] = "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n",
    [BLOCK] = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":2}\n\n"
              "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    [OUTPUT] =
        "event: response.output_text.done\ndata: {\"type\":\"response.output_text.done\",\"output_index\":0,"
        "\"text\":\"\",\"sequence_number\":99}\n\n",
};

/* ---- reading them ---- */

static void read_event(struct buf *text, struct span data)
{
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    if (span_eq(data, SPAN("[DONE]")))
        return;
    arena_init(&a, NULL);
    if (!json_parse(&a, data, NULL, &d, &fault))
        fail_msg("%s in %.*s", fault.what, SPAN_FMT(data));
    uint32_t choice = json_first(&d, json_get(&d, 0, "choices")), delta = json_get(&d, choice, "delta");
    uint32_t call = json_first(&d, json_get(&d, delta, "tool_calls"));
    const uint32_t places[] = {json_get(&d, choice, "text"),
                               json_get(&d, delta, "content"),
                               json_get(&d, delta, "refusal"),
                               json_get(&d, json_get(&d, call, "function"), "arguments"),
                               json_get(&d, json_get(&d, 0, "delta"), "text"),
                               json_get(&d, 0, "delta")};
    for (unsigned i = 0; i < ARRAY_LEN(places); i++)
        buf_add_span(text, json_string(&d, places[i], &a));
    arena_reset(&a);
}

static void read_text(struct span stream, struct buf *text)
{
    struct frame_cutter c;
    struct frame f;
    frame_cutter_init(&c, 1 << 24);
    assert_true(frame_cutter_add(&c, stream));
    while (frame_cutter_next(&c, true, &f))
        if (f.data_lines)
            read_event(text, f.data);
    frame_cutter_fini(&c);
}

/* ---- runs ---- */

struct stream_run {
    struct buf out, text;
    bool good;
};

/* Feeds <stream> in pieces of <step> bytes; after each of them <look> may look at what came out so far. */
static void run_stream(const struct policy *p, enum dialect_id d, struct span stream, size_t step,
                       struct stream_run *r)
{
    struct policy_stream *s = policy_stream_new(p, NULL, d, NULL);
    assert_non_null(s);
    buf_init(&r->out, 1 << 24);
    buf_init(&r->text, 1 << 24);
    r->good = true;
    for (size_t at = 0; at < stream.n && r->good; at += step)
        r->good = policy_stream_feed(s, span_of(stream.p + at, stream.n - at < step ? stream.n - at : step),
                                     &r->out);
    if (r->good)
        r->good = policy_stream_end(s, &r->out);
    policy_stream_free(s);
    if (r->good)
        read_text(buf_view(&r->out), &r->text);
}

static void end_run(struct stream_run *r)
{
    buf_fini(&r->out);
    buf_fini(&r->text);
}

static void a_match_is_caught_at_every_cut(void **state)
{
    static const char text[] = "write to joe@example.com, or call +49 170 1234567 soon: sk-abcdefghijklmnop!";
    static const char want[] =
        "write to [REDACTED:EMAIL], or call [REDACTED:PHONE] soon: [REDACTED:API_TOKEN]!";
    struct rule_settings rules[] = {rig_builtin("email", RULE_REDACT), rig_builtin("phone", RULE_REDACT),
                                    rig_builtin("api_token", RULE_REDACT)};
    struct policy_settings settings = rig_settings(rules, 3);
    struct policy *p = rig_policy(&settings);
    const size_t n = sizeof text - 1;
    for (enum shape shape = 0; shape < SHAPES; shape++)
        for (size_t i = 0; i <= n; i++)
            for (size_t k = i; k <= n; k += shape == CHAT || k == i ? 1 : 7) {
                struct buf b;
                struct stream_run r;
                buf_init(&b, 1 << 20);
                add_event(&b, shape, span_of(text, i), 1);
                add_event(&b, shape, span_of(text + i, k - i), 2);
                BUF_LIT(&b, ": ping\n\n");
                add_event(&b, shape, span_of(text + k, n - k), 3);
                buf_add_str(&b, ends[shape]);
                run_stream(p, dialects[shape], buf_view(&b), b.n, &r);
                assert_true(r.good);
                /* Tool-call arguments that are no JSON are text as well. */
                if (!span_eq(buf_view(&r.text), span_str(want)))
                    fail_msg("shape %d, cut at %zu and %zu: %.*s", shape, i, k, SPAN_FMT(buf_view(&r.text)));
                end_run(&r);
                buf_fini(&b);
            }
    policy_free(p);
}

static void cuts_of_the_bytes_change_nothing(void **state)
{
    struct rule_settings rules[] = {rig_builtin("email", RULE_REDACT),
                                    rig_rule("(?i)hello w", RULE_REDACT, "#")};
    struct policy_settings settings = rig_settings(rules, 2);
    struct policy *p = rig_policy(&settings);
    for (enum shape shape = 0; shape < SHAPES; shape++) {
        struct buf b;
        struct stream_run whole, r;
        buf_init(&b, 1 << 20);
        add_event(&b, shape, SPAN("Well, hel"), 1);
        add_event(&b, shape, SPAN("lo world. Mail jo"), 2);
        add_event(&b, shape, SPAN("e@example.co"), 3);
        add_event(&b, shape, SPAN("m and others"), 4);
        buf_add_str(&b, ends[shape]);
        run_stream(p, dialects[shape], buf_view(&b), b.n, &whole);
        assert_true(span_eq(buf_view(&whole.text), SPAN("Well, #orld. Mail [REDACTED:EMAIL] and others")));
        for (size_t step = 1; step < 40; step++) {
            run_stream(p, dialects[shape], buf_view(&b), step, &r);
            assert_true(span_eq(buf_view(&r.out), buf_view(&whole.out)));
            end_run(&r);
        }
        end_run(&whole);
        buf_fini(&b);
    }
    policy_free(p);
}

static void what_does_not_match_stays_byte_for_byte(void **state)
{
    struct rule_settings rules[] = {rig_builtin("email", RULE_REDACT), rig_rule("secret", RULE_BLOCK, NULL)};
    struct policy_settings settings = rig_settings(rules, 2);
    struct policy *p = rig_policy(&settings);
    static const char *const tokens[] = {"The",      " answer", " is", " sec", "ond", "\n\n",
                                         "\xc3\xbc", "",        " a@", "b",    "."};
    for (enum shape shape = 0; shape < SHAPES; shape++) {
        struct buf b;
        struct stream_run r;
        buf_init(&b, 1 << 20);
        BUF_LIT(&b, "\xef\xbb\xbf: hello\n\nretry: 5\n\n\n");
        for (unsigned i = 0; i < ARRAY_LEN(tokens); i++)
            add_event(&b, shape, span_str(tokens[i]), i);
        BUF_LIT(&b, "data: not json\n\ndata: {\"a\":\ndata: 1}\n\n");
        buf_add_str(&b, ends[shape]);
        BUF_LIT(&b, "data: cut off");
        struct policy_stream *s = policy_stream_new(p, NULL, dialects[shape], NULL);
        buf_init(&r.out, 1 << 20);
        for (size_t i = 0; i < b.n; i++)
            assert_true(policy_stream_feed(s, span_of(b.p + i, 1), &r.out));
        assert_true(policy_stream_end(s, &r.out));
        policy_stream_free(s);
        if (!span_eq(buf_view(&r.out), buf_view(&b)))
            fail_msg("shape %d:\n%.*s\nnot\n%.*s", shape, SPAN_FMT(buf_view(&r.out)), SPAN_FMT(buf_view(&b)));
        buf_fini(&r.out);
        buf_fini(&b);
    }
    policy_free(p);
}

/* Random rules over a small alphabet, chained: what one puts in may be what the next one takes out. */
static void random_texts_are_as_if_whole(void **state)
{
    static const char *const patterns[] = {
        "ab+", "a|b-",     "\\bab\\b", "[ab]{2,4}", "a-?a",  "b$",
        "^a",  "(?:ab)+-", "x.*?y",    "a[^b]+b",   "-\\B-", "yx|ba",
    };
    static const char *const replacements[] = {"", "x", "yx", "ab-", "b"};
    struct rng rng;
    rng_seed(&rng, 11);
    for (unsigned round = 0; round < 3000; round++) {
        struct rule_settings rules[4];
        unsigned n_rules = 1 + (unsigned)rng_below(&rng, 4);
        char names[4][4];
        for (unsigned i = 0; i < n_rules; i++) {
            const char *with = replacements[rng_below(&rng, ARRAY_LEN(replacements))];
            rules[i] = rig_rule(patterns[rng_below(&rng, ARRAY_LEN(patterns))],
                                rng_below(&rng, 8) ? RULE_REDACT : RULE_ANNOTATE, *with ? with : NULL);
            snprintf(names[i], sizeof names[i], "r%u", i);
            rules[i].name = names[i];
        }
        struct policy_settings settings = rig_settings(rules, n_rules);
        struct policy *p = rig_policy(&settings);
        for (unsigned k = 0; k < 10; k++) {
            char text[48];
            size_t n = rng_below(&rng, sizeof text);
            for (size_t i = 0; i < n; i++)
                text[i] = "aabb- xy"[rng_below(&rng, 8)];
            struct arena a;
            struct buf b;
            struct stream_run r;
            arena_init(&a, NULL);
            buf_init(&b, 1 << 20);
            struct span want = rig_whole(&settings, span_of(text, n), &a);
            enum shape shape = (enum shape)rng_below(&rng, SHAPES);
            for (size_t at = 0, m; at < n; at += m) {
                m = 1 + rng_below(&rng, 1 + rng_below(&rng, 8));
                m = m > n - at ? n - at : m;
                add_event(&b, shape, span_of(text + at, m), (unsigned)at);
            }
            buf_add_str(&b, ends[shape]);
            run_stream(p, dialects[shape], buf_view(&b), b.n, &r);
            if (!r.good || !span_eq(buf_view(&r.text), want)) {
                for (unsigned i = 0; i < n_rules; i++)
                    print_error("%s -> %s\n", rules[i].pattern, rules[i].replacement);
                fail_msg("round %u, shape %d: \"%.*s\" became \"%.*s\", not \"%.*s\"", round, shape, (int)n,
                         text, SPAN_FMT(buf_view(&r.text)), SPAN_FMT(want));
            }
            end_run(&r);
            buf_fini(&b);
            arena_reset(&a);
        }
        policy_free(p);
    }
}

static void random_string(struct rng *rng, struct buf *b)
{
    static const char *const bits[] = {"a",       "b",    "@",   ".",       "\\u0040",  "\\n",
                                       "\\\"",    "\\\\", "\\/", "com",     "\xc3\xbc", "\\ud83d\\ude00",
                                       "\\u00e9", " ",    "1",   "a@b.com", "\\u0061"};
    buf_add_char(b, '"');
    for (unsigned i = (unsigned)rng_below(rng, 8); i > 0; i--)
        buf_add_str(b, bits[rng_below(rng, ARRAY_LEN(bits))]);
    buf_add_char(b, '"');
}

static void random_value(struct rng *rng, struct buf *b, unsigned depth)
{
    unsigned kind = (unsigned)rng_below(rng, depth ? 5 : 2), n = (unsigned)rng_below(rng, 4);
    if (kind == 0 && depth < 3) {
        buf_add_str(b, rng_below(rng, 2) ? "17 " : "-1.5e3");
    } else if (kind < 3 && depth > 0 && depth < 5 && kind > 0) {
        random_string(rng, b);
    } else if (kind % 2) {
        BUF_LIT(b, "{ ");
        for (unsigned i = 0; i < n; i++) {
            buf_printf(b, "%s\"%c@a.com%u\" :", i ? ", " : "", 'a' + (int)i, i);
            random_value(rng, b, depth + 1);
        }
        BUF_LIT(b, "}");
    } else {
        BUF_LIT(b, "[");
        for (unsigned i = 0; i < n && depth < 6; i++) {
            if (i)
                BUF_LIT(b, ",");
            random_value(rng, b, depth + 1);
        }
        BUF_LIT(b, "]");
    }
}

/* Arguments as a whole reply has them: masked inside of the JSON. */
static struct span whole_arguments(const struct policy_settings *s, struct span arguments, struct arena *a)
{
    struct buf b;
    struct json_out o;
    struct json_doc d;
    struct json_fault fault;
    struct guard_result r;
    struct guardrails *g = guardrails_new(&s->guardrails);
    uint64_t *mask = guard_mask_new(&g->stage[RULE_POST_CALL], NULL);
    buf_init(&b, 1 << 20);
    BUF_LIT(&b, "{\"choices\":[{\"message\":{\"tool_calls\":[{\"function\":{\"arguments\":");
    json_out_init(&o, &b);
    json_out_string(&o, arguments);
    BUF_LIT(&b, "}}]}}]}");
    assert_true(json_parse(a, buf_view(&b), NULL, &d, &fault));
    guardrails_apply(g, RULE_POST_CALL, mask, buf_view(&b), &d, a, &r);
    struct span body = arena_dup(a, r.verdict == GUARD_CHANGED ? r.body : buf_view(&b));
    assert_true(json_parse(a, body, NULL, &d, &fault));
    uint32_t choice = json_first(&d, json_get(&d, 0, "choices"));
    uint32_t call = json_first(&d, json_get(&d, json_get(&d, choice, "message"), "tool_calls"));
    struct span text = json_string(&d, json_get(&d, json_get(&d, call, "function"), "arguments"), a);
    free(mask);
    guardrails_free(g);
    buf_fini(&b);
    return text;
}

/* Equal but for white space and the way strings are written. */
static bool same_json(struct span x, struct span y, struct arena *a)
{
    struct json_doc dx, dy;
    struct json_fault fault;
    if (!json_parse(a, x, NULL, &dx, &fault) || !json_parse(a, y, NULL, &dy, &fault) || dx.n != dy.n)
        return false;
    for (uint32_t i = 0; i < dx.n; i++) {
        const struct json_node *nx = &dx.node[i], *ny = &dy.node[i];
        if (nx->type != ny->type || nx->count != ny->count || nx->end != ny->end)
            return false;
        if (nx->type == JSON_STRING && !json_string_eq(&dx, i, json_string(&dy, i, a)))
            return false;
        if (nx->type == JSON_NUMBER && !span_eq(json_raw(&dx, i), json_raw(&dy, i)))
            return false;
    }
    return true;
}

static void arguments_stay_json(void **state)
{
    struct rule_settings rules[] = {rig_rule("[a-z]+@[a-z.]+\\.com", RULE_REDACT, "<\"\xc3\xbc\\>"),
                                    rig_rule("ba*\n", RULE_REDACT, NULL),
                                    rig_rule("\xf0\x9f\x98\x80", RULE_REDACT, ":)")};
    struct policy_settings settings = rig_settings(rules, 3);
    struct policy *p = rig_policy(&settings);
    struct rng rng;
    rng_seed(&rng, 5);
    for (unsigned round = 0; round < 6000; round++) {
        struct buf args, b;
        struct stream_run r;
        buf_init(&args, 1 << 20);
        buf_init(&b, 1 << 20);
        if (rng_below(&rng, 4) == 0)
            BUF_LIT(&args, " \n");
        random_value(&rng, &args, 0);
        for (size_t at = 0, m; at < args.n; at += m) {
            m = 1 + rng_below(&rng, 1 + rng_below(&rng, 6));
            m = m > args.n - at ? args.n - at : m;
            while (at + m < args.n && ((unsigned char)args.p[at + m] & 0xc0) == 0x80)
                m++;
            add_event(&b, TOOL, span_of(args.p + at, m), 0);
        }
        buf_add_str(&b, ends[TOOL]);
        run_stream(p, DIALECT_CHAT, buf_view(&b), b.n, &r);
        struct arena a;
        arena_init(&a, NULL);
        struct span want = whole_arguments(&settings, buf_view(&args), &a);
        if (!same_json(buf_view(&r.text), want, &a))
            fail_msg("round %u: %.*s became %.*s, not %.*s", round, SPAN_FMT(buf_view(&args)),
                     SPAN_FMT(buf_view(&r.text)), SPAN_FMT(want));
        arena_reset(&a);
        end_run(&r);
        buf_fini(&b);
        buf_fini(&args);
    }
    policy_free(p);
}

static void no_more_is_held_than_may_match(void **state)
{
    struct rule_settings rules[] = {rig_builtin("email", RULE_REDACT)};
    struct policy_settings settings = rig_settings(rules, 1);
    struct policy *p = rig_policy(&settings);
    struct policy_stream *s = policy_stream_new(p, NULL, DIALECT_CHAT, NULL);
    struct buf in, out, text;
    buf_init(&in, 1 << 16);
    buf_init(&out, 1 << 16);
    buf_init(&text, 1 << 16);
    static const struct {
        const char *piece, *out_so_far;
    } steps[] = {
        {"Hello, my address is joe", "Hello, my address is "}, /* the settled words go out */
        {"@example", "Hello, my address is "},
        {".com", "Hello, my address is "}, /* may get longer */
        {" and", "Hello, my address is [REDACTED:EMAIL]"},
        {" more (", "Hello, my address is [REDACTED:EMAIL] and more ("},
    };
    for (unsigned i = 0; i < ARRAY_LEN(steps); i++) {
        buf_clear(&in);
        buf_clear(&text);
        add_event(&in, CHAT, span_str(steps[i].piece), i);
        assert_true(policy_stream_feed(s, buf_view(&in), &out));
        read_text(buf_view(&out), &text);
        /* A space alone waits for its word. */
        while (text.n && text.p[text.n - 1] == ' ' && steps[i].out_so_far[text.n - 1] == '\0')
            text.n--;
        if (!span_eq(buf_view(&text), span_str(steps[i].out_so_far)))
            fail_msg("after \"%s\": \"%.*s\"", steps[i].piece, SPAN_FMT(buf_view(&text)));
    }
    policy_stream_free(s);
    buf_fini(&in);
    buf_fini(&out);
    buf_fini(&text);
    policy_free(p);
}

static void a_block_ends_the_stream(void **state)
{
    static const struct {
        enum shape shape;
        const char *end;
    } cases[] = {
        {CHAT,
         "data: {\"error\":{\"message\":\"The reply was blocked by the guardrail \\\"cards\\\".\",\"type\":"
         "\"permission_error\",\"param\":null,\"code\":\"guardrail_blocked\"}}\n\n"},
        {BLOCK,
         "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"permission_error\",\"message\":"
         "\"The reply was blocked by the guardrail \\\"cards\\\".\"}}\n\n"},
        {OUTPUT,
         "event: error\ndata: {\"type\":\"error\",\"code\":\"guardrail_blocked\",\"message\":\"The reply was "
         "blocked by the guardrail \\\"cards\\\".\",\"param\":null,\"sequence_number\":3}\n\n"},
    };
    static const char text[] = "4111 1111 1111 1111";
    struct rule_settings rules[] = {rig_builtin("payment_card", RULE_BLOCK)};
    rules[0].name = "cards";
    struct policy_settings settings = rig_settings(rules, 1);
    struct policy *p = rig_policy(&settings);
    for (unsigned c = 0; c < ARRAY_LEN(cases); c++)
        for (size_t i = 0; i < sizeof text; i++) {
            struct buf b, want;
            struct stream_run r;
            buf_init(&b, 1 << 20);
            buf_init(&want, 1 << 20);
            add_event(&b, cases[c].shape, SPAN("It is:"), 2);
            buf_add_span(&want, buf_view(&b));
            buf_add_str(&want, cases[c].end);
            add_event(&b, cases[c].shape, span_of(text, i), 3);
            add_event(&b, cases[c].shape, span_of(text + i, sizeof text - 1 - i), 4);
            buf_add_str(&b, ends[cases[c].shape]);
            run_stream(p, dialects[cases[c].shape], buf_view(&b), 64, &r);
            assert_false(r.good);
            /* An event without text may have gone out between the two. */
            if (i > 0 && !span_eq(buf_view(&r.out), buf_view(&want)))
                fail_msg("%.*s", SPAN_FMT(buf_view(&r.out)));
            assert_true(span_find(buf_view(&r.out), SPAN("4111")) < 0);
            end_run(&r);
            buf_fini(&b);
            buf_fini(&want);
        }
    policy_free(p);
}

static void sequence_numbers_stay_a_sequence(void **state)
{
    struct rule_settings rules[] = {rig_builtin("email", RULE_REDACT)};
    struct policy_settings settings = rig_settings(rules, 1);
    struct policy *p = rig_policy(&settings);
    struct buf b;
    struct stream_run r;
    buf_init(&b, 1 << 20);
    add_event(&b, OUTPUT, SPAN("two words"), 0);
    add_event(&b, OUTPUT, SPAN(" and three"), 1);
    add_event(&b, OUTPUT, SPAN("."), 2);
    run_stream(p, DIALECT_RESPONSES, buf_view(&b), b.n, &r);
    unsigned n = 0;
    struct span rest = buf_view(&r.out), line;
    while (span_split(&rest, '\n', &line)) {
        ptrdiff_t at = span_find(line, SPAN("\"sequence_number\":"));
        uint64_t got = 0;
        if (at < 0)
            continue;
        struct span number = span_of(line.p + at + 18, line.n - (size_t)at - 18), digits;
        assert_true(span_split(&number, '}', &digits) && span_to_u64(digits, &got));
        assert_int_equal(got, n++);
    }
    assert_true(n > 3);
    assert_true(span_eq(buf_view(&r.text), SPAN("two words and three.")));
    end_run(&r);
    buf_fini(&b);
    policy_free(p);
}

/* Texts of several choices and blocks do not run together, and the last one of a block ends with it. */
static void texts_are_apart(void **state)
{
    struct rule_settings rules[] = {rig_rule("abc", RULE_REDACT, "#")};
    struct policy_settings settings = rig_settings(rules, 1);
    struct policy *p = rig_policy(&settings);
    static const struct {
        enum dialect_id dialect;
        const char *in, *out;
    } cases[] = {
        {DIALECT_COMPLETIONS,
         "data: {\"choices\":[{\"index\":0,\"text\":\"ab\"},{\"index\":1,\"text\":\"a\"}]}\n\n"
         "data: {\"choices\":[{\"index\":1,\"text\":\"bc\"}]}\n\ndata: "
         "{\"choices\":[{\"index\":0,\"text\":\"d\"}]}\n\n",
         "data: {\"choices\":[{\"index\":0,\"text\":\"ab\"},{\"index\":1,\"text\":\"#\"}]}\n\n"
         "data: {\"choices\":[{\"index\":1,\"text\":\"\"}]}\n\ndata: "
         "{\"choices\":[{\"index\":0,\"text\":\"d\"}]}\n\n"},
        {DIALECT_MESSAGES,
         "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"ab\"}}\n\n"
         "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
         "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"text\":\"c\"}}\n\n",
         NULL},
        {DIALECT_MESSAGES,
         "data: "
         "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"ab\"}"
         "}\n\n"
         "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"c\"}}\n\n",
         "data: "
         "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"#\"}}"
         "\n\n"
         "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"\"}}\n\n"},
        {DIALECT_RESPONSES,
         "data: "
         "{\"type\":\"response.completed\",\"response\":{\"instructions\":\"abc\",\"output\":[{\"content\":[{"
         "\"text\":"
         "\"xabc\",\"logprobs\":[1]}],\"arguments\":\"{\\\"a\\\":\\\"abc\\\"}\"}]}}\n\n",
         "data: "
         "{\"type\":\"response.completed\",\"response\":{\"instructions\":\"abc\",\"output\":[{\"content\":[{"
         "\"text\":"
         "\"x#\",\"logprobs\":[]}],\"arguments\":\"{\\\"a\\\":\\\"#\\\"}\"}]}}\n\n"},
        {DIALECT_CHAT,
         "data: "
         "{\"choices\":[{\"delta\":{\"content\":\"ab\"},\"logprobs\":{\"content\":[{\"token\":\"ab\"}]}}]}"
         "\n\n"
         "data: "
         "{\"choices\":[{\"delta\":{\"content\":\"c!\"},\"logprobs\":{\"content\":[{\"token\":\"c\"}]}}]}"
         "\n\n",
         "data: {\"choices\":[{\"delta\":{\"content\":\"#\"},\"logprobs\":null}]}\n\n"
         "data: {\"choices\":[{\"delta\":{\"content\":\"!\"},\"logprobs\":null}]}\n\n"},
        {DIALECT_CHAT, "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"abc\"}}]}\nid: 4\n\n",
         "id: 4\ndata: {\"choices\":[{\"delta\":\ndata: {\"content\":\"#\"}}]}\n\n"},
        {DIALECT_CHAT, "data: plain abc text\n\n", "data: plain # text\n\n"},
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        struct policy_stream *s = policy_stream_new(p, NULL, cases[i].dialect, NULL);
        struct buf out;
        buf_init(&out, 1 << 16);
        assert_true(policy_stream_feed(s, span_str(cases[i].in), &out));
        assert_true(policy_stream_end(s, &out));
        if (!span_eq(buf_view(&out), span_str(cases[i].out ? cases[i].out : cases[i].in)))
            fail_msg("case %u: %.*s", i, SPAN_FMT(buf_view(&out)));
        buf_fini(&out);
        policy_stream_free(s);
    }
    policy_free(p);
}

static void the_budget_of_a_stream(void **state)
{
    struct rule_settings rules[] = {rig_rule("abc", RULE_REDACT, "#")};
    struct policy_settings settings = rig_settings(rules, 1);
    for (unsigned mode = 0; mode < 2; mode++) {
        struct buf b;
        struct stream_run r;
        settings.guardrails.max_scan_bytes = 10;
        settings.guardrails.on_budget = mode ? BUDGET_PASS : BUDGET_BLOCK;
        struct policy *p = rig_policy(&settings);
        buf_init(&b, 1 << 16);
        add_event(&b, CHAT, SPAN("abc12345"), 0);
        add_event(&b, CHAT, SPAN("abcxx"), 1);
        add_event(&b, CHAT, SPAN("abcyy"), 2);
        run_stream(p, DIALECT_CHAT, buf_view(&b), b.n, &r);
        assert_int_equal(r.good, mode == 1);
        if (r.good)
            assert_true(span_eq(buf_view(&r.text), SPAN("#12345#xxabcyy")));
        end_run(&r);
        buf_fini(&b);
        policy_free(p);
    }
}

static void a_pattern_without_end_is_bounded(void **state)
{
    struct rule_settings rules[] = {rig_rule("begin.*end", RULE_REDACT, "#")};
    struct policy_settings settings = rig_settings(rules, 1);
    settings.guardrails.on_budget = BUDGET_BLOCK;
    struct policy *p = rig_policy(&settings);
    struct buf b;
    struct stream_run r;
    buf_init(&b, 1 << 24);
    add_event(&b, CHAT, SPAN("begin"), 0);
    for (unsigned i = 0; i < 20000; i++)
        add_event(&b, CHAT, SPAN(" word"), i);
    run_stream(p, DIALECT_CHAT, buf_view(&b), 4096, &r);
    assert_false(r.good);
    assert_true(span_find(buf_view(&r.out), SPAN("max_scan_bytes")) > 0);
    end_run(&r);
    buf_fini(&b);
    policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_match_stays_byte_for_byte),
        cmocka_unit_test(a_match_is_caught_at_every_cut),
        cmocka_unit_test(cuts_of_the_bytes_change_nothing),
        cmocka_unit_test(no_more_is_held_than_may_match),
        cmocka_unit_test(a_block_ends_the_stream),
        cmocka_unit_test(sequence_numbers_stay_a_sequence),
        cmocka_unit_test(texts_are_apart),
        cmocka_unit_test(the_budget_of_a_stream),
        cmocka_unit_test(a_pattern_without_end_is_bounded),
        cmocka_unit_test(random_texts_are_as_if_whole),
        cmocka_unit_test(arguments_stay_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
