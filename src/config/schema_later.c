/* SPDX-License-Identifier: Apache-2.0
 * Keys that are known and checked, but that this version does not act on.
 */
#include "config/schema.h"

static const char *const budget_scope_words[] = {"key",     "route",         "org",      "team",
                                                 "project", "business_unit", "customer", NULL};
static const char *const period_words[] = {"monthly", "daily", "total", NULL};
static const struct key_spec budgets_keys[] = {
    LATER("scope", KEY_ENUM, .flags = KEYF_REQUIRED, .words = budget_scope_words,
          .doc = "`key` (by its name) or `route` (by its model)."),
    LATER("id", KEY_STRING, .flags = KEYF_REQUIRED, .doc = "Name of the key or model of the route."),
    LATER("limit_usd", KEY_FLOAT, .flags = KEYF_REQUIRED, .max = 1e15, .unit = "USD",
          .doc = "Limit, above 0."),
    LATER("period", KEY_ENUM, .flags = KEYF_REQUIRED, .words = period_words, .doc = "When it starts anew."),
};
const struct section schema_budgets = SECTION("budgets", budgets_keys, "Limits in money.");

static const struct key_spec rate_limits_keys[] = {
    LATER("scope", KEY_ENUM, .flags = KEYF_REQUIRED, .words = budget_scope_words,
          .doc = "`key` (by its name) or `route` (by its model)."),
    LATER("id", KEY_STRING, .flags = KEYF_REQUIRED, .doc = "Name of the key or model of the route."),
    LATER("rpm", KEY_UINT, .min = 1, .unit = "requests per minute", .doc = "Limit of requests."),
    LATER("tpm", KEY_UINT, .min = 1, .unit = "tokens per minute", .doc = "Limit of tokens."),
};
const struct section schema_rate_limits =
    SECTION("rate_limits", rate_limits_keys, "Limits in requests and tokens.");
