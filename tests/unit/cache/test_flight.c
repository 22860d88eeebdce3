/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "../net/net_unit.h"
#include "cache/flight.h"
#include "cache_unit.h"

/* --- one thread: what each side sees --- */

struct side {
    struct flight_member m;
    unsigned news;
    struct buf got;
};

static void on_news(struct flight_member *m)
{
    CONTAINER_OF(m, struct side, m)->news++;
}

struct rig {
    struct net_loop loop;
    struct flight_table *table;
    struct cache_digest key;
    struct side leader, a, b;
};

static void side_init(struct side *s)
{
    *s = (struct side){.m.on_news = on_news};
    buf_init(&s->got, 64 << 20);
}

static void rig_init(struct rig *r)
{
    assert_int_equal(net_loop_init(&r->loop, 0), 0);
    r->table = flight_table_new(2);
    r->key = key_number(1);
    side_init(&r->leader);
    side_init(&r->a);
    side_init(&r->b);
    flight_join(r->table, &r->key, &r->loop, true, &r->leader.m);
    assert_true(r->leader.m.leads);
}

static void join(struct rig *r, struct side *s)
{
    flight_join(r->table, &r->key, &r->loop, true, &s->m);
}

static void rig_fini(struct rig *r)
{
    struct side *all[] = {&r->a, &r->b, &r->leader};
    for (unsigned i = 0; i < 3; i++) {
        if (all[i]->m.flight && all[i]->m.leads)
            flight_end(&all[i]->m, FLIGHT_RELEASED, "test", NULL);
        flight_leave(&all[i]->m);
        buf_fini(&all[i]->got);
    }
    turn(&r->loop);
    assert_int_equal(flight_table_count(r->table), 0);
    flight_table_free(r->table);
    net_loop_fini(&r->loop);
}

static void read_all(struct side *s)
{
    for (struct span p; (p = flight_peek(&s->m)).n;) {
        buf_add_span(&s->got, p);
        flight_advance(&s->m, p.n);
    }
}

static enum flight_state state_of(struct side *s, bool *ret_entry)
{
    struct flight_view v;
    flight_look(&s->m, &v);
    if (ret_entry)
        *ret_entry = v.entry != NULL;
    entry_unref(v.entry);
    return v.state;
}

static void say(struct rig *r, const char *text)
{
    flight_append(&r->leader.m, text, strlen(text));
    flight_publish(&r->leader.m);
}

static void stream_is_read_from_its_beginning(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    join(&r, &r.a);
    assert_false(r.a.m.leads);
    assert_int_equal(state_of(&r.a, NULL), FLIGHT_WAITING);
    flight_begin(&r.leader.m, SPAN("x: y\r\n"), true);
    say(&r, "one ");
    RUN_UNTIL(&r.loop, r.a.news > 0);
    read_all(&r.a);
    join(&r, &r.b); /* in the middle */
    read_all(&r.b);
    struct flight_view v;
    flight_look(&r.b.m, &v);
    assert_true(v.state == FLIGHT_OPEN && v.is_stream && span_eq(v.head, SPAN("x: y\r\n")) && !v.entry);
    unsigned before = r.b.news;
    say(&r, "two");
    RUN_UNTIL(&r.loop, r.b.news > before);
    read_all(&r.a);
    read_all(&r.b);
    assert_true(span_eq(buf_view(&r.a.got), SPAN("one two")) && span_eq(buf_view(&r.b.got), SPAN("one two")));
    flight_end(&r.leader.m, FLIGHT_WHOLE, "length", NULL);
    bool entry;
    assert_int_equal(state_of(&r.a, &entry), FLIGHT_WHOLE);
    assert_false(entry);
    rig_fini(&r);
}

static void reply_that_is_no_stream_is_given_whole(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    join(&r, &r.a);
    flight_begin(&r.leader.m, SPAN(""), false);
    say(&r, "{}");
    assert_int_equal(state_of(&r.a, NULL), FLIGHT_OPEN);
    struct cache_purge *p = purge_new();
    struct cache_entry *e = entry_number(p, 7, 0, 10);
    flight_end(&r.leader.m, FLIGHT_WHOLE, NULL, e);
    entry_unref(e);
    flight_leave(&r.leader.m);
    RUN_UNTIL(&r.loop, r.a.news > 0);
    struct flight_view v;
    flight_look(&r.a.m, &v);
    assert_true(v.state == FLIGHT_WHOLE && v.entry && number_of(v.entry) == 7);
    entry_unref(v.entry);
    join(&r, &r.b); /* the flight is over: a new one */
    assert_true(r.b.m.leads);
    rig_fini(&r);
    purge_free(p);
}

static void released(void **state)
{
    (void)state;
    static const struct {
        bool begun, is_stream, drop;
        enum flight_state end, seen;
    } cases[] = {
        {false, false, false, FLIGHT_BROKEN, FLIGHT_RELEASED}, /* nothing had come */
        {true, false, false, FLIGHT_BROKEN, FLIGHT_RELEASED},  /* nothing was given */
        {true, true, false, FLIGHT_BROKEN, FLIGHT_BROKEN},
        {true, false, false, FLIGHT_WHOLE, FLIGHT_RELEASED}, /* whole, but nothing that others may get */
        {true, true, false, FLIGHT_WHOLE, FLIGHT_WHOLE},
        {true, true, true, FLIGHT_WHOLE, FLIGHT_WHOLE},
        {true, false, true, FLIGHT_OPEN, FLIGHT_RELEASED}, /* too large */
        {true, true, true, FLIGHT_OPEN, FLIGHT_OPEN},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r;
        rig_init(&r);
        join(&r, &r.a);
        if (cases[i].begun)
            flight_begin(&r.leader.m, SPAN(""), cases[i].is_stream);
        if (cases[i].drop)
            flight_drop_capture(&r.leader.m, "too_large");
        if (cases[i].end != FLIGHT_OPEN)
            flight_end(&r.leader.m, cases[i].end, "why", NULL);
        assert_int_equal(state_of(&r.a, NULL), cases[i].seen);
        RUN_UNTIL(&r.loop, r.a.news > 0);
        rig_fini(&r);
    }
}

static void too_large_goes_on_for_its_readers(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    join(&r, &r.a);
    flight_begin(&r.leader.m, SPAN(""), true);
    say(&r, "one");
    flight_drop_capture(&r.leader.m, "too_large");
    join(&r, &r.b);
    assert_true(r.b.m.leads); /* the beginning is gone, so a flight of its own */
    flight_end(&r.b.m, FLIGHT_RELEASED, "test", NULL);
    flight_leave(&r.b.m);
    say(&r, "two");
    read_all(&r.a);
    assert_true(span_eq(buf_view(&r.a.got), SPAN("onetwo")));
    rig_fini(&r);
}

static void leader_goes_on_for_others_only(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    join(&r, &r.a);
    assert_true(flight_goes_on(&r.leader.m));
    flight_leave(&r.a.m);
    RUN_UNTIL(&r.loop, r.leader.news > 0); /* nobody is left */
    join(&r, &r.a);
    assert_false(r.a.m.leads);
    assert_true(flight_goes_on(&r.leader.m)); /* somebody came meanwhile */
    flight_leave(&r.a.m);
    assert_false(flight_goes_on(&r.leader.m));
    join(&r, &r.b);
    assert_true(r.b.m.leads); /* it is not found any more */
    rig_fini(&r);
}

static void pauses_when_all_lag(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    flight_begin(&r.leader.m, SPAN(""), true);
    say(&r, "one");
    assert_true(flight_set_lags(&r.leader.m, true)); /* alone */
    join(&r, &r.a);
    RUN_UNTIL(&r.loop, r.leader.news > 0); /* may go on */
    flight_append(&r.leader.m, "x", 1);
    assert_false(flight_publish(&r.leader.m));
    flight_set_lags(&r.a.m, true);
    flight_append(&r.leader.m, "x", 1);
    assert_true(flight_publish(&r.leader.m));
    unsigned before = r.leader.news;
    flight_set_lags(&r.a.m, false);
    RUN_UNTIL(&r.loop, r.leader.news > before);
    rig_fini(&r);
}

/* Followers that wait for the whole are not kept by the leader's client. */
static void slow_leader_of_a_whole_reply(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    flight_begin(&r.leader.m, SPAN(""), false);
    join(&r, &r.a);
    assert_false(flight_set_lags(&r.leader.m, true));
    flight_append(&r.leader.m, "x", 1);
    assert_false(flight_publish(&r.leader.m));
    rig_fini(&r);
}

static void laggard_is_cut_off(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    join(&r, &r.a);
    join(&r, &r.b);
    flight_begin(&r.leader.m, SPAN(""), true);
    flight_drop_capture(&r.leader.m, "too_large");
    flight_set_lags(&r.a.m, true);
    char *block = calloc(1, 65536);
    for (unsigned i = 0; i < 2 * FLIGHT_LAG_MAX / 65536; i++) {
        flight_append(&r.leader.m, block, 65536);
        assert_false(flight_publish(&r.leader.m));
        read_all(&r.b);
        assert_false(flight_is_cut(&r.b.m));
    }
    assert_true(flight_is_cut(&r.a.m));
    assert_int_equal(r.b.got.n, 2 * FLIGHT_LAG_MAX);
    free(block);
    rig_fini(&r);
}

static void leader_reads_behind_its_client(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    flight_begin(&r.leader.m, SPAN(""), true);
    say(&r, "sent ");
    flight_read_from_here(&r.leader.m);
    say(&r, "later");
    read_all(&r.leader);
    assert_true(span_eq(buf_view(&r.leader.got), SPAN("later")));
    struct buf all;
    buf_init(&all, 100);
    assert_true(flight_gather(&r.leader.m, &all));
    assert_true(span_eq(buf_view(&all), SPAN("sent later")));
    buf_fini(&all);
    rig_fini(&r);
}

/* --- threads: what comes out is what went in --- */

enum { LOOPS = 3, FOLLOWERS = 24, ROUNDS = 30, TEXT = 300000 };

struct reader {
    struct flight_member m;
    struct player *player;
    uint64_t got, hash;
    unsigned leaves_after; /* bytes; 0 = stays */
    bool over;
};

struct player {
    struct net_loop loop;
    uv_thread_t thread;
    struct flight_table *table;
    struct cache_digest key;
    struct reader readers[FOLLOWERS];
    struct reader leader;
    uv_timer_t timer;
    struct rng rng;
    unsigned joined, over, wrong, led;
    size_t sent;
    bool leads, quits;
};

static char text[TEXT];

static void reader_over(struct reader *r)
{
    flight_leave(&r->m);
    if (r->over)
        return;
    r->over = true;
    r->player->over++;
}

static void read_news(struct flight_member *m)
{
    struct reader *r = CONTAINER_OF(m, struct reader, m);
    if (r->over)
        return;
    struct flight_view v;
    flight_look(m, &v);
    entry_unref(v.entry);
    for (struct span p; (p = flight_peek(m)).n;) {
        size_t n = rng_below(&r->player->rng, p.n) + 1;
        if (memcmp(p.p, text + r->got, n) != 0)
            r->player->wrong++;
        r->got += n;
        flight_advance(m, n);
        if (r->leaves_after && r->got >= r->leaves_after) {
            reader_over(r);
            return;
        }
    }
    if (v.state > FLIGHT_OPEN) {
        if (v.state == FLIGHT_WHOLE && r->got != TEXT)
            r->player->wrong++;
        reader_over(r);
    }
}

static void leader_news(struct flight_member *m)
{
    (void)m;
}

static void tick(uv_timer_t *t)
{
    struct player *p = t->data;
    if (p->leads && p->leader.m.flight) {
        for (unsigned i = 0; i < 4 && p->sent < TEXT; i++) {
            size_t n = rng_below(&p->rng, 5000) + 1;
            n = n < TEXT - p->sent ? n : TEXT - p->sent;
            flight_append(&p->leader.m, text + p->sent, n);
            p->sent += n;
        }
        flight_publish(&p->leader.m);
        if (p->sent == TEXT) {
            flight_end(&p->leader.m, FLIGHT_WHOLE, "test", NULL);
            flight_leave(&p->leader.m);
        }
    }
    for (unsigned i = 0; i < 3 && p->joined < FOLLOWERS; i++) {
        struct reader *r = &p->readers[p->joined++];
        flight_join(p->table, &p->key, &p->loop, false, &r->m);
        if (!r->m.flight) {
            r->over = true;
            p->over++;
        } else {
            p->led++;
            read_news(&r->m);
        }
    }
    if (p->joined == FOLLOWERS && p->over == FOLLOWERS && !p->leader.m.flight) {
        uv_timer_stop(t);
        uv_close((uv_handle_t *)t, NULL);
    }
}

static void play(void *arg)
{
    net_loop_run(&((struct player *)arg)->loop);
}

static void threads_read_what_was_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEXT; i++)
        text[i] = (char)(i * 2654435761u >> 13);
    static struct player players[LOOPS];
    unsigned followed = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct flight_table *t = flight_table_new(LOOPS);
        for (unsigned i = 0; i < LOOPS; i++) {
            struct player *p = &players[i];
            *p = (struct player){.table = t, .key = key_number(round), .leads = i == 0};
            assert_int_equal(net_loop_init(&p->loop, i), 0);
            rng_seed(&p->rng, round * 10 + i);
            for (unsigned k = 0; k < FOLLOWERS; k++) {
                p->readers[k] = (struct reader){.m.on_news = read_news, .player = p};
                if (k % 3 == 0)
                    p->readers[k].leaves_after = (unsigned)rng_below(&p->rng, TEXT) + 1;
            }
            p->leader.m.on_news = leader_news;
            uv_timer_init(&p->loop.uv, &p->timer);
            p->timer.data = p;
            uv_timer_start(&p->timer, tick, 0, 1);
        }
        flight_join(t, &players[0].key, &players[0].loop, true, &players[0].leader.m);
        flight_begin(&players[0].leader.m, SPAN(""), true);
        for (unsigned i = 0; i < LOOPS; i++)
            assert_int_equal(uv_thread_create(&players[i].thread, play, &players[i]), 0);
        for (unsigned i = 0; i < LOOPS; i++) {
            uv_thread_join(&players[i].thread);
            assert_int_equal(players[i].wrong, 0);
            followed += players[i].led;
        }
        assert_int_equal(flight_table_count(t), 0);
        flight_table_free(t);
        for (unsigned i = 0; i < LOOPS; i++)
            net_loop_fini(&players[i].loop);
    }
    assert_true(followed > ROUNDS * FOLLOWERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_is_read_from_its_beginning),
        cmocka_unit_test(reply_that_is_no_stream_is_given_whole),
        cmocka_unit_test(released),
        cmocka_unit_test(too_large_goes_on_for_its_readers),
        cmocka_unit_test(leader_goes_on_for_others_only),
        cmocka_unit_test(pauses_when_all_lag),
        cmocka_unit_test(slow_leader_of_a_whole_reply),
        cmocka_unit_test(laggard_is_cut_off),
        cmocka_unit_test(leader_reads_behind_its_client),
        cmocka_unit_test(threads_read_what_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
