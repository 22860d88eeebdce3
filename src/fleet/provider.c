/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet/provider.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"
#include "fleet/internal.h"
#include "fleet/prefill.h"

/* One series for all: a provider that was forgotten and comes back under its name has a higher generation
 * than it had, so that whoever remembers two of them knows which one is older. */
static unsigned next_generation(void)
{
    static atomic_uint last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

struct provider *provider_new(const char *name)
{
    struct provider *p = aligned_alloc(CACHE_LINE, sizeof *p);
    CHECK_MSG(p != NULL, "out of memory");
    memset(p, 0, sizeof *p);
    p->magic = PROVIDER_MAGIC;
    p->name = mem_strdup(name);
    CHECK(pthread_mutex_init(&p->lock, NULL) == 0);
    list_init(&p->waiters);
    list_init(&p->node);
    atomic_init(&p->prefill.generation, next_generation());
    atomic_init(&p->health_down, 3);
    atomic_init(&p->health_up, 2);
    return p;
}

void provider_free(struct provider *p)
{
    if (!p)
        return;
    MAGIC_CHECK(p, PROVIDER_MAGIC);
    CHECK_MSG(provider_is_idle(p), "a provider is freed while requests hold it");
    list_remove(&p->node);
    pthread_mutex_destroy(&p->lock);
    free(p->keys);
    free(p->name);
    p->magic = 0;
    free(p);
}

const char *provider_name(const struct provider *p)
{
    return p->name;
}

void provider_raise_generation(struct provider *p)
{
    atomic_store_explicit(&p->prefill.generation, next_generation(), memory_order_release);
}

/* The lock is held. */
static bool is_another_engine(struct provider *p, const char *api_base)
{
    uint64_t before = p->api_base;
    p->api_base = api_base ? hash_bytes(api_base, strlen(api_base)) | 1 : 0;
    return before != 0 && p->api_base != before;
}

/* The lock is held. */
static void forget_engine(struct provider *p)
{
    atomic_store(&p->unhealthy, false);
    p->probe_failures = p->probe_successes = 0;
    p->start_time_secs = 0;
    atomic_store(&p->engine_at_ms, 0);
    provider_raise_generation(p);
}

void provider_configure(struct provider *p, const struct provider_settings *s)
{
    MAGIC_CHECK(p, PROVIDER_MAGIC);
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->gate_limit, s->queue_workers);
    atomic_store(&p->gate_capacity, s->queue_capacity);
    atomic_store(&p->health_down, s->health_failures_down);
    atomic_store(&p->health_up, s->health_successes_up ? s->health_successes_up : 1);
    atomic_store(&p->engine_fresh_ms, s->engine_fresh_ms);
    if (is_another_engine(p, s->api_base))
        forget_engine(p);
    if (s->health_failures_down == 0) {
        /* Nobody probes any more, so nobody would ever bring it back. */
        atomic_store(&p->unhealthy, false);
        p->probe_failures = p->probe_successes = 0;
    }
    keys_configure(p, s->key_weights, s->n_keys);
    pthread_mutex_unlock(&p->lock);
    gate_settle(p);
}

/* Load */

void provider_charge(struct provider *p)
{
    atomic_fetch_add_explicit(&p->in_flight, 1, memory_order_relaxed);
}

void provider_discharge(struct provider *p)
{
    unsigned before = atomic_fetch_sub_explicit(&p->in_flight, 1, memory_order_release);
    CHECK_MSG(before > 0, "more requests ended than began");
}

unsigned provider_in_flight(const struct provider *p)
{
    return atomic_load_explicit(&p->in_flight, memory_order_relaxed);
}

bool provider_is_idle(const struct provider *p)
{
    return atomic_load_explicit(&p->in_flight, memory_order_acquire) == 0 && atomic_load(&p->gate) == 0;
}

/* The scrape may be a little younger than the caller's idea of now: that is fresh. */
static bool engine_is_fresh(const struct provider *p, uint64_t now_ms)
{
    uint64_t at = atomic_load_explicit(&p->engine_at_ms, memory_order_relaxed);
    return at != 0 && now_ms < at - 1 + atomic_load_explicit(&p->engine_fresh_ms, memory_order_relaxed);
}

bool provider_is_full(const struct provider *p, uint64_t now_ms)
{
    return atomic_load_explicit(&p->prefill.engine_full, memory_order_relaxed) && engine_is_fresh(p, now_ms);
}

unsigned provider_load(const struct provider *p, uint64_t now_ms)
{
    unsigned ours = provider_in_flight(p);
    unsigned engine = atomic_load_explicit(&p->engine_load, memory_order_relaxed);
    return engine > ours && engine_is_fresh(p, now_ms) ? engine : ours;
}

/* Health */

bool provider_is_healthy(const struct provider *p)
{
    return !atomic_load_explicit(&p->unhealthy, memory_order_relaxed);
}

unsigned provider_generation(const struct provider *p)
{
    return atomic_load_explicit(&p->prefill.generation, memory_order_acquire);
}

bool provider_report_probe(struct provider *p, bool ok)
{
    unsigned down = atomic_load(&p->health_down), up = atomic_load(&p->health_up);
    if (down == 0)
        return false;
    bool changed = false;
    pthread_mutex_lock(&p->lock);
    bool unhealthy = atomic_load(&p->unhealthy);
    p->probe_failures = ok ? 0 : p->probe_failures + 1;
    p->probe_successes = ok ? p->probe_successes + 1 : 0;
    if (!unhealthy && p->probe_failures >= down) {
        atomic_store(&p->unhealthy, true);
        changed = true;
    } else if (unhealthy && p->probe_successes >= up) {
        /* First the generation: whoever sees it healthy must not see its old warmth. */
        provider_raise_generation(p);
        atomic_store(&p->unhealthy, false);
        changed = true;
    }
    pthread_mutex_unlock(&p->lock);
    return changed;
}

/* LMCache */

void provider_set_lmcache(struct provider *p, double score, uint64_t now_ms, uint64_t until_ms)
{
    atomic_store_explicit(&p->lmcache_score, (float)score, memory_order_relaxed);
    atomic_store_explicit(&p->lmcache_at_ms, now_ms, memory_order_relaxed);
    atomic_store_explicit(&p->lmcache_until_ms, until_ms, memory_order_release);
}

void provider_forget_lmcache(struct provider *p)
{
    atomic_store_explicit(&p->lmcache_until_ms, 0, memory_order_relaxed);
    atomic_store_explicit(&p->lmcache_at_ms, 0, memory_order_relaxed);
}

bool provider_lmcache(const struct provider *p, uint64_t now_ms, double *ret_score)
{
    if (now_ms >= atomic_load_explicit(&p->lmcache_until_ms, memory_order_acquire))
        return false;
    *ret_score = (double)atomic_load_explicit(&p->lmcache_score, memory_order_relaxed);
    return true;
}

uint64_t provider_lmcache_at_ms(const struct provider *p)
{
    return atomic_load_explicit(&p->lmcache_at_ms, memory_order_relaxed);
}

/* Engine metrics */

static bool is_known(double v)
{
    return isfinite(v) && v >= 0;
}

static unsigned engine_load_of(const struct engine_metrics *m)
{
    double sum = (is_known(m->running) ? m->running : 0) + (is_known(m->waiting) ? m->waiting : 0);
    const double most = 1e9;
    return (unsigned)(sum < most ? sum : most);
}

void provider_set_engine(struct provider *p, const struct engine_metrics *m, uint64_t now_ms)
{
    uint64_t words[ENGINE_WORDS];
    memcpy(words, m, sizeof words);
    pthread_mutex_lock(&p->lock);
    if (is_known(m->start_time_secs) && m->start_time_secs > 0) {
        if (p->start_time_secs > 0 && p->start_time_secs != m->start_time_secs)
            provider_raise_generation(p);
        p->start_time_secs = m->start_time_secs;
    }
    unsigned seq = atomic_load_explicit(&p->engine_seq, memory_order_relaxed);
    atomic_store_explicit(&p->engine_seq, seq + 1, memory_order_relaxed);
    /* The words are stored with release, so a reader that sees one of them sees the odd sequence too. */
    for (int i = 0; i < ENGINE_WORDS; i++)
        atomic_store_explicit(&p->engine[i], words[i], memory_order_release);
    atomic_store_explicit(&p->engine_seq, seq + 2, memory_order_release);
    atomic_store_explicit(&p->engine_load, engine_load_of(m), memory_order_relaxed);
    engine_note_cache(&p->prefill, m);
    atomic_store_explicit(&p->prefill.engine_full, engine_says_full(m), memory_order_relaxed);
    atomic_store_explicit(&p->engine_at_ms, now_ms + 1, memory_order_release);
    pthread_mutex_unlock(&p->lock);
}

bool provider_engine(const struct provider *p, uint64_t now_ms, struct engine_metrics *ret)
{
    if (!engine_is_fresh(p, now_ms))
        return false;
    uint64_t words[ENGINE_WORDS];
    unsigned before, after;
    do {
        before = atomic_load_explicit(&p->engine_seq, memory_order_acquire);
        for (int i = 0; i < ENGINE_WORDS; i++)
            words[i] = atomic_load_explicit(&p->engine[i], memory_order_acquire);
        after = atomic_load_explicit(&p->engine_seq, memory_order_relaxed);
    } while (before != after || before % 2);
    memcpy(ret, words, sizeof words);
    return true;
}
