/* SPDX-License-Identifier: Apache-2.0
 *
 * An accepted URL gives parts that are safe to write into a request and that parse again to the same origin;
 * a literal address in it is judged alike before and after.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "net/origin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_clean(const char *s)
{
    for (; *s; s++)
        if (*s <= ' ' || *s >= 0x7f)
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct net_origin a, b;
    const char *why = NULL;
    if (!origin_parse(span_of((const char *)data, size), &a, &why)) {
        CHECK(why && *why);
        return 0;
    }
    CHECK(*a.host && a.port && is_clean(a.host) && is_clean(a.host_header) && is_clean(a.base_path));
    CHECK(*a.base_path == 0 || (*a.base_path == '/' && a.base_path[strlen(a.base_path) - 1] != '/'));
    char *again = malloc(strlen(a.host_header) + strlen(a.base_path) + 16);
    CHECK(again);
    sprintf(again, "%s://%s%s", a.tls ? "https" : "http", a.host_header, a.base_path);
    CHECK(origin_parse(span_str(again), &b, &why));
    CHECK(!strcmp(a.host, b.host) && a.port == b.port && a.tls == b.tls && !strcmp(a.base_path, b.base_path));
    CHECK(!strcmp(a.key, b.key) && !strcmp(a.host_header, b.host_header));
    const struct net_egress all = {.block_link_local = true, .block_loopback = true, .block_private = true};
    const char *x = egress_refuses_literal(&all, a.host), *y = egress_refuses_literal(&all, b.host);
    CHECK(x == y);
    free(again);
    origin_fini(&a);
    origin_fini(&b);
    return 0;
}
