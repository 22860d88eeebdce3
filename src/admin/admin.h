/* SPDX-License-Identifier: Apache-2.0
 *
 * The admin listener: GET /status (JSON: configuration, providers, targets, requests in flight), GET
 * /metrics, POST /drain. It exists when the configuration has an [admin] table. With a token (token_env) it
 * wants it as a bearer token; without one it answers loopback peers only. Thread: the signals thread; nothing
 * here touches a worker.
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
