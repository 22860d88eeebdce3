/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of bodies for tests, and the corpus of bodies.
 */
#ifndef ROLTER_TESTS_KEY_UNIT_H
#define ROLTER_TESTS_KEY_UNIT_H

#include "base/check.h"
#include "cache/key.h"

struct corpus_body {
    enum dialect_id dialect;
    struct span text;
};
struct corpus {
    char *bytes;
    struct corpus_body *body;
    unsigned n;
};

static inline enum dialect_id dialect_named(struct span name)
{
    for (enum dialect_id id = 0; id < DIALECT_COUNT; id++)
        if (span_eq(span_str(dialect_get(id)->name), name))
            return id;
    fail_msg("no dialect %.*s", SPAN_FMT(name));
    return 0;
}

static inline char *read_file(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *ret_n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*ret_n + 1);
    assert_int_equal(fread(bytes, 1, *ret_n, f), *ret_n);
    fclose(f);
    return bytes;
}

static inline struct corpus corpus_read(void)
{
    struct corpus c = {0};
    size_t n;
    c.bytes = read_file(ROLTER_TEST_DATA "/cache/bodies.txt", &n);
    c.body = calloc(n / 16, sizeof *c.body);
    struct span rest = span_of(c.bytes, n), line, name;
    while (span_split(&rest, '\n', &line)) {
        if (line.n == 0 || *line.p == '#')
            continue;
        assert_true(span_split(&line, '\t', &name));
        c.body[c.n++] = (struct corpus_body){dialect_named(name), line};
    }
    return c;
}

static inline void corpus_free(struct corpus *c)
{
    free(c->body);
    free(c->bytes);
}

/* The key of <text> with everything else fixed; false when it is not JSON. */
static inline bool key_of_text(enum dialect_id dialect, struct span text, struct cache_digest *ret)
{
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    arena_init(&a, NULL);
    bool ok = json_parse(&a, text, NULL, &d, &fault);
    if (ok) {
        assert_null(canon_refuses(&d));
        struct cache_scope scope;
        struct cache_digest targets;
        key_scope_of_key(NULL, &scope);
        key_targets(NULL, 0, NULL, 0, &targets);
        struct key_input in = {
            .dialect = dialect,
            .path = span_str(dialect_get(dialect)->path),
            .route = SPAN("route"),
            .scope = &scope,
            .targets = &targets,
            .doc = &d,
        };
        key_exact(&in, &a, ret);
    }
    arena_reset(&a);
    return ok;
}

static inline struct cache_digest key_of(enum dialect_id dialect, struct span text)
{
    struct cache_digest d;
    if (!key_of_text(dialect, text, &d))
        fail_msg("not JSON: %.*s", SPAN_FMT(text));
    return d;
}

static inline bool same_key(enum dialect_id dialect, struct span a, struct span b)
{
    struct cache_digest x = key_of(dialect, a), y = key_of(dialect, b);
    return digest_eq(&x, &y);
}

#endif
