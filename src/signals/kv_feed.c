/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/kv_feed.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "signals/kv_link.h"

enum {
    TICK_MS = 100,
    TURN_NS = 3000000, /* of one turn of the loop */
    SWEEP_TURN = 4096, /* blocks of cleared caches */
    SWEEP_TICK = 20000,
    SOCKETS_MAX = 16384
};

/* Replays, some at a time: each costs its engine time. */

static void start_replays(struct kv_feeds *f)
{
    while (f->replaying < KV_REPLAYS_MAX && !list_empty(&f->replays)) {
        struct kv_link *k = LIST_ITEM(list_pop(&f->replays), struct kv_link, replay_node);
        list_init(&k->replay_node);
        k->is_replaying = true;
        f->replaying++;
        kv_link_replay(k);
    }
}

void kv_feeds_want_replay(struct kv_link *k)
{
    if (k->is_replaying) { /* another round */
        kv_link_replay(k);
        return;
    }
    list_remove(&k->replay_node);
    list_push(&k->feeds->replays, &k->replay_node);
    start_replays(k->feeds);
}

void kv_feeds_replay_over(struct kv_link *k)
{
    list_remove(&k->replay_node);
    if (!k->is_replaying)
        return;
    k->is_replaying = false;
    k->feeds->replaying--;
    zmq_peer_close(k->replay);
    k->replay = NULL;
}

/* Work */

void kv_feeds_busy(struct kv_link *k)
{
    struct kv_feeds *f = k->feeds;
    if (list_empty(&k->busy_node))
        list_push(&f->busy, &k->busy_node);
    uv_idle_start(&f->work, f->on_work);
}

/* A portion in each turn of the loop; as long as there is more, the loop does not wait for anything. */
static void on_work(uv_idle_t *h)
{
    struct kv_feeds *f = h->data;
    uint64_t until = uv_hrtime() + TURN_NS;
    while (!list_empty(&f->busy) && uv_hrtime() < until) {
        struct kv_link *k = LIST_ITEM(list_pop(&f->busy), struct kv_link, busy_node);
        list_init(&k->busy_node);
        if (!kv_link_work(k, until))
            kv_feeds_busy(k); /* behind the others */
    }
    kv_sources_sweep(SWEEP_TURN);
    start_replays(f);
    if (list_empty(&f->busy))
        uv_idle_stop(&f->work);
}

static void on_tick(uv_timer_t *t)
{
    struct kv_feeds *f = t->data;
    uint64_t now = net_now_ms(f->loop);
    for (struct list *node = f->all.next; node != &f->all; node = node->next) {
        struct kv_feed *feed = LIST_ITEM(node, struct kv_feed, node);
        for (unsigned i = 0; i < feed->n; i++)
            kv_link_tick(&feed->link[i], now);
    }
    start_replays(f);
    kv_sources_sweep(SWEEP_TICK);
}

/* Life cycle */

static void feed_free(struct kv_feed *f)
{
    list_remove(&f->node);
    for (unsigned i = 0; i < f->n; i++)
        kv_link_fini(&f->link[i]);
    kv_source_stop(f->source);
    kv_source_unref(f->source);
    free(f->link);
    free(f->endpoint);
    free(f->topic);
    free(f->replay_endpoint);
    free(f);
}

static void feed_new(struct kv_feeds *f, const struct kv_feed_settings *s)
{
    struct kv_feed *feed = MEM_NEW(struct kv_feed);
    feed->source = kv_source_ref(s->source);
    feed->provider = s->provider;
    feed->settings = *s->settings;
    feed->endpoint = mem_strdup(s->settings->endpoint);
    feed->topic = mem_strdup(s->settings->topic);
    feed->replay_endpoint = mem_strdup(s->settings->replay_endpoint);
    feed->n = kv_source_ranks(s->source);
    feed->wanted = true;
    kv_source_configure(feed->source, s->settings->max_blocks, (uint64_t)s->settings->stale_secs * 1000);
    list_push(&f->all, &feed->node);
    feed->link = mem_array(feed->n, sizeof *feed->link);
    for (unsigned i = 0; i < feed->n; i++)
        kv_link_init(&feed->link[i], f, feed, i);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Listens to the same publisher in the same way. */
static bool is_same(const struct kv_feed *f, const struct kv_feed_settings *s)
{
    const struct kv_events_settings *x = &f->settings, *y = s->settings;
    return f->source == s->source && same_text(f->endpoint, y->endpoint) && same_text(f->topic, y->topic) &&
           same_text(f->replay_endpoint, y->replay_endpoint) && x->bind == y->bind &&
           x->resume == y->resume && x->stale_secs == y->stale_secs;
}

static struct kv_feed *find(struct kv_feeds *f, const struct kv_feed_settings *s)
{
    for (struct list *node = f->all.next; node != &f->all; node = node->next) {
        struct kv_feed *feed = LIST_ITEM(node, struct kv_feed, node);
        if (is_same(feed, s))
            return feed;
    }
    return NULL;
}

static void context_open(struct kv_feeds *f)
{
    f->context = zmq_ctx_new();
    CHECK_MSG(f->context != NULL, "no ZeroMQ context");
    zmq_ctx_set(f->context, ZMQ_MAX_SOCKETS, SOCKETS_MAX);
    uv_timer_start(&f->tick, on_tick, TICK_MS, TICK_MS);
}

void kv_feeds_update(struct kv_feeds *f, const struct kv_feed_settings *s, unsigned n)
{
    for (struct list *node = f->all.next; node != &f->all; node = node->next)
        LIST_ITEM(node, struct kv_feed, node)->wanted = false;
    for (unsigned i = 0; i < n; i++) {
        struct kv_feed *feed = find(f, &s[i]);
        if (!feed)
            continue;
        feed->wanted = true;
        feed->provider = s[i].provider;
        feed->settings.max_blocks = s[i].settings->max_blocks;
        kv_source_configure(feed->source, feed->settings.max_blocks,
                            (uint64_t)feed->settings.stale_secs * 1000);
    }
    for (struct list *node = f->all.next, *next; node != &f->all; node = next) {
        struct kv_feed *feed = LIST_ITEM(node, struct kv_feed, node);
        next = node->next;
        if (!feed->wanted)
            feed_free(feed);
    }
    if (n > 0 && !f->context)
        context_open(f);
    for (unsigned i = 0; i < n; i++)
        if (!find(f, &s[i]))
            feed_new(f, &s[i]);
}

struct kv_feeds *kv_feeds_new(struct net_loop *l)
{
    static const char *const outcomes[] = {"complete", "incomplete", "unanswered"};
    struct kv_feeds *f = MEM_NEW(struct kv_feeds);
    f->loop = l;
    f->on_work = on_work;
    list_init(&f->all);
    list_init(&f->busy);
    list_init(&f->replays);
    for (unsigned i = 0; i < ARRAY_LEN(outcomes); i++)
        f->m_replay[i] = metric_series(M_KV_EVENT_REPLAYS, outcomes[i], NULL, NULL);
    CHECK(uv_timer_init(&l->uv, &f->tick) == 0);
    CHECK(uv_idle_init(&l->uv, &f->work) == 0);
    f->tick.data = f->work.data = f;
    f->open_handles = 2;
    return f;
}

static void on_closed(uv_handle_t *h)
{
    struct kv_feeds *f = h->data;
    if (--f->open_handles == 0)
        free(f);
}

void kv_feeds_free(struct kv_feeds *f)
{
    while (!list_empty(&f->all))
        feed_free(LIST_ITEM(f->all.next, struct kv_feed, node));
    while (kv_sources_sweep(SIZE_MAX))
        ;
    if (f->context)
        zmq_ctx_term(f->context);
    kv_decoder_fini(&f->decoder);
    uv_close((uv_handle_t *)&f->tick, on_closed);
    uv_close((uv_handle_t *)&f->work, on_closed);
}
