/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet/target.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"
#include "fleet/internal.h"

static const double LATENCY_ALPHA = 0.3;

uint64_t target_identity_of(const char *provider, const char *api_base, const char *model)
{
    /* With the NULs, so that no two different triples give the same bytes. */
    struct hash_stream h;
    hash_begin(&h);
    hash_update(&h, provider, strlen(provider) + 1);
    hash_update(&h, api_base, strlen(api_base) + 1);
    hash_update(&h, model, strlen(model) + 1);
    return hash_end(&h);
}

struct target *target_new(struct provider *p, const char *api_base, const char *model)
{
    struct target *t = aligned_alloc(CACHE_LINE, sizeof *t);
    CHECK_MSG(t != NULL, "out of memory");
    memset(t, 0, sizeof *t);
    t->magic = TARGET_MAGIC;
    t->provider = p;
    t->api_base = mem_strdup(api_base);
    t->model = mem_strdup(model);
    t->name = mem_printf("%s/%s", p->name, model);
    t->identity = target_identity_of(p->name, api_base, model);
    predictor_init(&t->predictor);
    list_init(&t->node);
    return t;
}

void target_free(struct target *t)
{
    if (!t)
        return;
    MAGIC_CHECK(t, TARGET_MAGIC);
    CHECK_MSG(target_in_flight(t) == 0, "a target is freed while requests hold it");
    list_remove(&t->node);
    predictor_fini(&t->predictor);
    free(t->api_base);
    free(t->model);
    free(t->name);
    t->magic = 0;
    free(t);
}

struct provider *target_provider(const struct target *t)
{
    return t->provider;
}

const char *target_model(const struct target *t)
{
    return t->model;
}

const char *target_name(const struct target *t)
{
    return t->name;
}

uint64_t target_identity(const struct target *t)
{
    return t->identity;
}

uint64_t target_served(const struct target *t)
{
    return atomic_load_explicit(&t->served, memory_order_relaxed);
}

unsigned target_in_flight(const struct target *t)
{
    return atomic_load_explicit(&t->leases, memory_order_acquire);
}

/* State */

static bool is_cooling(const struct target *t, const struct reliability *r, uint64_t now_ms)
{
    return r->cooldown_base_ms > 0 && now_ms < atomic_load_explicit(&t->cool_until_ms, memory_order_relaxed);
}

enum target_state target_state(const struct target *t, const struct reliability *r, uint64_t now_ms)
{
    /* Acquire: who sees that it is healthy again sees the generation that was raised before. */
    if (atomic_load_explicit(&t->provider->unhealthy, memory_order_acquire))
        return TARGET_UNHEALTHY;
    switch (breaker_look(t, r, now_ms)) {
    case BREAKER_OPEN:
        return TARGET_BREAKER_OPEN;
    case BREAKER_PROBING:
        return TARGET_BREAKER_PROBING;
    case BREAKER_CLOSED:
    case BREAKER_HALF_OPEN:
        break;
    }
    return is_cooling(t, r, now_ms) ? TARGET_COOLING : TARGET_USABLE;
}

const char *target_state_name(enum target_state s)
{
    static const char *const names[] = {
        [TARGET_USABLE] = "usable",
        [TARGET_COOLING] = "cooling",
        [TARGET_UNHEALTHY] = "unhealthy",
        [TARGET_BREAKER_OPEN] = "breaker_open",
        [TARGET_BREAKER_PROBING] = "breaker_probing",
    };
    CHECK((unsigned)s < ARRAY_LEN(names));
    return names[s];
}

/* Leases */

bool target_lease_begin(struct target *t, const struct reliability *r, uint64_t now_ms, bool fail_open,
                        struct lease *ret)
{
    MAGIC_CHECK(t, TARGET_MAGIC);
    int probe = fail_open ? 0 : breaker_enter(t, r, now_ms);
    if (probe < 0)
        return false;
    atomic_fetch_add_explicit(&t->leases, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->served, 1, memory_order_relaxed);
    provider_charge(t->provider);
    *ret = (struct lease){.target = t, .probe = probe > 0, .probe_id = (unsigned)probe};
    return true;
}

void target_lease_end(struct lease *l)
{
    struct target *t = l->target;
    if (!t)
        return;
    MAGIC_CHECK(t, TARGET_MAGIC);
    if (l->probe)
        breaker_free_probe(t, l->probe_id);
    provider_discharge(t->provider);
    /* Last: without a lease the registry may free it. */
    *l = (struct lease){.reported = l->reported};
    unsigned before = atomic_fetch_sub_explicit(&t->leases, 1, memory_order_release);
    CHECK_MSG(before > 0, "more leases ended than began");
}

/* Only ever later. True when it was not cooling before. */
static bool cool(struct target *t, const struct reliability *r, uint64_t retry_after_ms, uint64_t now_ms)
{
    if (r->cooldown_base_ms == 0)
        return false;
    uint64_t ms = r->cooldown_base_ms;
    if (retry_after_ms > ms && r->cooldown_max_ms > ms)
        ms = retry_after_ms < r->cooldown_max_ms ? retry_after_ms : r->cooldown_max_ms;
    uint64_t until = now_ms + ms, old = atomic_load_explicit(&t->cool_until_ms, memory_order_relaxed);
    while (old < until)
        if (atomic_compare_exchange_weak(&t->cool_until_ms, &old, until))
            return old <= now_ms;
    return false;
}

struct target_change target_report(struct lease *l, const struct reliability *r, enum outcome o,
                                   uint64_t retry_after_ms, uint64_t now_ms)
{
    struct target *t = l->target;
    MAGIC_CHECK(t, TARGET_MAGIC);
    CHECK_MSG(!l->reported, "an attempt is reported twice");
    l->reported = true;
    unsigned probe = l->probe ? l->probe_id : 0;
    struct target_change change = {0};
    switch (o) {
    case OUTCOME_OK:
        change.breaker_closed = breaker_succeed(t);
        break;
    case OUTCOME_TIMEOUT:
    case OUTCOME_SERVER_FAULT:
    case OUTCOME_TRANSPORT:
        change.breaker_opened = breaker_fail(t, r, probe, now_ms);
        change.cooled = cool(t, r, retry_after_ms, now_ms);
        break;
    case OUTCOME_BACKPRESSURE:
        change.cooled = cool(t, r, retry_after_ms, now_ms);
        break;
    case OUTCOME_CLIENT_FAULT:
    case OUTCOME_ABANDONED:
        break;
    }
    /* After a verdict the id is no longer the present one and this does nothing. */
    if (probe)
        breaker_free_probe(t, probe);
    l->probe = false;
    return change;
}

/* Latency */

void target_observe_latency(struct target *t, double ms)
{
    if (!isfinite(ms) || ms < 0)
        return;
    const double least = 1e-3; /* 0 means unknown */
    uint64_t old = atomic_load_explicit(&t->latency_bits, memory_order_relaxed), bits;
    do {
        double avg;
        memcpy(&avg, &old, sizeof avg);
        avg = avg > 0 ? avg + LATENCY_ALPHA * (ms - avg) : ms;
        avg = avg > least ? avg : least;
        memcpy(&bits, &avg, sizeof bits);
    } while (!atomic_compare_exchange_weak_explicit(&t->latency_bits, &old, bits, memory_order_relaxed,
                                                    memory_order_relaxed));
}

double target_latency_ms(const struct target *t)
{
    uint64_t bits = atomic_load_explicit(&t->latency_bits, memory_order_relaxed);
    double avg;
    memcpy(&avg, &bits, sizeof avg);
    return avg;
}

void target_observe_duration(struct target *t, double ms, unsigned depth, uint64_t tokens)
{
    predictor_learn(&t->predictor, ms, depth, tokens);
}

bool target_predict_ms(const struct target *t, unsigned depth, uint64_t tokens, double *ret)
{
    return predictor_ask(&t->predictor, depth, tokens, ret);
}
