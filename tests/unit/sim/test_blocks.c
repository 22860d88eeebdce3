/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/rng.h"
#include "blocks.h"

enum { MAX_BLOCKS = 24, LEASES = 6, LEASE_BLOCKS = 8 };

/* The twin: the same rules, written as arrays that are searched. Blocks in order of use, first to be used
 * first. */
struct twin {
    struct {
        uint64_t hash;
        int refs;
    } block[MAX_BLOCKS];
    int order[MAX_BLOCKS], order_n, n;
};

static int twin_find(const struct twin *t, uint64_t hash)
{
    for (int i = 0; i < t->n; i++)
        if (t->block[i].hash == hash)
            return i;
    return -1;
}

static void twin_unfree(struct twin *t, int block)
{
    int k = 0;
    while (t->order[k] != block)
        k++;
    memmove(t->order + k, t->order + k + 1, (size_t)(t->order_n - k - 1) * sizeof *t->order);
    t->order_n--;
}

static int twin_take(struct twin *t, int *ids, const uint64_t *hashes, int n_hashes, int total)
{
    struct twin before = *t;
    int k = 0;
    for (; k < n_hashes && k < total && (ids[k] = twin_find(t, hashes[k])) >= 0; k++)
        if (t->block[ids[k]].refs++ == 0)
            twin_unfree(t, ids[k]);
    int shared = k;
    for (; k < total; k++) {
        if (!t->order_n) {
            *t = before;
            return -1;
        }
        ids[k] = t->order[0];
        twin_unfree(t, ids[k]);
        t->block[ids[k]].hash = 0;
        t->block[ids[k]].refs = 1;
    }
    return shared;
}

static void twin_release(struct twin *t, const int *ids, int n)
{
    for (int k = n; k-- > 0;) {
        if (--t->block[ids[k]].refs)
            continue;
        if (t->block[ids[k]].hash) {
            t->order[t->order_n++] = ids[k];
        } else {
            memmove(t->order + 1, t->order, (size_t)t->order_n * sizeof *t->order);
            t->order[0] = ids[k];
            t->order_n++;
        }
    }
}

struct seen {
    uint64_t set[4096];
    unsigned n;
};

static void on_stored(void *arg, const struct block_content *c)
{
    struct seen *s = arg;
    s->set[s->n++] = c->hash;
}

static void on_removed(void *arg, uint64_t hash)
{
    struct seen *s = arg;
    for (unsigned i = 0; i < s->n; i++)
        if (s->set[i] == hash) {
            s->set[i] = s->set[--s->n];
            return;
        }
    fail_msg("removed what was not stored");
}

static void on_cleared(void *arg)
{
    ((struct seen *)arg)->n = 0;
}

/* Few beginnings that branch, so that sharing, eviction and duplicates all happen. */
static uint32_t make_hashes(struct rng *r, uint64_t *out)
{
    uint64_t at = 1 + rng_below(r, 4);
    uint32_t n = 1 + (uint32_t)rng_below(r, LEASE_BLOCKS);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = at;
        at = at * 8 + (i >= 2 ? rng_below(r, 3) : 1);
    }
    return n;
}

struct held {
    uint32_t ids[LEASE_BLOCKS];
    int twin_ids[LEASE_BLOCKS];
    uint64_t hashes[LEASE_BLOCKS];
    struct block_lease lease;
    uint32_t n, filled;
    bool used;
};

static void step(struct blocks *b, struct twin *t, struct rng *r, struct held *h)
{
    if (!h->used) {
        h->n = make_hashes(r, h->hashes);
        h->lease = (struct block_lease){.ids = h->ids};
        int shared = twin_take(t, h->twin_ids, h->hashes, (int)h->n, (int)h->n);
        h->used = blocks_take(b, &h->lease, h->hashes, h->n, h->n);
        assert_int_equal(h->used, shared >= 0);
        if (h->used)
            assert_int_equal(h->filled = h->lease.shared, shared);
    } else if (h->filled < h->n && rng_below(r, 4)) {
        uint32_t k = h->filled++;
        blocks_fill(b, &h->lease, k,
                    &(struct block_content){.hash = h->hashes[k], .parent = k ? h->hashes[k - 1] : 0});
        if (!t->block[h->twin_ids[k]].hash && twin_find(t, h->hashes[k]) < 0)
            t->block[h->twin_ids[k]].hash = h->hashes[k];
    } else {
        blocks_release(b, &h->lease);
        twin_release(t, h->twin_ids, (int)h->n);
        h->used = false;
    }
}

static void equals_its_naive_twin(void **state)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct rng r;
        rng_seed(&r, seed);
        struct twin t = {.n = 6 + (int)rng_below(&r, MAX_BLOCKS - 6)};
        for (int i = 0; i < t.n; i++)
            t.order[t.order_n++] = i;
        struct seen seen = {.n = 0};
        struct blocks *b =
            blocks_new((uint32_t)t.n, &(struct blocks_observer){on_stored, on_removed, on_cleared, &seen});
        struct held held[LEASES] = {0};
        for (int i = 0; i < 1500; i++) {
            step(b, &t, &r, &held[rng_below(&r, LEASES)]);
            blocks_verify(b);
            unsigned resident = 0;
            for (int k = 0; k < t.n; k++)
                if (t.block[k].hash) {
                    resident++;
                    assert_int_equal(blocks_match(b, &t.block[k].hash, 1), 1);
                }
            assert_int_equal(blocks_resident(b), resident);
            assert_int_equal(seen.n, resident);
            assert_int_equal(blocks_pinned(b), t.n - t.order_n);
        }
        blocks_free(b);
    }
}

static void fill_all(struct blocks *b, struct block_lease *l, const uint64_t *hashes, uint32_t n)
{
    assert_true(blocks_take(b, l, hashes, n, n));
    for (uint32_t i = l->shared; i < n; i++)
        blocks_fill(b, l, i, &(struct block_content){.hash = hashes[i], .parent = i ? hashes[i - 1] : 0});
}

static void evicts_tails_of_the_least_recent_first(void **state)
{
    struct blocks *b = blocks_new(6, NULL);
    const uint64_t one[] = {11, 12, 13}, two[] = {21, 22, 23};
    uint32_t ids[6], more[6];
    struct block_lease l = {.ids = ids}, m = {.ids = more};
    fill_all(b, &l, one, 3);
    blocks_release(b, &l);
    fill_all(b, &l, two, 3);
    blocks_release(b, &l);
    assert_true(blocks_take(b, &m, NULL, 0, 2));
    assert_int_equal(blocks_match(b, one, 3), 1);
    assert_int_equal(blocks_match(b, two, 3), 3);
    /* Use brings back: one's beginning is now more recent than two. */
    assert_true(blocks_take(b, &l, one, 1, 1));
    assert_int_equal(l.shared, 1);
    blocks_release(b, &l);
    blocks_release(b, &m);
    assert_true(blocks_take(b, &m, NULL, 0, 5));
    assert_int_equal(blocks_match(b, one, 3), 1);
    assert_int_equal(blocks_match(b, two, 3), 0);
    blocks_free(b);
}

static void pinned_blocks_stay_and_a_take_that_fails_changes_nothing(void **state)
{
    struct blocks *b = blocks_new(4, NULL);
    const uint64_t one[] = {11, 12, 13}, two[] = {11, 12, 99, 98};
    uint32_t ids[4], more[4];
    struct block_lease l = {.ids = ids}, m = {.ids = more};
    fill_all(b, &l, one, 3);
    assert_false(blocks_take(b, &m, two, 4, 4)); /* two shared, one free, needs two */
    assert_int_equal(m.n, 0);
    assert_int_equal(blocks_match(b, one, 3), 3);
    assert_int_equal(blocks_pinned(b), 3);
    assert_true(blocks_take(b, &m, two, 3, 3));
    assert_int_equal(m.shared, 2);
    blocks_release(b, &l);
    assert_int_equal(blocks_pinned(b), 3); /* the shared ones are m's now, 13 is free */
    blocks_clear(b);
    assert_int_equal(blocks_resident(b), 0);
    blocks_release(b, &m);
    assert_int_equal(blocks_pinned(b), 0);
    blocks_verify(b);
    blocks_free(b);
}

static void a_smaller_cache_evicts_and_a_larger_one_has_room(void **state)
{
    struct seen seen = {.n = 0};
    struct blocks *b = blocks_new(8, &(struct blocks_observer){on_stored, on_removed, on_cleared, &seen});
    const uint64_t one[] = {11, 12, 13}, two[] = {21, 22, 23};
    uint32_t ids[20], more[20];
    struct block_lease l = {.ids = ids}, m = {.ids = more};
    fill_all(b, &l, one, 3);
    blocks_release(b, &l);
    fill_all(b, &l, two, 3);
    blocks_resize(b, 4); /* two empty ones and two of the three that nobody holds */
    blocks_verify(b);
    assert_int_equal(blocks_total(b), 4);
    assert_int_equal(blocks_match(b, one, 3), 1);
    assert_int_equal(seen.n, 4);
    blocks_resize(b, 2); /* one is gone; what is held goes when it is released */
    blocks_verify(b);
    assert_int_equal(blocks_match(b, two, 3), 3);
    assert_false(blocks_take(b, &m, NULL, 0, 1));
    blocks_release(b, &l);
    blocks_verify(b);
    assert_int_equal(blocks_match(b, two, 3), 2);
    assert_int_equal(seen.n, 2);
    blocks_resize(b, 20);
    blocks_verify(b);
    assert_int_equal(blocks_match(b, two, 3), 2);
    assert_true(blocks_take(b, &m, two, 2, 20));
    assert_int_equal(m.shared, 2);
    assert_int_equal(blocks_pinned(b), 20);
    blocks_release(b, &m);
    blocks_verify(b);
    blocks_free(b);
}

static void any_sequence_of_sizes_keeps_it_whole(void **state)
{
    struct rng r;
    rng_seed(&r, 5);
    struct seen seen = {.n = 0};
    struct blocks *b = blocks_new(10, &(struct blocks_observer){on_stored, on_removed, on_cleared, &seen});
    struct held held[LEASES] = {0};
    for (int i = 0; i < 20000; i++) {
        struct held *h = &held[rng_below(&r, LEASES)];
        if (rng_below(&r, 20) == 0)
            blocks_resize(b, 1 + (uint32_t)rng_below(&r, 40));
        if (!h->used) {
            h->n = make_hashes(&r, h->hashes);
            h->lease = (struct block_lease){.ids = h->ids};
            h->used = blocks_take(b, &h->lease, h->hashes, h->n, h->n);
            h->filled = h->lease.shared;
        } else if (h->filled < h->n) {
            uint32_t k = h->filled++;
            blocks_fill(b, &h->lease, k,
                        &(struct block_content){.hash = h->hashes[k], .parent = k ? h->hashes[k - 1] : 0});
        } else {
            blocks_release(b, &h->lease);
            h->used = false;
        }
        blocks_verify(b);
        assert_int_equal(seen.n, blocks_resident(b));
    }
    blocks_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_its_naive_twin),
        cmocka_unit_test(evicts_tails_of_the_least_recent_first),
        cmocka_unit_test(pinned_blocks_stay_and_a_take_that_fails_changes_nothing),
        cmocka_unit_test(a_smaller_cache_evicts_and_a_larger_one_has_room),
        cmocka_unit_test(any_sequence_of_sizes_keeps_it_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
