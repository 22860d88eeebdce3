/* SPDX-License-Identifier: Apache-2.0
 *
 * Digests, entries and their binary form, purges by generation.
 */
#include "unit.h"

#include "cache/cache_unit.h"

static void expect_hex(const struct cache_digest *d, const char *hex)
{
    char text[65];
    for (int i = 0; i < 32; i++)
        sprintf(text + 2 * i, "%02x", d->b[i]);
    assert_string_equal(text, hex);
}

static void digest_values(void **state)
{
    (void)state;
    struct digest_writer w;
    struct cache_digest d;
    digest_begin(&w);
    digest_end(&w, &d);
    expect_hex(&d, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    digest_begin(&w);
    digest_add(&w, "a", 1);
    digest_add(&w, "", 0);
    digest_add(&w, "bc", 2);
    digest_end(&w, &d);
    expect_hex(&d, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/* Every way of cutting gives the same digest, around the size that is gathered above all. */
static void digest_cuts(void **state)
{
    (void)state;
    char text[3 * DIGEST_GATHER + 7];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 131 + i / 7);
    struct digest_writer w;
    struct cache_digest whole, d;
    digest_begin(&w);
    digest_add(&w, text, sizeof text);
    digest_end(&w, &whole);
    for (size_t step = 1; step < sizeof text; step += 1 + step / 5) {
        digest_begin(&w);
        for (size_t at = 0; at < sizeof text; at += step)
            digest_add(&w, text + at, step < sizeof text - at ? step : sizeof text - at);
        digest_end(&w, &d);
        assert_true(digest_eq(&whole, &d));
    }
}

static void expect_same(const struct cache_entry *a, const struct cache_entry *b)
{
    const struct entry_facts *f = &a->facts, *g = &b->facts;
    assert_true(digest_eq(&f->key, &g->key));
    assert_int_equal(f->dialect, g->dialect);
    assert_int_equal(f->is_stream, g->is_stream);
    assert_int_equal(f->is_truncated, g->is_truncated);
    assert_true(f->created_ms == g->created_ms && f->expires_ms == g->expires_ms &&
                f->stale_until_ms == g->stale_until_ms && f->stamp == g->stamp);
    assert_memory_equal(&f->usage, &g->usage, sizeof f->usage);
    assert_memory_equal(&f->owner, &g->owner, sizeof f->owner);
    assert_true(span_eq(f->content_type, g->content_type) && span_eq(f->route, g->route) &&
                span_eq(f->provider, g->provider) && span_eq(f->target, g->target) &&
                span_eq(f->model, g->model) && span_eq(f->variant, g->variant) && span_eq(a->body, b->body));
}

static struct span binary(const struct cache_entry *e, struct buf *b)
{
    assert_true(entry_write_head(e, b));
    assert_true(b->n <= ENTRY_HEAD_MAX);
    assert_true(buf_add_span(b, e->body));
    return buf_view(b);
}

static struct cache_entry *example(const struct cache_purge *p)
{
    struct entry_facts f = facts_number(p, 7, 99);
    f.dialect = DIALECT_MESSAGES;
    f.is_stream = true;
    f.is_truncated = true;
    f.content_type = SPAN("text/event-stream; charset=utf-8");
    f.variant = SPAN("b");
    return entry_new(&f, SPAN("event: ping\ndata: {}\n\n"));
}

/* There and back; no other bytes are taken: each cut, each byte more, each flipped bit. */
static void binary_form(void **state)
{
    (void)state;
    struct cache_purge *p = purge_new();
    struct cache_entry *e = example(p), *back;
    struct buf b;
    buf_init(&b, 1 << 20);
    struct span whole = binary(e, &b);
    back = entry_parse(whole);
    assert_non_null(back);
    expect_same(e, back);
    entry_unref(back);
    for (size_t n = 0; n < whole.n; n++) {
        char *exact = malloc(n + 1); /* whose end a sanitizer watches */
        memcpy(exact, whole.p, n);
        assert_null(entry_parse(span_of(exact, n)));
        free(exact);
    }
    for (size_t i = 0; i < whole.n * 8; i++) {
        b.p[i / 8] ^= (char)(1 << i % 8);
        assert_null(entry_parse(whole));
        b.p[i / 8] ^= (char)(1 << i % 8);
    }
    assert_true(buf_add_char(&b, 'x'));
    assert_null(entry_parse(buf_view(&b)));
    buf_fini(&b);
    entry_unref(e);
    purge_free(p);
}

static void limits(void **state)
{
    (void)state;
    struct cache_purge *p = purge_new();
    struct entry_facts f = facts_number(p, 1, 1);
    char *name = malloc(ENTRY_TEXT_MAX + 1);
    memset(name, 'n', ENTRY_TEXT_MAX + 1);
    f.variant = f.route = f.provider = f.target = f.model = f.content_type = span_of(name, ENTRY_TEXT_MAX);
    struct cache_entry *e = entry_new(&f, SPAN_NONE);
    assert_non_null(e);
    assert_true(e->memory_bytes >= entry_bytes(&f, 0));
    struct buf b;
    buf_init(&b, ENTRY_HEAD_MAX);
    struct cache_entry *back = entry_parse(binary(e, &b));
    assert_non_null(back);
    expect_same(e, back);
    entry_unref(back);
    entry_unref(e);
    struct buf small;
    buf_init(&small, 64);
    e = example(p);
    assert_false(entry_write_head(e, &small));
    assert_int_equal(small.n, 0);
    entry_unref(e);
    f.variant.n++;
    assert_null(entry_new(&f, SPAN_NONE));
    f.variant.n--;
    f.expires_ms = f.created_ms - 1;
    assert_null(entry_new(&f, SPAN_NONE));
    f.expires_ms = f.stale_until_ms + 1;
    assert_null(entry_new(&f, SPAN_NONE));
    buf_fini(&small);
    buf_fini(&b);
    free(name);
    purge_free(p);
}

/* Memory that one entry leaves is another one's; neither writes into what still lives. */
static void memory_is_used_again(void **state)
{
    (void)state;
    enum { LIVE = 24, BODY_MAX = 300000, TURNS = 6000 };
    static char body[BODY_MAX];
    struct cache_entry *live[LIVE] = {0};
    uint64_t seed = 1;
    for (int turn = 0; turn < TURNS; turn++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned i = (unsigned)(seed >> 33) % LIVE;
        size_t n = (size_t)(seed >> 40) % (turn % 3 ? BODY_MAX : 40000) + 1;
        if (live[i]) {
            char mark = live[i]->body.p[0];
            assert_true(mark == (char)i);
            for (size_t k = 0; k < live[i]->body.n; k += 1000)
                assert_true(live[i]->body.p[k] == mark);
            assert_true(live[i]->body.p[live[i]->body.n - 1] == mark);
            assert_true(live[i]->memory_bytes >= live[i]->body.n);
            entry_unref(live[i]);
        }
        memset(body, (int)i, n);
        live[i] = entry_new(&(struct entry_facts){.created_ms = 1, .expires_ms = 2, .stale_until_ms = 2},
                            span_of(body, n));
        assert_non_null(live[i]);
    }
    for (int i = 0; i < LIVE; i++)
        entry_unref(live[i]);
}

static void ages(void **state)
{
    (void)state;
    struct cache_purge *p = purge_new();
    struct cache_entry *e = entry_number(p, 1, 1, 10);
    assert_true(entry_is_fresh(e, T0 + 59999));
    assert_false(entry_is_fresh(e, T0 + 60000));
    assert_int_equal(entry_age_secs(e, T0 + 999), 0);
    assert_int_equal(entry_age_secs(e, T0 + 61000), 61);
    assert_int_equal(entry_age_secs(e, T0 - 5), 0); /* the clock was set back */
    entry_unref(entry_ref(e));
    entry_unref(e);
    entry_unref(NULL);
    purge_free(p);
}

/* A purge touches those that it names, at once and for ever; others keep their stamp. */
static void purges(void **state)
{
    (void)state;
    struct cache_purge *p = purge_new();
    struct cache_owner a = {1, 2, 3}, b = {1, 5, 6}, c = {7, 2, 3};
    uint64_t sa = purge_stamp(p, &a), sb = purge_stamp(p, &b), sc = purge_stamp(p, &c);
    assert_int_equal(purge_now(p, PURGE_SCOPE, 5), 1);
    assert_true(purge_stamp(p, &a) == sa && purge_stamp(p, &b) != sb && purge_stamp(p, &c) == sc);
    sb = purge_stamp(p, &b);
    purge_now(p, PURGE_SCOPE, 1); /* a route's number under another kind */
    assert_true(purge_stamp(p, &a) == sa);
    purge_now(p, PURGE_ROUTE, 1);
    assert_true(purge_stamp(p, &a) != sa && purge_stamp(p, &b) != sb && purge_stamp(p, &c) == sc);
    purge_now(p, PURGE_KEY, 3);
    assert_true(purge_stamp(p, &c) != sc);
    sa = purge_stamp(p, &a), sb = purge_stamp(p, &b), sc = purge_stamp(p, &c);
    purge_now(p, PURGE_ALL, 0);
    assert_true(purge_stamp(p, &a) != sa && purge_stamp(p, &b) != sb && purge_stamp(p, &c) != sc);
    /* What another process says: only more counts. */
    sa = purge_stamp(p, &a);
    purge_merge(p, PURGE_ROUTE, 1, 1);
    purge_merge(p, PURGE_ROUTE, 8, 9);
    purge_merge(p, PURGE_ALL, 0, 0);
    assert_true(purge_stamp(p, &a) == sa);
    purge_merge(p, PURGE_ROUTE, 1, 2);
    assert_true(purge_stamp(p, &a) != sa);
    assert_int_equal(purge_now(p, PURGE_ROUTE, 8), 10);
    purge_free(p);
}

/* Two processes with the same generations have the same stamps, whatever the order in which they learnt. */
static void purges_agree(void **state)
{
    (void)state;
    struct cache_purge *p = purge_new(), *q = purge_new();
    for (uint64_t i = 1; i <= 500; i++)
        purge_merge(p, PURGE_SCOPE, i, i % 7 + 1);
    for (uint64_t i = 500; i > 0; i--)
        purge_merge(q, PURGE_SCOPE, i, i % 7 + 1);
    for (uint64_t i = 0; i < 600; i++) {
        struct cache_owner o = {1, i, 1};
        assert_true(purge_stamp(p, &o) == purge_stamp(q, &o));
    }
    purge_free(p);
    purge_free(q);
}

static void purges_overflow(void **state)
{
    (void)state;
    struct cache_purge *p = purge_new();
    for (uint64_t i = 1; i <= PURGE_MAX; i++)
        purge_now(p, PURGE_KEY, i);
    struct cache_owner o = {1, 2, PURGE_MAX + 5};
    uint64_t before = purge_stamp(p, &o);
    purge_now(p, PURGE_KEY, PURGE_MAX + 5); /* cannot be remembered: everything goes */
    assert_true(purge_stamp(p, &o) != before);
    before = purge_stamp(p, &o);
    purge_now(p, PURGE_KEY, PURGE_MAX); /* this one can */
    assert_true(purge_stamp(p, &o) == before);
    purge_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digest_values),
        cmocka_unit_test(digest_cuts),
        cmocka_unit_test(binary_form),
        cmocka_unit_test(limits),
        cmocka_unit_test(ages),
        cmocka_unit_test(memory_is_used_again),
        cmocka_unit_test(purges),
        cmocka_unit_test(purges_agree),
        cmocka_unit_test(purges_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
