/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/affinity_sync.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observe/metrics.h"
#include "signals/placement_codec.h"

enum {
    EVERY_MS = 50,
    ANSWER_MS = 1000,
    BLOCK_MS = 1000,
    KEEP_MS = 5000,      /* what could not be sent so long is of little use */
    PAST_MS = 60000,     /* how far back reading begins */
    BATCHES_A_TURN = 8,  /* that are sent */
    ENTRIES_A_READ = 16, /* so that one answer is applied within milliseconds */
    WRITES_MAX = 32      /* unanswered ones */
};

struct affinity_sync {
    struct affinity_sync_options o;
    struct redis_client *writer, *reader; /* a read that blocks has a connection of its own */
    struct resolver *resolver;
    char *stream;
    char max_len[16];
    uint64_t gateway; /* how it knows its own batches */
    uv_timer_t timer;
    unsigned under_way; /* writes */
    struct list writes; /* struct write */
    struct buf batch;
    bool is_reading, is_placed; /* a read is under way; where to read from is known */
    uint64_t last_ms, last_seq; /* id of the last entry that was read */
    uint64_t keys[PLACEMENT_KEYS_MAX];
    metric_series_t m_sent, m_malformed, m_dropped_redis, m_dropped_old, m_result[PLACE_RESULT_COUNT];
};

/* A batch whose arrival is not known yet. */
struct write {
    struct list node;
    struct affinity_sync *sync;
    unsigned n; /* placements */
};

/* Sending */

static void end_write(struct write *w, bool is_sent)
{
    struct affinity_sync *s = w->sync;
    metric_add(is_sent ? s->m_sent : s->m_dropped_redis, w->n);
    list_remove(&w->node);
    s->under_way--;
    free(w);
}

static void on_written(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    (void)reply;
    end_write(arg, outcome == REDIS_DONE);
}

static void send_batch(struct affinity_sync *s, unsigned n)
{
    struct write *w = MEM_NEW(struct write);
    w->sync = s;
    w->n = n;
    list_push(&s->writes, &w->node);
    s->under_way++;
    const struct span add[] = {SPAN("XADD"), span_str(s->stream),  SPAN("MAXLEN"),
                               SPAN("~"),    span_str(s->max_len), SPAN("*"),
                               SPAN("p"),    buf_view(&s->batch)};
    const struct redis_request q = {add, ARRAY_LEN(add), 1};
    if (redis_command(s->writer, &q, ANSWER_MS, on_written, w, NULL) != REDIS_DONE)
        end_write(w, false);
}

/* What has waited for too long makes room for what comes. */
static void let_go(struct affinity_sync *s, uint64_t now_ms)
{
    struct placement p;
    uint64_t oldest;
    while (placement_queue_oldest(s->o.queue, &oldest) && now_ms > oldest + KEEP_MS) {
        placement_queue_pop(s->o.queue, &p, s->keys);
        metric_add(s->m_dropped_old, 1);
    }
}

static void send_some(struct affinity_sync *s)
{
    struct placement p;
    unsigned n = 0;
    for (unsigned sent = 0; sent < BATCHES_A_TURN && s->under_way < WRITES_MAX;) {
        bool more = placement_queue_pop(s->o.queue, &p, s->keys);
        if (more && n == 0) {
            buf_clear(&s->batch);
            placement_batch_begin(&s->batch, s->gateway);
        }
        if (more) {
            CHECK(placement_batch_add(&s->batch, &p));
            n++;
        }
        /* Full when another of the largest might not fit. */
        bool is_full = s->batch.n + PLACEMENT_KEYS_MAX * 8 + 64 > PLACEMENT_BATCH_MAX;
        if (n > 0 && (!more || is_full)) {
            send_batch(s, n);
            n = 0;
            sent++;
        }
        if (!more)
            return;
    }
}

/* Reading */

bool affinity_sync_parse_id(struct span id, uint64_t *ret_ms, uint64_t *ret_seq)
{
    const char *dash = id.n ? memchr(id.p, '-', id.n) : NULL;
    if (!dash)
        return false;
    size_t n = (size_t)(dash - id.p);
    return span_to_u64(span_of(id.p, n), ret_ms) && span_to_u64(span_of(dash + 1, id.n - n - 1), ret_seq);
}

/* The value of the field "p" of an entry. */
static bool batch_of(const struct redis_reply *fields, struct span *ret)
{
    if (fields->type != REDIS_ARRAY)
        return false;
    for (size_t i = 0; i + 1 < fields->n; i += 2)
        if (redis_reply_is_text(fields->items[i]) && span_eq(fields->items[i]->text, SPAN("p")) &&
            redis_reply_is_text(fields->items[i + 1])) {
            *ret = fields->items[i + 1]->text;
            return true;
        }
    return false;
}

/* An entry: its id and its fields. */
static void take_entry(struct affinity_sync *s, const struct redis_reply *e)
{
    struct placement_batch b;
    struct placement p;
    struct span bytes;
    uint64_t ms, seq;
    if (e->type != REDIS_ARRAY || e->n != 2 || !redis_reply_is_text(e->items[0]) ||
        !affinity_sync_parse_id(e->items[0]->text, &ms, &seq)) {
        metric_add(s->m_malformed, 1);
        return;
    }
    s->last_ms = ms;
    s->last_seq = seq;
    if (!batch_of(e->items[1], &bytes) || !placement_batch_open(bytes, &b)) {
        metric_add(s->m_malformed, 1);
        return;
    }
    if (b.gateway == s->gateway)
        return;
    while (placement_batch_next(&b, &p, s->keys))
        metric_add(s->m_result[s->o.apply(s->o.arg, &p)], 1);
}

/* What XREAD answers: nothing, or a list of one stream: its key and its entries. */
static void take_entries(struct affinity_sync *s, const struct redis_reply *r)
{
    if (r->type != REDIS_ARRAY || r->n != 1 || r->items[0]->type != REDIS_ARRAY || r->items[0]->n != 2 ||
        r->items[0]->items[1]->type != REDIS_ARRAY)
        return;
    const struct redis_reply *entries = r->items[0]->items[1];
    for (size_t i = 0; i < entries->n; i++)
        take_entry(s, entries->items[i]);
}

static void read_on(struct affinity_sync *s);

static void on_entries(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct affinity_sync *s = arg;
    s->is_reading = false;
    if (outcome != REDIS_DONE) {
        s->is_placed = false; /* the timer looks where to go on */
        return;
    }
    take_entries(s, reply);
    read_on(s);
}

/* Redis' own clock says from where on: a gateway's may be wrong, and ids are made of Redis'. */
static void on_time(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct affinity_sync *s = arg;
    uint64_t secs;
    s->is_reading = false;
    if (outcome != REDIS_DONE || reply->type != REDIS_ARRAY || reply->n != 2 ||
        !redis_reply_is_text(reply->items[0]) || !span_to_u64(reply->items[0]->text, &secs) ||
        secs > UINT32_MAX * 16ull)
        return;
    uint64_t now_ms = secs * 1000, from = now_ms > PAST_MS ? now_ms - PAST_MS : 0;
    if (s->last_ms < from || s->last_ms > now_ms + 1000) {
        s->last_ms = from;
        s->last_seq = 0;
    }
    s->is_placed = true;
    read_on(s);
}

static void read_on(struct affinity_sync *s)
{
    char id[48], block[16], count[16];
    snprintf(id, sizeof id, "%llu-%llu", (unsigned long long)s->last_ms, (unsigned long long)s->last_seq);
    snprintf(block, sizeof block, "%u", BLOCK_MS);
    snprintf(count, sizeof count, "%u", ENTRIES_A_READ);
    const struct span time[] = {SPAN("TIME")};
    const struct span read[] = {SPAN("XREAD"),   SPAN("COUNT"),   span_str(count),     SPAN("BLOCK"),
                                span_str(block), SPAN("STREAMS"), span_str(s->stream), span_str(id)};
    const struct redis_request ask = {time, 1, 0}, go_on = {read, ARRAY_LEN(read), 6};
    enum redis_outcome o = s->is_placed
                               ? redis_command(s->reader, &go_on, BLOCK_MS + ANSWER_MS, on_entries, s, NULL)
                               : redis_command(s->reader, &ask, ANSWER_MS, on_time, s, NULL);
    s->is_reading = o == REDIS_DONE;
    if (o != REDIS_DONE)
        s->is_placed = false;
}

/* Life */

static void on_timer(uv_timer_t *t)
{
    struct affinity_sync *s = t->data;
    let_go(s, clock_mono_ms());
    if (redis_client_is_up(s->writer))
        send_some(s);
    if (!s->is_reading && redis_client_is_up(s->reader))
        read_on(s);
}

static void find_metrics(struct affinity_sync *s)
{
    s->m_sent = metric_plain(M_AFFINITY_SENT);
    s->m_result[PLACE_DONE] = metric_plain(M_AFFINITY_APPLIED);
    s->m_malformed = metric_plain(M_AFFINITY_MALFORMED);
    s->m_dropped_redis = metric_series(M_AFFINITY_DROPPED, "redis", NULL, NULL);
    s->m_dropped_old = metric_series(M_AFFINITY_DROPPED, "old", NULL, NULL);
    s->m_result[PLACE_NOBODY] = metric_series(M_AFFINITY_DROPPED, "unknown_target", NULL, NULL);
    s->m_result[PLACE_LOOSE] = metric_series(M_AFFINITY_DROPPED, "loose", NULL, NULL);
}

struct affinity_sync *affinity_sync_start(const struct affinity_sync_options *o, struct net_loop *loop)
{
    struct affinity_sync *s = MEM_NEW(struct affinity_sync);
    s->o = *o;
    redis_server_ref(o->server);
    s->stream = mem_strdup(o->settings->stream);
    snprintf(s->max_len, sizeof s->max_len, "%u", o->settings->max_len);
    s->o.settings = NULL;
    rng_secure_bytes(&s->gateway, sizeof s->gateway);
    s->resolver = resolver_new(loop);
    s->writer = redis_client_new(o->server, loop, s->resolver);
    s->reader = redis_client_new(o->server, loop, s->resolver);
    list_init(&s->writes);
    buf_init(&s->batch, PLACEMENT_BATCH_MAX);
    find_metrics(s);
    CHECK(uv_timer_init(&loop->uv, &s->timer) == 0);
    s->timer.data = s;
    uv_timer_start(&s->timer, on_timer, EVERY_MS, EVERY_MS);
    return s;
}

static void closed(uv_handle_t *h)
{
    struct affinity_sync *s = h->data;
    resolver_free(s->resolver);
    redis_server_unref(s->o.server);
    buf_fini(&s->batch);
    free(s->stream);
    free(s);
}

void affinity_sync_stop(struct affinity_sync *s)
{
    if (!s)
        return;
    redis_client_free(s->writer);
    redis_client_free(s->reader);
    while (!list_empty(&s->writes))
        end_write(LIST_ITEM(s->writes.next, struct write, node), false);
    uv_close((uv_handle_t *)&s->timer, closed);
}
