/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of budgets and rate limits.
 */
#include "config/schema.h"
#include "gateway/settings.h"

/* In the order of enum limit_scope; the others are the original gateway's and have no effect. */
static const char *const scope_words[] = {"key",     "route",         "org",      "team",
                                          "project", "business_unit", "customer", NULL};
static const char *const period_words[] = {"monthly", "daily", "total", NULL};

static const struct key_spec budgets_keys[] = {
    KEY("scope", KEY_ENUM, struct budget_settings, scope, .flags = KEYF_REQUIRED, .words = scope_words,
        .doc = "`key` (by its name) or `route` (by its model)."),
    KEY("id", KEY_STRING, struct budget_settings, id, .flags = KEYF_REQUIRED,
        .doc = "Name of the key or model of the route."),
    KEY("limit_usd", KEY_FLOAT, struct budget_settings, limit_usd, .flags = KEYF_REQUIRED, .max = 1e9,
        .unit = "USD",
        .doc =
            "Limit, above 0. Once so much is spent requests get 402, also those that a cache could answer."),
    KEY("period", KEY_ENUM, struct budget_settings, period, .preset = "\"monthly\"", .words = period_words,
        .doc = "When it begins anew: with the month or the day (UTC), or never."),
};
const struct section schema_budgets = SECTION_ITEMS(
    "budgets", budgets_keys, "Limits in money, by the prices of `[[model_prices]]`.", struct budget_settings);

static const struct key_spec rate_limits_keys[] = {
    KEY("scope", KEY_ENUM, struct rate_limit_settings, scope, .flags = KEYF_REQUIRED, .words = scope_words,
        .doc = "`key` (by its name) or `route` (by its model)."),
    KEY("id", KEY_STRING, struct rate_limit_settings, id, .flags = KEYF_REQUIRED,
        .doc = "Name of the key or model of the route."),
    KEY("rpm", KEY_UINT, struct rate_limit_settings, rpm, .min = 1, .max = 1000000000,
        .unit = "requests per minute", .doc = "Requests in any 60 seconds. Cache hits count."),
    KEY("tpm", KEY_UINT, struct rate_limit_settings, tpm, .min = 1, .max = 4000000000,
        .unit = "tokens per minute",
        .doc = "Tokens in any 60 seconds, prompt and completion, as the upstreams report them."),
};
const struct section schema_rate_limits = SECTION_ITEMS(
    "rate_limits", rate_limits_keys, "Limits in requests and tokens.", struct rate_limit_settings);
