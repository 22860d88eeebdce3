/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/check.h"
#include "net/origin.h"

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host, *header, *path;
        unsigned port;
        bool tls;
    } GOOD[] = {
        {"http://example.com", "example.com", "example.com", "", 80, false},
        {"HTTPS://Example.COM/", "example.com", "example.com", "", 443, true},
        {"https://api.openai.com/v1", "api.openai.com", "api.openai.com", "/v1", 443, true},
        {"http://127.0.0.1:8000/v1/", "127.0.0.1", "127.0.0.1:8000", "/v1", 8000, false},
        {"http://[::1]:9/a/b//", "::1", "[::1]:9", "/a/b", 9, false},
        {"https://[2001:DB8::1]", "2001:db8::1", "[2001:db8::1]", "", 443, true},
        {"http://h:80", "h", "h", "", 80, false},
        {"http://h:443", "h", "h:443", "", 443, false},
        {"http://a_b-c.d.:65535", "a_b-c.d.", "a_b-c.d.:65535", "", 65535, false},
        {"http://h/a%20b@c:d", "h", "h", "/a%20b@c:d", 80, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++) {
        struct net_origin o;
        const char *why = NULL;
        assert_true(origin_parse(span_str(GOOD[i].url), &o, &why));
        assert_string_equal(o.host, GOOD[i].host);
        assert_string_equal(o.host_header, GOOD[i].header);
        assert_string_equal(o.base_path, GOOD[i].path);
        assert_int_equal(o.port, GOOD[i].port);
        assert_int_equal(o.tls, GOOD[i].tls);
        assert_true(o.verify);
        origin_fini(&o);
    }
    static const char *const BAD[] = {
        "",
        "http",
        "http:/",
        "http://",
        "ftp://h",
        "//h",
        "h:80",
        "http:///path",
        "http://:80",
        "http://u@h",
        "http://u:p@h",
        "http://h?q=1",
        "http://h/?q",
        "http://h/#f",
        "http://h#f",
        "http://h:0",
        "http://h:65536",
        "http://h:",
        "http://h:8x",
        "http://h:-1",
        "http://h:+8",
        "http://[::1",
        "http://[::1]x",
        "http://[::1]:",
        "http://[]",
        "http://[1.2.3.4]",
        "http://[fe80::1%25eth0]",
        "http://h h",
        "http://h\t",
        "http://h/a b",
        "http://h/\x7f",
        "http://h/\xc3\xa4",
        "http://a..b",
        "http://.a",
        "http://.",
        "http://1.2.3",
        "http://2130706433",
        "http://0x7f.1",
        "http://0x7f000001",
        "http://1.2.3.4.",
        "http://256.1.1.1",
        "http://::1",
        "http://h\\x",
    };
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        struct net_origin o = {.port = 7};
        const char *why = NULL;
        if (origin_parse(span_str(BAD[i]), &o, &why))
            fail_msg("accepted: %s", BAD[i]);
        assert_non_null(why);
        assert_int_equal(o.port, 7); /* untouched */
    }
    struct net_origin o;
    const char *why;
    assert_false(origin_parse(SPAN("http://a\0b"), &o, &why));
    assert_false(origin_parse(SPAN("http://[::1\0]"), &o, &why));
}

static void test_key(void **state)
{
    (void)state;
    struct net_origin a, b;
    const char *why;
    assert_true(origin_parse(SPAN("https://h/v1"), &a, &why));
    assert_true(origin_parse(SPAN("https://H:443/v2"), &b, &why));
    assert_string_equal(a.key, b.key);
    b.verify = false;
    origin_seal(&b);
    assert_string_not_equal(a.key, b.key);
    static const char *const BUNDLES[] = {"/tmp/ca.pem"};
    b.verify = true;
    b.ca_bundles = BUNDLES;
    b.n_ca_bundles = 1;
    origin_seal(&b);
    assert_string_not_equal(a.key, b.key);
    const struct net_egress rules = {.block_link_local = true};
    b.n_ca_bundles = 0;
    b.egress = &rules;
    origin_seal(&b);
    assert_string_not_equal(a.key, b.key);
    origin_fini(&b);
    assert_true(origin_parse(SPAN("http://h:443/v1"), &b, &why));
    assert_string_not_equal(a.key, b.key);
    origin_fini(&a);
    origin_fini(&b);
}

static void test_egress(void **state)
{
    (void)state;
    static const struct {
        const char *literal, *what;
    } CASES[] = {
        {"169.254.169.254", "link-local"},
        {"169.255.0.1", NULL},
        {"169.253.255.255", NULL},
        {"fe80::1", "link-local"},
        {"febf::1", "link-local"},
        {"::ffff:169.254.0.1", "link-local"},
        {"64:ff9b::a9fe:1", "link-local"},
        {"2002:a9fe:a9fe::1", "link-local"},
        {"::169.254.1.1", "link-local"},
        {"127.0.0.1", "loopback"},
        {"127.255.0.9", "loopback"},
        {"0.0.0.0", "loopback"},
        {"::1", "loopback"},
        {"::", "loopback"},
        {"::ffff:127.0.0.1", "loopback"},
        {"128.0.0.1", NULL},
        {"10.1.2.3", "private"},
        {"11.0.0.0", NULL},
        {"172.16.0.1", "private"},
        {"172.31.255.255", "private"},
        {"172.32.0.0", NULL},
        {"192.168.1.1", "private"},
        {"192.169.0.0", NULL},
        {"100.64.0.1", "private"},
        {"100.128.0.0", NULL},
        {"fc00::1", "private"},
        {"fdff::1", "private"},
        {"fec0::1", "private"},
        {"2001:db8::1", NULL},
        {"8.8.8.8", NULL},
        {"::ffff:8.8.8.8", NULL},
        {"example.com", NULL},
    };
    const struct net_egress all = {.block_link_local = true, .block_loopback = true, .block_private = true};
    const struct net_egress none = {0};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        const char *what = egress_refuses_literal(&all, CASES[i].literal);
        if (CASES[i].what) {
            if (!what || strcmp(what, CASES[i].what))
                fail_msg("%s: %s", CASES[i].literal, what ? what : "allowed");
        } else if (what) {
            fail_msg("%s: %s", CASES[i].literal, what);
        }
        assert_null(egress_refuses_literal(&none, CASES[i].literal));
        assert_null(egress_refuses_literal(NULL, CASES[i].literal));
    }
    const struct net_egress link = {.block_link_local = true};
    assert_null(egress_refuses_literal(&link, "127.0.0.1"));
    assert_null(egress_refuses_literal(&link, "10.0.0.1"));
    assert_string_equal(egress_refuses_literal(&link, "169.254.0.1"), "link-local");
}

static void test_egress_allow(void **state)
{
    (void)state;
    static const char *const ALLOW[] = {"Inside.Example", "169.254.169.254", "FE80:0::1"};
    const struct net_egress e = {true, true, true, ALLOW, 3};
    struct sockaddr_in a = {.sin_family = AF_INET};
    inet_pton(AF_INET, "169.254.1.1", &a.sin_addr);
    assert_null(egress_refuses(&e, "inside.example", (struct sockaddr *)&a));
    assert_string_equal(egress_refuses(&e, "other.example", (struct sockaddr *)&a), "link-local");
    assert_string_equal(egress_refuses(&e, "x.inside.example", (struct sockaddr *)&a), "link-local");
    inet_pton(AF_INET, "169.254.169.254", &a.sin_addr);
    assert_null(egress_refuses(&e, "other.example", (struct sockaddr *)&a));
    assert_null(egress_refuses_literal(&e, "fe80::1"));
    assert_string_equal(egress_refuses_literal(&e, "fe80::2"), "link-local");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_key),
        cmocka_unit_test(test_egress),
        cmocka_unit_test(test_egress_allow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
