/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known about a provider while the process lives: load, health, engine metrics, its queue and its
 * keys. It is found by name, so it survives reloads; settings that a reload may change are set again by
 * provider_configure.
 *
 * Threads: all functions are safe from any thread. Reads on the pick path are single relaxed atomics, no
 * locks.
 *
 * Owner: the fleet registry (fleet.h); plans hold references.
 */
#ifndef ROLTER_FLEET_PROVIDER_H
#define ROLTER_FLEET_PROVIDER_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/span.h"

struct provider;

struct provider_settings {
    const char
        *api_base; /* another one is another engine: its health and metrics are not known yet; may be NULL */
    unsigned queue_workers; /* requests sent and waiting for the reply's head at a time; 0 = no limit */
    unsigned queue_capacity;
    unsigned health_failures_down; /* consecutive failed probes until unhealthy; 0 = not probed, healthy */
    unsigned health_successes_up;
    unsigned engine_fresh_ms;    /* how long scraped engine metrics count */
    const unsigned *key_weights; /* one per upstream key */
    unsigned n_keys;
};

const char *provider_name(const struct provider *p);
/* Copies. A larger limit lets waiters go at once, so their `granted` may be called by this thread; a smaller
 * one is reached as slots come back. Parked keys stay parked by position. */
void provider_configure(struct provider *p, const struct provider_settings *s);

/* Load (R2): requests in flight over all routes, queued ones included; or what the engine says it runs and
 * has waiting, when that is fresh and larger. */
unsigned provider_load(const struct provider *p, uint64_t now_ms);
unsigned provider_in_flight(const struct provider *p);
unsigned provider_queued(const struct provider *p);

/* Health by active probes. Unknown counts as healthy. Returns true when the state changed by this report. */
bool provider_is_healthy(const struct provider *p);
bool provider_report_probe(struct provider *p, bool ok);
/* Counts how often the provider came back from unhealthy or was seen restarted: whoever keeps warmth
 * compares. */
unsigned provider_generation(const struct provider *p);
/* Its engine said that it emptied its cache, or was seen to be a new process. */
void provider_raise_generation(struct provider *p);

/* What the signals thread read from the engine's metrics. Negative or NaN = the engine does not say. */
struct engine_metrics {
    double running, waiting, kv_usage /* 0..1 */, start_time_secs, cache_blocks, block_tokens;
    double generation_tokens_per_sec;
};
/* A change of start_time_secs (known before and known now) raises the generation. */
void provider_set_engine(struct provider *p, const struct engine_metrics *m, uint64_t now_ms);
/* False when never scraped or not fresh. */
bool provider_engine(const struct provider *p, uint64_t now_ms, struct engine_metrics *ret);

/* What the provider's LMCache has said: <score> is 1 for an empty cache, 0 for a full or an unavailable one;
 * it counts until <until_ms>. */
void provider_set_lmcache(struct provider *p, double score, uint64_t now_ms, uint64_t until_ms);
/* Nothing is known until it is set again. */
void provider_forget_lmcache(struct provider *p);
/* False when nothing is known, or not any more. */
bool provider_lmcache(const struct provider *p, uint64_t now_ms, double *ret_score);
/* When it was set last; 0 = never, or forgotten. */
uint64_t provider_lmcache_at_ms(const struct provider *p);

/* The bounded queue in front of a provider (reference 1.6, 3.9; R29): a slot is held from before the request
 * is sent until the reply's head has come. */
enum gate_answer { GATE_GRANTED, GATE_QUEUED, GATE_FULL };
struct gate_waiter {
    struct list node;
    /* The slot is granted; called by the thread that gave it up, without locks: post to the owner's loop. The
     * waiter lives until then, also when a cancel came too late. */
    void (*granted)(struct gate_waiter *w);
    bool queued; /* the gate's own, under its lock */
};
/* GATE_QUEUED: <w> stays in the queue until granted or provider_gate_cancel. <may_queue> false: GATE_FULL
 * instead. First come, first served: nobody passes a waiter. */
enum gate_answer provider_gate_enter(struct provider *p, struct gate_waiter *w, bool may_queue);
/* Leaves the queue. False when the slot was granted meanwhile: `granted` was or will be called, and the slot
 * is the caller's to give back. */
bool provider_gate_cancel(struct provider *p, struct gate_waiter *w);
/* Gives a slot back; the first waiter gets it. */
void provider_gate_leave(struct provider *p);

/* Upstream keys: a weighted rotation over those that are not parked. -1 when there are none at all; when all
 * are parked, the one that comes back first. */
int provider_key_take(struct provider *p, uint64_t now_ms);
void provider_key_park(struct provider *p, int key, uint64_t until_ms);
bool provider_has_free_key(const struct provider *p, uint64_t now_ms);
/* What the upstream says to a key (-1: to a request without one): it refuses it, or it takes it. True when
 * that is news, to be told once. A refused key counts as taken again no sooner than KEY_DOUBT_MS after the
 * last refusal: an upstream that refuses some requests only (403) is told of twice in that time at most.
 * One load while all is well. */
enum { KEY_DOUBT_MS = 10000 };
bool provider_key_judged(struct provider *p, int key, bool refused, uint64_t now_ms);

#endif
