/* SPDX-License-Identifier: Apache-2.0
 *
 * limits: budgets and rate limits of the key and of the route, before anything is looked up or sent (C13):
 * who has used up what is his gets no hit either. What the request has cost is charged where it ends.
 */
#include "base/clock.h"
#include "gateway/request.h"

static unsigned sets_of(const struct request *r, const struct limit_set *ret[2])
{
    unsigned n = 0;
    if (r->key && r->key->limits.n)
        ret[n++] = &r->key->limits;
    if (r->route->limits.n)
        ret[n++] = &r->route->limits;
    return n;
}

enum step step_limits(struct request *r)
{
    const struct limit_set *sets[2];
    unsigned n = sets_of(r, sets), retry_secs = 0, scope = 0;
    if (n == 0)
        return STEP_policy;
    enum limit_verdict v = limits_admit(sets, n, r->wall_ms, &retry_secs, &scope);
    const char *whose = scope == LIMIT_KEY ? "key" : "model";
    char text[128];
    switch (v) {
    case LIMIT_OK:
        r->limits_taken = true;
        return STEP_policy;
    case LIMIT_BUDGET:
        metric_add(metric_plain(M_BUDGET_BLOCKS), 1);
        return request_refuse(r, 402, "insufficient_quota", NULL, "The budget of this %s is used up.", whose);
    case LIMIT_REQUESTS:
    case LIMIT_TOKENS:
        metric_add(metric_plain(M_RATE_LIMIT_BLOCKS), 1);
        snprintf(text, sizeof text, "Too many %s in a minute for this %s.",
                 v == LIMIT_TOKENS ? "tokens" : "requests", whose);
        return request_refuse_retry(r, 429, "rate_limit_exceeded", retry_secs, text);
    }
    UNREACHABLE();
}

void request_charge_limits(struct request *r, double cost, uint64_t tokens)
{
    const struct limit_set *sets[2];
    if (!r->limits_taken)
        return;
    r->limits_taken = false;
    for (unsigned n = sets_of(r, sets); n-- > 0;)
        limits_charge(sets[n], cost, tokens, clock_wall_ms());
}
