/* SPDX-License-Identifier: Apache-2.0
 *
 * The rate: tokens of charges that ended by the time that they took, both sums fading, so that long prompts
 * count for more. A charge took the time since its pick, or since the first token before it if that was
 * later: engines read prompts one after the other, or as if they did.
 */
#include "fleet/prefill.h"

#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "fleet/internal.h"

/* Shorter ones say more of the network than of the engine. */
enum { LEARN_TOKENS_MIN = 128, LEARN_COUNT_MIN = 4 };
#define FADE 0.95

/* A replica that was slow once, and for that got nothing ever since, would never show that it is fast again.
 */
#define FORGET_US (300 * UINT64_C(1000000))

/* vLLM and SGLang begin to preempt near here. */
#define FULL_KV 0.95
enum { FULL_WAITING = 32 };

/* Whether a rate that was learnt up to then says nothing any more. */
static bool is_over(uint64_t since_us, uint64_t now_us)
{
    return now_us > since_us && now_us - since_us > FORGET_US;
}

static void forget(struct provider *p)
{
    struct prefill *f = &p->prefill;
    pthread_mutex_lock(&p->lock);
    f->tokens = f->us = 0;
    f->n_learnt = 0;
    atomic_store_explicit(&f->rate, 0, memory_order_relaxed);
    pthread_mutex_unlock(&p->lock);
}

void provider_prefill_begin(struct provider *p, uint32_t tokens, uint64_t now_us)
{
    CHECK(tokens <= PREFILL_CHARGE_MAX);
    struct prefill *f = &p->prefill;
    if (atomic_fetch_add_explicit(&f->open, 1, memory_order_relaxed) == 0) {
        uint64_t before = atomic_exchange_explicit(&f->since_us, now_us, memory_order_relaxed);
        if (UNLIKELY(before != 0 && is_over(before, now_us)))
            forget(p);
    }
    atomic_fetch_add_explicit(&f->charged, tokens, memory_order_relaxed);
}

/* Under p->lock. */
static void learn(struct prefill *f, uint32_t tokens, double us)
{
    f->tokens = f->tokens * FADE + tokens;
    f->us = f->us * FADE + us;
    f->n_learnt += f->n_learnt < LEARN_COUNT_MIN;
    if (f->n_learnt == LEARN_COUNT_MIN)
        atomic_store_explicit(&f->rate, double_to_bits(f->tokens * 1e6 / f->us), memory_order_relaxed);
}

void provider_prefill_end(struct provider *p, uint32_t tokens, uint64_t picked_us, uint64_t now_us)
{
    struct prefill *f = &p->prefill;
    uint64_t before = atomic_fetch_sub_explicit(&f->charged, tokens, memory_order_relaxed);
    CHECK_MSG(before >= tokens, "more prefill released than charged");
    CHECK(atomic_fetch_sub_explicit(&f->open, 1, memory_order_relaxed) > 0);
    uint64_t since = atomic_load_explicit(&f->since_us, memory_order_relaxed);
    if (picked_us == 0)
        return;
    atomic_store_explicit(&f->since_us, now_us, memory_order_relaxed);
    uint64_t begun = since > picked_us ? since : picked_us;
    pthread_mutex_lock(&p->lock);
    unsigned generation = atomic_load_explicit(&f->generation, memory_order_relaxed);
    if (generation != f->learnt_generation) /* perhaps other hardware, and for sure a cold one */
        atomic_store_explicit(&f->answers, 0, memory_order_relaxed);
    f->learnt_generation = generation;
    if (tokens >= LEARN_TOKENS_MIN && now_us > begun)
        learn(f, tokens, (double)(now_us - begun));
    pthread_mutex_unlock(&p->lock);
    atomic_fetch_add_explicit(&f->answers, 1, memory_order_relaxed);
}

unsigned provider_prefill_open(const struct provider *p)
{
    return atomic_load_explicit(&p->prefill.open, memory_order_relaxed);
}

uint64_t provider_prefill_charged(const struct provider *p)
{
    return atomic_load_explicit(&p->prefill.charged, memory_order_relaxed);
}

/* A double's bits. */
static inline uint64_t rate_now(const struct prefill *f, uint64_t now_us)
{
    uint64_t rate = atomic_load_explicit(&f->rate, memory_order_relaxed);
    return atomic_load_explicit(&f->open, memory_order_relaxed) == 0 &&
                   is_over(atomic_load_explicit(&f->since_us, memory_order_relaxed), now_us)
               ? 0
               : rate;
}

double provider_prefill_rate(const struct provider *p, uint64_t now_us)
{
    return bits_to_double(rate_now(&p->prefill, now_us));
}

static double backlog(const struct prefill *f, uint64_t rate_bits, uint64_t now_us)
{
    uint64_t tokens = atomic_load_explicit(&f->charged, memory_order_relaxed);
    unsigned open = atomic_load_explicit(&f->open, memory_order_relaxed);
    /* Signed, as no charge is that large and the conversion is one instruction. */
    double charged = (double)(int64_t)tokens, rate = bits_to_double(rate_bits);
    if (tokens == 0 || open == 0 || rate_bits == 0)
        return charged;
    uint64_t since = atomic_load_explicit(&f->since_us, memory_order_relaxed);
    double done = now_us > since ? rate * (double)(int64_t)(now_us - since) / 1e6 : 0, most = charged / open;
    return charged - (done < most ? done : most);
}

double provider_prefill_backlog(const struct provider *p, uint64_t now_us)
{
    return backlog(&p->prefill, atomic_load_explicit(&p->prefill.rate, memory_order_relaxed), now_us);
}

unsigned provider_prefill_answers(const struct provider *p)
{
    return atomic_load_explicit(&p->prefill.answers, memory_order_relaxed);
}

struct prefill_summary providers_prefill_look(struct provider *const *p, unsigned n, unsigned few,
                                              uint64_t now_us, uint64_t now_ms, double *ret_backlog,
                                              double *ret_rate, bool *ret_full)
{
    struct prefill_summary sum = {0};
    memset(ret_full, 0, n * sizeof *ret_full);
    for (unsigned i = 0; i < n; i++) {
        const struct provider *x = p[i];
        const struct prefill *f = &x->prefill;
        uint64_t rate = rate_now(f, now_us);
        ret_rate[i] = bits_to_double(rate);
        ret_backlog[i] = backlog(f, rate, now_us);
        sum.rates += bits_to_double(rate);
        sum.known += rate != 0;
        sum.new_ones += atomic_load_explicit(&f->answers, memory_order_relaxed) < few;
        sum.generations += atomic_load_explicit(&f->generation, memory_order_acquire);
        if (UNLIKELY(atomic_load_explicit(&f->engine_full, memory_order_relaxed)))
            ret_full[i] = provider_is_full(x, now_ms);
    }
    return sum;
}

bool engine_says_full(const struct engine_metrics *m)
{
    return (isfinite(m->kv_usage) && m->kv_usage >= FULL_KV) ||
           (isfinite(m->waiting) && m->waiting >= FULL_WAITING);
}

void engine_note_cache(struct prefill *f, const struct engine_metrics *m)
{
    double tokens = m->cache_blocks * m->block_tokens;
    if (isfinite(tokens) && tokens >= 1)
        atomic_store_explicit(&f->cache_tokens, double_to_bits(tokens), memory_order_relaxed);
}

double provider_cache_tokens(const struct provider *p)
{
    return bits_to_double(atomic_load_explicit(&p->prefill.cache_tokens, memory_order_relaxed));
}

bool provider_reports_cached(const struct provider *p)
{
    return atomic_load_explicit(&p->prefill.reports_cached, memory_order_relaxed);
}

void provider_note_cached(struct provider *p)
{
    if (!provider_reports_cached(p))
        atomic_store_explicit(&p->prefill.reports_cached, true, memory_order_relaxed);
}
