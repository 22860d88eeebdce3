/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "redis/url.h"

struct good {
    const char *url, *host, *path, *user, *password, *name;
    unsigned port, db;
    bool tls;
};

static const struct good GOOD[] = {
    {"redis://h", "h", NULL, NULL, NULL, "redis://h:6379", 6379, 0, false},
    {"redis://h/", "h", NULL, NULL, NULL, "redis://h:6379", 6379, 0, false},
    {"rediss://cache.example:6380/2", "cache.example", NULL, NULL, NULL, "rediss://cache.example:6380", 6380,
     2, true},
    {"redis://[::1]/1", "::1", NULL, NULL, NULL, "redis://[::1]:6379", 6379, 1, false},
    {"redis://[::1]:7000", "::1", NULL, NULL, NULL, "redis://[::1]:7000", 7000, 0, false},
    {"redis://:p%40ss%2f@h", "h", NULL, NULL, "p@ss/", "redis://h:6379", 6379, 0, false},
    {"redis://u%3A:p:q@h:1/0", "h", NULL, "u:", "p:q", "redis://h:1", 1, 0, false},
    {"unix:///run/redis.sock", NULL, "/run/redis.sock", NULL, NULL, "unix:///run/redis.sock", 0, 0, false},
    {"unix://:pw@/run/a%20b?db=3", NULL, "/run/a b", NULL, "pw", "unix:///run/a b", 0, 3, false},
};

static void same(const char *a, const char *b)
{
    if (!b)
        assert_null(a);
    else
        assert_string_equal(a, b);
}

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        const struct good *g = &GOOD[i];
        struct redis_url u;
        const char *why = NULL;
        assert_true(redis_url_parse(span_str(g->url), &u, &why));
        same(u.origin.host, g->host);
        same(u.path, g->path);
        same(u.user, g->user);
        same(u.password, g->password);
        same(u.name, g->name);
        assert_int_equal(u.origin.port, g->port);
        assert_int_equal(u.db, g->db);
        assert_int_equal(u.origin.tls, g->tls);
        redis_url_fini(&u);
    }
}

static const char *const BAD[] = {
    "",
    "h:6379",
    "http://h",
    "redis://",
    "redis:///1",
    "redis://h:0",
    "redis://h:70000",
    "redis://h:x",
    "redis://h/x",
    "redis://h/1/2",
    "redis://h/99999999999",
    "redis://h?db=1",
    "redis://h#x",
    "redis://user@h",
    "redis://user:@h",
    "redis://:p%4@h",
    "redis://:p%00@h",
    "redis://:p%zz@h",
    "redis://a b",
    "unix://relative",
    "unix://",
    "unix:///x?y=1",
    "unix:///x?db=",
    "unix:///%",
    ("unix:///123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/"
     "123456789/123456789/123456789/1"),
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct redis_url u;
        const char *why = NULL;
        if (redis_url_parse(span_str(BAD[i]), &u, &why))
            fail_msg("\"%s\" was accepted", BAD[i]);
        assert_non_null(why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
