/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/key.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "cache/entry.h"

static void add_label(struct digest_writer *w, const char *label)
{
    digest_add_framed(w, span_str(label));
}

void key_scope_of_key(const uint8_t key_digest[32], struct cache_scope *ret)
{
    struct digest_writer w;
    digest_begin(&w);
    add_label(&w, key_digest ? "scope of a key" : "scope of anonymous callers");
    if (key_digest)
        digest_add(&w, key_digest, 32);
    digest_end(&w, &ret->digest);
}

void key_scope_of_route(struct span route, struct cache_scope *ret)
{
    struct digest_writer w;
    digest_begin(&w);
    add_label(&w, "scope of a route");
    digest_add_framed(&w, route);
    digest_end(&w, &ret->digest);
}

/* Targets. */

static int compare_digests(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct cache_digest));
}

static void digest_target(const struct key_target *t, struct cache_digest *ret)
{
    struct digest_writer w;
    digest_begin(&w);
    digest_add_framed(&w, t->variant);
    digest_add_framed(&w, t->provider);
    digest_add_framed(&w, t->api_base);
    digest_add_framed(&w, t->model);
    digest_add_u64(&w, t->n_params);
    for (unsigned i = 0; i < t->n_params; i++) {
        digest_add_framed(&w, t->params[i].name);
        digest_add_framed(&w, t->params[i].value);
        digest_add_u64(&w, t->params[i].caller_wins);
    }
    digest_end(&w, ret);
}

void key_targets(const struct key_target *t, unsigned n, const struct span *extras, unsigned n_extras,
                 struct cache_digest *ret)
{
    struct cache_digest *each = mem_array(n + 1, sizeof *each);
    for (unsigned i = 0; i < n; i++)
        digest_target(&t[i], &each[i]);
    qsort(each, n, sizeof *each, compare_digests);
    struct digest_writer w;
    digest_begin(&w);
    add_label(&w, "targets");
    digest_add_u64(&w, n);
    digest_add(&w, each, n * sizeof *each);
    digest_add_u64(&w, n_extras);
    for (unsigned i = 0; i < n_extras; i++)
        digest_add_framed(&w, extras[i]);
    digest_end(&w, ret);
    free(each);
}

/* Headers. */

static bool starts_nocase(struct span s, struct span prefix)
{
    return s.n >= prefix.n && span_eq_nocase(span_of(s.p, prefix.n), prefix);
}

/* One of these in the key, and nothing would ever be found again. */
static bool only_traces(struct span name)
{
    return span_eq_nocase(name, SPAN("traceparent")) || span_eq_nocase(name, SPAN("tracestate")) ||
           span_eq_nocase(name, SPAN("b3")) || starts_nocase(name, SPAN("x-b3-")) ||
           span_eq_nocase(name, SPAN("x-request-id")) || span_eq_nocase(name, SPAN("x-correlation-id"));
}

bool key_header_counts(struct span name, bool is_forwarded)
{
    if (starts_nocase(name, SPAN("anthropic-")) || starts_nocase(name, SPAN("openai-")))
        return true;
    return is_forwarded && !only_traces(name);
}

static char lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
}

static int compare_names(struct span a, struct span b)
{
    for (size_t i = 0; i < a.n && i < b.n; i++)
        if (lower(a.p[i]) != lower(b.p[i]))
            return (unsigned char)lower(a.p[i]) < (unsigned char)lower(b.p[i]) ? -1 : 1;
    return (a.n > b.n) - (a.n < b.n);
}

/* By name; several of a name stay in their order, which has a meaning. */
static void add_headers(struct digest_writer *w, const struct key_header *h, unsigned n)
{
    uint8_t order[KEY_HEADERS_MAX];
    CHECK(n <= KEY_HEADERS_MAX);
    for (unsigned i = 0; i < n; i++) {
        unsigned k = i;
        for (; k > 0 && compare_names(h[order[k - 1]].name, h[i].name) > 0; k--)
            order[k] = order[k - 1];
        order[k] = (uint8_t)i;
    }
    digest_add_u64(w, n);
    for (unsigned i = 0; i < n; i++) {
        struct span name = h[order[i]].name;
        digest_add_u64(w, name.n);
        for (size_t k = 0; k < name.n; k++) {
            char c = lower(name.p[k]);
            digest_add(w, &c, 1);
        }
        digest_add_framed(w, span_trim(h[order[i]].value));
    }
}

/* The request. */

/* A member that is there and says something: neither null nor false. */
static bool says(const struct json_doc *d, const char *name)
{
    uint32_t i = json_get(d, 0, name);
    return i != JSON_NODE_NONE && !json_is(d, i, JSON_NULL) && !json_is(d, i, JSON_FALSE);
}

static bool is_word(const struct json_doc *d, uint32_t i, const char *word)
{
    return json_string_eq(d, i, span_str(word));
}

static bool runs_at_client(enum dialect_id dialect, const struct json_doc *d, uint32_t tool)
{
    uint32_t type = json_get(d, tool, "type");
    if (is_word(d, type, "custom"))
        return true;
    if (dialect == DIALECT_MESSAGES)
        return json_is(d, tool, JSON_OBJECT) && (type == JSON_NODE_NONE || json_is(d, type, JSON_NULL));
    return is_word(d, type, "function");
}

static bool has_hosted_tool(enum dialect_id dialect, const struct json_doc *d)
{
    static const char *const members[] = {"web_search_options", "mcp_servers", "container"};
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        uint32_t v = json_get(d, 0, members[i]);
        bool is_empty = json_is(d, v, JSON_ARRAY) && d->node[v].count == 0;
        if (says(d, members[i]) && !is_empty)
            return true;
    }
    uint32_t tools = json_get(d, 0, "tools");
    if (!says(d, "tools"))
        return false;
    if (!json_is(d, tools, JSON_ARRAY))
        return true;
    for (uint32_t i = json_first(d, tools); i != JSON_NODE_NONE; i = json_next(d, tools, i))
        if (!runs_at_client(dialect, d, i))
            return true;
    return false;
}

static bool has_item_reference(const struct json_doc *d)
{
    uint32_t input = json_get(d, 0, "input");
    if (!json_is(d, input, JSON_ARRAY))
        return false;
    for (uint32_t i = json_first(d, input); i != JSON_NODE_NONE; i = json_next(d, input, i)) {
        if (is_word(d, json_get(d, i, "type"), "item_reference"))
            return true;
        /* In its short form it has nothing but an id. */
        if (json_is(d, i, JSON_OBJECT) && json_get(d, i, "id") != JSON_NODE_NONE &&
            json_get(d, i, "type") == JSON_NODE_NONE && json_get(d, i, "role") == JSON_NODE_NONE)
            return true;
    }
    return false;
}

const char *key_refuses(enum dialect_id dialect, const struct json_doc *d)
{
    const char *why = canon_refuses(d);
    if (why)
        return why;
    if (dialect == DIALECT_RERANK)
        return "dialect";
    if (dialect == DIALECT_EMBEDDINGS)
        return NULL;
    static const char *const state[] = {"previous_response_id", "conversation", "background"};
    for (size_t i = 0; i < ARRAY_LEN(state); i++)
        if (says(d, state[i]))
            return state[i];
    if (dialect == DIALECT_RESPONSES) {
        if (!json_is(d, json_get(d, 0, "store"), JSON_FALSE))
            return "store";
        if (has_item_reference(d))
            return "item_reference";
    }
    return has_hosted_tool(dialect, d) ? "hosted_tool" : NULL;
}

static void put_digest(void *arg, const char *p, size_t n)
{
    digest_add(arg, p, n);
}

void key_add_surroundings(struct digest_writer *w, const struct key_input *in)
{
    digest_add_u64(w, ENTRY_LAYOUT_VERSION);
    digest_add_u64(w, in->dialect);
    digest_add_framed(w, in->path);
    digest_add_framed(w, in->query);
    digest_add_framed(w, in->route);
    digest_add(w, in->targets->b, sizeof in->targets->b);
    add_headers(w, in->headers, in->n_headers);
}

struct canon key_canon(const struct key_input *in, struct arena *a, canon_put_fn *put, void *arg)
{
    return (struct canon){
        .doc = in->doc,
        .dialect = in->dialect,
        .leave_out = CANON_NO_ATTRIBUTION | CANON_NO_HINTS,
        .names = in->overridden,
        .n_names = in->n_overridden,
        .nulls = in->defaulted,
        .n_nulls = in->n_defaulted,
        .arena = a,
        .put = put,
        .arg = arg,
    };
}

void key_exact(const struct key_input *in, struct arena *a, struct cache_digest *ret)
{
    struct digest_writer w;
    digest_begin(&w);
    add_label(&w, "exact");
    digest_add(&w, in->scope->digest.b, sizeof in->scope->digest.b);
    key_add_surroundings(&w, in);
    const struct canon c = key_canon(in, a, put_digest, &w);
    canon_body(&c);
    digest_end(&w, ret);
}
