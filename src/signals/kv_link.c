/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/kv_link.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "observe/metrics.h"

enum {
    QUEUE_MESSAGES = 1000,
    REPLAY_QUEUE_MESSAGES = 20000, /* what the publisher keeps: it drops silently when nobody takes it */
    REOPEN_MS = 2000,
    /* Tries, one a tick, before it is said: libzmq takes a moment to give an address back, so it is still in
     * use when a reload changes what is listened to there. */
    SAY_FAILURES = 5,
    HEARTBEAT_MAX_MS = 5000,
    HEARTBEAT_MIN_MS = 100,
    SAY_AGAIN_MS = 10000,
    NUMBER_BYTES = 8
};

static uint64_t now_of(const struct kv_link *k)
{
    return net_now_ms(k->feeds->loop);
}

/* One line now and then, whatever publishers do. */
static bool may_say(struct kv_link *k)
{
    uint64_t now = now_of(k);
    if (k->said_at_ms && now < k->said_at_ms + SAY_AGAIN_MS)
        return false;
    k->said_at_ms = now;
    return true;
}

#define SAY(k, fmt, ...)                                                                                     \
    do {                                                                                                     \
        if (may_say(k))                                                                                      \
            log_info("kv events of %s, rank %u: " fmt, kv_source_name((k)->feed->source), (k)->rank,         \
                     __VA_ARGS__);                                                                           \
    } while (0)

/* What the stream asks for */

static struct kv_verdict apply(void *arg, struct span payload, bool waiting)
{
    struct kv_link *k = arg;
    struct kv_applied r = kv_apply(&k->applying, payload, waiting);
    metric_add(metric_plain(M_KV_EVENTS), r.applied);
    metric_add(metric_plain(M_KV_EVENTS_MALFORMED), r.bad + !r.is_batch);
    return (struct kv_verdict){r.is_batch, r.cleared};
}

static void clear(void *arg, bool new_process)
{
    struct kv_link *k = arg;
    kv_source_clear(k->feed->source, k->rank);
    if (new_process)
        k->applying.groups = KV_GROUPS_NONE;
}

static void trust(void *arg, bool trusted)
{
    struct kv_link *k = arg;
    kv_source_trust(k->feed->source, k->rank, trusted);
    if (trusted != k->trusted)
        SAY(k, "%s", trusted ? "in use" : "not in use until what was lost is known");
    k->trusted = trusted;
}

static void want_replay(void *arg, uint64_t from)
{
    struct kv_link *k = arg;
    k->replay_from = from;
    kv_feeds_want_replay(k);
}

static void replay_over(void *arg)
{
    kv_feeds_replay_over(arg);
}

/* It is cold now, unless another rank, the metrics or the probes have said so since it went. */
static void tell_restart(struct kv_link *k)
{
    if (provider_generation(k->feed->provider) == k->generation)
        provider_raise_generation(k->feed->provider);
    k->generation = provider_generation(k->feed->provider);
}

static void note(void *arg, enum kv_note what)
{
    struct kv_link *k = arg;
    switch (what) {
    case KV_NOTE_GAP:
        metric_add(metric_plain(M_KV_EVENT_GAPS), 1);
        metric_add(metric_plain(M_KV_EVENT_STREAM_FAILURES), 1);
        SAY(k, "%s", "batches are missing");
        break;
    case KV_NOTE_RESTART:
        SAY(k, "%s", "the publisher is a new process");
        tell_restart(k);
        break;
    case KV_NOTE_CLEARED:
        provider_raise_generation(k->feed->provider);
        break;
    case KV_NOTE_REPLAY_COMPLETE:
    case KV_NOTE_REPLAY_INCOMPLETE:
    case KV_NOTE_REPLAY_UNANSWERED:
        metric_add(k->feeds->m_replay[what - KV_NOTE_REPLAY_COMPLETE], 1);
        break;
    }
}

static const struct kv_stream_calls calls = {.apply = apply,
                                             .clear = clear,
                                             .trust = trust,
                                             .replay = want_replay,
                                             .replay_over = replay_over,
                                             .note = note};

/* Sockets */

static void ready(void *arg)
{
    kv_feeds_busy(arg);
}

/* Heartbeats often enough that a peer that hangs is noticed well within stale_secs. */
static int heartbeat_ms(const struct kv_link *k)
{
    uint64_t ms = (uint64_t)k->feed->settings.stale_secs * 1000 / 8;
    return (int)(ms > HEARTBEAT_MAX_MS ? HEARTBEAT_MAX_MS : ms < HEARTBEAT_MIN_MS ? HEARTBEAT_MIN_MS : ms);
}

/* How long a peer may have been silent that still counts as connected. */
static uint64_t silence_ms(const struct kv_link *k)
{
    return (uint64_t)heartbeat_ms(k) * 3;
}

static struct zmq_peer *open_peer(struct kv_link *k, int type, const char *endpoint, bool bind, int queue)
{
    char *address = kv_endpoint_of_rank(endpoint, k->rank);
    struct zmq_peer_options o = {.type = type,
                                 .endpoint = address,
                                 .bind = bind,
                                 .topic = k->feed->topic,
                                 .max_frame_bytes = KV_FRAME_MAX,
                                 .queue_messages = queue,
                                 .heartbeat_ms = heartbeat_ms(k),
                                 .heartbeat_timeout_ms = heartbeat_ms(k) * 2};
    struct zmq_peer *p = zmq_peer_open(k->feeds->context, k->feeds->loop, &o, ready, k);
    if (!p && (type == ZMQ_SUB ? k->failures == SAY_FAILURES : may_say(k))) {
        log_warn("kv events of %s, rank %u: cannot %s %s: %s", kv_source_name(k->feed->source), k->rank,
                 bind ? "listen on" : "use", address, zmq_strerror(errno));
    }
    free(address);
    return p;
}

static void open_sub(struct kv_link *k)
{
    const struct kv_feed *f = k->feed;
    k->sub = open_peer(k, ZMQ_SUB, f->endpoint, f->settings.bind, QUEUE_MESSAGES);
    if (!k->sub) {
        k->open_at_ms = now_of(k) + (k->failures < SAY_FAILURES ? 0 : REOPEN_MS);
        k->failures++;
        return;
    }
    k->failures = 0;
    kv_feeds_busy(k);
}

static void drop_replay(struct kv_link *k)
{
    zmq_peer_close(k->replay);
    k->replay = NULL;
}

void kv_link_replay(struct kv_link *k)
{
    drop_replay(k);
    unsigned char from[NUMBER_BYTES];
    for (int i = 0; i < NUMBER_BYTES; i++)
        from[i] = (unsigned char)(k->replay_from >> (8 * (NUMBER_BYTES - 1 - i)));
    const struct span request[] = {SPAN(""), {(const char *)from, sizeof from}};
    k->replay = open_peer(k, ZMQ_DEALER, k->feed->replay_endpoint, false, REPLAY_QUEUE_MESSAGES);
    if (k->replay && !zmq_peer_send(k->replay, request, 2))
        drop_replay(k);
    kv_stream_replay_begins(&k->stream, now_of(k)); /* without a socket nobody answers */
    kv_feeds_busy(k);
}

void kv_link_init(struct kv_link *k, struct kv_feeds *f, struct kv_feed *feed, unsigned rank)
{
    *k = (struct kv_link){.feeds = f, .feed = feed, .rank = rank};
    k->applying = (struct kv_applying){
        .source = feed->source, .rank = rank, .groups = KV_GROUPS_NONE, .decoder = &f->decoder};
    k->generation = provider_generation(feed->provider);
    list_init(&k->replay_node);
    list_init(&k->busy_node);
    struct kv_stream_settings s = {.can_replay = feed->replay_endpoint != NULL,
                                   .resume = feed->settings.resume};
    kv_stream_init(&k->stream, &calls, k, &s);
    open_sub(k);
}

void kv_link_fini(struct kv_link *k)
{
    kv_feeds_replay_over(k);
    drop_replay(k);
    zmq_peer_close(k->sub);
    list_remove(&k->busy_node);
    kv_stream_fini(&k->stream);
}

/* Input */

static void connections(struct kv_link *k)
{
    unsigned events = zmq_peer_events(k->sub);
    if (events & ZMQ_PEER_LOST) {
        k->unsure = true;
        metric_add(metric_plain(M_KV_EVENT_STREAM_FAILURES), 1);
        SAY(k, "%s", "the connection is lost");
    }
    if (events & ZMQ_PEER_CONNECTED) {
        kv_source_alive(k->feed->source, k->rank, now_of(k));
        kv_stream_connected(&k->stream, now_of(k));
    }
}

static bool number_of(zmq_msg_t *frame, uint64_t *ret)
{
    const unsigned char *p = zmq_msg_data(frame);
    if (zmq_msg_size(frame) != NUMBER_BYTES)
        return false;
    *ret = 0;
    for (int i = 0; i < NUMBER_BYTES; i++)
        *ret = *ret << 8 | p[i];
    return true;
}

static struct span bytes_of(zmq_msg_t *frame)
{
    return span_of(zmq_msg_data(frame), zmq_msg_size(frame));
}

/* topic, number, payload */
static bool take_live(struct kv_link *k)
{
    zmq_msg_t frame[3];
    uint64_t number;
    int n = zmq_peer_take(k->sub, frame, 3);
    if (n == 0)
        return false;
    connections(k); /* the one that it came over, first */
    if (n == 3 && number_of(&frame[1], &number)) {
        kv_source_alive(k->feed->source, k->rank, now_of(k));
        kv_stream_message(&k->stream, number, bytes_of(&frame[2]), now_of(k));
        if (k->stream.state == KV_STREAM_LIVE)
            k->unsure = false;
    } else {
        metric_add(metric_plain(M_KV_EVENTS_MALFORMED), 1);
    }
    while (n-- > 0)
        zmq_msg_close(&frame[n]);
    return true;
}

/* "", number, payload or "", topic, number, payload; the end has the largest number and nothing in it. */
static bool take_replayed(struct kv_link *k)
{
    zmq_msg_t frame[4];
    uint64_t number;
    int n = zmq_peer_take(k->replay, frame, 4);
    if (n == 0)
        return false;
    if (n >= 3 && zmq_msg_size(&frame[0]) == 0 && number_of(&frame[n - 2], &number)) {
        struct span payload = bytes_of(&frame[n - 1]);
        if (number == UINT64_MAX && payload.n == 0)
            kv_stream_replay_ends(&k->stream, now_of(k));
        else
            kv_stream_replayed(&k->stream, number, payload, now_of(k));
    } else {
        metric_add(metric_plain(M_KV_EVENTS_MALFORMED), 1);
    }
    while (n-- > 0)
        zmq_msg_close(&frame[n]);
    return true;
}

bool kv_link_work(struct kv_link *k, uint64_t until_ns)
{
    if (k->sub)
        connections(k);
    if (k->replay)
        zmq_peer_events(k->replay);
    bool more = true;
    while (more) {
        more = false;
        /* The replay first: what is live waits for it. It may end, or begin anew, with what is taken. */
        if (k->replay && take_replayed(k))
            more = true;
        if (k->sub && take_live(k))
            more = true;
        if (more && uv_hrtime() >= until_ns)
            return false;
    }
    return true;
}

/* Somebody sends faster than is taken, or a message without end. */
static bool is_flooded(struct zmq_peer *p)
{
    return p && zmq_peer_backlog(p) > KV_BACKLOG_MAX;
}

void kv_link_tick(struct kv_link *k, uint64_t now_ms)
{
    if (!k->sub && now_ms >= k->open_at_ms)
        open_sub(k);
    if (is_flooded(k->sub)) {
        metric_add(metric_plain(M_KV_EVENT_STREAM_FAILURES), 1);
        SAY(k, "more than %d bytes wait to be taken; connecting anew", KV_BACKLOG_MAX);
        zmq_peer_close(k->sub);
        k->sub = NULL;
        k->open_at_ms = now_ms + REOPEN_MS;
    }
    if (is_flooded(k->replay))
        drop_replay(k); /* the round ends as nothing more comes */
    if (k->sub && zmq_peer_is_connected(k->sub)) {
        kv_source_alive_since(k->feed->source, k->rank, now_ms > silence_ms(k) ? now_ms - silence_ms(k) : 0);
        if (!k->unsure)
            k->generation = provider_generation(k->feed->provider);
    }
    kv_stream_tick(&k->stream, now_ms);
}
