/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/query.h"

int query_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

struct span query_value(struct span query, struct span name, char ret[QUERY_VALUE_MAX])
{
    struct span part, key;
    while (span_split(&query, '&', &part)) {
        if (!span_split(&part, '=', &key) || !span_eq(key, name))
            continue;
        size_t n = 0;
        for (size_t i = 0; i < part.n && n < QUERY_VALUE_MAX; i++) {
            int hi = part.p[i] == '%' && i + 2 < part.n ? query_hex_digit(part.p[i + 1]) : -1;
            int lo = hi >= 0 ? query_hex_digit(part.p[i + 2]) : -1;
            ret[n++] = lo >= 0 ? (char)(hi << 4 | lo) : part.p[i];
            i += lo >= 0 ? 2 : 0;
        }
        return span_of(ret, n);
    }
    return SPAN_NONE;
}
