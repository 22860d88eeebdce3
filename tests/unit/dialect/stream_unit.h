/* SPDX-License-Identifier: Apache-2.0
 *
 * Recorded event streams with the verdict that they must get: DIALECT.VERDICT.NAME[.nCHOICES].sse.
 */
#ifndef ROLTER_TESTS_STREAM_UNIT_H
#define ROLTER_TESTS_STREAM_UNIT_H

#include <dirent.h>

#include "base/buf.h"
#include "base/check.h"
#include "dialect/complete.h"

struct stream_fixture {
    char name[256];
    enum dialect_id dialect;
    enum complete_verdict verdict;
    unsigned asked;
    struct span text;
};

enum { STREAM_FIXTURES_MAX = 200 };

static inline enum complete_verdict verdict_named(struct span word)
{
    for (enum complete_verdict v = 0; v < COMPLETE_VERDICT_COUNT; v++)
        if (span_eq(span_str(complete_word(v)), word))
            return v;
    fail_msg("no verdict %.*s", SPAN_FMT(word));
    return 0;
}

static inline void stream_fixture_name(struct stream_fixture *f)
{
    struct span rest = span_str(f->name), part;
    assert_true(span_split(&rest, '.', &part));
    for (f->dialect = 0; !span_eq(span_str(dialect_get(f->dialect)->name), part); f->dialect++)
        ;
    assert_true(span_split(&rest, '.', &part));
    f->verdict = verdict_named(part);
    f->asked = 1;
    while (span_split(&rest, '.', &part))
        if (part.n == 2 && *part.p == 'n')
            f->asked = (unsigned)(part.p[1] - '0');
}

static inline unsigned stream_fixtures(struct stream_fixture *ret)
{
    unsigned n = 0;
    DIR *dir = opendir(ROLTER_TEST_DATA "/cache/streams");
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (*e->d_name == '.')
            continue;
        char path[512];
        assert_true(n < STREAM_FIXTURES_MAX);
        snprintf(ret[n].name, sizeof ret[n].name, "%s", e->d_name);
        stream_fixture_name(&ret[n]);
        snprintf(path, sizeof path, "%s/cache/streams/%s", ROLTER_TEST_DATA, e->d_name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        char *bytes = malloc(1 << 16);
        ret[n].text = span_of(bytes, fread(bytes, 1, 1 << 16, f));
        assert_true(ret[n].text.n > 0 && ret[n].text.n < 1 << 16);
        fclose(f);
        n++;
    }
    closedir(dir);
    return n;
}

static inline void stream_fixtures_free(struct stream_fixture *all, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        free((char *)all[i].text.p);
}

/* The stream in pieces: up to <cut>, then the rest <step> bytes at a time. */
static inline enum complete_verdict judge_stream(const struct stream_fixture *f, size_t n, size_t cut,
                                                 size_t step, bool store_truncated, bool *ret_truncated)
{
    struct arena scratch;
    arena_init(&scratch, NULL);
    struct complete *c = complete_new(&(struct complete_options){
        .dialect = f->dialect,
        .is_stream = true,
        .asked = f->asked,
        .store_truncated = store_truncated,
        .scratch = &scratch,
    });
    for (size_t at = 0, some = cut; at < n; at += some, some = step) {
        if (some > n - at)
            some = n - at;
        char *exact = malloc(some ? some : 1); /* whose end a sanitizer watches */
        memcpy(exact, f->text.p + at, some);
        complete_feed(c, exact, some);
        free(exact);
    }
    enum complete_verdict so_far = complete_so_far(c), v = complete_end(c, true, SPAN_NONE, ret_truncated);
    if (so_far != COMPLETE_OK)
        assert_int_equal(so_far, v);
    complete_free(c);
    arena_reset(&scratch);
    return v;
}

#endif
