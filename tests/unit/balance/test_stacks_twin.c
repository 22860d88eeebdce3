/* SPDX-License-Identifier: Apache-2.0
 *
 * Strategies that add up scores beside a naive model of them: random pools, loads, signals, sessions,
 * prompts, candidates and reloads. The model keeps every prompt of every target and computes each score on
 * its own.
 */
#include "balance/pool.h"

#include <math.h>

static const unsigned SIZES[] = {2, 3, 63, 64, 65, 130};
enum { ROUNDS = 300, PROMPTS = ROUNDS, SESSIONS = 8, TEXT = 40 };

struct twin {
    struct pool pool;
    enum strategy_id id;
    unsigned load[POOL_MAX];
    struct lease leases[POOL_MAX][4];
    char prompts[POOL_MAX][PROMPTS][TEXT + 1];
    unsigned n_prompts[POOL_MAX];
    int home[SESSIONS]; /* -1: none */
    unsigned picks;     /* with more than one candidate */
};

static void twin_init(struct twin *t, enum strategy_id id, unsigned n)
{
    unsigned weights[POOL_MAX];
    *t = (struct twin){.id = id};
    for (unsigned i = 0; i < n; i++)
        weights[i] = 1 + i * 7 % 4;
    pool_init(&t->pool, id, n, weights);
    balancer_unref(t->pool.balancer);
    struct rng *rng = &t->pool.rng;
    for (unsigned i = 0; i < n; i++) {
        struct pool_target *p = &t->pool.targets[i];
        p->cost_known = rng_below(rng, 4) > 0;
        p->cost = (double)rng_below(rng, 5);
        if (rng_below(rng, 4) > 0)
            target_observe_latency(p->target, 10 + 10 * (double)rng_below(rng, 6));
        for (unsigned k = 0, samples = (unsigned)rng_below(rng, 30); k < samples; k++)
            target_observe_duration(p->target, (double)rng_below(rng, 1000), k % 4, k * 100);
    }
    t->pool.balancer = balancer_new(id, t->pool.targets, n, NULL, NULL);
    for (int s = 0; s < SESSIONS; s++)
        t->home[s] = -1;
}

static void twin_fini(struct twin *t)
{
    for (unsigned i = 0; i < t->pool.n; i++)
        for (unsigned k = 0; k < t->load[i]; k++)
            target_lease_end(&t->leases[i][k]);
    pool_fini(&t->pool);
}

static void change_loads(struct twin *t)
{
    for (unsigned i = 0; i < t->pool.n; i++) {
        unsigned to = (unsigned)rng_below(&t->pool.rng, 5);
        if (rng_below(&t->pool.rng, 2))
            continue;
        while (t->load[i] < to)
            charge(&t->pool, i, 1, &t->leases[i][t->load[i]++]);
        while (t->load[i] > to)
            target_lease_end(&t->leases[i][--t->load[i]]);
    }
}

/* The model */

static double share(const struct twin *t, unsigned i, struct span prompt)
{
    size_t most = 0;
    for (unsigned k = 0; k < t->n_prompts[i]; k++) {
        size_t n = 0;
        while (n < prompt.n && n < TEXT && t->prompts[i][k][n] == prompt.p[n])
            n++;
        most = n > most ? n : most;
    }
    return prompt.n ? (double)most / (double)prompt.n : 0;
}

static bool signal_of(const struct twin *t, const struct pick_context *c, unsigned i, double *ret)
{
    const struct pool_target *p = &t->pool.targets[i];
    if (t->id == STRATEGY_CHEAPEST) {
        *ret = p->cost;
        return p->cost_known;
    }
    if (t->id == STRATEGY_FASTEST) {
        *ret = target_latency_ms(p->target);
        return *ret > 0;
    }
    return target_predict_ms(p->target, t->load[i], c->prompt_len / 4, ret) && *ret > 0;
}

static double signal_score(const struct twin *t, const struct pick_context *c, const bool *candidate,
                           unsigned i)
{
    double low = INFINITY, high = -INFINITY, v;
    for (unsigned k = 0; k < t->pool.n; k++)
        if (candidate[k] && signal_of(t, c, k, &v)) {
            low = fmin(low, v);
            high = fmax(high, v);
        }
    if (!(low < high))
        return 1;
    return signal_of(t, c, i, &v) ? (high - v) / (high - low) : 0.5;
}

static double score(const struct twin *t, const struct pick_context *c, const bool *candidate, int session,
                    unsigned i)
{
    unsigned most = 0, heaviest = 0;
    for (unsigned k = 0; k < t->pool.n; k++)
        if (candidate[k]) {
            most = t->load[k] > most ? t->load[k] : most;
            heaviest = t->pool.targets[k].weight > heaviest ? t->pool.targets[k].weight : heaviest;
        }
    double idle = 1 - (double)t->load[i] / (most ? most : 1);
    if (t->id != STRATEGY_PIPELINE)
        return 0.25 * idle + signal_score(t, c, candidate, i);
    double s = share(t, i, c->prompt);
    return idle + (double)t->pool.targets[i].weight / heaviest + (s < 0.1 ? 0 : s) +
           (session >= 0 && t->home[session] == (int)i);
}

/* Signals that requests teach: the best of the idle targets without one, when others have different ones. -1:
 * there is none. */
static double best_unlearnt(const struct twin *t, const struct pick_context *c, const bool *candidate)
{
    double low = INFINITY, high = -INFINITY, v, best = -1;
    if (t->id != STRATEGY_FASTEST && t->id != STRATEGY_PREDICTED_LATENCY)
        return -1;
    for (unsigned k = 0; k < t->pool.n; k++) {
        if (!candidate[k])
            continue;
        if (signal_of(t, c, k, &v)) {
            low = fmin(low, v);
            high = fmax(high, v);
        } else if (t->load[k] == 0) {
            best = fmax(best, score(t, c, candidate, -1, k));
        }
    }
    return low < high ? best : -1;
}

/* Prompts that often begin alike. */
static struct span make_prompt(struct twin *t, char *text)
{
    struct rng *rng = &t->pool.rng;
    size_t n = rng_below(rng, TEXT + 1);
    for (size_t k = 0; k < n; k++)
        text[k] = k < 3 || rng_below(rng, 6) ? 'a' : (char)('a' + rng_below(rng, 3));
    return span_of(text, n);
}

static void one_round(struct twin *t)
{
    struct pool *p = &t->pool;
    struct request r;
    char text[TEXT], name[16];
    bool candidate[POOL_MAX];
    unsigned count = 0;
    request_init(&r, p);
    for (unsigned i = 0; i < p->n; i++) {
        candidate[i] = rng_below(&p->rng, 3) > 0;
        if (!candidate[i])
            set_remove(rng_below(&p->rng, 2) ? &r.c.eligible : &r.c.allowed, i);
        count += candidate[i];
    }
    if (count == 0)
        return;
    int session = (int)rng_below(&p->rng, SESSIONS + 4) - 4;
    if (session >= 0)
        r.c.session = span_of(name, (size_t)sprintf(name, "s%d", session));
    r.c.prompt = make_prompt(t, text);
    r.c.prompt_len = r.c.prompt.n * 100;
    double best = 0;
    for (unsigned i = 0; i < p->n; i++)
        if (candidate[i])
            best = fmax(best, score(t, &r.c, candidate, session < 0 ? -1 : session, i));
    t->picks += count > 1;
    double unlearnt = best_unlearnt(t, &r.c, candidate);
    bool explores = count > 1 && t->picks % 16 == 0 && unlearnt >= 0 && unlearnt < best - 1e-6;
    best = explores ? unlearnt : best;
    struct pick pick = balance_pick(p->balancer, &r.c);
    assert_int_equal(pick.reason == PICK_EXPLORE, explores);
    assert_true(pick.index >= 0 && candidate[pick.index]);
    double chosen = score(t, &r.c, candidate, session < 0 ? -1 : session, (unsigned)pick.index);
    assert_true(fabs(chosen - best) < 1e-5);
    if (count > 1) {
        assert_true(fabs((double)pick.why.score - chosen) < 1e-4);
        assert_int_equal(pick.why.load, t->load[pick.index]);
        assert_true(pick.why.runner_up >= 0 && candidate[pick.why.runner_up] &&
                    pick.why.runner_up != pick.index);
        double next = score(t, &r.c, candidate, session < 0 ? -1 : session, (unsigned)pick.why.runner_up);
        assert_true(fabs((double)pick.why.runner_up_score - next) < 1e-4);
    }
    if (rng_below(&p->rng, 5) == 0) {
        balance_withdraw(p->balancer, &pick.receipt);
        return;
    }
    if (session >= 0)
        t->home[session] = pick.index;
    unsigned *n = &t->n_prompts[pick.index];
    if (r.c.prompt.n > 0)
        memcpy(t->prompts[pick.index][(*n)++], text, r.c.prompt.n);
}

/* The same targets in the same order: what they have learnt stays. */
static void reload(struct twin *t)
{
    struct balancer *next = balancer_new(t->id, t->pool.targets, t->pool.n, NULL, t->pool.balancer);
    balancer_unref(t->pool.balancer);
    t->pool.balancer = next;
}

static void test_twin(void **state)
{
    static struct twin t;
    for (int id = STRATEGY_PIPELINE; id <= STRATEGY_PREDICTED_LATENCY; id++)
        for (size_t s = 0; s < ARRAY_LEN(SIZES); s++) {
            twin_init(&t, (enum strategy_id)id, SIZES[s]);
            for (int round = 0; round < ROUNDS; round++) {
                change_loads(&t);
                if (round % 100 == 50)
                    reload(&t);
                one_round(&t);
            }
            twin_fini(&t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
