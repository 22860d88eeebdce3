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
 */
#include <stdlib.h>

#include "balance/affinity.h"
#include "balance/block_chain.h"
#include "balance/prefill_memory.h"
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

struct view {
    double cost;    /* seconds */
    double backlog; /* tokens */
    bool is_barred; /* full, or new and busy: only if all are */
};

struct table {
    uint32_t *lane, *depth;
    struct view *view;
    uint32_t lanes[ON_STACK], depths[ON_STACK];
    struct view views[ON_STACK];
};

static void table_init(struct table *t, unsigned n)
{
    bool large = n > ON_STACK;
    t->lane = large ? mem_array(n, sizeof *t->lane) : t->lanes;
    t->depth = large ? mem_array(n, sizeof *t->depth) : t->depths;
    t->view = large ? mem_array(n, sizeof *t->view) : t->views;
}

static void table_fini(struct table *t, unsigned n)
{
    if (n <= ON_STACK)
        return;
    free(t->lane);
    free(t->depth);
    free(t->view);
}

/* A replica that was restarted or came back from the dead has lost its cache (A18). One atomic read when
 * nothing has changed. */
static void look(const struct balancer *b, uint32_t lane, unsigned i)
{
    const struct prefill_state *s = b->state;
    if (lane == MIRROR_NO_LANE)
        return;
    struct prefix_loop *loop = prefill_loop(s->memory, lane);
    uint32_t now = provider_generation(b->providers[i]) + 1;
    uint32_t seen = atomic_load_explicit(&loop->seen_generation, memory_order_relaxed);
    if (LIKELY(seen == now) || !atomic_compare_exchange_strong(&loop->seen_generation, &seen, now))
        return;
    if (seen == 0 || mirror_warmth(s->memory->mirror, lane) == 0)
        return;
    mirror_reset(s->memory->mirror, lane);
    prefix_loop_forget(loop);
    atomic_fetch_add_explicit(&loop->resets[MIRROR_RESTARTED], 1, memory_order_relaxed);
}

/* The candidates' lanes packed, so that the search sees no others. */
static void match(const struct balancer *b, const struct pick_context *c, const struct candidates *set,
                  struct table *t)
{
    const struct prefill_state *s = b->state;
    unsigned n = 0;
    CANDIDATES_EACH(i, set)
    {
        look(b, s->lane[i], (unsigned)i);
        t->lane[n++] = s->lane[i];
    }
    mirror_match(s->memory->mirror, c->blocks.key, c->blocks.n, t->lane, n, t->depth);
}

/* The highest number of all candidates for this home; every gateway finds the same. */
static int owner_of(const struct balancer *b, const struct pick_context *c, const struct candidates *set)
{
    const struct prefill_state *s = b->state;
    int owner = -1;
    uint64_t most = 0;
    if (b->settings.home_bonus <= 0 || c->blocks.home == 0)
        return -1;
    CANDIDATES_EACH(i, set)
    {
        uint64_t lot = hash_mix(c->blocks.home, s->name[i]);
        if (owner < 0 || lot > most) {
            owner = (int)i;
            most = lot;
        }
    }
    return owner;
}

/* What the candidates have in common. */
struct pool_view {
    double mean;      /* of the rates that are known, tokens a second */
    unsigned answers; /* the most */
};

static struct pool_view look_around(const struct balancer *b, const struct candidates *set)
{
    struct pool_view v = {0};
    unsigned known = 0;
    CANDIDATES_EACH(i, set)
    {
        double rate = provider_prefill_rate(b->providers[i]);
        unsigned n = provider_prefill_answers(b->providers[i]);
        v.mean += rate;
        known += rate > 0;
        v.answers = n > v.answers ? n : v.answers;
    }
    v.mean = known > 0 ? v.mean / known : RATE_DEFAULT;
    return v;
}

static double rate_of(const struct provider *p, double mean)
{
    double rate = provider_prefill_rate(p);
    return rate <= 0 || (rate > mean * (1 - RATE_SLACK) && rate < mean * (1 + RATE_SLACK)) ? mean : rate;
}

static bool is_ramping(const struct provider *p, unsigned most)
{
    unsigned n = provider_prefill_answers(p);
    return n < RAMP_ANSWERS && most >= RAMP_ANSWERS && provider_prefill_open(p) > 2 * n;
}

static double uncached_tokens(const struct pick_context *c, double held_bytes, double token_bytes)
{
    double bytes = (double)c->blocks.bytes - held_bytes;
    return bytes > 0 ? bytes / token_bytes : 0;
}

/* A common beginning, a role word or a greeting, must not draw cold prompts together (A11). */
static double worth(const struct pick_context *c, uint32_t depth)
{
    double has = block_bytes(depth);
    return has < AFFINITY_SHARE_MIN * (double)c->blocks.bytes ? 0 : has;
}

/* Bytes that the replica can take without putting others out. */
static double room_of(const struct prefill_state *s, unsigned i)
{
    return s->lane[i] == MIRROR_NO_LANE ? 0 : block_bytes(mirror_room(s->memory->mirror, s->lane[i]));
}

/* t->depth is packed in the order of the candidates. */
static void weigh(const struct balancer *b, const struct pick_context *c, const struct candidates *set,
                  struct table *t)
{
    const struct prefill_state *s = b->state;
    double bytes = (double)c->blocks.bytes, tokens = 1 / prefill_token_bytes(s->memory);
    struct pool_view pool = look_around(b, set);
    int owner = owner_of(b, c, set);
    unsigned k = 0;
    CANDIDATES_EACH(i, set)
    {
        const struct provider *p = b->providers[i];
        double has = worth(c, t->depth[k++]), bonus = b->settings.home_bonus * bytes;
        has = (int)i == owner && bonus > has ? bonus : has;
        double miss = has < bytes ? bytes - has : 0, room = room_of(s, (unsigned)i);
        double out = miss > room ? miss - room : 0;
        struct view *v = &t->view[i];
        v->backlog = provider_prefill_backlog(p, c->now_us);
        v->cost = (v->backlog + (b->settings.miss_weight * miss + out) * tokens) / rate_of(p, pool.mean);
        v->is_barred = provider_is_full(p, c->now_ms) || is_ramping(p, pool.answers);
    }
}

/* Prompts for the size of the cache: a small one is full sooner. */
static uint64_t warmth_of(const struct balancer *b, unsigned i)
{
    const struct prefill_state *s = b->state;
    if (s->lane[i] == MIRROR_NO_LANE)
        return target_served(b->targets[i].target);
    return (mirror_warmth(s->memory->mirror, s->lane[i]) << 24) / mirror_size(s->memory->mirror, s->lane[i]);
}

static int order(const struct view *x, const struct view *y)
{
    if (x->is_barred != y->is_barred)
        return x->is_barred ? 1 : -1;
    return (x->cost > y->cost) - (x->cost < y->cost);
}

/* Of those that cost the same as <best>: the least warm, then by turns. */
static unsigned least_warm(struct balancer *b, const struct candidates *set, const struct view *view,
                           unsigned best)
{
    uint64_t least = UINT64_MAX;
    unsigned equal = 0;
    CANDIDATES_EACH(i, set)
    {
        if (order(&view[i], &view[best]) != 0)
            continue;
        uint64_t warmth = warmth_of(b, (unsigned)i);
        equal = warmth < least ? 1 : equal + (warmth == least);
        least = warmth < least ? warmth : least;
    }
    uint64_t turn = atomic_fetch_add_explicit(&b->ticket, 1, memory_order_relaxed) % equal;
    CANDIDATES_EACH(k, set)
    {
        if (order(&view[k], &view[best]) == 0 && warmth_of(b, (unsigned)k) <= least && turn-- == 0)
            return (unsigned)k;
    }
    return best; /* another thread has recorded for it meanwhile */
}

static unsigned cheapest(struct balancer *b, const struct candidates *set, const struct view *view)
{
    unsigned best = candidates_nth(set, 0), equal = 0;
    CANDIDATES_EACH(i, set)
    {
        int d = order(&view[i], &view[best]);
        equal = d < 0 ? 1 : equal + (d == 0);
        best = d < 0 ? (unsigned)i : best;
    }
    return equal == 1 ? best : least_warm(b, set, view, best);
}

static int next_best(const struct candidates *set, const struct view *view, unsigned chosen)
{
    int next = -1;
    CANDIDATES_EACH(i, set)
    {
        if ((unsigned)i != chosen && (next < 0 || order(&view[i], &view[next]) < 0))
            next = (int)i;
    }
    return next;
}

/* The pick's end: the prompt is the chosen one's from now on, and its tokens are charged. */
static void settle(struct balancer *b, const struct pick_context *c, unsigned index, uint32_t depth,
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
    struct prefix_loop *loop = prefill_loop(s->memory, lane);
    r->generation = mirror_generation(s->memory->mirror, lane);
    r->is_predicted = true;
    r->settled = prefix_loop_settled(loop, c->blocks.key, depth);
    r->mirror = mirror_record(s->memory->mirror, lane, c->blocks.key, c->blocks.n);
    if (r->mirror.depth <= r->mirror.before)
        return;
    r->open = prefix_loop_open(loop, c->blocks.key[r->mirror.before], r->mirror.before);
    const struct placement_sink *sink = &s->memory->sink;
    if (!sink->placed)
        return;
    uint32_t before = r->mirror.before;
    sink->placed(sink->arg, &(struct placement){.target = target_identity(b->targets[index].target),
                                                .after = before ? c->blocks.key[before - 1] : 0,
                                                .before = before,
                                                .n = r->mirror.depth - before,
                                                .keys = c->blocks.key + before});
}

static struct choice choose(struct balancer *b, const struct pick_context *c, const struct candidates *set,
                            struct pick *p)
{
    struct table t;
    table_init(&t, b->n);
    mirror_enter();
    match(b, c, set, &t);
    weigh(b, c, set, &t);
    unsigned index = cheapest(b, set, t.view), k = 0;
    p->why.runner_up = next_best(set, t.view, index);
    p->why.cost_ms = (float)(t.view[index].cost * 1000);
    p->why.backlog = (uint32_t)t.view[index].backlog;
    p->why.runner_up_cost_ms = p->why.runner_up < 0 ? 0 : (float)(t.view[p->why.runner_up].cost * 1000);
    CANDIDATES_EACH(i, set)
    {
        if (i == index)
            break;
        k++;
    }
    settle(b, c, index, t.depth[k], p);
    mirror_leave();
    table_fini(&t, b->n);
    return (struct choice){(int)index, PICK_PREFILL};
}

/* One candidate only: it gets the prompt and its charge all the same. */
static void only(struct balancer *b, const struct pick_context *c, unsigned index, struct pick *p)
{
    const struct prefill_state *s = b->state;
    uint32_t depth;
    mirror_enter();
    look(b, s->lane[index], index);
    mirror_match(s->memory->mirror, c->blocks.key, c->blocks.n, &s->lane[index], 1, &depth);
    p->why.backlog = (uint32_t)provider_prefill_backlog(b->providers[index], c->now_us);
    settle(b, c, index, depth, p);
    double rate = rate_of(b->providers[index], RATE_DEFAULT);
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
    .withdraw = withdraw,
    .first_token = prefill_first_token,
    .learn = prefill_learn,
    .tend = prefill_tend,
    .take_resets = prefill_take_resets,
    .mirror_stats = prefill_mirror_stats,
    .set_sink = set_sink,
    .place = place,
};
