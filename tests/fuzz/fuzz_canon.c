/* SPDX-License-Identifier: Apache-2.0
 *
 * The canonical form: any JSON object that has one has the same one after its white space went, and another
 * one when a member is added that nobody knows. First byte: the dialect.
 */
#include "base/check.h"
#include "cache/key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(void *arg, const char *p, size_t n)
{
    buf_add(arg, p, n);
}

static bool form_of(enum dialect_id dialect, struct span text, struct buf *ret)
{
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    arena_init(&a, NULL);
    bool ok = json_parse(&a, text, NULL, &d, &fault) && !canon_refuses(&d);
    if (ok) {
        (void)key_refuses(dialect, &d);
        const struct canon c = {.doc = &d, .dialect = dialect, .arena = &a, .put = put, .arg = ret};
        canon_body(&c);
    }
    arena_reset(&a);
    return ok;
}

static void compact(struct span text, struct buf *ret)
{
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    arena_init(&a, NULL);
    CHECK(json_parse(&a, text, NULL, &d, &fault));
    json_compact_each(&d, 0, put, ret);
    arena_reset(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    enum dialect_id dialect = (enum dialect_id)(data[0] % DIALECT_COUNT);
    struct span in = span_of((const char *)data + 1, size - 1);
    struct buf form, other, text;
    buf_init(&form, 1 << 26);
    buf_init(&other, 1 << 26);
    buf_init(&text, 1 << 26);
    if (form_of(dialect, in, &form)) {
        compact(in, &text);
        CHECK(form_of(dialect, buf_view(&text), &other));
        CHECK(span_eq(buf_view(&form), buf_view(&other)));
        buf_clear(&other);
        text.n--;
        buf_add_str(&text, text.n > 1 ? ",\"never heard of\":0}" : "\"never heard of\":0}");
        if (form_of(dialect, buf_view(&text), &other))
            CHECK(!span_eq(buf_view(&form), buf_view(&other)));
    }
    buf_fini(&form);
    buf_fini(&other);
    buf_fini(&text);
    return 0;
}
