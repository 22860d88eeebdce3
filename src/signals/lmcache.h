/* SPDX-License-Identifier: Apache-2.0
 *
 * How full a provider's LMCache is (L1 to L4): asked over HTTP every few seconds, on the signals thread, with
 * a time-out of its own and at most LMCACHE_REPLY_MAX bytes of reply. An answer that is late, has another
 * status than 200, or cannot be read makes the provider neutral until the next good one (R13); a good one
 * counts for stale_secs. Nothing of it is on the way of a request: picks read two atomics of the provider.
 */
#ifndef ROLTER_SIGNALS_LMCACHE_H
#define ROLTER_SIGNALS_LMCACHE_H

#include "base/arena.h"
#include "fleet/provider.h"
#include "net/call.h"

enum { LMCACHE_REPLY_MAX = 65536 };

/* [providers.lmcache] */
struct lmcache_settings {
    bool present; /* the table is there */
    const char *endpoint;
    unsigned refresh_secs, stale_secs, timeout_ms;
    const char *api_key_env;
    bool reads_metric; /* signal = "lmcache_metrics": a gauge in Prometheus' text, not the JSON object */
    const char *metric;
};

/* What is polled for one provider. All of it lives as long as the poller. */
struct lmcache_source {
    struct provider *state;
    const struct lmcache_settings *settings;
    struct net_origin origin;
    struct span auth; /* header line with CR LF, or empty */
};

struct lmcache_poller;

/* The first poll goes out at once. <pool> must outlive it. */
struct lmcache_poller *lmcache_start(struct net_loop *l, struct pool *pool, const struct lmcache_source *s);
/* Ends a poll under way; <s> is not used any more. What the provider knows stays. */
void lmcache_stop(struct lmcache_poller *p);

struct lmcache_answer {
    double occupancy; /* as told, finite */
    bool available;
};
/* {"occupancy": x, "cache_available": bool}; the latter may be absent, which is true. NULL, or why not
 * (static text). */
const char *lmcache_parse_json(struct span body, struct arena *a, struct lmcache_answer *ret);
/* The gauge <metric>; of several label sets the largest counts. */
const char *lmcache_parse_metric(struct span body, const char *metric, struct lmcache_answer *ret);
/* 1 for an empty cache, 0 for a full or an unavailable one (L2). */
double lmcache_score(const struct lmcache_answer *a);

#endif
