/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets in money and limits of requests and tokens per minute, of virtual keys and of routes (C13, R63).
 *
 * What was spent outlives reloads: the registry keeps it by scope and name; a plan holds rules that point
 * into it. A rule is asked before a request is looked up in a cache or sent anywhere, and charged when the
 * request ends with what it really cost: requests under way may carry a budget or a token limit past its
 * edge, by what they cost and no more.
 *
 * Windows of a minute slide: what was used in the minute before counts by the share of it that is still
 * within the last 60 seconds, as if it had come evenly. Budgets begin anew with the day or the month, UTC.
 *
 * Sharing (several gateways): what was used here since the last exchange is taken out as deltas, the totals
 * that come back replace what others have used. Between two exchanges, and while nobody can be asked, each
 * gateway counts what it knows.
 *
 * Threads: any. A state's lock is held for a few instructions and never across a call. Time is an argument
 * (wall clock, milliseconds). O(rules of the set).
 */
#ifndef ROLTER_POLICY_LIMITS_H
#define ROLTER_POLICY_LIMITS_H

#include "base/span.h"

enum limit_scope { LIMIT_KEY, LIMIT_ROUTE };
enum budget_period { BUDGET_MONTHLY, BUDGET_DAILY, BUDGET_TOTAL };

struct budget_settings {
    unsigned scope; /* enum limit_scope */
    const char *id; /* name of the key, model of the route */
    double limit_usd;
    unsigned period; /* enum budget_period */
};

struct rate_limit_settings {
    unsigned scope;
    const char *id;
    unsigned rpm, tpm; /* 0 = none */
};

struct limits; /* what was used, by scope and name; reference counted */
struct limits *limits_new(void);
struct limits *limits_ref(struct limits *l);
void limits_unref(struct limits *l);

/* What bounds one key or one route. Owner: the plan. */
struct limit_set {
    struct limit_rule *rules;
    unsigned n;
};
void limit_set_init(struct limit_set *s, struct limits *l, unsigned scope, const char *id,
                    const struct budget_settings *budgets, unsigned n_budgets,
                    const struct rate_limit_settings *rates, unsigned n_rates);
void limit_set_fini(struct limit_set *s);

enum limit_verdict {
    LIMIT_OK,
    LIMIT_BUDGET,   /* the money of the period is spent */
    LIMIT_REQUESTS, /* too many requests in the last minute */
    LIMIT_TOKENS,   /* too many tokens in the last minute */
};

/* Counts a request in all <sets> when none of them objects; else in none of them, and says for how many
 * seconds (at least 1; 0 for budgets) it would be no use to come again. <ret_scope>: whose limit it is. */
enum limit_verdict limits_admit(const struct limit_set *const *sets, unsigned n, uint64_t wall_ms,
                                unsigned *ret_retry_secs, unsigned *ret_scope);
/* What an admitted request has cost. */
void limits_charge(const struct limit_set *s, double usd, uint64_t tokens, uint64_t wall_ms);

/* What rule <i> of a set allows and how much of it is used by now. A limit of 0: there is none. */
struct limit_use {
    bool is_budget;
    unsigned period; /* of a budget */
    double limit_usd, used_usd;
    uint64_t rpm, requests, tpm, tokens; /* used: in the last 60 seconds */
};
void limit_set_use(const struct limit_set *s, unsigned i, uint64_t wall_ms, struct limit_use *ret);

/* Sharing */

enum limit_kind { LIMIT_MONEY, LIMIT_REQUEST_COUNT, LIMIT_TOKEN_COUNT };
struct limit_delta {
    struct limit_state *state;
    enum limit_kind kind;
    uint64_t slot;     /* period or minute that it belongs to */
    uint64_t amount;   /* since the last exchange; nano-USD, requests or tokens */
    unsigned ttl_secs; /* how long the total is of interest; 0 = for ever */
    char name[96];     /* "<kind>:<scope>:<hash of the id>:<slot>", the same in all gateways */
};
/* Up to <max> deltas, of all budgets and of the minutes that were asked or charged lately; how many. Until
 * limits_settle they count as being sent. <cursor>: 0 at first; set to 0 again when all were seen. */
unsigned limits_collect(struct limits *l, uint64_t wall_ms, struct limit_delta *ret, unsigned max,
                        size_t *cursor);
/* The exchange of one delta is over: <total> is what all gateways together have used; NULL = it failed, the
 * amount counts as not sent. */
void limits_settle(const struct limit_delta *d, const uint64_t *total);

#endif
