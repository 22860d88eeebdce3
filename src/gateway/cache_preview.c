/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/cache_preview.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/fmt.h"
#include "base/mem.h"
#include "cache/lexical.h"
#include "cache/semantic_partition.h"
#include "cache/semantic_text.h"
#include "gateway/cached.h"
#include "gateway/semantic_report.h"
#include "json/write.h"

enum { NEAREST = 5, TERMS = 4, HEAD_MAX = 65536 };

/* A request that nobody made: as much of one as key and lookups read. */
struct preview {
    struct gateway *gateway;
    struct reply_cache *cache;
    struct arena arena;
    struct request request;
    struct http_head head;
    struct cached cached;
    struct plan_semantic *semantic;
    struct span text; /* that is embedded */
    struct cache_digest partition;
    bool embed;
    uint64_t now;
    struct json_out out;
};

static bool put_header(struct buf *b, const struct json_doc *d, uint32_t name, struct arena *a)
{
    struct span n = json_string(d, name, a), v = json_string(d, name + 1, a);
    if (!json_is(d, name + 1, JSON_STRING) || !http_value_is_safe(n) || !http_value_is_safe(v))
        return false;
    buf_add_span(b, n);
    BUF_LIT(b, ": ");
    buf_add_span(b, v);
    BUF_LIT(b, "\r\n");
    return true;
}

/* The head that a client would have sent. */
static bool make_head(struct preview *p, const struct json_doc *d, struct span path)
{
    struct buf b;
    buf_init(&b, HEAD_MAX);
    BUF_LIT(&b, "POST ");
    buf_add_span(&b, path);
    BUF_LIT(&b, " HTTP/1.1\r\nhost: preview\r\ncontent-type: application/json\r\n");
    uint32_t headers = json_get(d, 0, "headers");
    bool good = headers == JSON_NODE_NONE || json_is(d, headers, JSON_OBJECT);
    for (uint32_t i = good ? json_first(d, headers) : JSON_NODE_NONE; i != JSON_NODE_NONE && good;
         i = json_next(d, headers, i))
        good = put_header(&b, d, i, &p->arena);
    BUF_LIT(&b, "\r\n");
    size_t scanned = 0;
    enum http_reject why;
    struct span text = arena_dup(&p->arena, buf_view(&b));
    good = good && !b.full &&
           http_parse_request(&p->head, text.p, text.n, &scanned, HEAD_MAX, &why) == HTTP_DONE;
    buf_fini(&b);
    return good;
}

static const struct plan_key *key_named(const struct plan *plan, struct span name)
{
    for (unsigned i = 0; i < plan->n_keys; i++)
        if (span_eq(plan->keys[i].name_span, name))
            return &plan->keys[i];
    return NULL;
}

/* NULL, or what is wrong with the body. */
static const char *read_body(struct request *r, struct span text, struct arena *a)
{
    static const struct json_limits limits = {.any_bytes = true};
    struct json_fault fault;
    if (!json_parse(a, text, &limits, &r->doc, &fault) || !json_is(&r->doc, 0, JSON_OBJECT))
        return "body: the request as a JSON object";
    uint32_t model = json_get(&r->doc, 0, "model");
    if (!json_is(&r->doc, model, JSON_STRING))
        return "body: has no model";
    struct span upstream_model;
    r->model = json_string(&r->doc, model, a);
    r->route = plan_find_route(r->plan, r->model, &upstream_model);
    if (!r->route)
        return "body: there is no such model";
    r->stream = r->dialect->has_stream && json_is(&r->doc, json_get(&r->doc, 0, "stream"), JSON_TRUE);
    return NULL;
}

static const char *read_question(struct preview *p, struct span text)
{
    struct request *r = &p->request;
    struct json_doc d;
    struct json_fault fault;
    if (!json_parse(&p->arena, text, &(struct json_limits){.any_bytes = true}, &d, &fault) ||
        !json_is(&d, 0, JSON_OBJECT) || json_get(&d, 0, "body") == JSON_NODE_NONE)
        return "send {\\\"path\\\": PATH, \\\"key\\\": NAME, \\\"headers\\\": {...}, \\\"body\\\": {...}}";
    uint32_t path = json_get(&d, 0, "path"), key = json_get(&d, 0, "key");
    struct span target =
        path == JSON_NODE_NONE ? SPAN("/v1/chat/completions") : json_string(&d, path, &p->arena);
    if (!http_value_is_safe(target) || !make_head(p, &d, target))
        return "path, headers: not such as a request has";
    r->plan = gateway_plan(p->gateway);
    r->head = &p->head;
    r->arena = r->body_arena = &p->arena;
    r->dialect = dialect_by_path(p->head.path, &r->dialect_id);
    if (!r->dialect)
        return "path: nothing is answered there";
    if (key != JSON_NODE_NONE && !(r->key = key_named(r->plan, json_string(&d, key, &p->arena))))
        return "key: there is none of this name";
    if (!r->plan->open && !r->key)
        return "key: name one, without it every request is refused";
    p->embed = json_is(&d, json_get(&d, 0, "embed"), JSON_TRUE);
    return read_body(r, json_raw(&d, json_get(&d, 0, "body")), &p->arena);
}

static void write_hex(struct json_out *o, const char *name, const uint8_t *bytes, size_t n)
{
    char hex[2 * sizeof(struct cache_digest)];
    fmt_hex_bytes(hex, bytes, n);
    json_out_member_span(o, name, span_of(hex, 2 * n));
}

static void write_entry(struct preview *p, const struct cache_entry *e)
{
    const struct entry_facts *f = &e->facts;
    json_out_name(&p->out, "entry");
    explain_write_entry(
        &p->out, &(struct explain_entry){f->key, f->owner.scope, f->created_ms, f->expires_ms}, p->now);
}

static void write_result(struct preview *p, const char *result, const char *reason)
{
    json_out_member_str(&p->out, "result", result);
    json_out_member_str(&p->out, "reason", reason);
}

static void write_hit(struct preview *p, const char *layer, const char *reason, const struct cache_entry *e)
{
    write_result(p, "hit", reason);
    json_out_member_str(&p->out, "layer", layer);
    write_entry(p, e);
}

/* --- by meaning --- */

/* A call on a worker's loop: there is its pool, and there its row is written. */
struct asking {
    struct net_post post;
    struct worker *worker;
    struct plan *plan; /* a reference */
    const struct plan_route *route;
    const struct plan_key *key;
    char *text;
};

static void on_vector(void *arg, struct embedding *vector, const char *why)
{
    (void)arg;
    (void)why;
    embedding_unref(vector); /* it is known now */
}

static void ask(struct net_post *post, struct net_loop *l)
{
    struct asking *k = CONTAINER_OF(post, struct asking, post);
    CHECK(k->worker->cache); /* there was one when this was posted, and none goes */
    struct arena a;
    arena_init(&a, NULL);
    struct http_head *head = ARENA_NEW(&a, struct http_head);
    memset(head->by_id, 0xff, sizeof head->by_id);
    struct request r = {.worker = k->worker,
                        .plan = k->plan,
                        .route = (struct plan_route *)k->route,
                        .key = k->key,
                        .id = SPAN("preview"),
                        .head = head};
    struct embed_source source;
    semantic_source_of(&r, k->route->cache.semantic, &source);
    struct embed_wait *w = embedder_ask(k->worker->cache->embedder, l, k->worker->pool, &source,
                                        span_str(k->text), on_vector, NULL);
    if (w)
        embedder_cancel(w); /* nobody waits; the call goes on */
    arena_reset(&a);
    plan_unref(k->plan);
    free(k->text);
    free(k);
}

static const char *ask_for_vector(struct preview *p)
{
    struct worker *w = gateway_worker(p->gateway, 0);
    struct asking *k = MEM_NEW(struct asking);
    k->post.fn = ask;
    k->worker = w;
    k->plan = plan_ref(p->request.plan);
    k->route = p->request.route;
    k->key = p->request.key;
    k->text = mem_spandup(p->text);
    net_loop_post(&w->loop, &k->post);
    return "asked";
}

static void write_terms(struct preview *p, struct span note)
{
    struct span terms[TERMS];
    unsigned n = lexical_only(p->text, note, &p->arena, terms, TERMS);
    json_out_name(&p->out, "terms");
    json_out_array(&p->out);
    for (unsigned i = 0; i < n; i++)
        json_out_string(&p->out, terms[i]);
    json_out_array_end(&p->out);
}

/* One of the nearest; a reference when it would be served. */
static struct cache_entry *write_match(struct preview *p, const struct vectors_match *m,
                                       struct span signature)
{
    const struct semantic_settings *s = p->semantic->settings;
    struct json_out *o = &p->out;
    struct cache_digest key;
    memcpy(key.b, m->entry.id, sizeof key.b);
    bool near = m->similarity >= (float)s->threshold;
    const char *guard = s->guard == SEMANTIC_GUARD_LEXICAL ? lexical_differ(signature, m->entry.note) : NULL;
    struct cache_entry *e = store_peek(p->cache->store, &key, p->now);
    const char *not = !e || !entry_is_fresh(e, p->now) ? "gone" : cached_refuses(&p->request, e, p->now);
    json_out_object(o);
    json_out_name(o, "similarity");
    json_out_raw(o, span_str(arena_printf(&p->arena, "%.4f", m->similarity)));
    json_out_member_bool(o, "near_enough", near);
    json_out_member_str(o, "guard", guard);
    if (guard)
        write_terms(p, m->entry.note);
    json_out_name(o, "entry");
    explain_write_entry(
        o, &(struct explain_entry){key, p->cached.owner.scope, m->entry.created_ms, m->entry.expires_ms},
        p->now);
    json_out_member_str(o, "reply", not ? not : "here");
    json_out_object_end(o);
    if (near && !guard && !not )
        return e;
    entry_unref(e);
    return NULL;
}

/* The nearest of the partition, best first. The one that would be served, or NULL. */
static struct cache_entry *write_nearest(struct preview *p, const struct embedding *vector)
{
    struct vectors_match match[NEAREST];
    struct span signature = lexical_signature(p->text, &p->arena);
    unsigned n = vectors_find(semantic_index_vectors(p->cache->semantic), p->partition.b,
                              p->semantic->settings->max_candidates, vector->x, vector->dims, -1, p->now,
                              &p->arena, match, NEAREST);
    struct cache_entry *served = NULL;
    json_out_name(&p->out, "nearest");
    json_out_array(&p->out);
    for (unsigned i = 0; i < n; i++) {
        struct cache_entry *e = write_match(p, &match[i], signature);
        if (served)
            entry_unref(e);
        else
            served = e;
    }
    json_out_array_end(&p->out);
    return served;
}

/* The semantic layer's part of the answer. A reference to what it would serve, or NULL. */
static struct cache_entry *write_semantic(struct preview *p)
{
    struct request *r = &p->request;
    struct json_out *o = &p->out;
    struct cache_entry *served = NULL;
    json_out_name(o, "semantic");
    json_out_object(o);
    const char *bypass = semantic_text(r->dialect_id, &r->doc, &p->arena, &p->text);
    json_out_member_str(o, "bypass", bypass);
    if (!bypass) {
        struct semantic_source from = {p->semantic->provider->name, p->semantic->api_base,
                                       p->semantic->model};
        struct embed_source source = {
            .provider = from.provider, .api_base = from.api_base, .model = from.model};
        struct key_header headers[KEY_HEADERS_MAX];
        struct key_input in;
        cached_key_input(r, headers, &in);
        semantic_partition(&in, &from, &p->arena, &p->partition);
        write_hex(o, "partition", p->partition.b, sizeof p->partition.b);
        json_out_member_double(o, "threshold", p->semantic->settings->threshold);
        struct embedding *vector = embedder_known(p->cache->embedder, &source, p->text);
        json_out_member_str(o, "vector", vector ? "known" : p->embed ? ask_for_vector(p) : "unknown");
        if (vector)
            served = write_nearest(p, vector);
        embedding_unref(vector);
    }
    json_out_object_end(o);
    return served;
}

/* --- the answer --- */

static void write_miss(struct preview *p, const char *reason)
{
    struct span paths[EXPLAIN_DIFFERS];
    struct key_header headers[KEY_HEADERS_MAX];
    struct key_input in;
    unsigned n;
    cached_key_input(&p->request, headers, &in);
    const char *found = explain_compare(p->cache->explain, &in, &p->cached.key, p->cache->purge, &p->arena,
                                        p->now, paths, &n);
    write_result(p, "miss", reason ? reason : found);
    json_out_name(&p->out, "differs");
    json_out_array(&p->out);
    for (unsigned i = 0; i < n; i++)
        json_out_string(&p->out, paths[i]);
    json_out_array_end(&p->out);
    struct store_stats s;
    store_stats(p->cache->store, &s);
    if (s.has_redis)
        json_out_member_str(&p->out, "redis", "not asked");
}

/* What the exact layer would say: true when it is the last word. */
static bool write_exact(struct preview *p, const char **ret_miss)
{
    struct cache_entry *e = store_peek(p->cache->store, &p->cached.key, p->now);
    *ret_miss = e ? cached_refuses(&p->request, e, p->now) : NULL;
    bool fresh = e && entry_is_fresh(e, p->now);
    bool stale = e && !fresh && p->now - e->facts.expires_ms < p->cached.plan->revalidate_ms;
    bool hit = e && !*ret_miss && (fresh || stale);
    if (hit)
        write_hit(p, "exact", fresh ? "exact" : "stale_while_revalidate", e);
    else if (e && !*ret_miss)
        *ret_miss = "expired";
    entry_unref(e);
    return hit;
}

static void write_answer(struct preview *p)
{
    struct request *r = &p->request;
    struct cached *c = &p->cached;
    if (!cached_is_on(r)) {
        write_result(p, "none", "not_cached");
        return;
    }
    r->cached = c;
    c->request = r;
    c->plan = &r->route->cache;
    cached_read_control(r->head, &c->control);
    const char *bypass = cached_bypass(r), *missed = NULL;
    if (bypass) {
        write_result(p, "bypass", bypass);
        return;
    }
    cached_make_key(r, p->cache->purge);
    write_hex(&p->out, "scope", c->scope->digest.b, 8);
    write_hex(&p->out, "key", c->key.b, sizeof c->key.b);
    if (c->control.no_cache) {
        write_result(p, "miss", "no_cache");
        return;
    }
    if (write_exact(p, &missed))
        return;
    p->semantic = c->plan->semantic;
    struct cache_entry *e = p->semantic ? write_semantic(p) : NULL;
    if (e)
        write_hit(p, "semantic", "semantic", e);
    else
        write_miss(p, missed);
    entry_unref(e);
}

const char *cache_preview(struct gateway *g, struct span text, struct buf *out)
{
    struct preview *p = MEM_NEW(struct preview);
    p->gateway = g;
    p->cache = gateway_cache(g);
    p->now = clock_wall_ms();
    arena_init(&p->arena, NULL);
    json_out_init(&p->out, out);
    const char *fault = read_question(p, text);
    if (!fault) {
        json_out_object(&p->out);
        write_answer(p);
        json_out_object_end(&p->out);
    }
    arena_reset(&p->arena);
    free(p);
    return fault;
}
