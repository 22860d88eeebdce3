/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard of the memory store against a naive model: arrays and loops, no heaps, no tables. After every step
 * both hold the same entries, in the same queues, with the same counts of bytes. Models with a planted fault
 * must be found out.
 */
#include "unit.h"

#include <malloc.h>

#include "cache/cache_unit.h"

#include "base/rng.h"
#include "cache/memory_impl.h"

enum { KEYS = 40, SCOPES = 5, STEPS = 20000, ITEMS = KEYS };

enum fault {
    FAULT_NONE,
    FAULT_LIGHTEST_SCOPE,    /* the scope with least gives way */
    FAULT_NO_SECOND_CHANCE,  /* the oldest goes, asked for or not */
    FAULT_NO_SHARE,          /* a scope with little is not spared */
    FAULT_NO_GHOSTS,         /* what comes back starts again in the small queue */
    FAULT_FORGETS_SCOPE_COST /* scopes cost nothing */
};

struct item {
    uint64_t key, scope, order; /* the lowest order is the oldest */
    size_t bytes;
    bool in, is_main;
    unsigned freq;
};

struct model {
    enum fault fault;
    struct item item[ITEMS]; /* by key */
    uint64_t order, small_evictions;
    uint64_t ghost[KEYS]; /* the small eviction's number, 0: none */
    size_t budget, fixed, scope_bytes;
};

static size_t queue_sum(const struct model *m, bool is_main, uint64_t scope)
{
    size_t sum = 0;
    for (int i = 0; i < ITEMS; i++)
        if (m->item[i].in && m->item[i].is_main == is_main &&
            (scope == UINT64_MAX || m->item[i].scope == scope))
            sum += m->item[i].bytes;
    return sum;
}

static bool has_scope(const struct model *m, uint64_t scope)
{
    return queue_sum(m, false, scope) + queue_sum(m, true, scope) > 0;
}

static size_t total(const struct model *m)
{
    size_t sum = m->fixed + queue_sum(m, false, UINT64_MAX) + queue_sum(m, true, UINT64_MAX);
    for (uint64_t c = 0; c < SCOPES; c++)
        if (has_scope(m, c) && m->fault != FAULT_FORGETS_SCOPE_COST)
            sum += m->scope_bytes;
    return sum;
}

static size_t holds(const struct model *m, uint64_t scope)
{
    return queue_sum(m, false, scope) + queue_sum(m, true, scope);
}

/* Whose oldest entry in that queue is looked at. */
static uint64_t scope_of_queue(const struct model *m, bool is_main)
{
    uint64_t best = UINT64_MAX;
    for (uint64_t c = 0; c < SCOPES; c++) {
        size_t mine = queue_sum(m, is_main, c);
        if (mine > 0 &&
            (best == UINT64_MAX || (m->fault == FAULT_LIGHTEST_SCOPE ? mine < queue_sum(m, is_main, best)
                                                                     : mine > queue_sum(m, is_main, best))))
            best = c;
    }
    return best;
}

static uint64_t heaviest(const struct model *m)
{
    uint64_t best = 0;
    for (uint64_t c = 1; c < SCOPES; c++)
        if (holds(m, c) > holds(m, best))
            best = c;
    return best;
}

static struct item *model_candidate(struct model *m)
{
    bool is_main = queue_sum(m, false, UINT64_MAX) <= m->budget / 10 && queue_sum(m, true, UINT64_MAX) > 0;
    uint64_t scope = scope_of_queue(m, is_main);
    size_t scopes = 0;
    for (uint64_t c = 0; c < SCOPES; c++)
        scopes += has_scope(m, c);
    if (holds(m, scope) < m->budget / (2 * scopes) && m->fault != FAULT_NO_SHARE) {
        scope = heaviest(m);
        is_main = queue_sum(m, false, scope) <= holds(m, scope) / 10 && queue_sum(m, true, scope) > 0;
    }
    struct item *oldest = NULL;
    for (int i = 0; i < ITEMS; i++)
        if (m->item[i].in && m->item[i].is_main == is_main && m->item[i].scope == scope &&
            (!oldest || m->item[i].order < oldest->order))
            oldest = &m->item[i];
    return oldest;
}

static void model_evict(struct model *m)
{
    for (unsigned looked = 0;; looked++) {
        struct item *i = model_candidate(m);
        bool small = !i->is_main;
        if (looked < 32 && i->freq > 0 && m->fault != FAULT_NO_SECOND_CHANCE) {
            i->freq = small ? 0 : i->freq - 1;
            i->is_main = true;
            i->order = m->order++;
            continue;
        }
        if (small)
            m->ghost[i->key] = ++m->small_evictions;
        i->in = false;
        return;
    }
}

static unsigned count(const struct model *m, bool main_only)
{
    unsigned n = 0;
    for (int i = 0; i < ITEMS; i++)
        n += m->item[i].in && (m->item[i].is_main || !main_only);
    return n;
}

static void model_put(struct model *m, uint64_t key, uint64_t scope, size_t bytes)
{
    struct item *i = &m->item[key], old;
    while (total(m) + bytes > m->budget && count(m, false) > 0)
        model_evict(m);
    old = *i;
    i->in = false;
    bool known = m->ghost[key] > 0 && m->small_evictions - m->ghost[key] < count(m, true);
    m->ghost[key] = 0;
    if (m->fault == FAULT_NO_GHOSTS)
        known = false;
    *i = (struct item){
        .key = key,
        .scope = scope,
        .order = m->order++,
        .bytes = bytes,
        .in = true,
        .is_main = old.in ? old.is_main : known,
        .freq = old.in ? old.freq : 0,
    };
    while (total(m) > m->budget && count(m, false) > 0)
        model_evict(m);
}

/* The real one. */

/* Numbers whose keys do not crowd one bucket of ghosts: there the store forgets early, the model never. */
static uint64_t numbers[KEYS];

static void choose_numbers(void)
{
    unsigned in[16] = {0};
    uint64_t next = 0;
    for (int k = 0; k < KEYS; k++) {
        for (;; next++) {
            struct cache_digest d = key_number(next);
            unsigned bucket = digest_short(&d) >> 18 & 15;
            if (in[bucket] < 4) {
                in[bucket]++;
                numbers[k] = next++;
                break;
            }
        }
    }
}

struct rig {
    struct cache_purge *purge;
    struct shard shard;
};

static void drop(struct list *victims)
{
    LIST_EACH(link, victims)
    {
        struct node *n = LIST_ITEM(link, struct node, link);
        entry_unref(n->entry);
        free(n);
    }
}

static size_t shard_put(struct rig *r, uint64_t key, uint64_t scope, size_t body)
{
    struct list victims;
    list_init(&victims);
    struct node *n = calloc(1, sizeof *n), *old;
    n->entry = entry_number(r->purge, numbers[key], scope, body);
    n->bytes = n->entry->memory_bytes + malloc_usable_size(n);
    size_t bytes = n->bytes;
    while (!shard_make_room(&r->shard, n->bytes, 2, &victims)) {
    }
    old = shard_find(&r->shard, &n->entry->facts.key);
    if (old)
        shard_take(&r->shard, old, &victims);
    shard_insert(&r->shard, n, old);
    while (!shard_make_room(&r->shard, 0, 1, &victims)) {
    }
    drop(&victims);
    return bytes;
}

static bool same(const struct rig *r, const struct model *m)
{
    for (uint64_t k = 0; k < KEYS; k++) {
        struct cache_digest key = key_number(numbers[k]);
        const struct node *n = shard_find(&r->shard, &key);
        const struct item *i = &m->item[k];
        if ((n != NULL) != i->in)
            return false;
        if (n && (number_of(n->entry) != numbers[k] || n->scope->id != i->scope || n->bytes != i->bytes ||
                  (n->kind == QUEUE_MAIN) != i->is_main || n->freq != i->freq))
            return false;
    }
    return r->shard.bytes == total(m) && r->shard.nodes.n == count(m, false) &&
           r->shard.n_main == count(m, true);
}

/* Steps until both differ, or STEPS. */
static unsigned run(enum fault fault, uint64_t seed)
{
    struct rig r = {.purge = purge_new()};
    struct model m = {.fault = fault, .budget = 60000};
    struct rng rng;
    unsigned step = 0;
    rng_seed(&rng, seed);
    shard_init(&r.shard, m.budget);
    struct scope *c = calloc(1, sizeof *c);
    m.scope_bytes = malloc_usable_size(c);
    free(c);
    /* The heaps come with the first scope. */
    m.fixed = r.shard.bytes;
    shard_put(&r, 0, 0, 8);
    struct cache_digest first = key_number(numbers[0]);
    struct list victims;
    list_init(&victims);
    shard_take(&r.shard, shard_find(&r.shard, &first), &victims);
    drop(&victims);
    m.fixed = r.shard.bytes;
    for (; step < STEPS && same(&r, &m); step++) {
        uint64_t key = rng_below(&rng, 8) ? rng_below(&rng, KEYS / 4) : rng_below(&rng, KEYS);
        struct cache_digest digest = key_number(numbers[key]);
        struct node *n = shard_find(&r.shard, &digest);
        unsigned what = (unsigned)rng_below(&rng, 20);
        if (what == 0 && n) {
            list_init(&victims);
            shard_take(&r.shard, n, &victims);
            drop(&victims);
            m.item[key].in = false;
        } else if (what < 11 && n) {
            shard_touch(n);
            if (m.item[key].freq < 3)
                m.item[key].freq++;
        } else {
            uint64_t scope = rng_below(&rng, 3) ? 0 : rng_below(&rng, SCOPES);
            size_t body = 100 + rng_below(&rng, rng_below(&rng, 4) ? 3000 : 12000);
            model_put(&m, key, scope, shard_put(&r, key, scope, body));
        }
    }
    shard_fini(&r.shard);
    purge_free(r.purge);
    return step;
}

static void twins_agree(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        assert_int_equal(run(FAULT_NONE, seed), STEPS);
}

static void faults_are_found(void **state)
{
    (void)state;
    for (enum fault f = FAULT_LIGHTEST_SCOPE; f <= FAULT_FORGETS_SCOPE_COST; f++) {
        unsigned found = run(f, 1);
        print_message("fault %d shows after %u steps\n", f, found);
        assert_true(found < STEPS);
    }
}

int main(void)
{
    choose_numbers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twins_agree),
        cmocka_unit_test(faults_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
