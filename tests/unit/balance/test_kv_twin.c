/* SPDX-License-Identifier: Apache-2.0
 *
 * The KV block index beside a naive model over a million random events and questions: blocks of a tree of
 * prompts are stored and removed, in any order, on the ranks of several engines, under two adapters and two
 * salts, in copies and tiers. Each answer must be the model's: leading blocks that are held, to the token.
 *
 * In the hostile run hashes come again with other blocks in them: nothing may be credited that the model does
 * not hold, and what the index counts must stay in agreement. Faults are planted to show that the twin sees.
 */
#include "unit.h"

#include <math.h>

#include "balance/kv_ids.h"
#include "balance/kv_parts.h"
#include "base/check.h"
#include "base/rng.h"

enum { SOURCES = 3, RANKS = 2, BLOCKS = 1200, DEPTH = 48, BS = 4, ROOTS = 4, NOBODY = UINT16_MAX };

/* A block of the tree: what is in it and before it. Block numbers below ROOTS * n are in no order. */
struct content {
    uint16_t before; /* NOBODY: first */
    uint8_t root, depth;
    uint32_t token[BS];
};

/* What a rank has under the hash of content <k>. */
struct holding {
    uint16_t content;
    uint8_t copies[2];
};

struct twin {
    struct rng rng;
    struct content content[BLOCKS];
    struct kv_source *source[SOURCES];
    struct holding held[SOURCES][RANKS][BLOCKS];
    uint64_t root[ROOTS];
    bool hostile, capped;
    unsigned fault_every;
    uint64_t ops, questions, different, credited;
};

static unsigned ranks_of(unsigned source)
{
    return source == 0 ? RANKS : 1;
}

static unsigned below(struct twin *t, unsigned n)
{
    return (unsigned)rng_below(&t->rng, n);
}

/* Engines have names of their own; some of them have small ones, and 0. */
static uint64_t hash_of(unsigned source, unsigned rank, unsigned k)
{
    return source == 1 ? k : (uint64_t)(k + 1) * (0x9e3779b97f4a7c15u + source * 2 + rank * 64);
}

static struct span adapter_of(unsigned root)
{
    return root == 1 ? SPAN("adapter") : SPAN_NONE;
}

static struct span salt_of(unsigned root)
{
    return root == 2 ? SPAN("salt a") : root == 3 ? SPAN("salt b") : SPAN_NONE;
}

static void plant_tree(struct twin *t)
{
    for (unsigned k = 0; k < BLOCKS; k++) {
        struct content *c = &t->content[k];
        unsigned before = k == 0 || below(t, 12) == 0 ? NOBODY : k < 30 || below(t, 3) ? k - 1 : below(t, k);
        if (before != NOBODY && t->content[before].depth == DEPTH)
            before = NOBODY;
        c->before = (uint16_t)before;
        c->root = before == NOBODY ? (uint8_t)below(t, ROOTS) : t->content[before].root;
        c->depth = before == NOBODY ? 1 : t->content[before].depth + 1;
        for (unsigned i = 0; i < BS; i++)
            c->token[i] = i == 0 ? k : below(t, 3);
    }
}

static void twin_init(struct twin *t, uint64_t seed, size_t cap)
{
    static unsigned serial;
    rng_seed(&t->rng, seed);
    plant_tree(t);
    for (unsigned r = 0; r < ROOTS; r++)
        t->root[r] = kv_root(adapter_of(r), salt_of(r));
    for (unsigned s = 0; s < SOURCES; s++) {
        char name[32];
        snprintf(name, sizeof name, "twin-%u-%u", serial++, s);
        t->source[s] = kv_source_get(name, ranks_of(s));
        kv_source_configure(t->source[s], cap, 1000);
        kv_source_adapter(t->source[s], adapter_of(1));
        for (unsigned r = 0; r < ranks_of(s); r++) {
            kv_source_alive(t->source[s], r, 1);
            kv_source_trust(t->source[s], r, true);
        }
    }
    for (unsigned s = 0; s < SOURCES; s++)
        for (unsigned r = 0; r < RANKS; r++)
            for (unsigned k = 0; k < BLOCKS; k++)
                t->held[s][r][k] = (struct holding){.content = (uint16_t)k};
}

static void check_all(const struct twin *t)
{
    for (unsigned s = 0; s < SOURCES; s++) {
        size_t held = 0, all = 0;
        for (unsigned r = 0; r < ranks_of(s); r++) {
            const struct kv_blocks *b = t->source[s]->stream[r].blocks;
            if (!b)
                continue;
            kv_blocks_check(b);
            held += kv_blocks_held(b);
            all += kv_blocks_all(b);
        }
        assert_int_equal(held, t->source[s]->held);
        assert_int_equal(all, t->source[s]->all);
        assert_true(held <= t->source[s]->max_blocks);
    }
}

static void twin_fini(struct twin *t)
{
    check_all(t);
    for (unsigned s = 0; s < SOURCES; s++) {
        kv_source_stop(t->source[s]);
        kv_source_unref(t->source[s]);
    }
    while (kv_sources_sweep(100))
        ;
    for (unsigned p = 0; p < 64; p++)
        if (kv_bank(p))
            assert_int_equal(kv_map_blocks(kv_bank(p)), 0);
}

static bool is_held(const struct holding *h)
{
    return h->copies[0] || h->copies[1];
}

/* Whether the rank has the content, under whatever hash. */
static bool has(const struct twin *t, unsigned s, unsigned r, unsigned content)
{
    if (!t->hostile)
        return is_held(&t->held[s][r][content]);
    for (unsigned k = 0; k < BLOCKS; k++)
        if (t->held[s][r][k].content == content && is_held(&t->held[s][r][k]))
            return true;
    return false;
}

static void store(struct twin *t, unsigned s, unsigned r, unsigned k, unsigned content, enum kv_tier tier)
{
    const struct content *c = &t->content[content];
    struct kv_store w = {
        .hash = hash_of(s, r, k),
        .is_first = c->before == NOBODY,
        .before = c->before == NOBODY ? 0 : hash_of(s, r, c->before),
        .root = t->root[c->root],
        .digest = kv_digest(c->token, BS),
        .tier = tier,
    };
    struct holding *h = &t->held[s][r][k];
    if (h->content != content)
        *h = (struct holding){.content = (uint16_t)content};
    h->copies[tier] += h->copies[tier] < KV_COPIES_MAX;
    assert_int_not_equal(kv_source_store(t->source[s], r, &w, BS, 0), KV_REFUSED);
}

static void remove_block(struct twin *t, unsigned s, unsigned r, unsigned k, enum kv_tier tier)
{
    struct holding *h = &t->held[s][r][k];
    h->copies[tier] -= h->copies[tier] > 0;
    if (t->fault_every && t->ops % t->fault_every == 0)
        return;
    kv_source_remove(t->source[s], r, hash_of(s, r, k), tier);
}

/* A prompt out of the tree, some tokens of it perhaps others; its tokens less than one block behind are the
 * partial block that never counts. */
static unsigned write_prompt(struct twin *t, unsigned k, uint32_t *token, unsigned *ret_n)
{
    unsigned depth = t->content[k].depth, at = k;
    for (unsigned d = depth; d-- > 0; at = t->content[at].before)
        memcpy(token + d * BS, t->content[at].token, sizeof t->content[at].token);
    unsigned n = depth * BS, more = below(t, BS);
    for (unsigned i = 0; i < more; i++)
        token[n++] = 7;
    if (below(t, 8) == 0)
        token[below(t, n)] += 1000000;
    *ret_n = n;
    return depth;
}

/* Tokens of the leading blocks of <token> that the rank has, and the weighted sum of them. */
static unsigned expected(const struct twin *t, unsigned s, unsigned r, unsigned k, const uint32_t *token,
                         double *ret_weighted)
{
    uint16_t path[DEPTH];
    unsigned depth = t->content[k].depth, at = k, n = 0;
    for (unsigned d = depth; d-- > 0; at = t->content[at].before)
        path[d] = (uint16_t)at;
    *ret_weighted = 0;
    for (; n < depth && has(t, s, r, path[n]); n++) {
        if (memcmp(token + n * BS, t->content[path[n]].token, sizeof t->content[0].token) != 0)
            break;
        *ret_weighted += t->held[s][r][path[n]].copies[0] ? BS : BS * KV_LOWER_SHARE;
    }
    return n * BS;
}

static void ask(struct twin *t)
{
    static uint32_t token[(DEPTH + 1) * BS];
    unsigned k = below(t, BLOCKS), n;
    write_prompt(t, k, token, &n);
    struct token_ids ids = {.id = token, .n = n};
    struct kv_ask question[SOURCES];
    struct kv_share got[SOURCES];
    unsigned root = t->content[k].root;
    for (unsigned s = 0; s < SOURCES; s++)
        question[s] = (struct kv_ask){t->source[s], root == 1 ? "adapter" : "base"};
    assert_true(kv_match(&ids, salt_of(root), 2, question, SOURCES, got));
    t->questions++;
    for (unsigned s = 0; s < SOURCES; s++) {
        unsigned most = 0;
        double best = 0;
        for (unsigned r = 0; r < ranks_of(s); r++) {
            double weighted;
            unsigned tokens = expected(t, s, r, k, token, &weighted);
            most = tokens > most ? tokens : most;
            best = weighted > best ? weighted : best;
        }
        t->credited += got[s].tokens;
        if (t->hostile || t->capped)
            t->different += got[s].tokens > most;
        else
            t->different += got[s].tokens != most || fabs(got[s].share - best / n) > 1e-5;
    }
}

static void step(struct twin *t)
{
    unsigned s = below(t, SOURCES), r = below(t, ranks_of(s)), k = below(t, BLOCKS), what = below(t, 1000);
    enum kv_tier tier = below(t, 4) ? KV_TIER_GPU : KV_TIER_LOWER;
    t->ops++;
    if (what == 0) {
        kv_source_clear(t->source[s], r);
        for (unsigned i = 0; i < BLOCKS; i++)
            t->held[s][r][i] = (struct holding){.content = (uint16_t)i};
    } else if (what < 60) { /* a whole prompt, head first */
        uint16_t path[DEPTH];
        unsigned depth = t->content[k].depth, at = k;
        for (unsigned d = depth; d-- > 0; at = t->content[at].before)
            path[d] = (uint16_t)at;
        for (unsigned d = 0; d < depth; d++)
            if (t->held[s][r][path[d]].content == path[d])
                store(t, s, r, path[d], path[d], KV_TIER_GPU);
    } else if (what < 350) {
        store(t, s, r, k, t->held[s][r][k].content, tier);
    } else if (what < 700) {
        remove_block(t, s, r, k, tier);
    } else if (what < 720 && t->hostile) {
        /* Another block under this hash. Only what stands behind known ones can be told from it. */
        unsigned content = below(t, BLOCKS), before = t->content[content].before;
        while (before != NOBODY && before != k && t->held[s][r][before].content == before &&
               is_held(&t->held[s][r][before]))
            before = t->content[before].before;
        if (before == NOBODY)
            store(t, s, r, k, content, tier);
    } else {
        ask(t);
    }
    if (t->ops % 50000 == 0)
        check_all(t);
    if (t->ops % 16 == 0)
        kv_sources_sweep(200);
}

static struct twin *twin_new(uint64_t seed, size_t cap)
{
    struct twin *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->capped = cap < BLOCKS;
    twin_init(t, seed, cap);
    return t;
}

static void a_million(void **state)
{
    (void)state;
    struct twin *t = twin_new(1, 10 * BLOCKS);
    while (t->ops < 1000000)
        step(t);
    assert_int_equal(t->different, 0);
    assert_true(t->questions > 200000 && t->credited > t->questions * BS);
    twin_fini(t);
    free(t);
}

static void faults_are_seen(void **state)
{
    (void)state;
    struct twin *t = twin_new(2, 10 * BLOCKS);
    t->fault_every = 1000; /* one in a thousand removals is forgotten */
    while (t->ops < 100000 && t->different == 0)
        step(t);
    assert_true(t->different > 0);
    twin_fini(t);
    free(t);
}

static void hostile(void **state)
{
    (void)state;
    struct twin *t = twin_new(3, 10 * BLOCKS);
    t->hostile = true;
    while (t->ops < 100000)
        step(t);
    assert_int_equal(t->different, 0);
    assert_true(t->credited > 0);
    twin_fini(t);
    free(t);
}

/* More than fits: never more than the cap, never a block that is not there. */
static void capped(void **state)
{
    (void)state;
    for (unsigned cap = 1; cap < 1000; cap *= 5) {
        struct twin *t = twin_new(4 + cap, cap);
        while (t->ops < 50000) {
            step(t);
            for (unsigned s = 0; s < SOURCES; s++)
                assert_true(kv_source_blocks(t->source[s]) <= cap);
        }
        assert_int_equal(t->different, 0);
        twin_fini(t);
        free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million),
        cmocka_unit_test(faults_are_seen),
        cmocka_unit_test(hostile),
        cmocka_unit_test(capped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
