/* SPDX-License-Identifier: Apache-2.0
 *
 * The KV block index by its rules: what is put out first, tiers, ranks, trust and freshness, salts that are
 * not in the hash, picks by it, and picks while it is being written.
 */
#include "unit.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "balance/kv_ids.h"
#include "balance/kv_source.h"
#include "base/clock.h"
#include "pool.h"

enum { BS = 16 };

struct cache {
    struct kv_source *source;
    unsigned rank;
};

static struct cache cache_new(const char *name, unsigned ranks, size_t cap)
{
    struct cache c = {.source = kv_source_get(name, ranks)};
    kv_source_configure(c.source, cap, 1000);
    for (unsigned r = 0; r < ranks; r++) {
        kv_source_alive(c.source, r, 1);
        kv_source_trust(c.source, r, true);
    }
    return c;
}

static void cache_end(struct cache *c)
{
    kv_source_stop(c->source);
    kv_source_unref(c->source);
    while (kv_sources_sweep(1000))
        ;
}

/* Token <i> of prompt <p>. */
static uint32_t token(unsigned p, unsigned i)
{
    return p * 100000 + i;
}

static void write_prompt(uint32_t *out, unsigned p, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        out[i] = token(p, i);
}

static uint64_t hash_of(unsigned p, unsigned block)
{
    return (uint64_t)(p + 1) << 32 | block;
}

static enum kv_kept put(struct cache *c, unsigned p, unsigned block, enum kv_tier tier, uint16_t tag)
{
    uint32_t t[BS];
    for (unsigned i = 0; i < BS; i++)
        t[i] = token(p, block * BS + i);
    struct kv_store s = {.hash = hash_of(p, block),
                         .is_first = block == 0,
                         .before = block ? hash_of(p, block - 1) : 0,
                         .root = block ? 0 : kv_root(SPAN_NONE, tag ? SPAN("s") : SPAN_NONE),
                         .digest = kv_digest(t, BS),
                         .tag = tag,
                         .tier = tier};
    return kv_source_store(c->source, c->rank, &s, BS, 0);
}

static void put_prompt(struct cache *c, unsigned p, unsigned blocks)
{
    for (unsigned i = 0; i < blocks; i++)
        if (put(c, p, i, KV_TIER_GPU, 0) == KV_FULL)
            return;
}

static struct kv_share share_at(const struct cache *c, unsigned p, unsigned tokens, struct span salt,
                                uint64_t now)
{
    static uint32_t t[1 << 16];
    write_prompt(t, p, tokens);
    struct token_ids ids = {.id = t, .n = tokens};
    struct kv_ask ask = {c->source, "m"};
    struct kv_share s;
    bool any = kv_match(&ids, salt, now, &ask, 1, &s);
    assert_int_equal(any, s.trusted);
    return s;
}

static struct kv_share share_of(const struct cache *c, unsigned p, unsigned tokens)
{
    return share_at(c, p, tokens, SPAN_NONE, 2);
}

static void test_shares(void **state)
{
    (void)state;
    struct cache c = cache_new("shares", 1, 1000);
    assert_true(share_of(&c, 1, 100).trusted);
    assert_true(share_of(&c, 1, 100).share == 0);
    put_prompt(&c, 1, 4);
    assert_int_equal(share_of(&c, 1, 64).tokens, 64);
    assert_true(share_of(&c, 1, 64).share == 1);
    assert_int_equal(share_of(&c, 1, 63).tokens, 48); /* full blocks only, over all tokens */
    assert_true(fabs(share_of(&c, 1, 63).share - 48.0 / 63) < 1e-6);
    assert_int_equal(share_of(&c, 1, 15).tokens, 0);
    assert_int_equal(share_of(&c, 2, 64).tokens, 0);
    /* A hole ends the run. */
    kv_source_remove(c.source, 0, hash_of(1, 1), KV_TIER_GPU);
    assert_int_equal(share_of(&c, 1, 64).tokens, 16);
    put(&c, 1, 1, KV_TIER_LOWER, 0);
    assert_int_equal(share_of(&c, 1, 64).tokens, 64);
    assert_true(fabs(share_of(&c, 1, 64).share - (3 + 0.8) / 4) < 1e-6);
    put(&c, 1, 1, KV_TIER_GPU, 0);
    assert_true(share_of(&c, 1, 64).share == 1);
    /* Copies. */
    put(&c, 1, 0, KV_TIER_GPU, 0);
    kv_source_remove(c.source, 0, hash_of(1, 0), KV_TIER_GPU);
    assert_int_equal(share_of(&c, 1, 64).tokens, 64);
    kv_source_remove(c.source, 0, hash_of(1, 0), KV_TIER_GPU);
    assert_int_equal(share_of(&c, 1, 64).tokens, 0);
    cache_end(&c);
}

static void test_trust(void **state)
{
    (void)state;
    struct cache c = cache_new("trust", 1, 1000);
    put_prompt(&c, 1, 4);
    assert_true(share_at(&c, 1, 64, SPAN_NONE, 1001).trusted);
    assert_false(share_at(&c, 1, 64, SPAN_NONE, 1002).trusted); /* stale */
    assert_true(share_at(&c, 1, 64, SPAN_NONE, 1002).share == 0);
    kv_source_alive(c.source, 0, 1500);
    assert_true(share_at(&c, 1, 64, SPAN_NONE, 2000).share == 1);
    assert_int_equal(kv_source_age_ms(c.source, 2000), 500);
    kv_source_trust(c.source, 0, false);
    assert_false(share_at(&c, 1, 64, SPAN_NONE, 2000).trusted);
    kv_source_trust(c.source, 0, true);
    kv_source_clear(c.source, 0);
    assert_true(share_at(&c, 1, 64, SPAN_NONE, 2000).trusted);
    assert_true(share_at(&c, 1, 64, SPAN_NONE, 2000).share == 0);
    assert_int_equal(kv_source_blocks(c.source), 0);
    struct token_ids none = {.why = "no_ids"};
    struct kv_ask ask = {c.source, "m"};
    struct kv_share s;
    assert_false(kv_match(&none, SPAN_NONE, 2000, &ask, 1, &s));
    cache_end(&c);
}

static void test_ranks(void **state)
{
    (void)state;
    struct cache c = cache_new("ranks", 3, 1000);
    put_prompt(&c, 1, 2);
    c.rank = 2;
    put_prompt(&c, 1, 3);
    put_prompt(&c, 2, 1);
    assert_int_equal(share_of(&c, 1, 64).tokens, 48); /* the best one counts */
    assert_int_equal(share_of(&c, 2, 64).tokens, 16);
    kv_source_clear(c.source, 2);
    assert_int_equal(share_of(&c, 1, 64).tokens, 32);
    assert_int_equal(share_of(&c, 2, 64).tokens, 0);
    kv_source_trust(c.source, 0, false);
    assert_true(share_of(&c, 1, 64).trusted); /* the others are */
    assert_int_equal(share_of(&c, 1, 64).tokens, 0);
    cache_end(&c);
}

static void test_cap(void **state)
{
    (void)state;
    struct cache c = cache_new("cap", 1, 100);
    put_prompt(&c, 1, 300);
    assert_int_equal(kv_source_blocks(c.source), 100);
    assert_int_equal(share_of(&c, 1, 300 * BS).tokens, 100 * BS); /* the beginning is kept */
    /* What comes later goes on behind nothing: it takes no room from others. */
    assert_int_equal(put(&c, 1, 200, KV_TIER_GPU, 0), KV_FULL);
    assert_int_equal(share_of(&c, 1, 300 * BS).tokens, 100 * BS);
    /* Newer prompts put the tail of the older one out. */
    put_prompt(&c, 2, 30);
    put_prompt(&c, 3, 30);
    assert_int_equal(kv_source_blocks(c.source), 100);
    assert_int_equal(share_of(&c, 1, 300 * BS).tokens, 40 * BS);
    assert_int_equal(share_of(&c, 2, 30 * BS).tokens, 30 * BS);
    /* Told again is as good as new. */
    put_prompt(&c, 1, 40);
    put_prompt(&c, 4, 50);
    assert_int_equal(share_of(&c, 1, 300 * BS).tokens, 40 * BS);
    assert_int_equal(share_of(&c, 2, 30 * BS).tokens, 0);
    assert_int_equal(share_of(&c, 3, 30 * BS).tokens, 10 * BS);
    /* Over all ranks, the fuller one gives. */
    struct cache two = cache_new("cap2", 2, 100);
    put_prompt(&two, 1, 80);
    two.rank = 1;
    put_prompt(&two, 2, 60);
    assert_int_equal(kv_source_blocks(two.source), 100);
    assert_true(share_of(&two, 2, 60 * BS).tokens >= 48 * BS);
    cache_end(&two);
    cache_end(&c);
}

static void test_tags(void **state)
{
    (void)state;
    struct cache c = cache_new("tags", 1, 1000);
    put_prompt(&c, 1, 3);
    /* The same hashes under a salt that is not in them: the last one told counts, once. */
    put(&c, 1, 0, KV_TIER_GPU, 77);
    assert_int_equal(share_at(&c, 1, 48, SPAN("s"), 2).tokens, 16);
    assert_int_equal(share_of(&c, 1, 48).tokens, 0);
    put(&c, 1, 1, KV_TIER_GPU, 77);
    assert_int_equal(share_at(&c, 1, 48, SPAN("s"), 2).tokens, 32);
    assert_int_equal(put(&c, 1, 3, KV_TIER_GPU, 77), KV_REFUSED); /* behind one without the salt */
    kv_source_remove(c.source, 0, hash_of(1, 0), KV_TIER_GPU);
    assert_int_equal(share_at(&c, 1, 48, SPAN("s"), 2).tokens, 0);
    struct kv_store self = {.hash = 5, .before = 5};
    assert_int_equal(kv_source_store(c.source, 0, &self, BS, 0), KV_REFUSED);
    /* Blocks in a ring wait for each other for ever; when room is needed all goes. */
    struct cache ring = cache_new("ring", 1, 2);
    for (unsigned i = 0; i < 3; i++) {
        struct kv_store s = {.hash = i, .before = (i + 1) % 3, .digest = i};
        kv_source_store(ring.source, 0, &s, BS, 0);
    }
    assert_true(kv_source_blocks(ring.source) <= 2);
    cache_end(&ring);
    cache_end(&c);
}

static void test_picks(void **state)
{
    (void)state;
    struct pool p;
    pool_init(&p, STRATEGY_PRECISE_CACHE_AWARE, 3, NULL);
    balancer_unref(p.balancer);
    struct cache c[3];
    for (unsigned i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "pick%u", i);
        c[i] = cache_new(name, 1, 1000);
        p.targets[i].kv = c[i].source;
    }
    p.balancer = balancer_new(STRATEGY_PRECISE_CACHE_AWARE, p.targets, 3, NULL, NULL);
    put_prompt(&c[1], 1, 4);
    put_prompt(&c[2], 1, 2);
    uint32_t t[64];
    write_prompt(t, 1, 64);
    struct request r;
    struct buf text;
    buf_init(&text, 1024);
    for (int i = 0; i < 5; i++) {
        request_init(&r, &p);
        r.c.tokens = (struct token_ids){.id = t, .n = 64};
        struct pick got = balance_pick(p.balancer, &r.c);
        assert_int_equal(got.index, 1);
        assert_int_equal(got.reason, PICK_SCORE);
        buf_clear(&text);
        balance_explain(p.balancer, &got, &text);
        assert_int_equal(strncmp(text.p, "resident=1.00 load=0 least=0 score=1.250", 40), 0);
    }
    /* The load counts a quarter: half of the prompt less outweighs it, nothing less does not. */
    struct lease l[8];
    charge(&p, 1, 4, l);
    assert_int_equal(balance_pick(p.balancer, &r.c).index, 1);
    charge(&p, 2, 4, l + 4);
    write_prompt(t, 9, 64);
    assert_int_equal(balance_pick(p.balancer, &r.c).index, 0);
    /* Nobody says anything, or there are no ids: by load alone. */
    write_prompt(t, 1, 64);
    r.c.now_ms = 5000;
    struct pick got = balance_pick(p.balancer, &r.c);
    assert_int_equal(got.index, 0);
    assert_int_equal(got.reason, PICK_LEAST_LOAD);
    buf_clear(&text);
    balance_explain(p.balancer, &got, &text);
    assert_int_equal(strncmp(text.p, "resident=no_index ", 18), 0);
    r.c.now_ms = 1;
    r.c.tokens = (struct token_ids){.why = "bad_ids"};
    got = balance_pick(p.balancer, &r.c);
    assert_int_equal(got.index, 0);
    buf_clear(&text);
    balance_explain(p.balancer, &got, &text);
    assert_int_equal(strncmp(text.p, "resident=bad_ids ", 17), 0);
    /* One stale source scores 0, the others keep theirs (R10). */
    r.c.tokens = (struct token_ids){.id = t, .n = 64};
    kv_source_trust(c[1].source, 0, false);
    assert_int_equal(balance_pick(p.balancer, &r.c).index, 2);
    for (int i = 0; i < 8; i++)
        target_lease_end(&l[i]);
    buf_fini(&text);
    pool_fini(&p);
    for (unsigned i = 0; i < 3; i++)
        cache_end(&c[i]);
}

/* Picks while the writer stores, removes and clears. Prompt 1 is never touched, prompt 2 is whole or not
 * there, 3 comes and goes block by block. */
struct race {
    struct cache c;
    atomic_bool over;
    atomic_uint asked;
};

static void *asks(void *arg)
{
    struct race *x = arg;
    uint32_t t[2][BS * 64];
    write_prompt(t[0], 1, BS * 64);
    write_prompt(t[1], 3, BS * 64);
    struct kv_ask ask = {x->c.source, "m"};
    while (!atomic_load(&x->over)) {
        struct kv_share s;
        struct token_ids one = {.id = t[0], .n = BS * 64}, three = {.id = t[1], .n = BS * 64};
        kv_match(&one, SPAN_NONE, 2, &ask, 1, &s);
        CHECK(s.trusted && s.tokens == BS * 64);
        kv_match(&three, SPAN_NONE, 2, &ask, 1, &s);
        CHECK(s.tokens <= BS * 40);
        atomic_fetch_add(&x->asked, 1);
    }
    return NULL;
}

static void test_race(void **state)
{
    (void)state;
    struct race x = {.c = cache_new("race", 2, 100000)};
    put_prompt(&x.c, 1, 64);
    x.c.rank = 1;
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, asks, &x), 0);
    uint64_t end = clock_mono_ms() + 60000;
    for (unsigned round = 0; (round < 300 || atomic_load(&x.asked) < 200) && clock_mono_ms() < end; round++) {
        put_prompt(&x.c, 3, 40);
        for (unsigned p = 10; p < 20; p++)
            put_prompt(&x.c, p, 100);
        for (unsigned i = 40; i-- > 20;)
            kv_source_remove(x.c.source, 1, hash_of(3, i), KV_TIER_GPU);
        if (round % 7 == 0)
            kv_source_clear(x.c.source, 1);
        kv_sources_sweep(300);
    }
    atomic_store(&x.over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    assert_true(atomic_load(&x.asked) >= 200);
    cache_end(&x.c);
}

/* However full the tables are just now. */
static void test_memory(void **state)
{
    (void)state;
    enum { BLOCKS = 500000, PROMPT = 100 };
    struct cache c = cache_new("memory", 1, BLOCKS);
    double most = 0;
    for (unsigned p = 0; p < BLOCKS / PROMPT; p++) {
        put_prompt(&c, p, PROMPT);
        double bytes = (double)(kv_sources_shared_bytes() + kv_source_bytes(c.source));
        if (p > BLOCKS / PROMPT / 2)
            most = fmax(most, bytes / (double)kv_source_blocks(c.source));
    }
    assert_int_equal(kv_source_blocks(c.source), BLOCKS);
    assert_true(most > 55 && most <= 64);
    cache_end(&c);
}

/* The writer stands still wherever a signal finds it; picks are answered meanwhile. */
static atomic_bool hold, held;

static void stand_still(int number)
{
    atomic_store(&held, true);
    while (atomic_load(&hold))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    atomic_store(&held, false);
}

static void *writes(void *arg)
{
    struct race *x = arg;
    for (unsigned p = 10; !atomic_load(&x->over); p = p < 200 ? p + 1 : 10) {
        put_prompt(&x->c, p, 100);
        for (unsigned i = 100; p % 2 && i-- > 0;)
            kv_source_remove(x->c.source, 1, hash_of(p, i), KV_TIER_GPU);
        if (p % 31 == 0)
            kv_source_clear(x->c.source, 1);
        kv_sources_sweep(300);
    }
    return NULL;
}

static void test_nobody_waits(void **state)
{
    (void)state;
    struct race x = {.c = cache_new("waits", 2, 100000)};
    put_prompt(&x.c, 1, 64);
    x.c.rank = 1;
    static uint32_t t[BS * 64];
    write_prompt(t, 1, BS * 64);
    struct token_ids ids = {.id = t, .n = BS * 64};
    struct kv_ask ask = {x.c.source, "m"};
    struct kv_share s;
    kv_match(&ids, SPAN_NONE, 2, &ask, 1, &s); /* this thread is known to the sections from now on */
    struct sigaction act = {.sa_handler = stand_still};
    sigaction(SIGUSR1, &act, NULL);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, writes, &x), 0);
    uint64_t end = clock_mono_ms() + 60000;
    for (unsigned round = 0; round < 100; round++) {
        atomic_store(&hold, true);
        pthread_kill(thread, SIGUSR1);
        while (!atomic_load(&held))
            assert_true(clock_mono_ms() < end);
        for (unsigned i = 0; i < 10; i++) { /* a lock that the writer holds would keep this here for good */
            kv_match(&ids, SPAN_NONE, 2, &ask, 1, &s);
            assert_int_equal(s.tokens, BS * 64);
            assert_true(kv_source_is_fresh(x.c.source, 2));
            (void)kv_source_blocks(x.c.source);
        }
        atomic_store(&hold, false);
        while (atomic_load(&held))
            assert_true(clock_mono_ms() < end);
    }
    atomic_store(&x.over, true);
    pthread_join(thread, NULL);
    x.c.rank = 0;
    cache_end(&x.c);
}

/* Who comes late hears of later blocks first. What they are called must not change when the first prompt or
 * the first question comes; the first test, as it needs a process in which none has. */
static void test_late(void **state)
{
    (void)state;
    struct cache c = cache_new("late", 1, 1000);
    for (unsigned i = 1; i < 200; i++)
        assert_int_equal(put(&c, 1, i, KV_TIER_GPU, 0), KV_KEPT);
    uint32_t t[BS * 200];
    write_prompt(t, 1, BS * 200);
    struct token_ids ids = {.id = t, .n = BS * 200};
    struct kv_ask ask = {c.source, "m"};
    struct kv_share s;
    assert_true(kv_match(&ids, SPAN_NONE, 2, &ask, 1, &s));
    assert_int_equal(s.tokens, 0);
    assert_int_equal(put(&c, 1, 0, KV_TIER_GPU, 0), KV_KEPT); /* it is stored again, or was only missed */
    kv_match(&ids, SPAN_NONE, 2, &ask, 1, &s);
    assert_int_equal(s.tokens, BS * 200);
    for (unsigned i = 200; i-- > 0;)
        kv_source_remove(c.source, 0, hash_of(1, i), KV_TIER_GPU);
    assert_int_equal(kv_source_blocks(c.source), 0);
    cache_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late),   cmocka_unit_test(test_shares), cmocka_unit_test(test_trust),
        cmocka_unit_test(test_ranks),  cmocka_unit_test(test_cap),    cmocka_unit_test(test_tags),
        cmocka_unit_test(test_picks),  cmocka_unit_test(test_race),   cmocka_unit_test(test_nobody_waits),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
