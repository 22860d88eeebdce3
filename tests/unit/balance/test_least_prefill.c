/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "balance/block_chain.h"
#include "balance/prefill_claims.h"
#include "base/hash.h"
#include "fleet/prefill.h"

enum { LONG = 500 };

/* Keys of a prompt: <shared> blocks of family <a>, then its own. */
struct prompt {
    uint64_t key[LONG];
    uint32_t n;
};

static void make_prompt(struct prompt *p, uint64_t family, uint32_t shared, uint64_t own, uint32_t n)
{
    p->n = n;
    for (uint32_t i = 0; i < n; i++)
        p->key[i] = hash_mix(i ? p->key[i - 1] : 1, i < shared ? family : own) | 1;
}

static void pool_with_cache(struct pool *p, unsigned n, uint64_t cache_tokens, double home_bonus)
{
    struct strategy_settings s = STRATEGY_SETTINGS_DEFAULT;
    s.home_bonus = home_bonus;
    pool_init(p, STRATEGY_ROUND_ROBIN, n, NULL);
    balancer_unref(p->balancer);
    for (unsigned i = 0; i < n; i++)
        p->targets[i].cache_tokens = cache_tokens;
    p->balancer = balancer_new(STRATEGY_LEAST_PREFILL, p->targets, n, &s, NULL);
}

static struct provider *provider_of(struct pool *p, unsigned i)
{
    return target_provider(p->targets[i].target);
}

static struct pick pick_at(struct pool *p, const struct prompt *q, uint64_t now_us)
{
    struct request r;
    request_init(&r, p);
    r.c.now_us = now_us;
    r.c.now_ms = now_us / 1000;
    r.c.blocks = (struct prompt_blocks){q->key, q->n, (uint64_t)q->n * BLOCK_BYTES, q->n ? q->key[0] : 0};
    struct pick got = balance_pick(p->balancer, &r.c);
    assert_true(got.index >= 0);
    balance_record(p->balancer, &r.c.blocks, &got.receipt);
    return got;
}

/* One request from its pick to its end, at once; cached < 0: nothing is reported. */
static unsigned serve(struct pool *p, const struct prompt *q, double cached_share)
{
    struct pick got = pick_at(p, q, 1000);
    struct prompt_usage u = {.tokens = q->n * 16, .cached_known = cached_share >= 0};
    u.cached = u.cached_known ? (uint64_t)(cached_share * q->n * 16 + 0.5) : 0;
    balance_first_token(p->balancer, &got.receipt, 1000, false);
    balance_learn(p->balancer, &got.receipt, &u);
    return (unsigned)got.index;
}

static void assert_nothing_charged(struct pool *p)
{
    for (unsigned i = 0; i < p->n; i++) {
        assert_int_equal(provider_prefill_charged(provider_of(p, i)), 0);
        assert_int_equal(provider_prefill_open(provider_of(p, i)), 0);
    }
}

static void test_cold_prompts_spread(void **state)
{
    struct pool p;
    struct prompt q;
    unsigned n[3] = {0};
    pool_with_cache(&p, 3, 0, 0);
    for (uint64_t i = 0; i < 24; i++) {
        make_prompt(&q, 1, 4, 100 + i, 60); /* a common beginning below a tenth */
        n[serve(&p, &q, -1)]++;
    }
    assert_int_equal(n[0], 8);
    assert_int_equal(n[1], 8);
    assert_int_equal(n[2], 8);
    struct prompt none = {.n = 0}; /* no prompt at all: by turns among the least warm */
    for (unsigned i = 0; i < 3; i++)
        n[serve(&p, &none, -1)]++;
    assert_true(n[0] == 9 && n[1] == 9 && n[2] == 9);
    assert_nothing_charged(&p);
    pool_fini(&p);
}

static void test_conversations_stay(void **state)
{
    struct pool p;
    struct prompt q;
    unsigned home[6];
    pool_with_cache(&p, 3, 0, 0);
    for (unsigned round = 0; round < 5; round++)
        for (unsigned i = 0; i < 6; i++) {
            make_prompt(&q, 50 + i, 40 + round * 10, 1000 + round, 45 + round * 10);
            unsigned to = serve(&p, &q, -1);
            home[i] = round == 0 ? to : home[i];
            assert_int_equal(to, home[i]);
        }
    pool_fini(&p);
}

/* The example of docs/strategies.md: 6,000 tokens, 5,500 cached at target 0. */
static void test_waiting_against_caching(void **state)
{
    struct pool p;
    struct prompt first, q;
    pool_with_cache(&p, 3, 0, 0);
    make_prompt(&first, 7, 344, 7, 344);
    make_prompt(&q, 7, 344, 8, 375);
    unsigned warm = serve(&p, &first, -1);
    provider_prefill_begin(provider_of(&p, warm), 9000, 1000);
    struct pick got = pick_at(&p, &q, 1000); /* 9,000 + 3 * 496 < 3 * 6,000 */
    assert_int_equal(got.index, warm);
    assert_int_equal(got.why.backlog, 9000);
    assert_int_equal(got.why.uncached, 31 * 16);
    assert_int_equal(got.receipt.prefill.depth, 344);
    assert_int_equal(provider_prefill_charged(provider_of(&p, warm)), 9000 + 31 * 16);
    balance_first_token(p.balancer, &got.receipt, 1000, false);
    balance_withdraw(p.balancer, &got.receipt);
    provider_prefill_begin(provider_of(&p, warm), 11000, 1000);
    got = pick_at(&p, &q, 1000);
    assert_int_not_equal(got.index, warm);
    assert_int_equal(got.why.uncached, 375 * 16);
    balance_first_token(p.balancer, &got.receipt, 1000, false);
    balance_first_token(p.balancer, &got.receipt, 1000, false); /* the second time is nothing */
    provider_prefill_end(provider_of(&p, warm), 9000, 0, 1000);
    provider_prefill_end(provider_of(&p, warm), 11000, 0, 1000);
    assert_nothing_charged(&p);
    pool_fini(&p);
}

static void test_a_failed_attempt_leaves_nothing(void **state)
{
    struct pool p;
    struct prompt q;
    pool_with_cache(&p, 2, 0, 0);
    make_prompt(&q, 3, 100, 3, 100);
    struct pick got = pick_at(&p, &q, 1000);
    balance_first_token(p.balancer, &got.receipt, 1000, false);
    balance_withdraw(p.balancer, &got.receipt);
    assert_true(pick_at(&p, &q, 1000).why.share == 0);
    pool_fini(&p);
}

/* Between a pick and its record siblings see that it is coming, by half at least; a pick that was given up in
 * between leaves nothing. */
static void test_a_pick_is_recorded_when_told(void **state)
{
    struct pool p;
    struct prompt q, sibling;
    struct request r;
    pool_with_cache(&p, 2, 0, 0);
    make_prompt(&q, 3, 130, 3, 140);
    make_prompt(&sibling, 3, 130, 4, 140);
    request_init(&r, &p);
    r.c.now_us = 1000;
    r.c.blocks = (struct prompt_blocks){q.key, q.n, 140 * BLOCK_BYTES, q.key[0]};
    struct pick given_up = balance_pick(p.balancer, &r.c);
    balance_first_token(p.balancer, &given_up.receipt, 1000, false);
    balance_withdraw(p.balancer, &given_up.receipt); /* never recorded */
    struct pick first = balance_pick(p.balancer, &r.c);
    assert_true(first.why.share == 0);
    r.c.blocks.key = sibling.key;
    struct pick second = balance_pick(p.balancer, &r.c);
    assert_int_equal(second.index, first.index);
    assert_int_equal(second.receipt.prefill.depth, 127);
    r.c.blocks.key = q.key;
    balance_record(p.balancer, &r.c.blocks, &first.receipt);
    r.c.blocks.key = sibling.key;
    balance_record(p.balancer, &r.c.blocks, &second.receipt);
    assert_int_equal(second.receipt.prefill.settled, 0); /* the first one is still being read */
    assert_int_equal(second.receipt.prefill.mirror.before, 130);
    struct pick third = pick_at(&p, &q, 1000);
    assert_int_equal(third.index, first.index);
    assert_true(third.why.share == 1);
    balance_first_token(p.balancer, &first.receipt, 1000, false);
    balance_first_token(p.balancer, &second.receipt, 1000, false);
    balance_first_token(p.balancer, &third.receipt, 1000, false);
    assert_nothing_charged(&p);
    pool_fini(&p);
}

/* More claims than there is room for. */
static void test_claims_without_room(void **state)
{
    enum { N = CLAIMS_MAX + 5 };
    static struct prefill_claims c;
    uint32_t id[N], lane;
    struct prompt q, other;
    make_prompt(&q, 5, 200, 5, 200);
    make_prompt(&other, 6, 200, 6, 200);
    for (unsigned i = 0; i < N; i++) {
        id[i] = prefill_claim_begin(&c, i, q.key, q.n);
        assert_int_equal(id[i] != 0, i < CLAIMS_MAX);
    }
    assert_int_equal(prefill_claim_match(&c, 7, q.key, q.n, &lane), 127);
    assert_int_equal(lane, 7);
    assert_int_equal(prefill_claim_match(&c, 7, q.key, 20, &lane), 15);
    assert_int_equal(prefill_claim_match(&c, 7, other.key, other.n, &lane), 0);
    for (unsigned i = 0; i < N; i++)
        prefill_claim_end(&c, id[i]);
    assert_true(c.shown == 0 && c.taken == 0);
}

/* Siblings before the first token: all but a few follow the first, until waiting costs more. */
static void test_siblings(void **state)
{
    struct pool p;
    struct prompt q;
    unsigned n[8] = {0};
    pool_with_cache(&p, 8, 0, 0);
    for (uint64_t i = 0; i < 64; i++) {
        make_prompt(&q, 9, 496, 200 + i, 500); /* 8,000 tokens, of which 64 are its own */
        n[pick_at(&p, &q, 1000 + i).index]++;
    }
    unsigned used = 0;
    for (unsigned i = 0; i < 8; i++)
        used += n[i] > 0;
    assert_true(used <= 2);
    for (uint64_t i = 0; i < 2000; i++) { /* many more are worth a second and third copy, not eight */
        make_prompt(&q, 9, 496, 1000 + i, 500);
        n[pick_at(&p, &q, 2000 + i).index]++;
    }
    used = 0;
    for (unsigned i = 0; i < 8; i++)
        used += n[i] > 0;
    assert_true(used > 2);
    pool_fini(&p);
}

static void test_full_engines_are_left_alone(void **state)
{
    struct pool p;
    struct prompt q;
    pool_with_cache(&p, 3, 0, 0);
    for (unsigned i = 0; i < 3; i++)
        provider_configure(provider_of(&p, i), &(struct provider_settings){.engine_fresh_ms = 1000});
    make_prompt(&q, 4, 100, 4, 100);
    unsigned warm = serve(&p, &q, -1);
    struct engine_metrics full = {.kv_usage = 0.97, .waiting = 0, .running = 1};
    provider_set_engine(provider_of(&p, warm), &full, 1);
    assert_true(provider_is_full(provider_of(&p, warm), 500));
    assert_int_not_equal(pick_at(&p, &q, 500000).index, warm);
    assert_int_equal(pick_at(&p, &q, 5000000).index != -1, 1); /* not fresh any more */
    assert_false(provider_is_full(provider_of(&p, warm), 5000));
    for (unsigned i = 0; i < 3; i++)
        provider_set_engine(provider_of(&p, i), &full, 6000);
    make_prompt(&q, 5, 300, 5, 300);
    assert_true(pick_at(&p, &q, 6000000).index >= 0); /* all are: as if none were */
    pool_fini(&p);
}

/* Target 1 reads five times as fast: it is worth a longer queue. */
static void test_mixed_hardware(void **state)
{
    struct pool p;
    struct prompt q;
    unsigned n[2] = {0};
    pool_with_cache(&p, 2, 0, 0);
    for (unsigned i = 0; i < 8; i++)
        for (unsigned t = 0; t < 2; t++) {
            uint64_t at = 1000000 * (i + 1);
            provider_prefill_begin(provider_of(&p, t), 4000, at);
            provider_prefill_end(provider_of(&p, t), 4000, at, at + (t ? 100000 : 500000));
        }
    assert_true(fabs(provider_prefill_rate(provider_of(&p, 0), 10000000) - 8000) < 10);
    assert_true(fabs(provider_prefill_rate(provider_of(&p, 1), 10000000) - 40000) < 10);
    for (uint64_t i = 0; i < 60; i++) {
        make_prompt(&q, 300 + i, 400, 1, 400);
        n[pick_at(&p, &q, 20000000).index]++;
    }
    assert_true(n[1] >= 47 && n[1] <= 53); /* five sixths */
    pool_fini(&p);
}

/* Eight prompts of 4,000 tokens, each read in <us>, the last one by <at>. */
static void read_eight(struct provider *x, uint64_t us, uint64_t at)
{
    for (uint64_t i = 0; i < 8; i++) {
        uint64_t from = at - (8 - i) * us;
        provider_prefill_begin(x, 4000, from);
        provider_prefill_end(x, 4000, from, from + us);
    }
}

/* Target 1 was slow for a while and got nothing from then on: after five minutes it is taken for one like the
 * others, and what it shows then is what counts. */
static void test_a_slow_time_is_forgotten(void **state)
{
    enum { MINUTE = 60000000 };
    struct pool p;
    struct prompt q;
    unsigned n[2] = {0};
    pool_with_cache(&p, 2, 0, 0);
    struct provider *fast = provider_of(&p, 0), *slow = provider_of(&p, 1);
    read_eight(fast, 500000, 1 * MINUTE);
    read_eight(slow, 5000000, 1 * MINUTE);
    read_eight(fast, 500000, 5 * MINUTE);
    assert_true(fabs(provider_prefill_rate(slow, 6 * MINUTE) - 800) < 1);
    assert_true(provider_prefill_rate(slow, 6 * MINUTE + 1) == 0);
    assert_true(fabs(provider_prefill_rate(fast, 6 * MINUTE + 1) - 8000) < 10);
    for (uint64_t i = 0; i < 60; i++) {
        make_prompt(&q, 300 + i, 400, 1, 400);
        n[pick_at(&p, &q, 7 * MINUTE).index]++;
    }
    assert_in_range(n[1], 28, 32);
    assert_true(provider_prefill_rate(slow, 7 * MINUTE) == 0); /* asked anew, nothing shown yet */
    assert_true(fabs(provider_prefill_rate(fast, 7 * MINUTE) - 8000) < 10);
    pool_fini(&p);
}

/* Progress between first tokens, but not of an engine that hangs. */
static void test_backlog_shrinks(void **state)
{
    struct pool p;
    pool_with_cache(&p, 2, 0, 0);
    struct provider *x = provider_of(&p, 0);
    for (unsigned i = 0; i < 8; i++) {
        provider_prefill_begin(x, 8000, 1000000 * (i + 1));
        provider_prefill_end(x, 8000, 1000000 * (i + 1), 1000000 * (i + 2));
    }
    provider_prefill_begin(x, 8000, 20000000);
    provider_prefill_begin(x, 8000, 20000000);
    assert_true(fabs(provider_prefill_backlog(x, 20500000) - 12000) < 10);
    assert_true(fabs(provider_prefill_backlog(x, 90000000) - 8000) < 10);
    provider_prefill_end(x, 8000, 20000000, 90000000);
    provider_prefill_end(x, 8000, 0, 90000000);
    assert_nothing_charged(&p);
    pool_fini(&p);
}

static void test_a_new_replica_ramps_up(void **state)
{
    struct pool p;
    struct prompt q;
    pool_with_cache(&p, 3, 0, 0);
    for (unsigned t = 0; t < 2; t++)
        for (unsigned i = 0; i < 10; i++) {
            provider_prefill_begin(provider_of(&p, t), 1000, 1000);
            provider_prefill_end(provider_of(&p, t), 1000, 1000, 126000);
        }
    unsigned n[3] = {0};
    for (uint64_t i = 0; i < 30; i++) { /* cold prompts at once: the newcomer gets one */
        make_prompt(&q, 700 + i, 100, 1, 100);
        n[pick_at(&p, &q, 200000).index]++;
    }
    assert_int_equal(n[2], 1);
    assert_true(n[0] + n[1] == 29);
    for (unsigned i = 0; i < 8; i++) {
        provider_prefill_begin(provider_of(&p, 2), 1000, 1000);
        provider_prefill_end(provider_of(&p, 2), 1000, 1000, 126000);
    }
    make_prompt(&q, 800, 100, 1, 100);
    assert_int_equal(pick_at(&p, &q, 200000).index, 2);
    pool_fini(&p);
}

/* Two gateways that do not talk send a conversation to the same replica. */
static void test_home(void **state)
{
    struct pool a, b;
    struct prompt q;
    unsigned same = 0, moved = 0;
    pool_with_cache(&a, 8, 0, 0.6);
    pool_with_cache(&b, 7, 0, 0.6);
    for (uint64_t i = 0; i < 200; i++) {
        make_prompt(&q, 900 + i, 100, 1, 100);
        unsigned x = serve(&a, &q, -1), y = serve(&b, &q, -1), z = serve(&a, &q, -1);
        assert_int_equal(x, z);
        same += x == y;
        moved += x != y && x != 7;
    }
    assert_int_equal(moved, 0); /* only the eighth one's conversations are elsewhere without it */
    assert_true(same > 150);
    pool_fini(&a);
    pool_fini(&b);
}

static void test_reload_and_restart(void **state)
{
    struct pool p;
    struct prompt q;
    pool_with_cache(&p, 3, 0, 0);
    make_prompt(&q, 2, 200, 2, 200);
    unsigned warm = serve(&p, &q, -1);
    struct target *who = p.targets[warm].target;
    struct pool_target turned[3] = {p.targets[2], p.targets[0], p.targets[1]};
    struct balancer *next = balancer_new(STRATEGY_LEAST_PREFILL, turned, 3, NULL, p.balancer);
    balancer_unref(p.balancer);
    p.balancer = next;
    memcpy(p.targets, turned, sizeof turned);
    struct pick got = pick_at(&p, &q, 1000);
    assert_ptr_equal(p.targets[got.index].target, who);
    assert_true(got.why.share == 1);
    balance_first_token(p.balancer, &got.receipt, 1000, false);
    struct provider *x = target_provider(who);
    struct engine_metrics m = {.start_time_secs = 100};
    provider_set_engine(x, &m, 1);
    m.start_time_secs = 200;
    provider_set_engine(x, &m, 2);
    got = pick_at(&p, &q, 3000);
    assert_true(got.why.share == 0);
    bool is_news;
    unsigned resets = 0;
    for (unsigned i = 0; i < 3; i++)
        resets += balance_take_resets(p.balancer, i, MIRROR_RESTARTED, &is_news);
    assert_int_equal(resets, 1);
    pool_fini(&p);
}

/* Picks that may not use the restarted one in between, and a second one that restarts meanwhile. */
static void test_restarts_beside_other_picks(void **state)
{
    struct pool p;
    struct prompt q[2];
    unsigned warm[2];
    bool is_news;
    pool_with_cache(&p, 4, 0, 0);
    for (unsigned i = 0; i < 2; i++) {
        make_prompt(&q[i], 20 + i, 200, 2, 200);
        warm[i] = serve(&p, &q[i], -1);
        assert_true(pick_at(&p, &q[i], 1000).why.share == 1);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct request r;
        provider_raise_generation(provider_of(&p, warm[i]));
        request_init(&r, &p);
        r.c.now_us = 1000;
        r.c.blocks = (struct prompt_blocks){q[i].key, q[i].n, 200 * BLOCK_BYTES, q[i].key[0]};
        r.c.eligible.one &= ~((uint64_t)1 << warm[i]);
        struct pick other = balance_pick(p.balancer, &r.c);
        assert_int_not_equal(other.index, warm[i]);
        balance_first_token(p.balancer, &other.receipt, 1000, false);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_true(pick_at(&p, &q[i], 3000).why.share == 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(balance_take_resets(p.balancer, warm[i], MIRROR_RESTARTED, &is_news), 1);
    pool_fini(&p);
}

/* A replica that forgot everything and does not say so. */
static void test_lies_are_found_out(void **state)
{
    enum { TALKS = 12 };
    struct pool p;
    struct prompt q[TALKS];
    bool is_news;
    pool_with_cache(&p, 2, 100000, 0);
    for (unsigned i = 0; i < TALKS; i++) {
        make_prompt(&q[i], 40 + i, 300, 1, 300);
        serve(&p, &q[i], 0);
    }
    for (unsigned i = 0; i < 5 * TALKS; i++)
        serve(&p, &q[i % TALKS], 1);
    assert_int_equal(balance_take_resets(p.balancer, 0, MIRROR_DROPPED, &is_news), 0);
    unsigned asked = 0, dropped = 0;
    for (unsigned i = 0; i < 5 * TALKS && !dropped; i++) { /* target 0 finds nothing any more */
        struct pick got = pick_at(&p, &q[i % TALKS], 1000);
        struct prompt_usage u = {.tokens = 4800, .cached_known = true, .cached = got.index ? 4800 : 0};
        balance_first_token(p.balancer, &got.receipt, 1000, false);
        balance_learn(p.balancer, &got.receipt, &u);
        asked += got.index == 0;
        dropped = balance_take_resets(p.balancer, 0, MIRROR_DROPPED, &is_news);
    }
    assert_int_equal(dropped, 1);
    assert_true(is_news);
    assert_true(asked <= 20);
    /* A reply without cached_tokens says 0 where they were reported before (R15). */
    unsigned silent = 0;
    for (unsigned i = 0; i < 20 * TALKS && !silent; i++) {
        serve(&p, &q[i % TALKS], -1);
        silent = balance_take_resets(p.balancer, 1, MIRROR_DROPPED, &is_news);
    }
    assert_int_equal(silent, 1);
    pool_fini(&p);
}

/* A target that gets the place of one that is gone has learnt nothing of it. */
static void test_a_place_of_another(void **state)
{
    enum { N = 64, POOLS = 3 };
    static struct pool p;
    struct prompt q;
    bool is_news;
    pool_with_cache(&p, N, 100000, 0);
    make_prompt(&q, 3, 300, 1, 300);
    serve(&p, &q, 0);
    for (unsigned i = 0; i < 40; i++)
        serve(&p, &q, 0);                  /* its mirror is dropped, and nobody has asked yet */
    for (unsigned k = 1; k < POOLS; k++) { /* the second pool fills the places that are left */
        for (unsigned i = 0; i < N; i++) {
            char name[32];
            snprintf(name, sizeof name, "pool %u, %u", k, i);
            p.targets[i].target = fleet_target_get(p.fleet, name, "http://h", "m");
        }
        struct balancer *next = balancer_new(STRATEGY_LEAST_PREFILL, p.targets, N, NULL, p.balancer);
        balancer_unref(p.balancer);
        p.balancer = next;
    }
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(balance_take_resets(p.balancer, i, MIRROR_DROPPED, &is_news), 0);
    pool_fini(&p);
}

static void test_nobody_reports(void **state)
{
    struct pool p;
    struct prompt q;
    bool is_news;
    pool_with_cache(&p, 2, 0, 0);
    make_prompt(&q, 6, 200, 6, 200);
    for (unsigned i = 0; i < 100; i++)
        serve(&p, &q, -1);
    for (unsigned why = 0; why < MIRROR_RESET_COUNT; why++)
        assert_int_equal(balance_take_resets(p.balancer, 0, (enum mirror_reset)why, &is_news) +
                             balance_take_resets(p.balancer, 1, (enum mirror_reset)why, &is_news),
                         0);
    pool_fini(&p);
}

/* The second of two siblings may or may not find what the first is computing: neither is a lie. */
static void test_what_is_open_is_not_claimed(void **state)
{
    struct pool p;
    struct prompt q;
    bool is_news;
    pool_with_cache(&p, 1, 0, 0);
    for (uint64_t i = 0; i < 40; i++) {
        make_prompt(&q, 60 + i, 200, 1, 200);
        struct pick a = pick_at(&p, &q, 1000), b = pick_at(&p, &q, 1000);
        assert_int_equal(b.receipt.prefill.depth, 200);
        assert_int_equal(b.receipt.prefill.settled, 0);
        struct prompt_usage none = {.tokens = 3200, .cached_known = true};
        balance_first_token(p.balancer, &a.receipt, 1000, false);
        balance_first_token(p.balancer, &b.receipt, 1000, false);
        assert_true(balance_learn(p.balancer, &a.receipt, &none) == 0);
        assert_true(balance_learn(p.balancer, &b.receipt, &none) == 0);
        struct pick c = pick_at(&p, &q, 1000);
        assert_int_equal(c.receipt.prefill.settled, 200);
        balance_first_token(p.balancer, &c.receipt, 1000, false);
    }
    assert_int_equal(balance_take_resets(p.balancer, 0, MIRROR_DROPPED, &is_news), 0);
    pool_fini(&p);
}

static void test_bytes_of_a_token_are_learnt(void **state)
{
    struct pool p;
    struct prompt q;
    pool_with_cache(&p, 1, 64000, 0);
    make_prompt(&q, 6, 200, 6, 200); /* 12,800 bytes: 3,200 tokens until somebody counts */
    struct pick got = pick_at(&p, &q, 1000);
    assert_int_equal(got.why.uncached, 3200);
    balance_first_token(p.balancer, &got.receipt, 1000, false);
    balance_learn(p.balancer, &got.receipt, &(struct prompt_usage){.tokens = 6400});
    make_prompt(&q, 8, 200, 6, 200);
    got = pick_at(&p, &q, 1000);
    assert_int_equal(got.why.uncached, 6400);
    balance_first_token(p.balancer, &got.receipt, 1000, false);
    balance_tend(p.balancer); /* the mirror holds half as many blocks now */
    for (uint64_t i = 0; i < 40; i++) {
        make_prompt(&q, 100 + i, 200, 6, 200);
        serve(&p, &q, -1);
    }
    make_prompt(&q, 130, 200, 6, 200); /* the last ten prompts are 2,000 blocks, and that is all there is */
    assert_true(pick_at(&p, &q, 1000).why.share > 0.9F);
    make_prompt(&q, 128, 200, 6, 200);
    assert_true(pick_at(&p, &q, 1000).why.share < 0.1F);
    pool_fini(&p);
}

static void test_what_a_mirror_holds(void **state)
{
    struct pool p;
    struct prompt q;
    struct mirror_stats m;
    pool_with_cache(&p, 2, 64000, 0);
    make_prompt(&q, 6, 200, 6, 200);
    struct pick got = pick_at(&p, &q, 1000);
    assert_true(pick_predicted_share(&got) == 0);
    assert_true(balancer_mirror_stats(p.balancer, (unsigned)got.index, &m));
    assert_int_equal(m.blocks, 200);
    assert_true(balancer_mirror_stats(p.balancer, 1 - (unsigned)got.index, &m));
    assert_int_equal(m.blocks, 0);
    got = pick_at(&p, &q, 1000);
    assert_true(pick_predicted_share(&got) == 1);
    pool_fini(&p);
    /* A strategy that keeps nothing and predicts nothing. */
    pool_init(&p, STRATEGY_ROUND_ROBIN, 2, NULL);
    got = pick_at(&p, &q, 1000);
    assert_true(pick_predicted_share(&got) < 0);
    assert_false(balancer_mirror_stats(p.balancer, 0, &m));
    assert_false(strategy_predicts(STRATEGY_ROUND_ROBIN) || strategy_predicts(STRATEGY_CONSISTENT_HASH));
    assert_true(strategy_predicts(STRATEGY_CACHE_AWARE) && strategy_predicts(STRATEGY_LEAST_PREFILL) &&
                strategy_predicts(STRATEGY_PRECISE_CACHE_AWARE));
    pool_fini(&p);
}

/* Placements of other gateways. */
struct told {
    struct placement last;
    unsigned times;
};

static void on_placed(void *arg, const struct placement *p)
{
    struct told *t = arg;
    *t = (struct told){*p, t->times + 1};
}

static void test_placements(void **state)
{
    struct pool a, b;
    struct prompt q;
    struct told told = {0};
    struct placement_sink sink = {on_placed, &told};
    pool_with_cache(&a, 3, 0, 0);
    pool_with_cache(&b, 3, 0, 0);
    assert_true(balance_set_sink(a.balancer, &sink));
    make_prompt(&q, 6, 200, 6, 200);
    unsigned to = serve(&a, &q, -1);
    assert_int_equal(told.times, 1);
    assert_true(told.last.n == 200 && told.last.before == 0 && told.last.after == 0);
    assert_int_equal(told.last.target, target_identity(a.targets[to].target));
    serve(&a, &q, -1); /* nothing new */
    assert_int_equal(told.times, 1);
    assert_int_equal(balance_place(b.balancer, &told.last), PLACE_DONE);
    struct placement nobody = told.last;
    nobody.target = 12345;
    assert_int_equal(balance_place(b.balancer, &nobody), PLACE_NOBODY);
    /* The next turn: its new blocks only, behind the last of the others. */
    make_prompt(&q, 6, 300, 6, 300);
    assert_int_equal(serve(&a, &q, -1), to);
    assert_int_equal(told.times, 2);
    assert_true(told.last.n == 100 && told.last.before == 200 && told.last.after == q.key[199] &&
                told.last.keys == q.key + 200);
    struct placement loose = told.last;
    loose.before = 199; /* it stands elsewhere */
    assert_int_equal(balance_place(b.balancer, &loose), PLACE_LOOSE);
    loose = told.last;
    loose.after++; /* nobody knows it */
    assert_int_equal(balance_place(b.balancer, &loose), PLACE_LOOSE);
    assert_int_equal(balance_place(b.balancer, &told.last), PLACE_DONE);
    struct pick got = pick_at(&b, &q, 1000);
    assert_true(got.index == (int)to && got.why.share == 1);
    pool_fini(&a);
    pool_fini(&b);
}

static void test_large_pools(void **state)
{
    static struct pool p;
    struct prompt q;
    pool_with_cache(&p, POOL_MAX, 4000, 0);
    for (uint64_t i = 0; i < 300; i++) {
        make_prompt(&q, 500 + i, 50, 1, 50);
        unsigned to = serve(&p, &q, -1);
        assert_int_equal(serve(&p, &q, -1), to);
    }
    assert_nothing_charged(&p);
    pool_fini(&p);
}

/* Threads that pick, fail, answer and learn at once; a reload and tending beside them. All comes back. */
enum { THREADS = 3 };

struct crowd {
    struct pool *pool;
    atomic_bool stop;
};

static void *worker(void *arg)
{
    struct crowd *c = arg;
    static atomic_uint next;
    struct rng rng;
    rng_seed(&rng, 900 + atomic_fetch_add(&next, 1));
    for (unsigned i = 0; i < (UNIT_SANITIZED ? 2000 : 20000); i++) {
        struct prompt q;
        struct request r;
        make_prompt(&q, rng_below(&rng, 20), 20 + (uint32_t)rng_below(&rng, 60), rng_below(&rng, 5), 90);
        request_init(&r, c->pool);
        r.c.rng = &rng;
        r.c.now_us = 1000 + i * 50;
        r.c.now_ms = r.c.now_us / 1000;
        r.c.blocks = (struct prompt_blocks){q.key, q.n, 90 * BLOCK_BYTES, q.key[0]};
        struct pick got = balance_pick(c->pool->balancer, &r.c);
        bool fails = rng_below(&rng, 10) == 0;
        if (rng_below(&rng, 20)) /* else it is given up before */
            balance_record(c->pool->balancer, &r.c.blocks, &got.receipt);
        balance_first_token(c->pool->balancer, &got.receipt, r.c.now_us + 500, !fails);
        if (fails) {
            balance_withdraw(c->pool->balancer, &got.receipt);
            continue;
        }
        struct prompt_usage u = {.tokens = 1440, .cached_known = true, .cached = rng_below(&rng, 1440)};
        balance_learn(c->pool->balancer, &got.receipt, &u);
    }
    return NULL;
}

static void *tender(void *arg)
{
    struct crowd *c = arg;
    while (!atomic_load(&c->stop)) {
        bool is_news;
        balance_tend(c->pool->balancer);
        balance_take_resets(c->pool->balancer, 0, MIRROR_SHRUNK, &is_news);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct pool p;
    struct crowd c = {.pool = &p};
    pthread_t w[THREADS], t;
    pool_with_cache(&p, 5, 12000, 0.3);
    assert_int_equal(pthread_create(&t, NULL, tender, &c), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&w[i], NULL, worker, &c), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(w[i], NULL);
    atomic_store(&c.stop, true);
    pthread_join(t, NULL);
    assert_nothing_charged(&p);
    pool_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cold_prompts_spread),
        cmocka_unit_test(test_conversations_stay),
        cmocka_unit_test(test_waiting_against_caching),
        cmocka_unit_test(test_a_failed_attempt_leaves_nothing),
        cmocka_unit_test(test_a_pick_is_recorded_when_told),
        cmocka_unit_test(test_claims_without_room),
        cmocka_unit_test(test_siblings),
        cmocka_unit_test(test_full_engines_are_left_alone),
        cmocka_unit_test(test_mixed_hardware),
        cmocka_unit_test(test_a_slow_time_is_forgotten),
        cmocka_unit_test(test_backlog_shrinks),
        cmocka_unit_test(test_a_new_replica_ramps_up),
        cmocka_unit_test(test_home),
        cmocka_unit_test(test_reload_and_restart),
        cmocka_unit_test(test_restarts_beside_other_picks),
        cmocka_unit_test(test_lies_are_found_out),
        cmocka_unit_test(test_a_place_of_another),
        cmocka_unit_test(test_nobody_reports),
        cmocka_unit_test(test_what_is_open_is_not_claimed),
        cmocka_unit_test(test_bytes_of_a_token_are_learnt),
        cmocka_unit_test(test_what_a_mirror_holds),
        cmocka_unit_test(test_placements),
        cmocka_unit_test(test_large_pools),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
