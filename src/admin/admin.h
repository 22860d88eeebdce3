/* SPDX-License-Identifier: Apache-2.0
 *
 * The admin listener: GET / (a page that shows the rest live), GET /status (JSON: configuration, providers,
 * routes, targets, caches, policy, limits), GET /decisions (the last requests, where they went and why), GET
 * /metrics, POST /drain, and the cache's (cache_pages.h). It exists when the configuration has an [admin]
 * table. With a token (token_env) it wants it as a bearer token for all but the page, which is the same
 * everywhere; without one it answers loopback peers only. Thread: the signals thread; nothing here touches a
 * worker.
 */
#ifndef ROLTER_ADMIN_ADMIN_H
#define ROLTER_ADMIN_ADMIN_H

#include "gateway/gateway.h"

struct admin;

/* NULL with a text in ret_error (256 bytes). <on_drain> is called when somebody asks for a drain. */
struct admin *admin_start(struct net_loop *l, struct gateway *g, const struct admin_settings *s,
                          void (*on_drain)(void *arg), void *arg, char *ret_error);
/* "http://127.0.0.1:4001" */
const char *admin_url(const struct admin *a);
void admin_stop(struct admin *a);

#endif
