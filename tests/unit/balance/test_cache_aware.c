/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_aware by worked examples: what pins, what the guard does, who wins ties, who counts, what is
 * withdrawn, what survives a reload and what does not survive a restart.
 */
#include "pool.h"

#include "balance/affinity.h"
#include "base/check.h"

static const unsigned SIZES[] = {1, 2, 3, 63, 64, 65, 130};

/* Leading bytes of the prompt that the chosen target had. */
static unsigned matched(const struct pick *p, const char *prompt)
{
    assert_true(p->why.has_share);
    return (unsigned)(p->why.share * (float)strlen(prompt) + 0.5F);
}

static struct pick pick(struct pool *p, struct request *r, const char *prompt)
{
    r->c.prompt = span_str(prompt);
    return balance_pick(p->balancer, &r->c);
}

static unsigned pick_matched(struct pool *p, struct request *r, const char *prompt)
{
    struct pick got = pick(p, r, prompt);
    return matched(&got, prompt);
}

/* Makes target <i> warm for <prompt>, without load. */
static void warm(struct pool *p, unsigned i, const char *prompt)
{
    struct request r;
    request_init(&r, p);
    for (unsigned k = 0; k < p->n; k++)
        if (k != i)
            set_remove(&r.c.eligible, k);
    assert_int_equal(pick(p, &r, prompt).index, i);
}

struct guard_case {
    unsigned warm, load[3];
    const char *eligible;
    int expected; /* -1: any but the warm one */
    enum pick_reason reason;
};

/* The three targets of the case stand at places <at> of a pool of <n>; the others are down and idle. */
static void check_guard_case(const struct guard_case *g, unsigned n, const unsigned at[3])
{
    struct pool p;
    struct request r;
    struct lease leases[64], *next = leases;
    pool_init(&p, STRATEGY_CACHE_AWARE, n, NULL);
    warm(&p, at[g->warm], "a conversation");
    request_init(&r, &p);
    for (unsigned i = 0; i < n; i++)
        if (i != at[0] && i != at[1] && i != at[2])
            set_remove(&r.c.eligible, i);
    for (unsigned k = 0; k < 3; next += g->load[k++]) {
        charge(&p, at[k], g->load[k], next);
        if (g->eligible[k] == '0')
            set_remove(&r.c.eligible, at[k]);
    }
    struct pick got = pick(&p, &r, "a conversation goes on");
    if (g->expected >= 0)
        assert_int_equal(got.index, at[g->expected]);
    else
        assert_int_not_equal(got.index, at[g->warm]);
    assert_int_equal(got.reason, g->reason);
    assert_int_equal(got.why.guard, got.reason == PICK_GUARD ? GUARD_OVERLOADED : GUARD_OK);
    if (got.reason == PICK_GUARD)
        assert_int_equal(got.why.runner_up, at[g->warm]);
    else
        assert_true(got.why.runner_up >= 0 && got.why.runner_up != got.index);
    while (next > leases)
        target_lease_end(--next);
    pool_fini(&p);
}

static void test_load_guard(void **state)
{
    static const struct guard_case cases[] = {
        {0, {0, 0, 0}, "111", 0, PICK_AFFINITY},
        {0, {2, 0, 0}, "111", 0, PICK_AFFINITY},
        {0, {3, 1, 0}, "111", 2, PICK_GUARD},
        {0, {8, 6, 6}, "111", 0, PICK_AFFINITY},
        {0, {9, 6, 6}, "111", 0, PICK_AFFINITY}, /* three ahead, but not above 1.5 times */
        {0, {10, 6, 6}, "111", -1, PICK_GUARD},
        {0, {3, 2, 1}, "111", 0, PICK_AFFINITY},  /* above 1.5 times, but not more than two ahead */
        {1, {10, 3, 0}, "110", 1, PICK_AFFINITY}, /* a dead target's zero load does not count */
        {1, {1, 9, 0}, "110", 0, PICK_GUARD},
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++)
        for (unsigned k = 0; k < ARRAY_LEN(SIZES); k++) {
            unsigned n = SIZES[k];
            if (n < 3)
                continue;
            check_guard_case(&cases[i], n, (unsigned[]){0, 1, 2});
            check_guard_case(&cases[i], n, (unsigned[]){n - 1, n / 2, 0});
            check_guard_case(&cases[i], n, (unsigned[]){n / 2, 0, n - 1});
        }
}

/* The same rule with fewer targets than the worked cases have. */
static void test_load_guard_of_few(void **state)
{
    struct pool p;
    struct request r;
    struct lease leases[9];
    pool_init(&p, STRATEGY_CACHE_AWARE, 1, NULL);
    warm(&p, 0, "a conversation");
    charge(&p, 0, 9, leases);
    request_init(&r, &p);
    assert_int_equal(pick(&p, &r, "a conversation goes on").reason, PICK_ONLY);
    for (unsigned i = 0; i < 9; i++)
        target_lease_end(&leases[i]);
    pool_fini(&p);
    pool_init(&p, STRATEGY_CACHE_AWARE, 2, NULL);
    warm(&p, 1, "a conversation");
    request_init(&r, &p);
    charge(&p, 1, 2, leases);
    struct pick got = pick(&p, &r, "a conversation goes on");
    assert_int_equal(got.index, 1);
    balance_withdraw(p.balancer, &got.receipt);
    charge(&p, 1, 1, leases + 2);
    assert_int_equal(pick(&p, &r, "a conversation goes on").index, 0);
    for (unsigned i = 0; i < 3; i++)
        target_lease_end(&leases[i]);
    pool_fini(&p);
}

/* Exactly the threshold is enough, a byte less is not. */
static void test_threshold(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_CACHE_AWARE, 3, NULL);
    warm(&p, 1, "0123456789");
    request_init(&r, &p);
    struct pick got = pick(&p, &r, "0123456789abcdefghij");
    assert_int_equal(got.index, 1);
    assert_int_equal(got.reason, PICK_AFFINITY);
    assert_int_equal(matched(&got, "0123456789abcdefghij"), 10);
    balance_withdraw(p.balancer, &got.receipt);
    /* Below it the load decides; of equal ones the longest match. */
    got = pick(&p, &r, "0123456789abcdefghijk");
    assert_int_equal(got.index, 1);
    assert_int_equal(got.reason, PICK_LEAST_LOAD);
    balance_withdraw(p.balancer, &got.receipt);
    struct lease l;
    charge(&p, 1, 1, &l);
    assert_int_not_equal(pick(&p, &r, "0123456789abcdefghijk").index, 1);
    target_lease_end(&l);
    pool_fini(&p);
}

static void test_settings_are_used(void **state)
{
    struct pool p;
    struct request r;
    struct lease leases[5];
    pool_init(&p, STRATEGY_CACHE_AWARE, 3, NULL);
    balancer_unref(p.balancer);
    struct strategy_settings s = STRATEGY_SETTINGS_DEFAULT;
    s.threshold = 0.55;
    s.balance_abs = 4;
    s.limits.max_nodes = 1;
    p.balancer = balancer_new(STRATEGY_CACHE_AWARE, p.targets, 3, &s, NULL);
    char text[101];
    memset(text, 'x', 100);
    text[100] = 0;
    text[55] = 0;
    warm(&p, 2, text);
    text[55] = 'y';
    request_init(&r, &p);
    charge(&p, 2, 4, leases);
    struct pick got = pick(&p, &r, text);
    assert_int_equal(got.index, 2);
    assert_int_equal(got.reason, PICK_AFFINITY);
    charge(&p, 2, 1, leases + 4);
    assert_int_equal(pick(&p, &r, text).reason, PICK_GUARD);
    for (unsigned i = 0; i < 5; i++)
        target_lease_end(&leases[i]);
    struct prefix_stats stats;
    assert_true(balancer_prefix_stats(p.balancer, 2, &stats));
    assert_int_equal(stats.prompts, 1);
    assert_int_equal(stats.evictions, 1);
    pool_fini(&p);
}

/* A11: a common greeting draws nothing together. */
static void test_tenth_is_no_match(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_CACHE_AWARE, 3, NULL);
    request_init(&r, &p);
    unsigned got[3] = {0};
    for (unsigned i = 0; i < 30; i++) {
        char text[128];
        snprintf(text, sizeof text, "user: %02u%s", i,
                 " and then so much that the beginning, of eight bytes, is not a tenth part of it all, not "
                 "by far");
        got[pick(&p, &r, text).index]++;
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(got[i], 10);
    pool_fini(&p);
}

/* A3: cold prompts on an idle pool go round exactly. */
static void test_cold_prompts_spread(void **state)
{
    for (unsigned s = 0; s < ARRAY_LEN(SIZES); s++) {
        struct pool p;
        struct request r;
        unsigned got[POOL_MAX] = {0};
        pool_init(&p, STRATEGY_CACHE_AWARE, SIZES[s], NULL);
        request_init(&r, &p);
        for (unsigned i = 0; i < 8 * p.n; i++) {
            char text[32];
            snprintf(text, sizeof text, "%u is all there is", i * 7919 + 100000);
            text[0] = (char)(i % 251 + 1);
            text[1] = (char)(i / 251 + 1);
            got[pick(&p, &r, text).index]++;
        }
        for (unsigned i = 0; i < p.n; i++)
            assert_int_equal(got[i], 8);
        pool_fini(&p);
    }
}

/* More targets than the index has slots for: those without one are no target's better. */
static void test_cold_prompts_beyond_the_slots(void **state)
{
    static const enum strategy_id ids[] = {STRATEGY_CACHE_AWARE, STRATEGY_PIPELINE};
    for (unsigned s = 0; s < ARRAY_LEN(ids); s++) {
        struct pool p;
        struct request r;
        unsigned got[POOL_MAX] = {0};
        pool_init(&p, ids[s], PREFIX_SLOTS_MAX + 16, NULL);
        request_init(&r, &p);
        for (unsigned i = 0; i < 4 * p.n; i++) {
            char text[32];
            snprintf(text, sizeof text, "%08x is all there is", i * 2654435761U);
            int k = pick(&p, &r, text).index;
            struct lease l;
            charge(&p, (unsigned)k, 1, &l);
            target_lease_end(&l);
            got[k]++;
        }
        for (unsigned i = 0; i < p.n; i++)
            assert_in_range(got[i], 3, 5);
        pool_fini(&p);
    }
}

/* The same without a prompt: nothing is recorded, so the turns decide. */
static void test_no_prompt(void **state)
{
    for (unsigned s = 0; s < ARRAY_LEN(SIZES); s++) {
        struct pool p;
        struct request r;
        unsigned got[POOL_MAX] = {0};
        pool_init(&p, STRATEGY_CACHE_AWARE, SIZES[s], NULL);
        request_init(&r, &p);
        for (unsigned i = 0; i < 8 * p.n; i++)
            got[pick(&p, &r, "").index]++;
        for (unsigned i = 0; i < p.n; i++)
            assert_int_equal(got[i], 8);
        pool_fini(&p);
    }
}

/* When every attempt is withdrawn, warmth settles nothing: no target may have all the first tries. */
static void test_failed_attempts_spread(void **state)
{
    for (unsigned n = 2; n <= 4; n++) {
        struct pool p;
        struct request r;
        unsigned got[POOL_MAX] = {0};
        pool_init(&p, STRATEGY_CACHE_AWARE, n, NULL);
        request_init(&r, &p);
        for (unsigned i = 0; i < 8 * n; i++) {
            struct pick k = pick(&p, &r, "never answered");
            got[k.index]++;
            balance_withdraw(p.balancer, &k.receipt);
        }
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(got[i], 8);
        pool_fini(&p);
    }
}

/* A reload after every pick does not give them all to one target. */
static void test_reload_goes_on_with_turns(void **state)
{
    struct pool p;
    struct request r;
    unsigned got[3] = {0};
    struct strategy_settings s = STRATEGY_SETTINGS_DEFAULT;
    pool_init(&p, STRATEGY_CACHE_AWARE, 3, NULL);
    for (unsigned i = 0; i < 24; i++) {
        request_init(&r, &p);
        got[pick(&p, &r, "").index]++;
        s.balance_abs = 3 + i;
        struct balancer *next = balancer_new(STRATEGY_CACHE_AWARE, p.targets, 3, &s, p.balancer);
        balancer_unref(p.balancer);
        p.balancer = next;
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(got[i], 8);
    pool_fini(&p);
}

/* 24 requests at a time that share a long system prompt: one replica must not get them all. */
static void test_shared_system_prompt(void **state)
{
    struct pool p;
    struct request r;
    struct lease leases[24];
    unsigned got[3] = {0};
    char text[4200];
    pool_init(&p, STRATEGY_CACHE_AWARE, 3, NULL);
    request_init(&r, &p);
    memset(text, 's', 4096);
    for (unsigned i = 0; i < 24; i++) {
        snprintf(text + 4096, 64, "\nuser: question %u", i);
        int k = pick(&p, &r, text).index;
        got[k]++;
        charge(&p, (unsigned)k, 1, &leases[i]);
    }
    for (unsigned i = 0; i < 3; i++)
        assert_in_range(got[i], 6, 10);
    for (unsigned i = 0; i < 24; i++)
        target_lease_end(&leases[i]);
    pool_fini(&p);
}

static void test_conversation_stays(void **state)
{
    for (unsigned s = 0; s < ARRAY_LEN(SIZES); s++) {
        struct pool p;
        struct request r;
        char text[1024] = "system: be kind, be brief, be right\nuser: hello\n";
        pool_init(&p, STRATEGY_CACHE_AWARE, SIZES[s], NULL);
        request_init(&r, &p);
        pick(&p, &r, "something else");
        int home = pick(&p, &r, text).index;
        for (unsigned turn = 0; turn < 6; turn++) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof text - n, "assistant: reply %u\nuser: go on\n", turn);
            struct pick got = pick(&p, &r, text);
            assert_int_equal(got.index, home);
            assert_int_equal(got.reason, p.n == 1 ? PICK_ONLY : PICK_AFFINITY);
            assert_int_equal(matched(&got, text), n);
        }
        pool_fini(&p);
    }
}

/* Of several targets with the same match the least loaded one, then the least warmed one. */
static void test_equal_matches(void **state)
{
    struct pool p;
    struct request r;
    struct lease l[2];
    pool_init(&p, STRATEGY_CACHE_AWARE, 4, NULL);
    for (unsigned i = 0; i < 3; i++)
        warm(&p, i, "known to three");
    warm(&p, 1, "one more");
    charge(&p, 0, 1, l);
    request_init(&r, &p);
    assert_int_equal(pick(&p, &r, "known to three").index, 2);
    charge(&p, 2, 1, l + 1);
    assert_int_equal(pick(&p, &r, "known to three").index, 1);
    target_lease_end(&l[0]);
    target_lease_end(&l[1]);
    pool_fini(&p);
}

/* Nothing eligible: all that are allowed are weighed in the same way, and only they. */
static void test_fail_open(void **state)
{
    for (unsigned s = 0; s < ARRAY_LEN(SIZES); s++) {
        struct pool p;
        struct request r;
        pool_init(&p, STRATEGY_CACHE_AWARE, SIZES[s], NULL);
        unsigned last = p.n - 1;
        warm(&p, last, "a prompt");
        request_init(&r, &p);
        for (unsigned i = 0; i < p.n; i++)
            set_remove(&r.c.eligible, i);
        struct pick got = pick(&p, &r, "a prompt");
        assert_true(got.fail_open);
        assert_int_equal(got.index, last);
        set_remove(&r.c.allowed, last);
        got = pick(&p, &r, "a prompt");
        assert_int_equal(got.index == -1, p.n == 1);
        assert_int_not_equal(got.index, last);
        pool_fini(&p);
    }
}

static uint64_t prompts_of(const struct pool *p, unsigned i)
{
    struct prefix_stats s;
    assert_true(balancer_prefix_stats(p->balancer, i, &s));
    return s.prompts;
}

static void test_withdrawn(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_CACHE_AWARE, 2, NULL);
    warm(&p, 0, "resident");
    request_init(&r, &p);
    struct pick same = pick(&p, &r, "resident"), more = pick(&p, &r, "resident, more");
    assert_int_equal(more.index, 0);
    balance_withdraw(p.balancer, &same.receipt);
    balance_withdraw(p.balancer, &more.receipt);
    assert_int_equal(prompts_of(&p, 0), 1);
    assert_int_equal(pick_matched(&p, &r, "resident"), 8);
    assert_int_equal(pick_matched(&p, &r, "resident, more"), 8);
    balance_withdraw(p.balancer, &(struct pick_receipt){0});
    pool_fini(&p);
}

/* A18: back from the dead, or started anew, a replica is cold; the others are not. */
static void test_restart_forgets(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_CACHE_AWARE, 3, NULL);
    warm(&p, 0, "first prompt");
    warm(&p, 1, "second prompt");
    struct engine_metrics m = {.start_time_secs = 1000};
    provider_set_engine(target_provider(p.targets[0].target), &m, 1);
    request_init(&r, &p);
    assert_int_equal(pick_matched(&p, &r, "first prompt"), 12);
    m.start_time_secs = 2000;
    provider_set_engine(target_provider(p.targets[0].target), &m, 2);
    for (unsigned i = 1; i < 3; i++)
        set_remove(&r.c.eligible, i);
    struct pick got = pick(&p, &r, "first prompt");
    assert_int_equal(matched(&got, "first prompt"), 0);
    assert_int_equal(prompts_of(&p, 0), 1);
    request_init(&r, &p);
    assert_int_equal(pick_matched(&p, &r, "second prompt"), 13);
    pool_fini(&p);
}

/* Its memory comes back without requests. */
static void test_restart_frees(void **state)
{
    static const enum strategy_id ids[] = {STRATEGY_CACHE_AWARE, STRATEGY_PIPELINE};
    for (unsigned k = 0; k < ARRAY_LEN(ids); k++) {
        struct pool p;
        char text[64];
        pool_init(&p, ids[k], 2, NULL);
        uint64_t empty = prefix_memory(p.balancer->prompts);
        for (unsigned i = 0; i < 3000; i++) {
            snprintf(text, sizeof text, "%u is a prompt", i);
            warm(&p, 0, text);
        }
        uint64_t full = prefix_memory(p.balancer->prompts);
        provider_raise_generation(target_provider(p.targets[0].target));
        balance_tend(p.balancer);
        assert_int_equal(prompts_of(&p, 0), 0);
        uint64_t after = prefix_memory(p.balancer->prompts);
        assert_true(full > empty + 300000 && after < empty + 10000);
        pool_fini(&p);
    }
}

/* G8: in another order, without one, with a new one, and with the missing one back. */
static void test_reload(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_CACHE_AWARE, 4, NULL);
    static const char *const texts[] = {"zero's own", "one's own", "deux, its own", "three's own"};
    for (unsigned i = 0; i < 4; i++)
        warm(&p, i, texts[i]);
    struct pool_target fewer[] = {p.targets[3], p.targets[1], p.targets[0]};
    struct balancer *second = balancer_new(STRATEGY_CACHE_AWARE, fewer, 3, NULL, p.balancer);
    /* Requests under way still pick from the old one, and both learn from each other. */
    request_init(&r, &p);
    assert_int_equal(pick(&p, &r, "one's own").index, 1);
    struct pick late = pick(&p, &r, "late");
    balancer_unref(p.balancer);
    balance_withdraw(second, &late.receipt);
    struct balancer *third = balancer_new(STRATEGY_CACHE_AWARE, p.targets, 4, NULL, second);
    p.balancer = second;
    p.n = 3;
    request_init(&r, &p);
    assert_int_equal(pick(&p, &r, "three's own").index, 0);
    assert_int_equal(pick(&p, &r, "one's own").index, 1);
    assert_int_equal(pick(&p, &r, "zero's own").index, 2);
    assert_int_equal(pick_matched(&p, &r, "deux, its own"), 0);
    balancer_unref(second);
    p.balancer = third;
    p.n = 4;
    request_init(&r, &p);
    struct pick got = pick(&p, &r, "three's own");
    assert_int_equal(got.index, 3);
    assert_int_equal(matched(&got, "three's own"), 11);
    pool_fini(&p);
}

/* cache_aware -> pipeline -> cache_aware at reloads: both keep prompts, so they go on with each other's. A
 * strategy that keeps none ends it. */
static void test_change_of_strategy(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_CACHE_AWARE, 3, NULL);
    warm(&p, 1, "a conversation");
    static const struct {
        enum strategy_id to;
        unsigned matched;
    } steps[] = {{STRATEGY_PIPELINE, 14},
                 {STRATEGY_CACHE_AWARE, 14},
                 {STRATEGY_ROUND_ROBIN, 0},
                 {STRATEGY_CACHE_AWARE, 0}};
    for (unsigned i = 0; i < ARRAY_LEN(steps); i++) {
        struct balancer *next = balancer_new(steps[i].to, p.targets, 3, NULL, p.balancer);
        balancer_unref(p.balancer);
        p.balancer = next;
        if (steps[i].to == STRATEGY_ROUND_ROBIN)
            continue;
        request_init(&r, &p);
        set_remove(&r.c.eligible, 0);
        set_remove(&r.c.eligible, 2);
        assert_int_equal(pick_matched(&p, &r, "a conversation"), steps[i].matched);
    }
    pool_fini(&p);
}

/* The bound in bytes says of every number of bytes what its share says. */
static void test_least_match(void **state)
{
    assert_int_equal(affinity_least(100), 10);
    assert_int_equal(affinity_least(101), 11);
    assert_int_equal(affinity_least(1), 1);
    for (uint32_t of = 1; of <= PREFIX_PROMPT_MAX; of++) {
        uint32_t least = affinity_least(of);
        assert_true(least > 0 && least <= of);
        assert_true(affinity_share(least, of) >= AFFINITY_SHARE_MIN);
        assert_true(affinity_share(least - 1, of) < AFFINITY_SHARE_MIN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_guard),
        cmocka_unit_test(test_load_guard_of_few),
        cmocka_unit_test(test_threshold),
        cmocka_unit_test(test_settings_are_used),
        cmocka_unit_test(test_tenth_is_no_match),
        cmocka_unit_test(test_cold_prompts_spread),
        cmocka_unit_test(test_cold_prompts_beyond_the_slots),
        cmocka_unit_test(test_no_prompt),
        cmocka_unit_test(test_failed_attempts_spread),
        cmocka_unit_test(test_reload_goes_on_with_turns),
        cmocka_unit_test(test_shared_system_prompt),
        cmocka_unit_test(test_conversation_stays),
        cmocka_unit_test(test_equal_matches),
        cmocka_unit_test(test_fail_open),
        cmocka_unit_test(test_withdrawn),
        cmocka_unit_test(test_restart_forgets),
        cmocka_unit_test(test_restart_frees),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_change_of_strategy),
        cmocka_unit_test(test_least_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
