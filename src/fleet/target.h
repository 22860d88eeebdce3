/* SPDX-License-Identifier: Apache-2.0
 *
 * A target: provider + api_base + upstream model (R22), shared by every route that names it. It knows its
 * cooldown, breaker and latency, survives reloads by that identity, and a change of any part makes it a new,
 * cold one.
 *
 * Asking is free of side effects and locks (A13); only target_lease_begin and target_report change state.
 * Threads: any. Time is an argument (monotonic milliseconds).
 */
#ifndef ROLTER_FLEET_TARGET_H
#define ROLTER_FLEET_TARGET_H

#include "fleet/provider.h"

struct target;

struct reliability {
    unsigned cooldown_base_ms; /* 0 switches cooldown off altogether (R26) */
    unsigned cooldown_max_ms;
    bool breaker_enabled;
    unsigned breaker_failures; /* consecutive failures that open it; 0 disables */
    unsigned breaker_open_ms;
};

struct provider *target_provider(const struct target *t);
const char *target_model(const struct target *t); /* upstream model name */
const char *target_name(const struct target *t);  /* "provider/model" */
uint64_t target_identity(const struct target *t); /* hash of provider name, api_base and upstream model */

enum target_state {
    TARGET_USABLE,
    TARGET_COOLING,
    TARGET_UNHEALTHY,
    TARGET_BREAKER_OPEN,
    TARGET_BREAKER_PROBING
};
/* Half-open counts as usable while nobody holds the probe. Pure. */
enum target_state target_state(const struct target *t, const struct reliability *r, uint64_t now_ms);
const char *target_state_name(enum target_state s);

/* A lease: what a request owes a target from pick to end (G7): in-flight, the breaker's probe. The request
 * keeps it and ends it exactly once, whatever happens. */
struct lease {
    struct target *target; /* NULL = none held */
    bool probe;            /* holds the half-open breaker's single probe */
    bool reported;
    unsigned probe_id; /* tells this probe from later ones */
};
/* Charges. False when the breaker is half-open and another request took the probe first, or opened meanwhile:
 * pick again. With <fail_open> no probe is needed or taken (R27). */
bool target_lease_begin(struct target *t, const struct reliability *r, uint64_t now_ms, bool fail_open,
                        struct lease *ret);

/* How an attempt ended, as far as the target is concerned (R26, R27). */
enum outcome {
    OUTCOME_OK,           /* 2xx, 3xx: resets breaker and failure count */
    OUTCOME_CLIENT_FAULT, /* other 4xx: says nothing about the target */
    OUTCOME_BACKPRESSURE, /* 429, 503: cooldown, not breakage */
    OUTCOME_TIMEOUT,      /* 408 or our own time-outs before the reply: failure */
    OUTCOME_SERVER_FAULT, /* 5xx other than 503: failure */
    OUTCOME_TRANSPORT,    /* no connection, reset before the reply: failure */
    OUTCOME_ABANDONED,    /* the client left before anything was known */
};
/* Tells what happened; at most once per lease. <retry_after_ms>: from the reply, 0 = none. Returns what
 * changed for metrics and logs. An OK closes the breaker whoever brings it; once open, only the probe's
 * failure opens it again (requests that were under way when it opened say nothing new). */
struct target_change {
    bool cooled;         /* was not cooling and is now; a longer cooldown is no change */
    bool breaker_opened; /* also a half-open one that opened again */
    bool breaker_closed;
};
struct target_change target_report(struct lease *l, const struct reliability *r, enum outcome o,
                                   uint64_t retry_after_ms, uint64_t now_ms);
/* Gives the charges back; a probe without a report is freed for the next one. Idempotent. */
void target_lease_end(struct lease *l);

/* Duration, exponentially weighted (alpha 0.3), of attempts with a status below 400. 0 = unknown. */
void target_observe_latency(struct target *t, double ms);
double target_latency_ms(const struct target *t);
/* The same attempts with what they met: <depth> is the provider's load when they were picked, <tokens> the
 * length of their prompt (fleet/predictor.h). */
void target_observe_duration(struct target *t, double ms, unsigned depth, uint64_t tokens);
/* False as long as too few were observed. */
bool target_predict_ms(const struct target *t, unsigned depth, uint64_t tokens, double *ret);
/* Requests that were picked for it since it exists. */
uint64_t target_served(const struct target *t);
/* Leases out. */
unsigned target_in_flight(const struct target *t);

#endif
