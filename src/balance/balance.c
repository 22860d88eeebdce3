/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/balance.h"

#include <stdlib.h>

#include "balance/session_map.h"
#include "balance/strategy.h"
#include "base/mem.h"

static const struct strategy *const strategies[STRATEGY_COUNT] = {
    [STRATEGY_ROUND_ROBIN] = &strategy_round_robin,
    [STRATEGY_RANDOM] = &strategy_random,
    [STRATEGY_WEIGHTED] = &strategy_weighted,
    [STRATEGY_POWER_OF_TWO] = &strategy_two_choices,
    [STRATEGY_LEAST_LOAD] = &strategy_least_load,
    [STRATEGY_CONSISTENT_HASH] = &strategy_hash_ring,
    [STRATEGY_CACHE_AWARE] = &strategy_cache_aware,
    [STRATEGY_PIPELINE] = &strategy_pipeline,
    [STRATEGY_CHEAPEST] = &strategy_cheapest,
    [STRATEGY_FASTEST] = &strategy_fastest,
    [STRATEGY_PREDICTED_LATENCY] = &strategy_predicted_latency,
    [STRATEGY_PRECISE_CACHE_AWARE] = &strategy_precise,
    [STRATEGY_LMCACHE_AWARE] = &strategy_lmcache,
    [STRATEGY_LEAST_PREFILL] = &strategy_least_prefill,
};

const char *strategy_name(enum strategy_id id)
{
    CHECK((unsigned)id < STRATEGY_COUNT);
    return strategies[id]->name;
}

bool strategy_by_name(struct span name, enum strategy_id *ret)
{
    for (unsigned i = 0; i < STRATEGY_COUNT; i++)
        if (span_eq(name, span_str(strategies[i]->name))) {
            *ret = (enum strategy_id)i;
            return true;
        }
    return false;
}

bool strategy_reads_prompt(enum strategy_id id)
{
    CHECK((unsigned)id < STRATEGY_COUNT);
    return strategies[id]->reads_prompt;
}

bool strategy_reads_blocks(enum strategy_id id)
{
    CHECK((unsigned)id < STRATEGY_COUNT);
    return strategies[id]->reads_blocks;
}

bool strategy_reads_tokens(enum strategy_id id)
{
    CHECK((unsigned)id < STRATEGY_COUNT);
    return strategies[id]->reads_tokens;
}

const char *pick_reason_name(enum pick_reason r)
{
    static const char *const names[PICK_REASON_COUNT] = {
        [PICK_NONE] = "none",
        [PICK_ONLY] = "only",
        [PICK_ROTATION] = "rotation",
        [PICK_RANDOM] = "random",
        [PICK_WEIGHT] = "weight",
        [PICK_LEAST_LOAD] = "least_load",
        [PICK_TWO_CHOICES] = "two_choices",
        [PICK_SCORE] = "score",
        [PICK_EXPLORE] = "explore",
        [PICK_HASH] = "hash",
        [PICK_HASH_NEXT] = "hash_next",
        [PICK_AFFINITY] = "affinity",
        [PICK_GUARD] = "guard",
        [PICK_PREFILL] = "prefill",
        [PICK_FAIL_OPEN] = "fail_open",
    };
    CHECK((unsigned)r < PICK_REASON_COUNT);
    return names[r];
}

/* Life cycle */

static bool is_same_settings(const struct strategy_settings *x, const struct strategy_settings *y)
{
    return x->threshold == y->threshold && x->balance_abs == y->balance_abs &&
           x->balance_rel == y->balance_rel && x->limits.max_nodes == y->limits.max_nodes &&
           x->limits.max_bytes == y->limits.max_bytes && x->miss_weight == y->miss_weight &&
           x->home_bonus == y->home_bonus;
}

/* Whether <b> could not be told from what is asked for. */
static bool is_as_asked(const struct balancer *b, enum strategy_id id, const struct pool_target *targets,
                        unsigned n, const struct strategy_settings *settings)
{
    if (b->id != id || b->n != n || !is_same_settings(&b->settings, settings))
        return false;
    for (unsigned i = 0; i < n; i++) {
        const struct pool_target *x = &b->targets[i], *y = &targets[i];
        if (x->target != y->target || x->weight != (y->weight ? y->weight : 1) ||
            x->cost_known != y->cost_known || (x->cost_known && x->cost != y->cost) || x->kv != y->kv ||
            x->cache_tokens != y->cache_tokens)
            return false;
    }
    return true;
}

/* A route that changes from one strategy to another goes on with what both of them keep. */
static void take_over_learnt(struct balancer *b, const struct balancer *previous)
{
    if (b->strategy->keeps_prompts)
        b->prompts = previous && previous->prompts ? prefix_index_ref(previous->prompts)
                                                   : prefix_index_new(b->settings.limits);
    if (b->strategy->keeps_sessions)
        b->sessions =
            previous && previous->sessions ? session_map_ref(previous->sessions) : session_map_new();
}

struct balancer *balancer_new(enum strategy_id id, const struct pool_target *targets, unsigned n,
                              const struct strategy_settings *settings, struct balancer *previous)
{
    CHECK((unsigned)id < STRATEGY_COUNT);
    struct strategy_settings wanted = settings ? *settings : STRATEGY_SETTINGS_DEFAULT;
    /* Threads pick from the previous one until each has taken the new plan over. With a counter of its own
     * for the new one, turns would be given twice or to nobody meanwhile. */
    if (previous && is_as_asked(previous, id, targets, n, &wanted))
        return balancer_ref(previous);
    struct balancer *b = aligned_alloc(_Alignof(struct balancer), sizeof *b);
    CHECK_MSG(b != NULL, "out of memory");
    memset(b, 0, sizeof *b);
    b->magic = BALANCER_MAGIC;
    atomic_init(&b->refs, 1);
    b->id = id;
    b->strategy = strategies[id];
    b->settings = wanted;
    b->n = n;
    b->targets = mem_array(n > 0 ? n : 1, sizeof *b->targets);
    b->providers = mem_array(n > 0 ? n : 1, sizeof *b->providers);
    for (unsigned i = 0; i < n; i++) {
        b->targets[i] = targets[i];
        b->targets[i].weight = targets[i].weight ? targets[i].weight : 1;
        b->providers[i] = target_provider(targets[i].target);
    }
    take_over_learnt(b, previous);
    if (b->strategy->start && n > 0)
        b->strategy->start(b, previous && previous->id == id && previous->n > 0 ? previous : NULL);
    return b;
}

struct balancer *balancer_ref(struct balancer *b)
{
    MAGIC_CHECK(b, BALANCER_MAGIC);
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void balancer_unref(struct balancer *b)
{
    if (!b)
        return;
    MAGIC_CHECK(b, BALANCER_MAGIC);
    unsigned before = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel);
    CHECK_MSG(before > 0, "more references given back than taken");
    if (before > 1)
        return;
    if (b->strategy->stop)
        b->strategy->stop(b);
    prefix_index_unref(b->prompts);
    session_map_unref(b->sessions);
    free(b->targets);
    free(b->providers);
    b->magic = 0;
    free(b);
}

enum strategy_id balancer_strategy(const struct balancer *b)
{
    return b->id;
}

unsigned balancer_size(const struct balancer *b)
{
    return b->n;
}

struct target *balancer_target(const struct balancer *b, unsigned i)
{
    CHECK(i < b->n);
    return b->targets[i].target;
}

int balancer_find(const struct balancer *b, uint64_t identity)
{
    for (unsigned i = 0; i < b->n; i++)
        if (target_identity(b->targets[i].target) == identity)
            return (int)i;
    return -1;
}

/* Sets */

static unsigned words_of(unsigned n)
{
    return (n + 63) / 64;
}

void target_set_init(struct target_set *s, unsigned n, uint64_t *many_words)
{
    CHECK_MSG(n <= 64 || many_words != NULL, "a pool of more than 64 targets needs words for its sets");
    *s = (struct target_set){.n = n, .many = n > 64 ? many_words : NULL};
    if (s->many)
        memset(s->many, 0, words_of(n) * sizeof *s->many);
}

static const uint64_t *words(const struct target_set *s)
{
    return s->many ? s->many : &s->one;
}

bool target_set_empty(const struct target_set *s)
{
    const uint64_t *w = words(s);
    for (unsigned i = 0; i < words_of(s->n); i++)
        if (w[i])
            return false;
    return true;
}

bool balance_fill_eligible(const struct balancer *b, const struct reliability *r, struct pick_context *c)
{
    CHECK(c->allowed.n == b->n && c->eligible.n == b->n);
    const uint64_t *allowed = words(&c->allowed);
    uint64_t *eligible = c->eligible.many ? c->eligible.many : &c->eligible.one;
    uint64_t any = 0;
    for (unsigned w = 0; w < words_of(b->n); w++) {
        uint64_t usable = 0;
        for (uint64_t left = allowed[w]; left; left &= left - 1) {
            unsigned bit = (unsigned)__builtin_ctzll(left);
            if (target_state(b->targets[w * 64 + bit].target, r, c->now_ms) == TARGET_USABLE)
                usable |= (uint64_t)1 << bit;
        }
        eligible[w] = usable;
        any |= usable;
    }
    return any != 0;
}

/* Candidates */

unsigned candidates_nth(const struct candidates *s, unsigned k)
{
    for (unsigned w = 0; w < s->words; w++) {
        uint64_t left = s->a[w] & s->b[w];
        unsigned here = bits_count(left);
        if (k >= here) {
            k -= here;
            continue;
        }
        while (k-- > 0)
            left &= left - 1;
        return w * 64 + (unsigned)__builtin_ctzll(left);
    }
    UNREACHABLE();
}

unsigned candidates_from(const struct candidates *s, unsigned from)
{
    uint64_t mask = UINT64_MAX << (from % 64);
    for (unsigned i = 0, w = from / 64; i <= s->words; i++, mask = UINT64_MAX) {
        uint64_t left = s->a[w] & s->b[w] & mask;
        if (left)
            return w * 64 + (unsigned)__builtin_ctzll(left);
        w = w + 1 < s->words ? w + 1 : 0;
    }
    UNREACHABLE();
}

/* Candidates are in both sets, whatever the caller put into the second. */
static struct candidates candidates_of(const struct target_set *a, const struct target_set *b)
{
    struct candidates s = {.a = words(a), .b = words(b), .n = a->n, .words = words_of(a->n)};
    for (unsigned w = 0; w < s.words; w++)
        s.count += bits_count(s.a[w] & s.b[w]);
    return s;
}

struct pick balance_pick(struct balancer *b, const struct pick_context *c)
{
    MAGIC_CHECK(b, BALANCER_MAGIC);
    CHECK(c->allowed.n == b->n && c->eligible.n == b->n);
    struct pick p = {.index = -1, .reason = PICK_NONE, .why.runner_up = -1};
    struct candidates set = candidates_of(&c->allowed, &c->eligible);
    if (set.count == 0) {
        set = candidates_of(&c->allowed, &c->allowed);
        p.fail_open = set.count > 0;
    }
    if (set.count == 0)
        return p;
    if (set.count == 1) {
        p.index = (int)candidates_nth(&set, 0);
        p.reason = PICK_ONLY;
        if (b->strategy->only)
            b->strategy->only(b, c, (unsigned)p.index, &p);
        return p;
    }
    struct choice choice = b->strategy->choose(b, c, &set, &p);
    p.index = choice.index;
    p.reason = choice.reason;
    return p;
}

bool balancer_mirror_stats(const struct balancer *b, unsigned i, struct mirror_stats *ret)
{
    CHECK(i < b->n);
    return b->strategy->mirror_stats && b->strategy->mirror_stats(b, i, ret);
}

bool strategy_predicts(enum strategy_id id)
{
    CHECK((unsigned)id < STRATEGY_COUNT);
    const struct strategy *s = strategies[id];
    return s->keeps_prompts || s->reads_blocks || s->reads_tokens;
}

double pick_predicted_share(const struct pick *p)
{
    double share = p->why.has_resident ? (double)p->why.resident
                   : p->why.has_share  ? (double)p->why.share
                                       : -1;
    return share > 1 ? 1 : share;
}

bool balancer_prefix_stats(const struct balancer *b, unsigned i, struct prefix_stats *ret)
{
    CHECK(i < b->n);
    if (!b->strategy->prefix_stats)
        return false;
    b->strategy->prefix_stats(b, i, ret);
    return true;
}

void balance_record(struct balancer *b, const struct prompt_blocks *blocks, struct pick_receipt *receipt)
{
    MAGIC_CHECK(b, BALANCER_MAGIC);
    if (b->strategy->record)
        b->strategy->record(b, blocks, receipt);
}

unsigned balance_settle(struct balancer *b, const struct pick_receipt *receipt)
{
    MAGIC_CHECK(b, BALANCER_MAGIC);
    return b->strategy->settle ? b->strategy->settle(b, receipt) : 0;
}

void balance_withdraw(struct balancer *b, const struct pick_receipt *receipt)
{
    MAGIC_CHECK(b, BALANCER_MAGIC);
    if (b->strategy->withdraw)
        b->strategy->withdraw(b, receipt);
}

void balance_first_token(struct balancer *b, struct pick_receipt *receipt, uint64_t now_us, bool is_timed)
{
    if (receipt->prefill.is_charged)
        b->strategy->first_token(b, receipt, now_us, is_timed);
    receipt->prefill.is_charged = false;
}

double balance_learn(struct balancer *b, struct pick_receipt *receipt, const struct prompt_usage *u)
{
    double error = -1;
    if (receipt->prefill.is_predicted)
        error = b->strategy->learn(b, receipt, u);
    receipt->prefill.is_predicted = false;
    return error;
}

void balance_tend(struct balancer *b)
{
    MAGIC_CHECK(b, BALANCER_MAGIC);
    if (b->strategy->tend && b->n > 0)
        b->strategy->tend(b);
}

unsigned balance_take_resets(struct balancer *b, unsigned i, enum mirror_reset why, bool *ret_is_news)
{
    CHECK(i < b->n);
    *ret_is_news = false;
    return b->strategy->take_resets ? b->strategy->take_resets(b, i, why, ret_is_news) : 0;
}

const char *mirror_reset_name(enum mirror_reset why)
{
    static const char *const names[MIRROR_RESET_COUNT] = {
        [MIRROR_RESTARTED] = "restarted",
        [MIRROR_DROPPED] = "dropped",
        [MIRROR_SHRUNK] = "shrunk",
    };
    CHECK((unsigned)why < MIRROR_RESET_COUNT);
    return names[why];
}

bool balance_set_sink(struct balancer *b, const struct placement_sink *sink)
{
    if (!b->strategy->set_sink || b->n == 0)
        return false;
    b->strategy->set_sink(b, sink);
    return true;
}

enum place_result balance_place(struct balancer *b, const struct placement *p)
{
    return b->strategy->place && b->n > 0 ? b->strategy->place(b, p) : PLACE_NOBODY;
}
