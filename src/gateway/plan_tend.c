/* SPDX-License-Identifier: Apache-2.0
 *
 * What the strategies need now and then, and what they have to tell: mirrors that were found wrong (A21).
 */
#include "base/log.h"
#include "gateway/plan.h"

static const char *what_it_means(enum mirror_reset why)
{
    switch (why) {
    case MIRROR_RESTARTED:
        return "the replica was restarted or came back; what it had cached is forgotten";
    case MIRROR_DROPPED:
        return "its replies report nothing of what should be cached there (restarted? another template?); "
               "all of it is forgotten";
    default:
        return "its replies report less than should be cached there (a smaller cache?); the oldest part is "
               "forgotten";
    }
}

static void tell_resets(const struct plan_pool *pool, unsigned i)
{
    const struct plan_target *t = &pool->targets[i];
    for (unsigned why = 0; why < MIRROR_RESET_COUNT; why++) {
        bool is_news;
        unsigned n = balance_take_resets(pool->balancer, i, (enum mirror_reset)why, &is_news);
        metric_add(t->m_resets[why], n);
        if (is_news)
            log_warn("prefix mirror of %s: %s", target_name(t->state), what_it_means((enum mirror_reset)why));
    }
}

static void tend_pool(const struct plan_pool *pool)
{
    if (!pool->balancer)
        return;
    balance_tend(pool->balancer);
    for (unsigned i = 0; i < pool->n; i++)
        tell_resets(pool, i);
}

void plan_tend(const struct plan *p)
{
    for (unsigned i = 0; i < p->n_routes; i++) {
        tend_pool(&p->routes[i].pool);
        for (unsigned k = 0; k < p->routes[i].n_variants; k++)
            tend_pool(&p->routes[i].variants[k].pool);
    }
}
