/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/cache_pages.h"

#include "admin/query.h"
#include "admin/status_parts.h"
#include "gateway/cache_preview.h"
#include "json/json.h"

enum { SCOPE_DIGITS = 16 };

static int fault(struct buf *out, int status, const char *text)
{
    buf_printf(out, "{\"error\":\"%s\"}\n", text);
    return status;
}

/* The digest that rows show, as the number that entries carry. */
static bool read_scope(struct span s, uint64_t *ret)
{
    uint8_t bytes[SCOPE_DIGITS / 2];
    if (s.n != SCOPE_DIGITS)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++) {
        int hi = query_hex_digit(s.p[2 * i]), lo = query_hex_digit(s.p[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        bytes[i] = (uint8_t)(hi << 4 | lo);
    }
    memcpy(ret, bytes, sizeof bytes);
    return true;
}

struct purge {
    enum purge_kind kind;
    uint64_t id;
    const char *what;
};

/* NULL when <d> asks for one purge in a way that is understood. */
static const char *read_purge(const struct json_doc *d, struct arena *a, struct purge *ret)
{
    static const char usage[] = "send one of {\\\"key\\\": NAME}, {\\\"route\\\": MODEL}, {\\\"scope\\\": "
                                "DIGEST}, {\\\"all\\\": true}";
    static const struct {
        const char *name;
        enum purge_kind kind;
    } kinds[] = {{"key", PURGE_KEY}, {"route", PURGE_ROUTE}, {"scope", PURGE_SCOPE}, {"all", PURGE_ALL}};
    uint32_t name = json_is(d, 0, JSON_OBJECT) ? json_first(d, 0) : JSON_NODE_NONE;
    if (name == JSON_NODE_NONE || json_next(d, 0, name) != JSON_NODE_NONE)
        return usage;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!json_string_eq(d, name, span_str(kinds[i].name)))
            continue;
        uint32_t value = json_get(d, 0, kinds[i].name);
        *ret = (struct purge){.kind = kinds[i].kind, .what = kinds[i].name};
        if (ret->kind == PURGE_ALL)
            return json_is(d, value, JSON_TRUE) ? NULL : usage;
        if (!json_is(d, value, JSON_STRING))
            return usage;
        struct span text = json_string(d, value, a);
        if (ret->kind != PURGE_SCOPE)
            ret->id = purge_name(text);
        else if (!read_scope(text, &ret->id))
            return "scope: 16 hexadecimal digits, as rows show them in cache_scope";
        return NULL;
    }
    return usage;
}

int cache_page_purge(struct gateway *g, struct span body, struct buf *out)
{
    struct reply_cache *c = gateway_cache(g);
    if (!c)
        return fault(out, 409, "there is no response cache");
    struct arena a;
    arena_init(&a, NULL);
    struct json_doc d;
    struct json_fault f;
    struct purge p;
    const char *why = "the body is not JSON";
    if (json_parse(&a, body, NULL, &d, &f))
        why = read_purge(&d, &a, &p);
    arena_reset(&a);
    if (why)
        return fault(out, 400, why);
    store_purge(c->store, p.kind, p.id);
    buf_printf(out, "{\"purged\":\"%s\"}\n", p.what);
    return 200;
}

int cache_page_stats(struct gateway *g, struct buf *out)
{
    struct reply_cache *c = gateway_cache(g);
    if (!c)
        return fault(out, 409, "there is no response cache");
    struct store_stats s;
    store_stats(c->store, &s);
    struct json_out o;
    json_out_init(&o, out);
    json_out_object(&o);
    status_store(&o, &s);
    json_out_member_u64(&o, "purges", s.purges);
    json_out_member_u64(&o, "flights", flight_table_count(c->flights));
    json_out_object_end(&o);
    buf_add_char(out, '\n');
    return 200;
}

int cache_page_explain(struct gateway *g, struct span query, struct buf *out)
{
    struct reply_cache *c = gateway_cache(g);
    if (!c)
        return fault(out, 409, "there is no response cache");
    char id[QUERY_VALUE_MAX];
    struct span wanted = query_value(query, SPAN("request_id"), id);
    if (wanted.n == 0)
        return fault(out, 400, "name a request: /cache/explain?request_id=ID");
    if (!explain_write(c->explain, wanted, c->purge, out))
        return fault(out, 404, "no such request among the last ones");
    buf_add_char(out, '\n');
    return 200;
}

int cache_page_preview(struct gateway *g, struct span body, struct buf *out)
{
    if (!gateway_cache(g))
        return fault(out, 409, "there is no response cache");
    const char *why = cache_preview(g, body, out);
    if (why)
        return fault(out, 400, why);
    buf_add_char(out, '\n');
    return 200;
}
