/* SPDX-License-Identifier: Apache-2.0
 *
 * Any JSON text through every dialect's readers: the text is valid UTF-8, bounded, and stands in the stream
 * of measured bytes in this order; that stream is as long as the length says; the arena takes at most two
 * bounded texts; asking twice gives the same. Usage readers take anything, and find nothing where the quick
 * look sees none.
 */
#include "base/buf.h"
#include "base/check.h"
#include "dialect/dialect.h"
#include "gateway/prompt_blocks.h"

static void collect(void *arg, const char *p, size_t n)
{
    CHECK(n > 0);
    buf_add(arg, p, n);
}

/* The reader itself is the judge: a string of these bytes is JSON only if they are UTF-8. */
static bool is_utf8(struct arena *a, struct span s)
{
    struct json_doc d;
    struct json_fault fault;
    char *quoted = arena_alloc(a, s.n + 2);
    quoted[0] = quoted[s.n + 1] = '"';
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        quoted[i + 1] = (unsigned char)c < 0x20 || c == '"' || c == '\\' ? '.' : c;
    }
    return json_parse(a, span_of(quoted, s.n + 2), NULL, &d, &fault);
}

/* <part> is what remains of <all> when some bytes (tool traffic, what is past the cut) are left out. */
static bool is_within(struct span part, struct span all)
{
    size_t at = 0;
    for (size_t i = 0; i < all.n && at < part.n; i++)
        at += all.p[i] == part.p[at];
    return at == part.n;
}

static void check_prompt(enum dialect_id id, const struct json_doc *d, bool tools, struct arena *a,
                         struct buf *seen)
{
    struct prompt_context c, again;
    struct prompt_options o = {.include_tools = tools, .each = collect, .arg = seen};
    buf_clear(seen);
    size_t used = a->used_bytes;
    dialect_prompt_with(id, d, &o, a, &c);
    CHECK(a->used_bytes - used <= 2 * PROMPT_TEXT_MAX);
    CHECK(c.text.n <= PROMPT_TEXT_MAX && c.text.n <= c.len && c.head_len <= c.len);
    CHECK(!seen->full && seen->n == c.len);
    CHECK(is_utf8(a, c.text));
    if (tools)
        return; /* their cut lies inside of the text */
    CHECK(is_within(c.text, buf_view(seen)));
    if (c.is_raw)
        CHECK(c.digest == hash_bytes(d->text.p, d->text.n) && c.len == d->text.n);
    dialect_prompt(id, d, a, &again);
    CHECK(again.digest == c.digest && again.len == c.len && span_eq(again.text, c.text));
}

/* Without copies: the same bytes, but for eight of each value of media. */
static void check_each_only(enum dialect_id id, const struct json_doc *d, struct arena *a,
                            const struct buf *seen, struct buf *only)
{
    struct prompt_context c;
    struct prompt_blocks b;
    struct prompt_options o = {.include_tools = true, .each = collect, .arg = only, .each_only = true};
    buf_clear(only);
    size_t used = a->used_bytes;
    dialect_prompt_with(id, d, &o, a, &c);
    CHECK(a->used_bytes == used && c.digest == 0 && c.head_len + c.turn_len <= c.len);
    CHECK(only->full || (only->n >= c.len && is_within(buf_view(seen), buf_view(only))));
    prompt_blocks_read(id, d, a, &b, &c);
    CHECK((uint64_t)b.n * 64 <= b.bytes && (only->full || b.bytes == only->n));
}

static void check_usage(const struct dialect *dialect, enum dialect_id id, const struct json_doc *d)
{
    struct usage u, e, none;
    usage_init(&u);
    usage_init(&e);
    usage_init(&none);
    dialect->reply_usage(d, &u);
    if (!memmem(d->text.p, d->text.n, "\\u",
                2)) { /* names that are written with escapes are not looked for */
        struct arena a;
        struct usage end;
        arena_init(&a, NULL);
        usage_init(&end);
        dialect_reply_usage(id, d->text, &a, &end);
        CHECK(memcmp(&u, &end, sizeof u) == 0);
        arena_reset(&a);
    }
    dialect->event_usage(d, &e);
    (void)usage_total(&u);
    /* A name that is written with escapes is not seen by the quick look; nobody writes it so. */
    if (!dialect_may_have_usage(id, d->text) && !memchr(d->text.p, '\\', d->text.n))
        CHECK(memcmp(&u, &none, sizeof u) == 0 && memcmp(&e, &none, sizeof e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    struct buf seen, only;
    arena_init(&a, NULL);
    buf_init(&seen, 1 << 24);
    buf_init(&only, 1 << 26);
    if (json_parse(&a, span_of((const char *)data, size), NULL, &d, &fault)) {
        for (enum dialect_id id = 0; id < DIALECT_COUNT; id++) {
            check_prompt(id, &d, false, &a, &seen);
            check_prompt(id, &d, true, &a, &seen);
            check_each_only(id, &d, &a, &seen, &only);
            check_usage(dialect_get(id), id, &d);
        }
    }
    buf_fini(&seen);
    buf_fini(&only);
    arena_reset(&a);
    return 0;
}
