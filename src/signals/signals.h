/* SPDX-License-Identifier: Apache-2.0
 *
 * What the gateway learns in the background, on the signals thread: active health probes and engine metrics
 * of each provider, and what its LMCache says (lmcache.h). It alone writes what it learns; workers read it
 * from the fleet.
 *
 * One probe and one scrape per provider at a time; at most probe_concurrency probes at once. The first round
 * runs at once (R30). A probe counts as up on any status below 500; a 429 says nothing and backs off for 1,
 * 2, 4, 8 rounds. A failed, late or unreadable scrape leaves the provider's engine metrics as they were until
 * they are not fresh any more.
 */
#ifndef ROLTER_SIGNALS_SIGNALS_H
#define ROLTER_SIGNALS_SIGNALS_H

#include "fleet/provider.h"
#include "net/exchange.h"
#include "signals/kv_feed.h"
#include "signals/lmcache.h"

struct signals;

struct signal_source {
    struct provider *state;
    const struct net_origin *origin;
    struct span auth;                     /* header line with CR LF, or empty */
    const struct lmcache_source *lmcache; /* NULL: is not polled */
};

struct signals_settings {
    bool probe, scrape;
    unsigned probe_interval_ms, probe_timeout_ms, probe_concurrency;
    const char *probe_path;
    unsigned scrape_interval_ms, scrape_timeout_ms;
    const char *scrape_path;
    struct signal_source *sources;
    unsigned n_sources;
    struct kv_feed_settings *kv_feeds; /* engines whose cache events are listened to */
    unsigned n_kv_feeds;
    /* Called when nothing uses the pointers above any more; gives back what keeps them alive, and <sources>.
     */
    void (*release)(struct signals_settings *s);
    void *owner;
};

/* Takes <settings> over (a copy is made of the struct itself). */
struct signals *signals_start(struct net_loop *l, const struct signals_settings *settings);
/* Calls under way are ended; the next rounds use the new settings. */
void signals_update(struct signals *s, const struct signals_settings *settings);
void signals_stop(struct signals *s);

#endif
