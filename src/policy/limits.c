/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/limits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"

enum { MINUTE_MS = 60000, DAY_MS = 86400000 };
#define NANO 1e9
/* Far above any budget, far below an overflow. */
#define MONEY_MAX 1e18

/* Used in one slot of time. */
struct tally {
    uint64_t slot;
    uint64_t unsent, sending; /* here: not told to the others yet; on its way */
    uint64_t shared;          /* by all, as last heard; what was sent is in it */
};

struct window {
    struct tally now, before; /* this minute, the one before */
};

struct limit_state {
    char *name; /* "<scope>:<id>" and what tells budgets of different periods apart */
    unsigned scope;
    uint64_t id_hash;
    unsigned period; /* of a budget */
    bool is_budget;
    pthread_mutex_t lock;
    struct tally money;
    struct window requests, tokens;
};

struct limits {
    atomic_uint refs;
    pthread_mutex_t lock; /* of the registry; states are never taken out before the end */
    struct map by_name;
    struct limit_state **states;
    size_t n, cap;
};

struct limit_rule {
    struct limit_state *state;
    uint64_t limit_nano; /* of a budget */
    unsigned rpm, tpm;   /* of a rate limit; 0 = none */
};

struct limits *limits_new(void)
{
    struct limits *l = MEM_NEW(struct limits);
    atomic_init(&l->refs, 1);
    CHECK(pthread_mutex_init(&l->lock, NULL) == 0);
    map_init(&l->by_name);
    return l;
}

struct limits *limits_ref(struct limits *l)
{
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    return l;
}

void limits_unref(struct limits *l)
{
    if (!l || atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < l->n; i++) {
        pthread_mutex_destroy(&l->states[i]->lock);
        free(l->states[i]->name);
        free(l->states[i]);
    }
    free(l->states);
    map_fini(&l->by_name);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static struct limit_state *state_get(struct limits *l, unsigned scope, const char *id, bool is_budget,
                                     unsigned period)
{
    char *name = mem_printf("%u:%d:%u:%s", scope, is_budget, period, id);
    pthread_mutex_lock(&l->lock);
    struct limit_state *s = map_get(&l->by_name, span_str(name));
    if (!s) {
        s = MEM_NEW(struct limit_state);
        s->name = mem_strdup(name);
        s->scope = scope;
        s->id_hash = hash_bytes(id, strlen(id));
        s->is_budget = is_budget;
        s->period = period;
        CHECK(pthread_mutex_init(&s->lock, NULL) == 0);
        if (l->n == l->cap) {
            l->cap = l->cap ? l->cap * 2 : 16;
            l->states = mem_realloc(l->states, l->cap * sizeof *l->states);
        }
        l->states[l->n++] = s;
        map_put(&l->by_name, span_str(s->name), s);
    }
    pthread_mutex_unlock(&l->lock);
    free(name);
    return s;
}

static unsigned lower(unsigned x, unsigned y)
{
    return !x ? y : !y || x < y ? x : y;
}

/* One rule for each state: a request must not count twice where two tables speak of the same. */
static struct limit_rule *rule_for(struct limit_set *s, struct limit_state *state)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->rules[i].state == state)
            return &s->rules[i];
    s->rules[s->n] = (struct limit_rule){.state = state, .limit_nano = UINT64_MAX};
    return &s->rules[s->n++];
}

void limit_set_init(struct limit_set *s, struct limits *l, unsigned scope, const char *id,
                    const struct budget_settings *budgets, unsigned n_budgets,
                    const struct rate_limit_settings *rates, unsigned n_rates)
{
    *s = (struct limit_set){0};
    if (n_budgets + n_rates == 0)
        return;
    s->rules = mem_array(n_budgets + n_rates, sizeof *s->rules);
    for (unsigned i = 0; i < n_budgets; i++) {
        const struct budget_settings *b = &budgets[i];
        if (b->scope != scope || strcmp(b->id, id) != 0)
            continue;
        struct limit_rule *r = rule_for(s, state_get(l, scope, id, true, b->period));
        double nano = b->limit_usd * NANO;
        uint64_t limit = (uint64_t)(nano < MONEY_MAX ? nano : MONEY_MAX);
        r->limit_nano = limit < r->limit_nano ? limit : r->limit_nano;
    }
    for (unsigned i = 0; i < n_rates; i++) {
        const struct rate_limit_settings *q = &rates[i];
        if (q->scope != scope || strcmp(q->id, id) != 0)
            continue;
        struct limit_rule *r = rule_for(s, state_get(l, scope, id, false, 0));
        r->rpm = lower(r->rpm, q->rpm);
        r->tpm = lower(r->tpm, q->tpm);
    }
}

void limit_set_fini(struct limit_set *s)
{
    free(s->rules);
    *s = (struct limit_set){0};
}

/* Time. A state's lock is held from here on down to limits_admit. */

static uint64_t period_slot(unsigned period, uint64_t wall_ms)
{
    if (period == BUDGET_TOTAL)
        return 1;
    if (period == BUDGET_DAILY)
        return wall_ms / DAY_MS;
    time_t secs = (time_t)(wall_ms / 1000);
    struct tm tm;
    gmtime_r(&secs, &tm);
    return (uint64_t)tm.tm_year * 12 + (uint64_t)tm.tm_mon;
}

static uint64_t total(const struct tally *t)
{
    return t->shared + t->sending + t->unsent;
}

/* A clock that was set back does not empty anything. */
static void tally_turn(struct tally *t, uint64_t slot)
{
    if (slot > t->slot)
        *t = (struct tally){.slot = slot};
}

static void window_turn(struct window *w, uint64_t minute)
{
    if (minute <= w->now.slot)
        return;
    if (minute == w->now.slot + 1)
        w->before = w->now;
    else
        w->before = (struct tally){.slot = minute - 1};
    w->now = (struct tally){.slot = minute};
}

/* What of the minute before is within the last 60 seconds, rounded up. */
static uint64_t still_counts(const struct window *w, uint64_t into_ms)
{
    return (uint64_t)(((__uint128_t)total(&w->before) * (MINUTE_MS - into_ms) + MINUTE_MS - 1) / MINUTE_MS);
}

/* How long until <used> more fit below <limit>, in whole seconds. */
static unsigned wait_secs(const struct window *w, uint64_t limit, uint64_t used, uint64_t into_ms)
{
    uint64_t now = total(&w->now), before = total(&w->before), at_ms;
    if (now + used <= limit && before > 0) {
        /* In this minute, once enough of the one before has gone. */
        at_ms = MINUTE_MS - (uint64_t)((__uint128_t)(limit - now - used) * MINUTE_MS / before);
    } else {
        /* In the next one, of which this is the one before. */
        uint64_t room = limit > used ? limit - used : 0;
        at_ms = MINUTE_MS + MINUTE_MS - (uint64_t)((__uint128_t)room * MINUTE_MS / (now ? now : 1));
    }
    uint64_t wait = at_ms > into_ms ? at_ms - into_ms : 1;
    return (unsigned)((wait + 999) / 1000);
}

static enum limit_verdict look(const struct limit_rule *r, uint64_t wall_ms, unsigned *ret_secs)
{
    struct limit_state *s = r->state;
    if (s->is_budget) {
        tally_turn(&s->money, period_slot(s->period, wall_ms));
        return total(&s->money) >= r->limit_nano ? LIMIT_BUDGET : LIMIT_OK;
    }
    uint64_t into = wall_ms % MINUTE_MS;
    window_turn(&s->requests, wall_ms / MINUTE_MS);
    window_turn(&s->tokens, wall_ms / MINUTE_MS);
    if (r->rpm && total(&s->requests.now) + still_counts(&s->requests, into) + 1 > r->rpm) {
        *ret_secs = wait_secs(&s->requests, r->rpm, 1, into);
        return LIMIT_REQUESTS;
    }
    /* What the request will take is not known yet: it may begin as long as something is left. */
    if (r->tpm && total(&s->tokens.now) + still_counts(&s->tokens, into) >= r->tpm) {
        *ret_secs = wait_secs(&s->tokens, r->tpm, 1, into);
        return LIMIT_TOKENS;
    }
    return LIMIT_OK;
}

static enum limit_verdict rule_admit(const struct limit_rule *r, uint64_t wall_ms, unsigned *ret_secs)
{
    pthread_mutex_lock(&r->state->lock);
    enum limit_verdict v = look(r, wall_ms, ret_secs);
    if (v == LIMIT_OK && !r->state->is_budget)
        r->state->requests.now.unsent++;
    pthread_mutex_unlock(&r->state->lock);
    return v;
}

static void rule_take_back(const struct limit_rule *r)
{
    if (r->state->is_budget)
        return;
    pthread_mutex_lock(&r->state->lock);
    struct tally *t = &r->state->requests.now;
    /* Already sent: it stays counted. */
    t->unsent -= t->unsent > 0;
    pthread_mutex_unlock(&r->state->lock);
}

enum limit_verdict limits_admit(const struct limit_set *const *sets, unsigned n, uint64_t wall_ms,
                                unsigned *ret_retry_secs, unsigned *ret_scope)
{
    unsigned secs = 0;
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < sets[i]->n; k++) {
            enum limit_verdict v = rule_admit(&sets[i]->rules[k], wall_ms, &secs);
            if (v == LIMIT_OK)
                continue;
            *ret_retry_secs = secs;
            *ret_scope = sets[i]->rules[k].state->scope;
            while (k-- > 0)
                rule_take_back(&sets[i]->rules[k]);
            while (i-- > 0)
                for (k = sets[i]->n; k-- > 0;)
                    rule_take_back(&sets[i]->rules[k]);
            return v;
        }
    return LIMIT_OK;
}

void limits_charge(const struct limit_set *set, double usd, uint64_t tokens, uint64_t wall_ms)
{
    double nano = usd * NANO;
    uint64_t money = nano > 0 ? (uint64_t)(nano < MONEY_MAX ? nano + 0.5 : MONEY_MAX) : 0;
    for (unsigned i = 0; i < set->n; i++) {
        struct limit_state *s = set->rules[i].state;
        pthread_mutex_lock(&s->lock);
        if (s->is_budget) {
            tally_turn(&s->money, period_slot(s->period, wall_ms));
            if (total(&s->money) < (uint64_t)MONEY_MAX)
                s->money.unsent += money;
        } else {
            window_turn(&s->tokens, wall_ms / MINUTE_MS);
            if (total(&s->tokens.now) < (uint64_t)MONEY_MAX)
                s->tokens.now.unsent += tokens < (uint64_t)MONEY_MAX ? tokens : (uint64_t)MONEY_MAX;
        }
        pthread_mutex_unlock(&s->lock);
    }
}

void limit_set_use(const struct limit_set *set, unsigned i, uint64_t wall_ms, struct limit_use *ret)
{
    const struct limit_rule *r = &set->rules[i];
    struct limit_state *s = r->state;
    uint64_t into = wall_ms % MINUTE_MS;
    *ret = (struct limit_use){.is_budget = s->is_budget, .period = s->period, .rpm = r->rpm, .tpm = r->tpm};
    pthread_mutex_lock(&s->lock);
    if (s->is_budget) {
        tally_turn(&s->money, period_slot(s->period, wall_ms));
        ret->limit_usd = (double)r->limit_nano / NANO;
        ret->used_usd = (double)total(&s->money) / NANO;
    } else {
        window_turn(&s->requests, wall_ms / MINUTE_MS);
        window_turn(&s->tokens, wall_ms / MINUTE_MS);
        ret->requests = total(&s->requests.now) + still_counts(&s->requests, into);
        ret->tokens = total(&s->tokens.now) + still_counts(&s->tokens, into);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Sharing */

static unsigned ttl_of(const struct limit_state *s)
{
    if (!s->is_budget)
        return 3 * MINUTE_MS / 1000;
    return s->period == BUDGET_TOTAL ? 0 : s->period == BUDGET_DAILY ? 2 * 86400 : 63 * 86400;
}

static void collect(struct limit_state *s, enum limit_kind kind, struct tally *t, struct limit_delta *ret)
{
    static const char *const kinds[] = {"usd", "requests", "tokens"};
    *ret = (struct limit_delta){
        .state = s, .kind = kind, .slot = t->slot, .amount = t->unsent, .ttl_secs = ttl_of(s)};
    t->sending += t->unsent;
    t->unsent = 0;
    static const char *const periods[] = {"month", "day", "total"};
    snprintf(ret->name, sizeof ret->name, "%s:%s:%016llx:%s:%llu", kinds[kind],
             s->scope == LIMIT_KEY ? "key" : "route", (unsigned long long)s->id_hash,
             s->is_budget ? periods[s->period] : "minute", (unsigned long long)t->slot);
}

/* Minutes that nobody has used lately have nothing to say; the next request brings them back. */
static unsigned collect_state(struct limit_state *s, uint64_t wall_ms, struct limit_delta *ret)
{
    unsigned n = 0;
    pthread_mutex_lock(&s->lock);
    if (s->is_budget) {
        /* Always: after a restart only the others know what is spent. */
        tally_turn(&s->money, period_slot(s->period, wall_ms));
        collect(s, LIMIT_MONEY, &s->money, &ret[n++]);
    } else {
        struct window *w[] = {&s->requests, &s->tokens};
        for (unsigned i = 0; i < 2; i++) {
            if (w[i]->now.slot + 1 < wall_ms / MINUTE_MS)
                continue;
            collect(s, i ? LIMIT_TOKEN_COUNT : LIMIT_REQUEST_COUNT, &w[i]->now, &ret[n++]);
            if (w[i]->before.unsent > 0)
                collect(s, i ? LIMIT_TOKEN_COUNT : LIMIT_REQUEST_COUNT, &w[i]->before, &ret[n++]);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

unsigned limits_collect(struct limits *l, uint64_t wall_ms, struct limit_delta *ret, unsigned max,
                        size_t *cursor)
{
    enum { MOST = 4 }; /* deltas of one state */
    unsigned n = 0;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        struct limit_state *s = *cursor < l->n ? l->states[*cursor] : NULL;
        pthread_mutex_unlock(&l->lock);
        if (!s) {
            *cursor = 0;
            return n;
        }
        if (n + MOST > max)
            return n;
        ++*cursor;
        n += collect_state(s, wall_ms, ret + n);
    }
}

static void settle(struct tally *t, const struct limit_delta *d, const uint64_t *total_of_all)
{
    if (t->slot != d->slot)
        return;
    t->sending -= t->sending < d->amount ? t->sending : d->amount;
    if (total_of_all)
        t->shared = *total_of_all;
    else
        t->unsent += d->amount;
}

void limits_settle(const struct limit_delta *d, const uint64_t *total_of_all)
{
    struct limit_state *s = d->state;
    pthread_mutex_lock(&s->lock);
    if (d->kind == LIMIT_MONEY) {
        settle(&s->money, d, total_of_all);
    } else {
        struct window *w = d->kind == LIMIT_TOKEN_COUNT ? &s->tokens : &s->requests;
        settle(&w->now, d, total_of_all);
        settle(&w->before, d, total_of_all);
    }
    pthread_mutex_unlock(&s->lock);
}
