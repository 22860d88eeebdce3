/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/tokenizer.h"

#include <stdlib.h>

#include "base/mem.h"
#include "gateway/token_question.h"
#include "net/call.h"

enum {
    CALL_MS = 5000,          /* for one question, whoever still waits */
    REPLY_MAX = 32 << 20,    /* a million ids have 8 MB */
    REST_MS = 1000,          /* of a provider that was late or broken */
    REST_WITHOUT_MS = 60000, /* of one that has no such path, or does not let us in */
    RESTING_MAX = 64,
};

struct tokenize_call {
    struct list node;
    struct list waiters;
    struct tokenizer *owner;
    uint64_t key;
    struct plan *plan;
    const struct plan_provider *provider;
    struct call *call;
};

struct tokenizer {
    struct pool *pool;
    struct token_cache *cache;
    struct list calls;
    unsigned n_calls;
    /* Named by pointer only: nothing is looked up through it. */
    struct {
        const struct provider *provider;
        uint64_t until_ms;
    } resting[RESTING_MAX];
};

struct tokenizer *tokenizer_new(struct pool *pool, struct token_cache *cache)
{
    struct tokenizer *t = MEM_NEW(struct tokenizer);
    t->pool = pool;
    t->cache = cache;
    list_init(&t->calls);
    return t;
}

static void call_free(struct tokenize_call *c)
{
    CHECK(list_empty(&c->waiters));
    list_remove(&c->node);
    c->owner->n_calls--;
    plan_unref(c->plan);
    free(c);
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    while (!list_empty(&t->calls)) {
        struct tokenize_call *c = LIST_ITEM(t->calls.next, struct tokenize_call, node);
        call_cancel(c->call);
        call_free(c);
    }
    free(t);
}

static uint64_t now_ms(const struct tokenizer *t)
{
    return net_now_ms(pool_loop(t->pool));
}

bool tokenizer_is_fit(const struct tokenizer *t, const struct plan_provider *p)
{
    for (unsigned i = 0; i < RESTING_MAX; i++)
        if (t->resting[i].provider == p->state)
            return now_ms(t) >= t->resting[i].until_ms;
    return true;
}

/* In its own place, else in that of the one whose rest ends first. */
static void rest(struct tokenizer *t, const struct provider *p, uint64_t ms)
{
    unsigned at = 0;
    for (unsigned i = 0; i < RESTING_MAX; i++) {
        if (t->resting[i].provider == p) {
            at = i;
            break;
        }
        if (t->resting[i].until_ms < t->resting[at].until_ms)
            at = i;
    }
    t->resting[at].provider = p;
    t->resting[at].until_ms = now_ms(t) + ms;
}

void tokenizer_was_late(struct tokenizer *t, const struct provider *p)
{
    rest(t, p, REST_MS);
}

/* A question that the engine refuses (400, 422) is no fault of the engine's. */
static void judge(struct tokenize_call *c, const struct call_reply *r)
{
    struct tokenizer *t = c->owner;
    int status = r->failed ? 0 : r->status;
    if (status == 400 || status == 422 || status == 413)
        return;
    bool without = status == 401 || status == 403 || status == 404 || status == 405 || status == 501;
    rest(t, c->provider->state, without ? REST_WITHOUT_MS : REST_MS);
}

static void answered(struct call *call, void *arg, const struct call_reply *r)
{
    struct tokenize_call *c = arg;
    struct tokenizer *t = c->owner;
    struct token_ids ids;
    struct arena a;
    arena_init(&a, &pool_loop(t->pool)->chunks);
    bool ok = !r->failed && r->status == 200 && token_answer_read(r->body, &a, &ids);
    if (ok)
        token_cache_put(t->cache, c->key, &ids);
    else
        judge(c, r);
    struct list waiters;
    list_init(&waiters);
    for (struct list *node; (node = list_pop(&c->waiters));) {
        LIST_ITEM(node, struct tokenize_wait, node)->call = NULL;
        list_push(&waiters, node);
    }
    call_free(c);
    for (struct list *node; (node = list_pop(&waiters));) {
        struct tokenize_wait *w = LIST_ITEM(node, struct tokenize_wait, node);
        w->done(w, ok ? &ids : NULL);
    }
    arena_reset(&a);
}

static void wait_for(struct tokenize_call *c, struct tokenize_wait *w)
{
    w->call = c;
    list_push(&c->waiters, &w->node);
}

bool tokenizer_join(struct tokenizer *t, uint64_t key, struct tokenize_wait *w)
{
    for (struct list *at = t->calls.next; at != &t->calls; at = at->next) {
        struct tokenize_call *c = LIST_ITEM(at, struct tokenize_call, node);
        if (c->key != key)
            continue;
        if (w)
            wait_for(c, w);
        return true;
    }
    return false;
}

/* "/tokenize" stands at the server's root, beside "/v1". */
static struct span path_of(const struct plan_provider *p, struct buf *b)
{
    struct span base = p->base_path;
    if (base.n >= 3 && memcmp(base.p + base.n - 3, "/v1", 3) == 0)
        base.n -= 3;
    buf_add_span(b, base);
    BUF_LIT(b, "/tokenize");
    return buf_view(b);
}

bool tokenizer_ask(struct tokenizer *t, struct plan *plan, const struct plan_provider *p, uint64_t key,
                   struct span body, struct tokenize_wait *w)
{
    if (t->n_calls >= TOKENIZER_CALLS_MAX)
        return false;
    struct tokenize_call *c = MEM_NEW(struct tokenize_call);
    c->owner = t;
    c->key = key;
    c->plan = plan_ref(plan);
    c->provider = p;
    list_init(&c->waiters);
    list_push(&t->calls, &c->node);
    t->n_calls++;
    if (w)
        wait_for(c, w);
    struct buf path, headers;
    buf_init(&path, 4096);
    buf_init(&headers, 65536);
    buf_add_str(&headers, "content-type: application/json\r\n");
    if (p->n_keys)
        buf_add_str(&headers, p->auth_lines[0]);
    struct call_request q = {
        .origin = &p->origin,
        .method = "POST",
        .path = path_of(p, &path),
        .headers = buf_view(&headers),
        .body = body,
        .timeout_ms = CALL_MS,
        .max_reply_bytes = REPLY_MAX,
    };
    c->call = call_start(t->pool, &q, answered, c);
    buf_fini(&path);
    buf_fini(&headers);
    return true;
}

const struct provider *tokenizer_asked(const struct tokenize_wait *w)
{
    return w->call->provider->state;
}

void tokenizer_leave(struct tokenize_wait *w)
{
    if (w->node.next) /* has waited, or is about to be told */
        list_remove(&w->node);
    w->call = NULL;
}
