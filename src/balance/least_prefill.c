/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the prompt is read soonest (A20). For each candidate, in tokens:
 *
 *     what waits there + miss_weight * what of this prompt is not cached there + what it puts out there
 *
 * divided by the rate at which that replica reads. The second term weighs more than the waiting it causes,
 * since a prompt that is read in a second place takes room in both. The third is the second as far as the
 * cache has no room left: so a pool that is not busy uses all of its caches. There is no threshold and no
 * guard: a cache that is worth more than the wait for it wins, and only then.
 *
 * Equal costs, always: fewest prompts recorded for the size of the cache (R1), then by turns.
 *
 * A pick only reads, and charges the chosen one's provider: no lock, and the same cost however much of the
 * prompt is new. What it means for the mirrors is told by balance_record, when the request is on its way;
 * until then a claim tells the picks of other threads (prefill_claims.h).
 */
#include <limits.h>
#include <stdlib.h>

#include "balance/affinity.h"
#include "balance/block_chain.h"
#include "balance/prefill_memory.h"
#include "base/bits.h"
#include "base/hash.h"
#include "base/mem.h"
#include "fleet/prefill.h"

enum { ON_STACK = 512 };

/* Learnt rates closer to the mean than this are taken for equal: what is left is noise, and would send all
 * prompts of an idle pool to the same replica. */
#define RATE_SLACK 0.25
/* As long as nobody knows better; with equal rates it only scales the figures that people see. */
#define RATE_DEFAULT 8000.0

/* A replica that is new among others has one request and two more for each one that it answered. */
enum { RAMP_ANSWERS = 8 };

/* What a pick knows of its candidates, in their order: columns, so that many are weighed at a time. */
struct table {
    unsigned n;
    /* Those of the pool itself when all of its targets are candidates. */
    struct provider *const *provider;
    const struct mirror_lane_set *lanes;
    const uint32_t *lane;
    const uint32_t *index; /* position of the target in the pool; NULL: that of the candidate */
    double *backlog;       /* tokens */
    double *rate;          /* tokens a second */
    double *has;           /* bytes of the prompt that are there, or count as if */
    double *cost;          /* seconds */
    uint64_t *rank;        /* the lower the better */
    uint32_t *depth, *room;
    bool *is_barred; /* full, or new and busy: only if all are */
    struct mirror_lane_set some;
};
enum { TABLE_BYTES = 6 * sizeof(uint64_t) + 4 * sizeof(uint32_t) + sizeof(bool) };

/* In <stack>, which has room for ON_STACK candidates. Returns what is to be freed. */
static void *table_init(struct table *t, const struct balancer *b, const struct candidates *set,
                        uint64_t *stack)
{
    const struct prefill_state *s = b->state;
    size_t n = set->count;
    void *memory = n > ON_STACK ? mem_alloc(n * TABLE_BYTES) : NULL;
    uint64_t *at = memory ? memory : stack;
    double *number = (double *)at;
    struct provider **provider = (struct provider **)(at + 5 * n);
    uint32_t *lane = (uint32_t *)(at + 6 * n), *index = lane + n;
    t->n = set->count;
    t->provider = b->providers;
    t->lanes = &s->lanes;
    t->lane = s->lane;
    t->index = NULL;
    t->rank = at;
    t->backlog = number + n;
    t->rate = number + 2 * n;
    t->has = number + 3 * n;
    t->cost = number + 4 * n;
    t->depth = index + n;
    t->room = index + 2 * n;
    t->is_barred = (bool *)(index + 3 * n);
    if (set->count == b->n)
        return memory;
    unsigned k = 0;
    CANDIDATES_EACH(i, set)
    {
        provider[k] = b->providers[i];
        lane[k] = s->lane[i];
        index[k++] = (uint32_t)i;
    }
    t->provider = provider;
    t->lane = lane;
    t->index = index;
    mirror_lane_set_init(&t->some, lane, set->count);
    t->lanes = &t->some;
    return memory;
}

static inline unsigned index_of(const struct table *t, unsigned k)
{
    return t->index ? t->index[k] : k;
}

/* A replica that was restarted or came back from the dead has lost its cache (A18). One atomic read when
 * nothing has changed. */
static inline void look(const struct prefill_state *s, uint32_t lane, unsigned generation)
{
    if (lane == MIRROR_NO_LANE)
        return;
    uint32_t now = generation + 1, seen = atomic_load_explicit(&s->memory->seen[lane], memory_order_relaxed);
    if (LIKELY(seen == now) || !atomic_compare_exchange_strong(&s->memory->seen[lane], &seen, now))
        return;
    if (seen == 0 || mirror_warmth(s->memory->mirror, lane) == 0)
        return;
    struct prefix_loop *loop = prefill_loop(s->memory, lane);
    mirror_reset(s->memory->mirror, lane);
    prefix_loop_forget(loop);
    atomic_fetch_add_explicit(&loop->resets[MIRROR_RESTARTED], 1, memory_order_relaxed);
}

/* Those that are new while others are not get little at first. */
static void bar_new_ones(struct table *t)
{
    for (unsigned k = 0; k < t->n; k++) {
        unsigned answers = provider_prefill_answers(t->provider[k]);
        t->is_barred[k] |= answers < RAMP_ANSWERS && provider_prefill_open(t->provider[k]) > 2 * answers;
    }
}

/* Returns the mean of the rates that are known, tokens a second. */
static double gather(const struct balancer *b, const struct pick_context *c, struct table *t)
{
    struct prefill_state *s = b->state;
    struct prefill_summary sum = providers_prefill_look(t->provider, t->n, RAMP_ANSWERS, c->now_us, c->now_ms,
                                                        t->backlog, t->rate, t->is_barred);
    if (t->index || sum.generations != atomic_load_explicit(&s->generations, memory_order_relaxed)) {
        for (unsigned k = 0; k < t->n; k++)
            look(s, t->lane[k], provider_generation(t->provider[k]));
        if (!t->index) /* of all: nothing to look for until it changes */
            atomic_store_explicit(&s->generations, sum.generations, memory_order_relaxed);
    }
    if (sum.new_ones > 0 && sum.new_ones < t->n)
        bar_new_ones(t);
    return sum.known > 0 ? sum.rates / sum.known : RATE_DEFAULT;
}

/* Without branches, as it is asked of many. */
static inline double rate_of(double rate, double low, double mean, double high)
{
    return (rate <= 0) | ((rate > low) & (rate < high)) ? mean : rate;
}

/* The owner, which has the highest number of all candidates for this home, so that every gateway finds the
 * same, counts as having a part of the prompt. */
static void favour_owner(const struct balancer *b, const struct pick_context *c, struct table *t)
{
    const struct prefill_state *s = b->state;
    unsigned owner = 0;
    uint64_t most = 0;
    if (b->settings.home_bonus <= 0 || c->blocks.home == 0)
        return;
    for (unsigned k = 0; k < t->n; k++) {
        uint64_t lot = hash_mix(c->blocks.home, s->name[index_of(t, k)]);
        if (k == 0 || lot > most) {
            owner = k;
            most = lot;
        }
    }
    double bonus = b->settings.home_bonus * (double)c->blocks.bytes;
    t->has[owner] = bonus > t->has[owner] ? bonus : t->has[owner];
}

static double uncached_tokens(const struct pick_context *c, double held_bytes, double token_bytes)
{
    double bytes = (double)c->blocks.bytes - held_bytes;
    return bytes > 0 ? bytes / token_bytes : 0;
}

static inline double greater(double x, double y)
{
    return x > y ? x : y;
}

/* What others are about to record counts as recorded. */
static void add_claims(const struct prefill_state *s, const struct pick_context *c, struct table *t)
{
    const struct prefill_claims *claims = &s->memory->claims;
    uint64_t shown = atomic_load_explicit(&claims->shown, memory_order_acquire);
    for (; UNLIKELY(shown != 0); shown &= shown - 1) {
        uint32_t lane, depth = prefill_claim_match(claims, (unsigned)__builtin_ctzll(shown), c->blocks.key,
                                                   c->blocks.n, &lane);
        for (unsigned k = 0; depth > 0 && k < t->n; k++)
            if (t->lane[k] == lane && depth > t->depth[k])
                t->depth[k] = depth;
    }
}

static void weigh(const struct balancer *b, const struct pick_context *c, double mean, struct table *t)
{
    const struct prefill_state *s = b->state;
    const struct mirror *m = s->memory->mirror;
    unsigned n = t->n;
    double bytes = (double)c->blocks.bytes, tokens = 1 / prefill_token_bytes(s->memory),
           miss_weight = b->settings.miss_weight, least = AFFINITY_SHARE_MIN * bytes;
    mirror_match(m, c->blocks.key, c->blocks.n, t->lanes, t->depth, t->room);
    add_claims(s, c, t);
    const double *restrict backlog = t->backlog, *restrict rate = t->rate;
    const uint32_t *restrict depth = t->depth, *restrict room = t->room;
    double *restrict has = t->has, *restrict cost = t->cost;
    /* A common beginning, a role word or a greeting, must not draw cold prompts together (A11). */
    for (unsigned k = 0; k < n; k++) {
        double there = block_bytes(depth[k]);
        has[k] = there < least ? 0 : there;
    }
    favour_owner(b, c, t);
    double low = mean * (1 - RATE_SLACK), high = mean * (1 + RATE_SLACK);
    for (unsigned k = 0; k < n; k++) {
        double miss = greater(bytes - has[k], 0), out = greater(miss - block_bytes(room[k]), 0);
        cost[k] = (backlog[k] + (miss_weight * miss + out) * tokens) / rate_of(rate[k], low, mean, high);
    }
}

/* Prompts for the size of the cache. */
static uint64_t heat_of(const struct balancer *b, const struct table *t, unsigned k)
{
    const struct prefill_state *s = b->state;
    if (t->lane[k] == MIRROR_NO_LANE)
        return target_served(b->targets[index_of(t, k)].target);
    return mirror_heat(s->memory->mirror, t->lane[k]);
}

/* Ranks: the cost as an integer of the same order, as it is never negative; full ones, and new ones that are
 * busy, come after all others. Returns the lowest two, which may be the same. */
static void make_ranks(struct table *t, uint64_t ret[2])
{
    const double *restrict cost = t->cost;
    const bool *restrict is_barred = t->is_barred;
    uint64_t *restrict rank = t->rank, first = UINT64_MAX, second = UINT64_MAX;
    for (unsigned k = 0; k < t->n; k++) {
        uint64_t at = double_to_bits(cost[k]) | (uint64_t)is_barred[k] << 63, more = at > first ? at : first;
        rank[k] = at;
        second = more < second ? more : second;
        first = at < first ? at : first;
    }
    ret[0] = first;
    ret[1] = second;
}

/* The first one of this rank that is not <but>. There is one. */
static unsigned find_rank(const struct table *t, uint64_t rank, unsigned but)
{
    unsigned k = 0;
    while (t->rank[k] != rank || k == but)
        k++;
    return k;
}

/* Of those of this rank: the coolest, then by turns. */
static unsigned coolest(struct balancer *b, const struct table *t, uint64_t rank)
{
    uint64_t least = UINT64_MAX;
    unsigned equal = 0;
    for (unsigned k = 0; k < t->n; k++) {
        if (t->rank[k] != rank)
            continue;
        uint64_t heat = heat_of(b, t, k);
        equal = heat < least ? 1 : equal + (heat == least);
        least = heat < least ? heat : least;
    }
    uint64_t turn = atomic_fetch_add_explicit(&b->ticket, 1, memory_order_relaxed) % equal;
    for (unsigned k = 0; k < t->n; k++)
        if (t->rank[k] == rank && heat_of(b, t, k) <= least && turn-- == 0)
            return k;
    return find_rank(t, rank, UINT_MAX); /* another thread has recorded for it meanwhile */
}

/* The pick's end: the prompt's tokens are charged to the chosen one. */
static void charge(struct balancer *b, const struct pick_context *c, unsigned index, uint32_t depth,
                   struct pick *p)
{
    const struct prefill_state *s = b->state;
    uint32_t lane = s->lane[index];
    struct prefill_receipt *r = &p->receipt.prefill;
    double uncached = uncached_tokens(c, block_bytes(depth), prefill_token_bytes(s->memory));
    *r = (struct prefill_receipt){.picked_us = c->now_us,
                                  .bytes = c->blocks.bytes,
                                  .target = index,
                                  .charge =
                                      uncached < PREFILL_CHARGE_MAX ? (uint32_t)uncached : PREFILL_CHARGE_MAX,
                                  .depth = depth,
                                  .settled = depth,
                                  .is_charged = true};
    provider_prefill_begin(b->providers[index], r->charge, c->now_us);
    p->why.has_cost = true;
    p->why.uncached = r->charge;
    p->why.has_share = c->blocks.bytes > 0;
    p->why.share = c->blocks.bytes > 0 ? (float)(block_bytes(depth) / (double)c->blocks.bytes) : 0;
    if (lane == MIRROR_NO_LANE)
        return;
    r->generation = mirror_generation(s->memory->mirror, lane);
    r->is_predicted = true;
    if (depth < c->blocks.n)
        r->claim = prefill_claim_begin(&s->memory->claims, lane, c->blocks.key, c->blocks.n);
}

/* The prompt is the chosen one's from now on. */
static void record(struct balancer *b, const struct prompt_blocks *blocks, struct pick_receipt *receipt)
{
    const struct prefill_state *s = b->state;
    struct prefill_receipt *r = &receipt->prefill;
    uint32_t lane = s->lane[r->target];
    if (lane == MIRROR_NO_LANE)
        return;
    struct prefix_loop *loop = prefill_loop(s->memory, lane);
    r->settled = prefix_loop_settled(loop, blocks->key, r->depth);
    r->mirror = mirror_record(s->memory->mirror, lane, blocks->key, blocks->n);
    if (r->mirror.generation && r->mirror.before < r->settled) /* a claim that is not recorded yet */
        r->settled = r->mirror.before;
    prefill_claim_end(&s->memory->claims, r->claim);
    r->claim = 0;
    if (r->mirror.depth <= r->mirror.before)
        return;
    uint32_t before = r->mirror.before;
    if (r->is_charged) /* else its first token has come */
        r->open = prefix_loop_open(loop, blocks->key[before], before);
    const struct placement_sink *sink = &s->memory->sink;
    if (sink->placed)
        sink->placed(sink->arg, &(struct placement){.target = target_identity(b->targets[r->target].target),
                                                    .after = before ? blocks->key[before - 1] : 0,
                                                    .before = before,
                                                    .n = r->mirror.depth - before,
                                                    .keys = blocks->key + before});
}

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    struct table t;
    uint64_t stack[(ON_STACK * TABLE_BYTES + sizeof(uint64_t) - 1) / sizeof(uint64_t)];
    void *memory = table_init(&t, b, set, stack);
    uint64_t low[2];
    const struct prefill_state *s = b->state;
    mirror_enter();
    mirror_prefetch(s->memory->mirror, t.lane[0], c->blocks.key, c->blocks.n);
    weigh(b, c, gather(b, c, &t), &t);
    make_ranks(&t, low);
    unsigned k = low[0] == low[1] ? coolest(b, &t, low[0]) : find_rank(&t, low[0], UINT_MAX),
             next = find_rank(&t, low[1], k), index = index_of(&t, k);
    p->why.runner_up = (int)index_of(&t, next);
    p->why.cost_ms = (float)(t.cost[k] * 1000);
    p->why.backlog = (uint32_t)t.backlog[k];
    p->why.runner_up_cost_ms = (float)(t.cost[next] * 1000);
    charge(b, c, index, t.depth[k], p);
    mirror_leave();
    free(memory);
    return (struct choice){(int)index, PICK_PREFILL};
}

/* One candidate only: it gets the prompt and its charge all the same. */
static void only(struct balancer *b, const struct pick_context *c, unsigned index, struct pick *p)
{
    const struct prefill_state *s = b->state;
    const struct provider *x = b->providers[index];
    double rate = provider_prefill_rate(x, c->now_us);
    uint32_t depth, room;
    struct mirror_lane_set set;
    mirror_lane_set_init(&set, &s->lane[index], 1);
    mirror_enter();
    look(s, s->lane[index], provider_generation(x));
    mirror_match(s->memory->mirror, c->blocks.key, c->blocks.n, &set, &depth, &room);
    p->why.backlog = (uint32_t)provider_prefill_backlog(x, c->now_us);
    charge(b, c, index, depth, p);
    rate = rate_of(rate, RATE_DEFAULT * (1 - RATE_SLACK), RATE_DEFAULT, RATE_DEFAULT * (1 + RATE_SLACK));
    p->why.cost_ms = (float)((p->why.backlog + b->settings.miss_weight * p->why.uncached) / rate * 1000);
    mirror_leave();
}

static void withdraw(struct balancer *b, const struct pick_receipt *receipt)
{
    const struct prefill_state *s = b->state;
    mirror_withdraw(s->memory->mirror, &receipt->prefill.mirror);
}

static void set_sink(struct balancer *b, const struct placement_sink *sink)
{
    const struct prefill_state *s = b->state;
    struct placement_sink next = sink ? *sink : (struct placement_sink){0};
    if (s->memory->sink.placed != next.placed || s->memory->sink.arg != next.arg)
        s->memory->sink = next; /* with the same one others pick meanwhile */
}

static enum place_result place(struct balancer *b, const struct placement *p)
{
    const struct prefill_state *s = b->state;
    int i = balancer_find(b, p->target);
    if (i < 0)
        return PLACE_NOBODY;
    return mirror_extend(s->memory->mirror, s->lane[i], p->after, p->before, p->keys, p->n) ? PLACE_DONE
                                                                                            : PLACE_LOOSE;
}

static void start(struct balancer *b, struct balancer *previous)
{
    struct prefill_state *s = MEM_NEW(struct prefill_state);
    const struct prefill_state *before = previous ? previous->state : NULL;
    s->memory = before ? prefill_memory_ref(before->memory) : prefill_memory_new();
    s->lane = mem_array(b->n, sizeof *s->lane);
    s->name = mem_array(b->n, sizeof *s->name);
    uint64_t *identity = mem_array(b->n, sizeof *identity);
    uint32_t *blocks = mem_array(b->n, sizeof *blocks);
    for (unsigned i = 0; i < b->n; i++) {
        const char *name = provider_name(b->providers[i]);
        s->name[i] = hash_bytes(name, strlen(name));
        identity[i] = target_identity(b->targets[i].target);
        blocks[i] = prefill_blocks(s->memory, &b->targets[i], 1);
        /* Tokens may turn out longer than they are taken for. */
        blocks[i] = blocks[i] < MIRROR_BLOCKS_MAX / 2 ? blocks[i] + blocks[i] / 4 : blocks[i];
    }
    mirror_lanes_get(s->memory->mirror, identity, blocks, b->n, s->lane);
    mirror_lane_set_init(&s->lanes, s->lane, b->n);
    for (unsigned i = 0; i < b->n; i++)
        if (s->lane[i] != MIRROR_NO_LANE) {
            prefill_loop_make(s->memory, s->lane[i], identity[i]);
            mirror_lane_resize(s->memory->mirror, s->lane[i],
                               prefill_blocks(s->memory, &b->targets[i],
                                              (double)prefill_loop(s->memory, s->lane[i])->scale));
        }
    free(identity);
    free(blocks);
    b->state = s;
    if (previous)
        atomic_init(&b->ticket, atomic_load_explicit(&previous->ticket, memory_order_relaxed));
}

static void stop(struct balancer *b)
{
    struct prefill_state *s = b->state;
    if (!s)
        return;
    for (unsigned i = 0; i < b->n; i++)
        mirror_lane_put(s->memory->mirror, s->lane[i]);
    prefill_memory_unref(s->memory);
    free(s->lane);
    free(s->name);
    free(s);
}

const struct strategy strategy_least_prefill = {
    .name = "least_prefill",
    .reads_blocks = true,
    .start = start,
    .stop = stop,
    .choose = choose,
    .only = only,
    .record = record,
    .withdraw = withdraw,
    .first_token = prefill_first_token,
    .learn = prefill_learn,
    .tend = prefill_tend,
    .take_resets = prefill_take_resets,
    .mirror_stats = prefill_mirror_stats,
    .set_sink = set_sink,
    .place = place,
};
