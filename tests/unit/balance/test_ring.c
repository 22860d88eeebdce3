/* SPDX-License-Identifier: Apache-2.0
 *
 * Consistent hashing: whose key it is, and that it stays so.
 */
#include "balance/pool.h"

enum { KEYS = 20000 };

static uint64_t key_number(unsigned k)
{
    return (k + 1) * 0x9e3779b97f4a7c15u;
}

/* Owner of key <k> in <b>, told by its target. */
static const struct target *owner(struct balancer *b, struct request *r, unsigned k)
{
    r->c.prompt_digest = key_number(k);
    r->c.prompt_len = 1;
    struct pick pick = balance_pick(b, &r->c);
    assert_true(pick.index >= 0);
    return balancer_target(b, (unsigned)pick.index);
}

static void test_removal_moves_only_its_share(void **state)
{
    static const unsigned weights[10] = {1, 2, 3, 1, 6, 2, 4, 1, 9, 5};
    static const struct target *before[KEYS];
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_CONSISTENT_HASH, 10, weights);
    request_init(&r, &p);
    unsigned got[10] = {0};
    for (unsigned k = 0; k < KEYS; k++) {
        before[k] = owner(p.balancer, &r, k);
        for (unsigned i = 0; i < 10; i++)
            got[i] += before[k] == p.targets[i].target;
    }
    for (unsigned i = 0; i < 10; i++) /* by weight, as even as points at random are */
        assert_in_range(got[i], KEYS / 34 * weights[i] * 3 / 4, KEYS / 34 * weights[i] * 5 / 4);
    for (unsigned gone = 0; gone < 10; gone++) {
        struct pool_target left[9];
        for (unsigned i = 0, n = 0; i < 10; i++)
            if (i != gone)
                left[n++] = p.targets[i];
        struct balancer *b = balancer_new(STRATEGY_CONSISTENT_HASH, left, 9, NULL, p.balancer);
        p.n = 9;
        struct request fewer;
        request_init(&fewer, &p);
        p.n = 10;
        request_init(&r, &p);
        set_remove(&r.c.eligible, gone);
        for (unsigned k = 0; k < KEYS; k++) {
            const struct target *now = owner(b, &fewer, k);
            if (before[k] != p.targets[gone].target)
                assert_ptr_equal(now, before[k]);
            else
                assert_ptr_not_equal(now, before[k]);
            /* Out of use is like removed: the next on the ring has it. */
            assert_ptr_equal(owner(p.balancer, &r, k), now);
        }
        balancer_unref(b);
    }
    pool_fini(&p);
}

static void test_order_does_not_matter(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_CONSISTENT_HASH, 70, NULL);
    request_init(&r, &p);
    struct pool_target turned[70];
    for (unsigned i = 0; i < 70; i++)
        turned[i] = p.targets[(i * 33 + 5) % 70];
    struct balancer *b = balancer_new(STRATEGY_CONSISTENT_HASH, turned, 70, NULL, NULL);
    for (unsigned k = 0; k < KEYS; k++)
        assert_ptr_equal(owner(b, &r, k), owner(p.balancer, &r, k));
    balancer_unref(b);
    pool_fini(&p);
}

/* Rings that would grow too large are cut, and still know everybody. */
static void test_large_weights(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_CONSISTENT_HASH, 3, (unsigned[]){4000000000u, 2000000000u, 1});
    request_init(&r, &p);
    unsigned got[3] = {0};
    for (unsigned k = 0; k < KEYS; k++) {
        const struct target *t = owner(p.balancer, &r, k);
        for (unsigned i = 0; i < 3; i++)
            got[i] += t == p.targets[i].target;
    }
    assert_in_range(got[0], KEYS * 6 / 10, KEYS * 7 / 10);
    assert_in_range(got[1], KEYS * 3 / 10, KEYS * 4 / 10);
    pool_fini(&p);
}

static void test_which_key(void **state)
{
    struct pool p;
    struct request r;
    pool_init(&p, STRATEGY_CONSISTENT_HASH, 7, NULL);
    request_init(&r, &p);
    /* The session comes first, whatever the prompt is. */
    char session[16];
    unsigned seen[7] = {0}, kinds = 0;
    for (unsigned s = 0; s < 200; s++) {
        r.c.session = span_of(session, (size_t)sprintf(session, "session-%u", s));
        const struct target *first = owner(p.balancer, &r, 0);
        for (unsigned k = 1; k < 10; k++)
            assert_ptr_equal(owner(p.balancer, &r, k), first);
        seen[balance_pick(p.balancer, &r.c).index]++;
    }
    for (unsigned i = 0; i < 7; i++)
        kinds += seen[i] > 0;
    assert_int_equal(kinds, 7);
    /* A digest of 0 with a length is a key like any other. */
    r.c.session = SPAN_NONE;
    r.c.prompt_digest = 0;
    r.c.prompt_len = 12;
    struct pick pick = balance_pick(p.balancer, &r.c);
    assert_int_equal(pick.reason, PICK_HASH);
    assert_int_equal(balance_pick(p.balancer, &r.c).index, pick.index);
    set_remove(&r.c.eligible, (unsigned)pick.index);
    struct pick next = balance_pick(p.balancer, &r.c);
    assert_int_equal(next.reason, PICK_HASH_NEXT);
    assert_int_not_equal(next.index, pick.index);
    /* The end of the ring joins its beginning. */
    r.c.prompt_digest = UINT64_MAX;
    assert_in_range(balance_pick(p.balancer, &r.c).index, 0, 6);
    /* No key: in turn. */
    request_init(&r, &p);
    unsigned turns[7] = {0};
    for (int i = 0; i < 70; i++) {
        pick = balance_pick(p.balancer, &r.c);
        assert_int_equal(pick.reason, PICK_ROTATION);
        turns[pick.index]++;
    }
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(turns[i], 10);
    pool_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_removal_moves_only_its_share),
        cmocka_unit_test(test_order_does_not_matter),
        cmocka_unit_test(test_large_weights),
        cmocka_unit_test(test_which_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
