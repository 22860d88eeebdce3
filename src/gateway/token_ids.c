/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/token_ids.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

bool token_ids_parse(struct span text, uint32_t *out, size_t *n)
{
    const char *p = text.p, *end = text.p + text.n;
    size_t at = *n;
    for (;;) {
        while (p < end && is_space(*p))
            p++;
        uint64_t v = 0;
        const char *from = p;
        for (; p < end && *p >= '0' && *p <= '9'; p++) {
            v = v * 10 + (uint64_t)(*p - '0');
            if (v > UINT32_MAX)
                return false;
        }
        if (p == from)
            return false;
        out[at++] = (uint32_t)v;
        while (p < end && is_space(*p))
            p++;
        if (p == end)
            break;
        if (*p++ != ',')
            return false;
    }
    *n = at;
    return true;
}

static size_t items(struct span text)
{
    size_t n = 1;
    for (size_t i = 0; i < text.n; i++)
        n += text.p[i] == ',';
    return n;
}

void token_ids_from_head(const struct http_head *h, struct arena *a, struct token_ids *ret)
{
    *ret = (struct token_ids){.why = TOKEN_IDS_NONE};
    int first = h->by_id[HTTP_F_X_ROLTER_TOKEN_IDS];
    if (first < 0)
        return;
    size_t most = 0, n = 0;
    for (unsigned i = (unsigned)first; i < h->n_fields; i++)
        if (h->fields[i].id == HTTP_F_X_ROLTER_TOKEN_IDS)
            most += items(h->fields[i].value);
    uint32_t *out = arena_alloc(a, most * sizeof *out);
    ret->why = TOKEN_IDS_MALFORMED;
    for (unsigned i = (unsigned)first; i < h->n_fields; i++)
        if (h->fields[i].id == HTTP_F_X_ROLTER_TOKEN_IDS && !token_ids_parse(h->fields[i].value, out, &n))
            return;
    *ret = (struct token_ids){.id = out, .n = n};
}
