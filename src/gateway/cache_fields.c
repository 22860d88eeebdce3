/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache in header fields: what a request asks of it (Cache-Control), and what a reply says about it
 * (x-rolter-cache, Age, RFC 9211's Cache-Status).
 */
#include <inttypes.h>

#include "base/clock.h"
#include "base/fmt.h"
#include "gateway/cached.h"

static struct span unquoted(struct span v)
{
    return v.n >= 2 && v.p[0] == '"' && v.p[v.n - 1] == '"' ? span_of(v.p + 1, v.n - 2) : v;
}

/* One directive; those that are not known, or whose argument is none, are ignored (R44). */
static void read_directive(struct span d, struct cache_control *c)
{
    struct span name, rest = d;
    span_split(&rest, '=', &name);
    name = span_trim(name);
    if (span_eq_nocase(name, SPAN("no-store"))) {
        c->no_store = true;
    } else if (span_eq_nocase(name, SPAN("no-cache"))) {
        c->no_cache = true;
    } else if (span_eq_nocase(name, SPAN("only-if-cached"))) {
        c->only_if_cached = true;
    } else if (span_eq_nocase(name, SPAN("max-age"))) {
        uint64_t secs;
        if (!span_to_u64(unquoted(span_trim(rest)), &secs))
            return;
        c->max_age_secs = c->has_max_age && c->max_age_secs < secs ? c->max_age_secs : secs;
        c->has_max_age = true;
        c->no_cache |= secs == 0; /* R60 */
    }
}

void cached_read_control(const struct http_head *h, struct cache_control *ret)
{
    *ret = (struct cache_control){0};
    if (h->by_id[HTTP_F_CACHE_CONTROL] < 0)
        return;
    for (unsigned i = 0; i < h->n_fields; i++) {
        struct span rest = h->fields[i].value, part;
        if (h->fields[i].id != HTTP_F_CACHE_CONTROL)
            continue;
        while (span_split(&rest, ',', &part))
            read_directive(span_trim(part), ret);
    }
}

static void field(struct buf *b, const char *name, struct span value)
{
    if (value.n == 0 || !http_value_is_safe(value))
        return;
    buf_add_str(b, name);
    buf_add_span(b, value);
    BUF_LIT(b, "\r\n");
}

void cached_origin_fields(struct buf *b, struct span content_type, struct span provider, struct span target,
                          struct span model, struct span variant)
{
    field(b, "content-type: ", content_type);
    field(b, "x-rolter-provider: ", provider);
    field(b, "x-rolter-target: ", target);
    field(b, "x-rolter-model: ", model);
    field(b, "x-rolter-variant: ", variant);
}

static void hit_fields(const struct cached *c, struct buf *b)
{
    buf_printf(b, "x-rolter-cache: hit\r\nx-rolter-cache-kind: %s\r\n", cache_kind_name(c->kind));
    double similarity;
    if (semantic_similarity(c->request, &similarity))
        buf_printf(b, "x-rolter-cache-similarity: %.4f\r\n", similarity);
    if (c->kind == CACHE_COALESCED) {
        BUF_LIT(b, "cache-status: rolter; fwd=uri-miss; collapsed\r\n");
        return;
    }
    uint64_t now = clock_wall_ms();
    int64_t ttl = (int64_t)(c->entry->facts.expires_ms - now) / 1000;
    buf_printf(b, "age: %" PRIu64 "\r\ncache-status: rolter; hit; ttl=%" PRId64 "\r\n",
               entry_age_secs(c->entry, now), ttl);
}

void cached_fields(const struct request *r, struct buf *b)
{
    const struct cached *c = r->cached;
    switch (c->result) {
    case CACHE_HIT:
        hit_fields(c, b);
        break;
    case CACHE_BYPASS:
        buf_printf(b, "x-rolter-cache: bypass\r\ncache-status: rolter; fwd=bypass; detail=%s\r\n", c->reason);
        break;
    case CACHE_MISS:
        buf_printf(b, "x-rolter-cache: miss\r\ncache-status: rolter; fwd=%s\r\n",
                   c->control.no_cache ? "request"
                   : c->stale          ? "stale"
                                       : "uri-miss");
        break;
    }
}
