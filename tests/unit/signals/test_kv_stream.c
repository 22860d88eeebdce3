/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stream of numbered batches is taken for, against a publisher that is modelled: every batch stores
 * one block and removes another, some are lost, processes restart, connections break, replays lose batches
 * and their end. Whenever the stream is trusted, what it holds must be true of the publisher as of the last
 * batch that it knows; and in the end it must know all, or say that it does not.
 */
#include "unit.h"

#include "base/check.h"
#include "base/rng.h"
#include "signals/kv_stream.h"

enum { BATCHES = 4096, BLOCKS = 64 };

/* A batch's payload. */
struct batch {
    uint32_t process, stored, removed; /* blocks; BLOCKS: none */
    uint32_t clear, broken;
};

struct publisher {
    struct batch batch[BATCHES];
    unsigned n, first_kept;
    uint32_t process;
    /* What the cache holds after each batch, as bits. */
    uint64_t held[BATCHES];
};

struct bed {
    struct rng rng;
    struct publisher p;
    struct kv_stream s;
    bool trusted;
    uint64_t index;                      /* blocks that the stream has been told of */
    uint32_t index_process, index_batch; /* of the last batch applied, + 1; 0: none since it was cleared */
    bool round;                          /* wanted */
    uint64_t from;
    unsigned rounds, notes[KV_NOTE_REPLAY_UNANSWERED + 1], clears;
    uint64_t now;
};

static uint64_t bit(uint32_t block)
{
    return block < BLOCKS ? UINT64_C(1) << block : 0;
}

static struct kv_verdict apply(void *arg, struct span payload, bool waiting)
{
    struct bed *b = arg;
    struct batch x;
    assert_int_equal(payload.n, sizeof x);
    memcpy(&x, payload.p, sizeof x);
    if (x.broken)
        return (struct kv_verdict){.is_batch = false};
    if (x.clear)
        b->index = 0;
    if (x.clear || !waiting) {
        b->index |= bit(x.stored);
        b->index &= ~bit(x.removed);
    }
    b->index_process = x.process;
    return (struct kv_verdict){.is_batch = true, .cleared = x.clear};
}

static void clear(void *arg, bool new_process)
{
    struct bed *b = arg;
    b->index = 0;
    b->clears++;
}

static void trust(void *arg, bool trusted)
{
    struct bed *b = arg;
    b->trusted = trusted;
}

static void replay(void *arg, uint64_t from)
{
    struct bed *b = arg;
    b->round = true;
    b->from = from;
    b->rounds++;
}

static void replay_over(void *arg)
{
    struct bed *b = arg;
    b->round = false;
}

static void note(void *arg, enum kv_note what)
{
    struct bed *b = arg;
    b->notes[what]++;
}

static const struct kv_stream_calls calls = {apply, clear, trust, replay, replay_over, note};

static void bed_init(struct bed *b, bool can_replay, bool resume)
{
    memset(b, 0, sizeof *b);
    rng_seed(&b->rng, 1);
    b->now = 1000;
    kv_stream_init(&b->s, &calls, b, &(struct kv_stream_settings){can_replay, resume});
}

/* The publisher's next batch. */
static unsigned publish(struct bed *b, uint32_t stored, uint32_t removed, bool cleared)
{
    struct publisher *p = &b->p;
    uint64_t held = p->n ? p->held[p->n - 1] : 0;
    p->batch[p->n] =
        (struct batch){.process = p->process, .stored = stored, .removed = removed, .clear = cleared};
    p->held[p->n] = ((cleared ? 0 : held) | bit(stored)) & ~bit(removed);
    return p->n++;
}

static struct span payload_of(struct bed *b, unsigned n)
{
    return span_of((const char *)&b->p.batch[n], sizeof b->p.batch[n]);
}

static void live(struct bed *b, unsigned n)
{
    kv_stream_message(&b->s, n, payload_of(b, n), b->now);
}

static void new_process(struct bed *b)
{
    b->p.process++;
    b->p.n = b->p.first_kept = 0;
}

/* Serves the round that is wanted: batches lost by the way one in <loses>, the end one in <loses> too. */
static void serve(struct bed *b, unsigned loses)
{
    while (b->round) {
        b->round = false;
        unsigned round = b->rounds;
        kv_stream_replay_begins(&b->s, b->now);
        unsigned from = b->from > b->p.first_kept ? (unsigned)b->from : b->p.first_kept;
        for (unsigned n = from; n < b->p.n && b->rounds == round && b->s.state == KV_STREAM_REPLAY; n++)
            if (!loses || rng_below(&b->rng, loses))
                kv_stream_replayed(&b->s, n, payload_of(b, n), b->now);
        if (b->rounds == round && (!loses || rng_below(&b->rng, loses)))
            kv_stream_replay_ends(&b->s, b->now);
        b->now += KV_REPLAY_IDLE_MS + 1;
        kv_stream_tick(&b->s, b->now);
    }
}

static void plain(void **state)
{
    (void)state;
    struct bed b;
    bed_init(&b, false, false);
    kv_stream_connected(&b.s, b.now);
    assert_true(b.trusted); /* nothing said yet is fresh (R12) */
    for (unsigned i = 0; i < 5; i++)
        live(&b, publish(&b, i, BLOCKS, false));
    assert_int_equal(b.index, 0x1f);
    live(&b, 4); /* a duplicate */
    assert_int_equal(b.index, 0x1f);
    assert_int_equal(b.clears, 0);
    publish(&b, 5, 0, false);
    live(&b, publish(&b, 6, BLOCKS, false)); /* one is missing */
    assert_false(b.trusted);
    assert_int_equal(b.notes[KV_NOTE_GAP], 1);
    live(&b, publish(&b, 7, BLOCKS, false));
    assert_false(b.trusted);
    live(&b, publish(&b, 8, BLOCKS, true));
    assert_true(b.trusted);
    assert_int_equal(b.index, 0x100);
    assert_int_equal(b.notes[KV_NOTE_CLEARED], 1);
    /* A new process, seen from its first batch. */
    new_process(&b);
    live(&b, publish(&b, 1, BLOCKS, false));
    assert_true(b.trusted);
    assert_int_equal(b.index, 2);
    assert_int_equal(b.notes[KV_NOTE_RESTART], 1);
    /* The same number, other bytes. */
    b.p.batch[0].stored = 3;
    live(&b, 0);
    assert_int_equal(b.index, 8);
    assert_int_equal(b.notes[KV_NOTE_RESTART], 2);
    /* One that was missed at its beginning: on_gap speaks. */
    for (unsigned i = 0; i < 9; i++)
        live(&b, publish(&b, 9, BLOCKS, false));
    new_process(&b);
    for (unsigned i = 0; i < 3; i++)
        publish(&b, i, BLOCKS, false);
    live(&b, 2);
    assert_false(b.trusted);
    kv_stream_fini(&b.s);
    /* And resumes, if told so. */
    bed_init(&b, false, true);
    kv_stream_connected(&b.s, b.now);
    for (unsigned i = 0; i < 9; i++)
        publish(&b, i, BLOCKS, false);
    live(&b, 3); /* late: from empty on (R11) */
    assert_true(b.trusted);
    assert_int_equal(b.index, 8);
    live(&b, 8);
    assert_true(b.trusted);
    assert_int_equal(b.index, 0x100);
    assert_int_equal(b.notes[KV_NOTE_GAP], 1);
    b.p.batch[b.p.n] = (struct batch){.broken = 1};
    live(&b, b.p.n++); /* no batch: a gap (R4) */
    assert_int_equal(b.index, 0);
    assert_int_equal(b.notes[KV_NOTE_GAP], 2);
    live(&b, publish(&b, 1, BLOCKS, false));
    assert_int_equal(b.index, 2);
    assert_int_equal(b.notes[KV_NOTE_GAP], 2);
    /* Connected anew: who knows what was missed. */
    kv_stream_connected(&b.s, b.now);
    assert_true(b.trusted);
    assert_int_equal(b.index, 0);
    live(&b, publish(&b, 4, BLOCKS, false));
    assert_int_equal(b.index, 16);
    assert_int_equal(b.notes[KV_NOTE_GAP], 2);
    kv_stream_fini(&b.s);
}

static void unanswered(void **state)
{
    (void)state;
    struct bed b;
    bed_init(&b, true, false);
    kv_stream_connected(&b.s, b.now);
    assert_false(b.trusted);
    kv_stream_tick(&b.s, b.now += 100000); /* it is not its turn: no time runs */
    assert_int_equal(b.s.state, KV_STREAM_REPLAY);
    for (int i = 0; i < 2; i++) {
        live(&b, publish(&b, 1, BLOCKS, false));
        assert_true(b.round);
        b.round = false;
        kv_stream_replay_begins(&b.s, b.now);
        kv_stream_tick(&b.s, b.now += KV_REPLAY_IDLE_MS);
    }
    assert_true(b.trusted); /* late, without a history */
    assert_int_equal(b.index, 2);
    assert_int_equal(b.notes[KV_NOTE_REPLAY_UNANSWERED], 1);
    /* Not asked again at once. */
    publish(&b, 3, BLOCKS, false);
    live(&b, publish(&b, 4, BLOCKS, false));
    assert_false(b.round);
    assert_false(b.trusted);
    /* But after a while, as nobody answered: perhaps somebody does now. */
    kv_stream_tick(&b.s, b.now += KV_REPLAY_COOL_MS);
    assert_true(b.round);
    serve(&b, 0);
    assert_true(b.trusted);
    assert_int_equal(b.index, 0x1a);
    kv_stream_fini(&b.s);
}

/* A gap while no replay is due yet: it is fetched later, so that a stream with a history does not stay
 * silent. */
static void cooling(void **state)
{
    (void)state;
    struct bed b;
    bed_init(&b, true, false);
    kv_stream_connected(&b.s, b.now);
    live(&b, publish(&b, 1, BLOCKS, false));
    serve(&b, 0);
    assert_true(b.trusted);
    /* A batch that no replay brings: answered, so asking again would be of no use. */
    unsigned missing = publish(&b, 2, BLOCKS, false), next = publish(&b, 3, BLOCKS, false);
    live(&b, next);
    while (b.round) {
        b.round = false;
        kv_stream_replay_begins(&b.s, b.now);
        if (b.from < missing)
            kv_stream_replayed(&b.s, missing - 1, payload_of(&b, missing - 1), b.now);
        kv_stream_replayed(&b.s, next, payload_of(&b, next), b.now);
    }
    assert_int_equal(b.notes[KV_NOTE_REPLAY_INCOMPLETE], 1);
    assert_false(b.trusted);
    kv_stream_tick(&b.s, b.now + KV_REPLAY_COOL_MAX_MS);
    assert_false(b.round);
    live(&b, publish(&b, 4, BLOCKS, true));
    assert_true(b.trusted);
    /* The next gap comes too soon. */
    publish(&b, 5, BLOCKS, false);
    live(&b, publish(&b, 6, BLOCKS, false));
    assert_false(b.round);
    assert_false(b.trusted);
    kv_stream_tick(&b.s, b.now += KV_REPLAY_COOL_MS - 1);
    assert_false(b.round);
    kv_stream_tick(&b.s, b.now += 1);
    assert_true(b.round);
    serve(&b, 0);
    assert_true(b.trusted);
    assert_int_equal(b.index, b.p.held[b.p.n - 1]);
    kv_stream_fini(&b.s);
}

/* Thousands of steps at random; each time the replay is over, the index is the publisher's, or not trusted,
 * or a part of it that holds. */
static void at_random(void **state)
{
    (void)state;
    unsigned exact = 0, trusted = 0;
    for (unsigned seed = 0; seed < 400; seed++) {
        struct bed b;
        bool can_replay = seed % 4 != 0;
        bed_init(&b, can_replay, seed % 2);
        rng_seed(&b.rng, seed);
        kv_stream_connected(&b.s, b.now);
        bool counts = can_replay && seed % 3 == 0; /* with replays that lose nothing */
        for (unsigned step = 0; step < 300; step++) {
            uint64_t what = rng_below(&b.rng, 100);
            unsigned n = 0;
            bool lost = rng_below(&b.rng, 12) == 0;
            if (what < 3) {
                new_process(&b);
                for (uint64_t k = rng_below(&b.rng, 6); k > 0; k--) /* missed */
                    publish(&b, (uint32_t)rng_below(&b.rng, BLOCKS), BLOCKS, false);
                kv_stream_connected(&b.s, b.now); /* a process has connections of its own */
            } else if (what < 6) {
                kv_stream_connected(&b.s, b.now);
            } else if (what < 8) {
                b.p.first_kept = b.p.n > 5 ? b.p.n - (unsigned)rng_below(&b.rng, 5) : 0;
            }
            n = publish(&b, (uint32_t)rng_below(&b.rng, BLOCKS), (uint32_t)rng_below(&b.rng, BLOCKS + 8),
                        what == 99);
            if (!lost)
                live(&b, n);
            if (rng_below(&b.rng, 2))
                serve(&b, seed % 3 ? 20 : 0);
            b.now += 50;
            kv_stream_tick(&b.s, b.now);
            if (lost || !b.trusted || b.index_process != b.p.process)
                continue;
            trusted += counts;
            assert_int_equal(b.s.last, n);
            assert_int_equal(b.index & ~b.p.held[n], 0); /* never a block that is gone */
            exact += counts && b.index == b.p.held[n];
        }
        kv_stream_fini(&b.s);
    }
    assert_true(exact > trusted / 10 * 9 && trusted > 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain), cmocka_unit_test(unanswered),
                                       cmocka_unit_test(cooling), cmocka_unit_test(at_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
