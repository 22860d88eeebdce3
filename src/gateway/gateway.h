/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway as a whole: workers, the running plan, the writer of request rows, draining. The thread that
 * calls gateway_start (the signals thread) also reloads and stops.
 */
#ifndef ROLTER_GATEWAY_GATEWAY_H
#define ROLTER_GATEWAY_GATEWAY_H

#include "gateway/plan.h"
#include "net/loop.h"

struct decision;
struct gateway;
struct worker;
struct reply_cache;

/* Takes <settings> over. Opens the listeners and starts the threads. NULL with a text in ret_error (256
 * bytes). */
struct gateway *gateway_start(struct settings *settings, struct net_loop *signals, char *ret_error);
/* "http://127.0.0.1:4000", or the https form. */
const char *gateway_url(const struct gateway *g);
/* Takes <settings> over: builds a plan and hands it to every worker. Requests in flight keep theirs. */
void gateway_reload(struct gateway *g, struct settings *settings);
/* The running plan; valid until the next reload, on the signals thread only. */
struct plan *gateway_plan(struct gateway *g);
/* The response cache; NULL while no configuration has asked for one. On the signals thread. */
struct reply_cache *gateway_cache(const struct gateway *g);
struct fleet *gateway_fleet(struct gateway *g);
/* Starts draining (G12, R38). <done> is called on the signals thread when no request is left or <limit_ms>
 * passed. */
void gateway_drain(struct gateway *g, uint64_t limit_ms, void (*done)(void *arg), void *arg);
bool gateway_is_draining(const struct gateway *g);
/* Stops all threads, writes what rows are left, frees everything. */
void gateway_stop(struct gateway *g);

/* The last requests over all workers, newest first (gateway/decisions.h); none when the gateway started
 * without an admin listener. Any thread. */
unsigned gateway_decisions(const struct gateway *g, struct decision *ret, unsigned max);
unsigned gateway_workers(const struct gateway *g);
unsigned gateway_requests_in_flight(const struct gateway *g);
unsigned gateway_connections(struct gateway *g);
/* One of them, for what is posted to its loop. It lives until gateway_stop, and takes posts until then. */
struct worker *gateway_worker(struct gateway *g, unsigned i);
/* Sets the gauges that are derived at scrape time. Any worker. */
void gateway_refresh_gauges(struct gateway *g, const struct plan *plan);

#endif
