/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/kv_stream.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"

enum { FIRST_NUMBER_MAX = 1, IDLE_ROUNDS_MAX = 2 };

struct held_batch {
    struct list node;
    uint64_t number;
    size_t n;
    char bytes[];
};

void kv_stream_init(struct kv_stream *s, const struct kv_stream_calls *calls, void *arg,
                    const struct kv_stream_settings *settings)
{
    *s = (struct kv_stream){.calls = calls, .arg = arg, .settings = *settings, .cool_ms = KV_REPLAY_COOL_MS};
    list_init(&s->pending);
}

static void pending_pop(struct kv_stream *s)
{
    struct held_batch *h = LIST_ITEM(list_pop(&s->pending), struct held_batch, node);
    s->pending_bytes -= h->n;
    s->n_pending--;
    free(h);
}

static void pending_drop(struct kv_stream *s)
{
    while (!list_empty(&s->pending))
        pending_pop(s);
}

void kv_stream_fini(struct kv_stream *s)
{
    pending_drop(s);
}

static void note(struct kv_stream *s, enum kv_note what)
{
    s->calls->note(s->arg, what);
}

/* From empty on. */
static void forget(struct kv_stream *s, bool new_process)
{
    s->has_last = false;
    s->calls->clear(s->arg, new_process);
}

/* Batches are missing and will not come: `on_gap` speaks. */
static void lose(struct kv_stream *s)
{
    forget(s, false);
    s->waiting = !s->settings.resume;
}

static void settle(struct kv_stream *s)
{
    s->state = KV_STREAM_LIVE;
    s->calls->trust(s->arg, !s->waiting);
}

/* The batch that comes next, or the first one. <news>: it is not from a history. */
static void accept(struct kv_stream *s, uint64_t number, struct span payload, bool news)
{
    struct kv_verdict v = s->calls->apply(s->arg, payload, s->waiting);
    if (!v.is_batch) {
        note(s, KV_NOTE_GAP);
        lose(s);
    }
    if (v.cleared) {
        s->waiting = false;
        if (news)
            note(s, KV_NOTE_CLEARED);
    }
    s->has_last = true;
    s->last = number;
    s->last_hash = hash_bytes(payload.p, payload.n);
}

/* Replay */

static void begin_round(struct kv_stream *s)
{
    s->rounds++;
    s->moved = false;
    s->asked = false;
    s->idle_at_ms = UINT64_MAX;
    s->calls->replay(s->arg, !s->has_last ? 0 : s->checks ? s->last : s->last + 1);
}

/* From empty, all that the publisher still has. */
static void fill(struct kv_stream *s, bool strict)
{
    s->checks = false;
    s->strict = strict;
    begin_round(s);
}

static bool replay_begin(struct kv_stream *s, bool checks, bool strict, uint64_t now_ms)
{
    if (!s->settings.can_replay)
        return false;
    if (now_ms < s->cool_until_ms) {
        s->retry = true; /* as soon as may be, should the stream be silent until then */
        return false;
    }
    s->state = KV_STREAM_REPLAY;
    s->calls->trust(s->arg, false);
    s->rounds = s->idle_rounds = 0;
    s->answered = s->retry = false;
    s->checks = checks;
    s->strict = strict;
    begin_round(s);
    return true;
}

static void replay_leave(struct kv_stream *s, enum kv_note how)
{
    s->calls->replay_over(s->arg);
    note(s, how);
}

/* A live batch while a replay is on its way. The oldest go when there are too many: the replay brings them.
 */
static void pend(struct kv_stream *s, uint64_t number, struct span payload)
{
    struct held_batch *h = mem_alloc(sizeof *h + payload.n);
    h->number = number;
    h->n = payload.n;
    if (payload.n)
        memcpy(h->bytes, payload.p, payload.n);
    list_push(&s->pending, &h->node);
    s->pending_bytes += h->n;
    s->n_pending++;
    while (s->n_pending > 1 && (s->pending_bytes > KV_PENDING_BYTES_MAX || s->n_pending > KV_PENDING_MAX))
        pending_pop(s);
}

static struct held_batch *pending_first(struct kv_stream *s)
{
    return list_empty(&s->pending) ? NULL : LIST_ITEM(s->pending.next, struct held_batch, node);
}

/* Live batches that go on where the replay has come to. True when none is left. */
static bool catch_up(struct kv_stream *s)
{
    for (struct held_batch *h; (h = pending_first(s)); pending_pop(s)) {
        if (s->has_last && h->number > s->last + 1)
            return false;
        if (!s->has_last || h->number == s->last + 1)
            accept(s, h->number, span_of(h->bytes, h->n), true);
    }
    return true;
}

/* The replay brings nothing more. What is missing stays so. */
static void replay_failed(struct kv_stream *s, uint64_t now_ms)
{
    replay_leave(s, s->answered ? KV_NOTE_REPLAY_INCOMPLETE : KV_NOTE_REPLAY_UNANSWERED);
    s->cool_until_ms = now_ms + s->cool_ms;
    s->cool_ms = s->cool_ms * 2 < KV_REPLAY_COOL_MAX_MS ? s->cool_ms * 2 : KV_REPLAY_COOL_MAX_MS;
    s->retry = !s->answered;
    bool strict = s->strict;
    if (strict)
        lose(s);
    /* What was replayed so far and the live batches do not meet: without it. Who only came late has lost
     * nothing. */
    while (!catch_up(s)) {
        if (strict)
            lose(s);
        else
            forget(s, false);
    }
    settle(s);
}

static void replay_done(struct kv_stream *s)
{
    s->cool_ms = KV_REPLAY_COOL_MS;
    s->idle_rounds = 0;
    replay_leave(s, KV_NOTE_REPLAY_COMPLETE);
    settle(s);
}

/* This round is over. */
static void next_round(struct kv_stream *s, uint64_t now_ms)
{
    s->idle_rounds = s->moved ? 0 : s->idle_rounds + 1;
    if (s->idle_rounds >= IDLE_ROUNDS_MAX || s->rounds >= KV_REPLAY_ROUNDS_MAX)
        replay_failed(s, now_ms);
    else
        begin_round(s);
}

void kv_stream_replay_begins(struct kv_stream *s, uint64_t now_ms)
{
    s->asked = true;
    s->idle_at_ms = now_ms + KV_REPLAY_IDLE_MS;
}

/* The publisher is another process than the one that sent the last batch. */
static void is_new_process(struct kv_stream *s)
{
    note(s, KV_NOTE_RESTART);
    forget(s, true);
    s->waiting = false;
    fill(s, true);
}

/* The last known batch should come first. True: go on with this one. */
static bool check(struct kv_stream *s, uint64_t number, struct span payload)
{
    if (number < s->last)
        return false;
    if (number > s->last) { /* it is not kept any more, so neither are all of those that are missing */
        note(s, KV_NOTE_REPLAY_INCOMPLETE);
        lose(s);
        s->checks = false;
        return true;
    }
    if (hash_bytes(payload.p, payload.n) != s->last_hash) {
        is_new_process(s);
    } else {
        s->checks = false;
        s->moved = true;
    }
    return false;
}

void kv_stream_replayed(struct kv_stream *s, uint64_t number, struct span payload, uint64_t now_ms)
{
    if (s->state != KV_STREAM_REPLAY || !s->asked)
        return;
    s->answered = true;
    s->idle_at_ms = now_ms + KV_REPLAY_IDLE_MS;
    if (s->checks && s->has_last && !check(s, number, payload))
        return;
    if (s->has_last && number <= s->last)
        return;
    if (s->has_last && number > s->last + 1) { /* a hole */
        next_round(s, now_ms);
        return;
    }
    if (!s->has_last && s->strict) /* all there is of it, or `on_gap` speaks */
        s->waiting = number > FIRST_NUMBER_MAX && !s->settings.resume;
    accept(s, number, payload, s->has_last && s->strict);
    s->moved = true;
}

void kv_stream_replay_ends(struct kv_stream *s, uint64_t now_ms)
{
    if (s->state != KV_STREAM_REPLAY || !s->asked)
        return;
    s->answered = true;
    if (s->checks && s->has_last) { /* it has not got as far as the last batch: a new process */
        is_new_process(s);
        return;
    }
    if (catch_up(s))
        replay_done(s);
    else
        next_round(s, now_ms);
}

/* Live */

static void restart(struct kv_stream *s, uint64_t number, struct span payload, uint64_t now_ms)
{
    note(s, KV_NOTE_RESTART);
    forget(s, true);
    bool first = number <= FIRST_NUMBER_MAX;
    s->waiting = !first && !s->settings.resume;
    if (!first && replay_begin(s, false, true, now_ms)) {
        pend(s, number, payload);
        return;
    }
    accept(s, number, payload, true);
    settle(s);
}

static void gap(struct kv_stream *s, uint64_t number, struct span payload, uint64_t now_ms)
{
    note(s, KV_NOTE_GAP);
    if (replay_begin(s, true, true, now_ms)) {
        pend(s, number, payload);
        return;
    }
    lose(s);
    accept(s, number, payload, true);
    settle(s);
}

/* Whether this number with these bytes cannot come behind <number>, <hash> in one process. */
static bool goes_back(uint64_t last, uint64_t last_hash, uint64_t number, struct span payload)
{
    return number < last || (number == last && hash_bytes(payload.p, payload.n) != last_hash);
}

static void live_while_replaying(struct kv_stream *s, uint64_t number, struct span payload, uint64_t now_ms)
{
    if (!list_empty(&s->pending)) {
        const struct held_batch *h = LIST_ITEM(s->pending.prev, struct held_batch, node);
        if (goes_back(h->number, hash_bytes(h->bytes, h->n), number, payload)) {
            s->calls->replay_over(s->arg);
            pending_drop(s);
            s->state = KV_STREAM_LIVE;
            restart(s, number, payload, now_ms);
            return;
        }
        if (number == h->number)
            return;
    }
    pend(s, number, payload);
}

void kv_stream_message(struct kv_stream *s, uint64_t number, struct span payload, uint64_t now_ms)
{
    if (s->state == KV_STREAM_REPLAY) {
        live_while_replaying(s, number, payload, now_ms);
        return;
    }
    if (!s->has_last || number == s->last + 1) {
        accept(s, number, payload, true);
        settle(s);
    } else if (goes_back(s->last, s->last_hash, number, payload)) {
        restart(s, number, payload, now_ms);
    } else if (number > s->last) {
        gap(s, number, payload, now_ms);
    }
}

void kv_stream_connected(struct kv_stream *s, uint64_t now_ms)
{
    bool again = s->state != KV_STREAM_NEW;
    if (s->state == KV_STREAM_REPLAY) {
        /* What is pending may have a hole behind it now. */
        s->calls->replay_over(s->arg);
        pending_drop(s);
        s->state = KV_STREAM_LIVE;
    }
    if (replay_begin(s, s->has_last, s->has_last, now_ms))
        return;
    if (again) { /* nobody can say what was missed */
        uint64_t last = s->last, hash = s->last_hash;
        bool had = s->has_last;
        forget(s, false);
        s->has_last = had;
        s->last = last;
        s->last_hash = hash;
    }
    settle(s);
}

void kv_stream_tick(struct kv_stream *s, uint64_t now_ms)
{
    if (s->state == KV_STREAM_REPLAY) {
        if (!s->asked || now_ms < s->idle_at_ms)
            return;
        /* The end marker may be what was lost. */
        if (!s->checks && s->answered && !list_empty(&s->pending) && catch_up(s))
            replay_done(s);
        else
            next_round(s, now_ms);
    } else if (s->state == KV_STREAM_LIVE && s->waiting && s->retry && now_ms >= s->cool_until_ms) {
        forget(s, false);
        replay_begin(s, false, true, now_ms);
    }
}
