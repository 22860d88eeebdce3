/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/embedder.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cache/digest.h"

enum { BUCKETS = 1024, SOURCES_MAX = 256, REPLY_MAX = 4 << 20 };

/* A text whose vector is known. */
struct known {
    struct list node; /* in embedder->known, the longest unused first */
    struct known *next;
    struct cache_digest key;
    struct embedding *vector;
};

/* A call under way and those that wait for it. */
struct group {
    struct list node; /* in embedder->groups */
    struct embedder *e;
    struct cache_digest key;
    struct embed_source source;
    struct net_loop *loop;
    struct call *call;
    struct list waits;
    uint64_t started_ms, started_us;
    unsigned source_index;
};

struct embed_wait {
    struct list node;    /* in its group, under the lock */
    struct group *group; /* NULL: the answer is on its way */
    struct embedder *e;
    struct net_loop *loop;
    struct net_post post;
    embed_fn *done;
    void *arg;
    bool cancelled; /* its loop's thread alone */
    struct embedding *vector;
    const char *why;
};

struct source_health {
    uint64_t hash;
    unsigned failures;
    uint64_t rests_until_ms;
};

struct embedder {
    pthread_mutex_t lock;
    struct list groups; /* few: one for each distinct text that is asked for at the moment */
    struct list known;
    struct known *buckets[BUCKETS];
    size_t max_bytes;
    struct source_health health[SOURCES_MAX];
    struct embedder_stats stats;
};

struct embedder *embedder_new(size_t cache_bytes)
{
    struct embedder *e = MEM_NEW(struct embedder);
    CHECK(pthread_mutex_init(&e->lock, NULL) == 0);
    list_init(&e->groups);
    list_init(&e->known);
    e->max_bytes = cache_bytes;
    return e;
}

static size_t known_bytes(const struct known *k)
{
    return sizeof(*k) + sizeof(*k->vector) + k->vector->dims * sizeof(float);
}

static struct known **bucket_of(struct embedder *e, const struct cache_digest *key)
{
    return &e->buckets[digest_short(key) % BUCKETS];
}

/* Under the lock. */
static void forget(struct embedder *e, struct known *k)
{
    struct known **at = bucket_of(e, &k->key);
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    list_remove(&k->node);
    e->stats.bytes -= known_bytes(k);
    e->stats.texts--;
    embedding_unref(k->vector);
    free(k);
}

void embedder_free(struct embedder *e)
{
    if (!e)
        return;
    CHECK(list_empty(&e->groups));
    while (!list_empty(&e->known))
        forget(e, LIST_ITEM(e->known.next, struct known, node));
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* Under the lock. */
static struct embedding *look_up(struct embedder *e, const struct cache_digest *key)
{
    struct known *k = *bucket_of(e, key);
    while (k && !digest_eq(&k->key, key))
        k = k->next;
    if (!k)
        return NULL;
    list_remove(&k->node);
    list_push(&e->known, &k->node);
    return embedding_ref(k->vector);
}

/* Under the lock. */
static void remember(struct embedder *e, const struct cache_digest *key, struct embedding *vector)
{
    struct embedding *before = look_up(e, key);
    if (before) {
        embedding_unref(before);
        return;
    }
    struct known *k = MEM_NEW(struct known);
    k->key = *key;
    k->vector = embedding_ref(vector);
    k->next = *bucket_of(e, key);
    *bucket_of(e, key) = k;
    list_push(&e->known, &k->node);
    e->stats.bytes += known_bytes(k);
    e->stats.texts++;
    while (e->stats.bytes > e->max_bytes)
        forget(e, LIST_ITEM(e->known.next, struct known, node));
}

/* The health of a source; of very many sources some share theirs. */
static unsigned health_of(struct embedder *e, const struct embed_source *s)
{
    uint64_t hash = hash_bytes_seed(s->api_base.p, s->api_base.n, hash_bytes(s->provider.p, s->provider.n));
    hash = hash_bytes_seed(s->model.p, s->model.n, hash) | 1;
    unsigned i = (unsigned)(hash % SOURCES_MAX);
    for (unsigned n = 0; n < SOURCES_MAX && e->health[i].hash && e->health[i].hash != hash; n++)
        i = (i + 1) % SOURCES_MAX;
    e->health[i].hash = hash;
    return i;
}

/* Whether a call may be made now. When a rest is over, one call finds out. Under the lock. */
static bool may_call(struct source_health *h, uint64_t now_ms)
{
    if (h->failures < EMBEDDER_FAILURES)
        return true;
    if (now_ms < h->rests_until_ms)
        return false;
    h->rests_until_ms = now_ms + EMBEDDER_REST_MS;
    return true;
}

static struct group *find_group(struct embedder *e, const struct cache_digest *key)
{
    LIST_EACH(node, &e->groups)
    {
        struct group *g = LIST_ITEM(node, struct group, node);
        if (digest_eq(&g->key, key))
            return g;
    }
    return NULL;
}

static void free_wait(struct embed_wait *w)
{
    embedding_unref(w->vector);
    free(w);
}

static void tell(struct net_post *p, struct net_loop *l)
{
    (void)l;
    struct embed_wait *w = CONTAINER_OF(p, struct embed_wait, post);
    struct embedding *vector = w->vector;
    w->vector = NULL;
    if (w->cancelled)
        embedding_unref(vector);
    else
        w->done(w->arg, vector, w->why);
    free_wait(w);
}

/* Whether a call says something about the source: what it has against one text, it has not against others. */
static bool is_fault(const struct embed_report *r)
{
    return r && r->status != 400 && r->status != 413 && r->status != 422;
}

/* Takes the group out and tells everybody; those of its own loop at once. <vector> may be NULL. */
static void end_group(struct group *g, struct embedding *vector, const char *why,
                      const struct embed_report *report)
{
    struct embedder *e = g->e;
    struct list told;
    list_init(&told);
    pthread_mutex_lock(&e->lock);
    list_remove(&g->node);
    if (vector)
        remember(e, &g->key, vector);
    struct source_health *h = &e->health[g->source_index];
    if (vector) {
        h->failures = 0;
    } else {
        e->stats.failures++;
        if (is_fault(report) && h->failures < UINT32_MAX && ++h->failures >= EMBEDDER_FAILURES)
            h->rests_until_ms = clock_mono_ms() + EMBEDDER_REST_MS;
    }
    while (!list_empty(&g->waits)) {
        struct embed_wait *w = LIST_ITEM(list_pop(&g->waits), struct embed_wait, node);
        w->group = NULL;
        w->vector = vector ? embedding_ref(vector) : NULL;
        w->why = why;
        if (w->loop == g->loop)
            list_push(&told, &w->node);
        else
            net_loop_post(w->loop, &w->post);
    }
    pthread_mutex_unlock(&e->lock);
    while (!list_empty(&told))
        tell(&LIST_ITEM(list_pop(&told), struct embed_wait, node)->post, g->loop);
    embedding_unref(vector);
    g->source.release(g->source.owner, report);
    free(g);
}

static void on_reply(struct call *c, void *arg, const struct call_reply *r)
{
    (void)c;
    struct group *g = arg;
    struct embed_report report = {.status = r->status,
                                  .tokens = UINT64_MAX,
                                  .started_ms = g->started_ms,
                                  .took_ms = (clock_mono_us() - g->started_us) / 1000};
    struct embedding *vector = NULL;
    if (r->timed_out)
        report.error = "timeout";
    else if (r->too_large)
        report.error = "too_long";
    else if (r->failed)
        report.error = exchange_fail_name(r->why);
    else if (r->status < 200 || r->status > 299)
        report.error = "status";
    else
        vector = embedding_read(r->body, &report.tokens, &report.error);
    end_group(g, vector, report.error, &report);
}

static void start(struct group *g, struct pool *p, struct span text)
{
    struct buf body;
    buf_init(&body, SIZE_MAX);
    embedding_write_request(&body, g->source.model, text);
    g->call = call_start(p,
                         &(struct call_request){.origin = g->source.origin,
                                                .method = "POST",
                                                .path = g->source.path,
                                                .headers = g->source.headers,
                                                .body = buf_view(&body),
                                                .timeout_ms = g->source.timeout_ms,
                                                .max_reply_bytes = REPLY_MAX,
                                                .secret = true},
                         on_reply, g);
    buf_fini(&body);
}

/* Under the lock. */
static struct group *new_group(struct embedder *e, struct net_loop *l, const struct embed_source *s,
                               const struct cache_digest *key, unsigned health)
{
    struct group *g = MEM_NEW(struct group);
    g->e = e;
    g->key = *key;
    g->source = *s;
    g->loop = l;
    g->source_index = health;
    g->started_ms = clock_wall_ms();
    g->started_us = clock_mono_us();
    list_init(&g->waits);
    list_push(&e->groups, &g->node);
    e->stats.calls++;
    return g;
}

static void digest_text(const struct embed_source *s, struct span text, struct cache_digest *ret)
{
    struct digest_writer w;
    digest_begin(&w);
    digest_add_framed(&w, SPAN("embedding"));
    digest_add_framed(&w, s->provider);
    digest_add_framed(&w, s->api_base);
    digest_add_framed(&w, s->model);
    digest_add_framed(&w, text);
    digest_end(&w, ret);
}

struct embed_wait *embedder_ask(struct embedder *e, struct net_loop *l, struct pool *p,
                                const struct embed_source *s, struct span text, embed_fn *done, void *arg)
{
    struct cache_digest key;
    digest_text(s, text, &key);
    pthread_mutex_lock(&e->lock);
    struct embedding *vector = look_up(e, &key);
    struct group *g = vector ? NULL : find_group(e, &key);
    bool begins = !vector && !g, refused = false;
    if (begins) {
        unsigned health = health_of(e, s);
        refused = !may_call(&e->health[health], clock_mono_ms());
        if (!refused)
            g = new_group(e, l, s, &key, health);
    }
    struct embed_wait *w = NULL;
    if (g) {
        w = MEM_NEW(struct embed_wait);
        w->e = e;
        w->group = g;
        w->loop = l;
        w->done = done;
        w->arg = arg;
        w->post.fn = tell;
        list_init(&w->post.node);
        list_push(&g->waits, &w->node);
    }
    e->stats.known += vector != NULL;
    e->stats.refused += refused;
    e->stats.joined += w && !begins;
    pthread_mutex_unlock(&e->lock);
    if (begins && g)
        start(g, p, text);
    else
        s->release(s->owner, NULL);
    if (!w)
        done(arg, vector, vector ? NULL : "breaker");
    return w;
}

struct embedding *embedder_known(struct embedder *e, const struct embed_source *s, struct span text)
{
    struct cache_digest key;
    digest_text(s, text, &key);
    pthread_mutex_lock(&e->lock);
    struct embedding *vector = look_up(e, &key);
    pthread_mutex_unlock(&e->lock);
    return vector;
}

void embedder_cancel(struct embed_wait *w)
{
    pthread_mutex_lock(&w->e->lock);
    bool waits = w->group != NULL;
    if (waits)
        list_remove(&w->node);
    pthread_mutex_unlock(&w->e->lock);
    w->cancelled = true;
    if (waits)
        free_wait(w);
}

void embedder_close_loop(struct embedder *e, struct net_loop *l)
{
    for (;;) {
        struct group *mine = NULL;
        pthread_mutex_lock(&e->lock);
        LIST_EACH(node, &e->groups)
        {
            struct group *g = LIST_ITEM(node, struct group, node);
            if (g->loop == l)
                mine = g;
        }
        pthread_mutex_unlock(&e->lock);
        if (!mine)
            return;
        call_cancel(mine->call);
        end_group(mine, NULL, "closed", NULL);
    }
}

void embedder_stats(struct embedder *e, struct embedder_stats *ret)
{
    pthread_mutex_lock(&e->lock);
    *ret = e->stats;
    pthread_mutex_unlock(&e->lock);
}
