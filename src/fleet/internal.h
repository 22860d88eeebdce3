/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout of providers and targets, for the files of this folder only.
 *
 * Members are grouped by who writes them how often: what every request writes has a cache line of its own, so
 * that readers of the settings next to it are not disturbed.
 */
#ifndef ROLTER_FLEET_INTERNAL_H
#define ROLTER_FLEET_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "fleet/fleet.h"
#include "fleet/predictor.h"

enum { CACHE_LINE = 64, PROVIDER_MAGIC = 0x70726f76, TARGET_MAGIC = 0x74677274 };

/* As many as there are members in struct engine_metrics. */
enum { ENGINE_WORDS = sizeof(struct engine_metrics) / sizeof(double) };

/* What is said to the keys of a provider; those past the last bit share it. */
enum { KEY_BITS = 64 };

/* One upstream key: its share of the smooth weighted rotation and until when it is parked. Under `lock`. */
struct key_slot {
    int64_t weight, current;
    uint64_t parked_until_ms;
};

/* Prompt that the engine has yet to read (fleet/prefill.h). Every request that is charged writes it. Picks
 * look at many providers, so all that they ask of one is in the first line. */
struct prefill {
    _Alignas(CACHE_LINE) _Atomic uint64_t charged; /* tokens */
    _Atomic uint64_t since_us;                     /* the last first token, or the first charge behind none */
    atomic_uint open, answers;
    _Atomic uint64_t rate;         /* a double: tokens a second */
    _Atomic uint64_t cache_tokens; /* a double */
    atomic_uint generation;        /* provider_generation */
    atomic_bool engine_full;       /* as far as its metrics say */
    atomic_bool reports_cached;
    /* Fading sums; these and what follows under the provider's lock. */
    _Alignas(CACHE_LINE) double tokens, us;
    unsigned n_learnt, learnt_generation;
};
/* kv_usage or waiting are at their limits. */
bool engine_says_full(const struct engine_metrics *m);
/* The size of the cache, if they say it. */
void engine_note_cache(struct prefill *f, const struct engine_metrics *m);

struct provider {
    unsigned magic;
    char *name;

    /* Set by provider_configure, read everywhere. */
    atomic_uint gate_limit; /* 0 = none */
    atomic_uint gate_capacity;
    atomic_uint health_down, health_up; /* thresholds */
    atomic_uint engine_fresh_ms;
    atomic_uint n_keys;
    _Atomic uint64_t refused_keys; /* by position, without one at 0 too; written under `lock` */
    uint64_t api_base;             /* hash; 0 = none. Under `lock`. */

    /* Set by the signals thread, read at every pick. */
    atomic_bool unhealthy;
    _Atomic uint64_t engine_at_ms; /* time of the last scrape + 1; 0 = never */
    atomic_uint engine_load;       /* running + waiting */

    _Atomic uint64_t lmcache_until_ms; /* 0 = nothing is known */
    _Atomic uint64_t lmcache_at_ms;
    _Atomic float lmcache_score;

    /* Sequence lock over the engine's numbers: odd while they are being written (under `lock`). */
    atomic_uint engine_seq;
    _Atomic uint64_t engine[ENGINE_WORDS];
    double start_time_secs; /* last one known; 0 = none. Under `lock`. */

    _Alignas(CACHE_LINE) atomic_uint in_flight; /* leases */
    /* Slots in use (low half) and waiters (high half). The high half changes under `lock` only; the low half
     * changes without it as long as nobody waits. */
    _Alignas(CACHE_LINE) _Atomic uint64_t gate;

    struct prefill prefill;

    _Alignas(CACHE_LINE) pthread_mutex_t lock; /* a leaf: nothing else is locked and nobody called under it */
    struct list waiters;                       /* oldest first */
    unsigned probe_failures, probe_successes;  /* in a row */
    struct key_slot *keys;
    uint64_t refused_ms; /* when a key was refused last */

    /* Registry; under the fleet's lock. */
    struct list node;
    unsigned refs, n_targets;
    uint64_t idle_since_ms;
};

struct target {
    unsigned magic;
    struct provider *provider;
    char *api_base, *model, *name;
    uint64_t identity;

    /* Written by failures, read at every pick. */
    _Atomic uint64_t cool_until_ms;
    _Atomic uint64_t breaker; /* one word, see breaker.c */
    atomic_uint probe_serial;

    /* Written by every request. */
    _Alignas(CACHE_LINE) atomic_uint leases;
    _Atomic uint64_t served;
    _Atomic uint64_t latency_bits; /* a double */

    /* Written at the end of requests. */
    _Alignas(CACHE_LINE) struct predictor predictor;

    struct list node; /* registry; under the fleet's lock */
    unsigned refs;
    uint64_t idle_since_ms;
};

/* provider.c */
struct provider *provider_new(const char *name);
void provider_free(struct provider *p);
void provider_charge(struct provider *p);
void provider_discharge(struct provider *p);
/* No lease, slot or waiter refers to it. */
bool provider_is_idle(const struct provider *p);

/* gate.c: hands free slots to waiters, then calls them. Takes and releases `lock`. */
void gate_settle(struct provider *p);
/* keys.c: under `lock`. */
void keys_configure(struct provider *p, const unsigned *weights, unsigned n);

/* target.c; the reference on <p> is the registry's business. */
struct target *target_new(struct provider *p, const char *api_base, const char *model);
void target_free(struct target *t);
uint64_t target_identity_of(const char *provider, const char *api_base, const char *model);

/* breaker.c. Whether a request may pass now, without asking for more than a look. */
enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN, BREAKER_PROBING };
enum breaker_state breaker_look(const struct target *t, const struct reliability *r, uint64_t now_ms);
/* Half-open: takes the single probe and gives its id (> 0). Closed: 0, no probe needed. -1: open, or somebody
 * else holds the probe. */
int breaker_enter(struct target *t, const struct reliability *r, uint64_t now_ms);
/* The probe with this id is over without a verdict. Nothing happens when it is not the current one. */
void breaker_free_probe(struct target *t, unsigned probe_id);
/* True when the breaker was not closed before. */
bool breaker_succeed(struct target *t);
/* A failure of a request that holds the probe <probe_id> (0 = none). True when this opened the breaker
 * (again). */
bool breaker_fail(struct target *t, const struct reliability *r, unsigned probe_id, uint64_t now_ms);

#endif
