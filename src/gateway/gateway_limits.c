/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/gateway_limits.h"

#include "base/log.h"

enum { ANSWER_MS = 500 };

static void tell(void *arg, bool bad, const char *text)
{
    if (bad)
        log_warn("%s; limits count what this gateway knows", text);
    else
        log_info("%s", text);
}

struct limits_share *gateway_share_limits(const struct plan *p, struct net_loop *loop)
{
    const struct settings *s = p->settings;
    if (!s->redis.url || s->n_budgets + s->n_rate_limits == 0)
        return NULL;
    char error[256];
    struct redis_server *server = redis_server_new(&(struct redis_options){.url = s->redis.url,
                                                                           .cluster = s->redis.cluster,
                                                                           .consumer = "limits",
                                                                           .ca_bundles = s->ca_bundles.item,
                                                                           .n_ca_bundles = s->ca_bundles.n,
                                                                           .answer_ms = ANSWER_MS,
                                                                           .tell = tell},
                                                   error);
    if (!server) {
        log_error("limits are not shared: %s", error);
        return NULL;
    }
    struct limits_share *share = limits_share_start(p->limits, server, s->cache.name_space, loop);
    redis_server_unref(server);
    return share;
}
