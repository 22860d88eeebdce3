/* SPDX-License-Identifier: Apache-2.0
 *
 * One publisher's stream of numbered batches (P7 to P9): what to do about a gap, a restart, a late join, a
 * duplicate, and when what the stream said may be used. It knows neither sockets nor encodings: messages and
 * time come in, calls go out.
 *
 * Sound before complete: a batch that may have been missed may have removed blocks, so nothing learnt before
 * it counts any more, unless a replay brings it.
 *
 * - A first batch with any number: from there on, from empty (R11). With a replay: the history first.
 * - The next number: applied. The same number with the same bytes: a duplicate. With others, or a smaller
 *   number: the publisher is a new process; empty, and trusted if this is its first batch (0 or 1).
 * - A larger number: a gap. With a replay the missing batches are fetched, from the last known one on, which
 *   must come again byte by byte (a new process may have got as far). Else, and when the replay stays
 *   incomplete, `on_gap` speaks: empty and on at once, or empty and silent until an AllBlocksCleared (R3).
 * - A payload that is no batch: a gap that no replay can fill (R4).
 * - Connected again: batches may have been missed. With a replay as for a gap; without: empty, and on.
 */
#ifndef ROLTER_SIGNALS_KV_STREAM_H
#define ROLTER_SIGNALS_KV_STREAM_H

#include "base/list.h"
#include "base/span.h"

enum kv_note {
    KV_NOTE_GAP,
    KV_NOTE_RESTART,
    KV_NOTE_CLEARED, /* an AllBlocksCleared that is news, not history */
    KV_NOTE_REPLAY_COMPLETE,
    KV_NOTE_REPLAY_INCOMPLETE,
    KV_NOTE_REPLAY_UNANSWERED,
};

struct kv_verdict {
    bool is_batch, cleared;
};

struct kv_stream_calls {
    /* Applies a batch; when <waiting>, from its AllBlocksCleared on only. */
    struct kv_verdict (*apply)(void *arg, struct span payload, bool waiting);
    void (*clear)(void *arg, bool new_process);
    void (*trust)(void *arg, bool trusted);
    /* Asks for the batches from <from> on in a new round, once kv_stream_replay_begins has been called; any
     * earlier round is over. */
    void (*replay)(void *arg, uint64_t from);
    void (*replay_over)(void *arg);
    void (*note)(void *arg, enum kv_note what);
};

struct kv_stream_settings {
    bool can_replay;
    bool resume; /* on_gap */
};

enum kv_stream_state { KV_STREAM_NEW, KV_STREAM_LIVE, KV_STREAM_REPLAY };

struct kv_stream {
    const struct kv_stream_calls *calls;
    void *arg;
    struct kv_stream_settings settings;
    enum kv_stream_state state;
    bool waiting; /* for an AllBlocksCleared */
    bool has_last;
    uint64_t last, last_hash; /* number and bytes of the batch that was applied last */

    /* while replaying */
    bool checks;   /* the last batch has to come again first */
    bool strict;   /* batches are missing, not only history */
    bool answered; /* something came at all */
    bool moved;    /* something of use came in this round */
    bool asked;    /* the round has begun */
    unsigned rounds, idle_rounds;
    uint64_t idle_at_ms;
    struct list pending; /* live batches meanwhile, struct held_batch */
    size_t pending_bytes;
    unsigned n_pending;

    uint64_t cool_until_ms; /* no replay before */
    uint64_t cool_ms;       /* doubles */
    bool retry;             /* a replay that nobody answered, or that was not due yet, is tried again */
};

enum {
    KV_REPLAY_IDLE_MS = 2000,
    KV_REPLAY_ROUNDS_MAX = 32,
    KV_REPLAY_COOL_MS = 30000,
    KV_REPLAY_COOL_MAX_MS = 600000,
    KV_PENDING_BYTES_MAX = 8 << 20,
    KV_PENDING_MAX = 4096
};

void kv_stream_init(struct kv_stream *s, const struct kv_stream_calls *calls, void *arg,
                    const struct kv_stream_settings *settings);
void kv_stream_fini(struct kv_stream *s);

/* There is a connection, the first one or a new one. */
void kv_stream_connected(struct kv_stream *s, uint64_t now_ms);
/* A live message. */
void kv_stream_message(struct kv_stream *s, uint64_t number, struct span payload, uint64_t now_ms);
/* The round that was asked for has begun. */
void kv_stream_replay_begins(struct kv_stream *s, uint64_t now_ms);
void kv_stream_replayed(struct kv_stream *s, uint64_t number, struct span payload, uint64_t now_ms);
void kv_stream_replay_ends(struct kv_stream *s, uint64_t now_ms);
/* Some times a second. */
void kv_stream_tick(struct kv_stream *s, uint64_t now_ms);

#endif
