/* SPDX-License-Identifier: Apache-2.0
 * Keys that are known and checked, but that this version does not act on.
 */
#include "config/schema.h"

static const struct key_spec redis_keys[] = {
    LATER("url", KEY_STRING, .flags = KEYF_SECRET,
          .doc = "redis://, rediss:// or unix:// URL; `ROLTER_REDIS_URL` wins."),
    LATER("cluster", KEY_BOOL, .preset = "false", .doc = "The server is a cluster."),
    LATER("budget_ms", KEY_UINT, .preset = "50", .min = 1, .max = 60000, .unit = "milliseconds",
          .doc = "For all waiting on Redis of one request."),
};
const struct section schema_redis = SECTION("redis", redis_keys, "Shared store of the response cache.");

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

static const char *const budget_words[] = {"block", "pass", NULL};
static const char *const streaming_words[] = {"reject", "passthrough", "apply", NULL};
static const char *const builtin_words[] = {"email", "phone", "api_token", "payment_card", NULL};
static const char *const rule_stage_words[] = {"pre_call", "post_call", NULL};
static const char *const action_words[] = {"annotate", "block", "redact", NULL};
static const struct key_spec rules_keys[] = {
    LATER("name", KEY_STRING, .flags = KEYF_REQUIRED, .doc = "Unique name."),
    LATER("builtin", KEY_ENUM, .words = builtin_words, .doc = "Entity to find; this or `pattern`."),
    LATER("pattern", KEY_STRING, .doc = "Regular expression to find."),
    LATER("stage", KEY_ENUM, .words = rule_stage_words, .doc = "Requests or replies."),
    LATER("action", KEY_ENUM, .words = action_words, .doc = "What a match does."),
    LATER("replacement", KEY_STRING, .doc = "Text in place of a match."),
    LATER("include_system", KEY_BOOL, .preset = "false", .doc = "Looks into system messages as well."),
};
static const struct section rules_section =
    SECTION("guardrails.rules", rules_keys, "Patterns and their actions.");
static const struct key_spec guardrails_keys[] = {
    LATER("enabled", KEY_BOOL, .preset = "false", .doc = "Switches the rules on."),
    LATER("max_scan_bytes", KEY_UINT, .preset = "262144", .unit = "bytes", .doc = "Text looked at, at most."),
    LATER("streaming_post_call", KEY_ENUM, .preset = "\"reject\"", .words = streaming_words,
          .doc = "What output rules mean for streams."),
    LATER("on_budget", KEY_ENUM, .preset = "\"block\"", .words = budget_words,
          .doc = "What larger texts get."),
    LATER("rules", KEY_TABLES, .section = &rules_section, .doc = "The rules."),
};
const struct section schema_guardrails =
    SECTION("guardrails", guardrails_keys, "Patterns in requests and replies.");

static const char *const failure_words[] = {"fail_open", "fail_closed", NULL};
static const struct key_spec webhook_keys[] = {
    LATER("enabled", KEY_BOOL, .preset = "false", .doc = "Switches the webhook on."),
    LATER("url", KEY_STRING, .doc = "http or https URL."),
    LATER("stage", KEY_ENUM, .preset = "\"pre_call\"", .words = rule_stage_words,
          .doc = "Requests or replies."),
    LATER("timeout_ms", KEY_UINT, .preset = "2000", .min = 1, .unit = "milliseconds", .doc = "For one call."),
    LATER("max_retries", KEY_UINT, .preset = "0", .max = 100, .doc = "Further attempts."),
    LATER("failure_mode", KEY_ENUM, .words = failure_words, .doc = "What a failed call means."),
    LATER("max_body_bytes", KEY_UINT, .preset = "65536", .min = 1, .unit = "bytes",
          .doc = "Body sent at most."),
    LATER("auth", KEY_FREE, .doc = "`{ bearer = { token_env } }` or `{ shared_secret = { secret_env } }`."),
};
const struct section schema_webhook = SECTION("guardrail_webhook", webhook_keys, "External judge of texts.");

static const char *const plugin_stage_words[] = {"pre_route", "pre_upstream", "post_response", NULL};
static const struct key_spec instances_keys[] = {
    LATER("slug", KEY_STRING, .flags = KEYF_REQUIRED, .doc = "Name."),
    LATER("org_id", KEY_STRING, .doc = "Organisation; empty here."),
    LATER("project_id", KEY_STRING, .doc = "Project."),
    LATER("stage", KEY_ENUM, .flags = KEYF_REQUIRED, .words = plugin_stage_words,
          .doc = "Where it is called."),
    LATER("position", KEY_INT, .doc = "Order; lower ones first."),
    LATER("failure_mode", KEY_ENUM, .words = failure_words, .doc = "What a failed call means."),
    LATER("endpoint", KEY_STRING, .flags = KEYF_REQUIRED, .doc = "http or https URL."),
    LATER("timeout_ms", KEY_UINT, .min = 1, .unit = "milliseconds", .doc = "For one call."),
    LATER("max_body_bytes", KEY_UINT, .min = 1, .unit = "bytes", .doc = "Body sent at most."),
    LATER("auth", KEY_FREE, .doc = "`{ bearer = { token_env } }`."),
};
static const struct section instances_section = SECTION("plugins.instances", instances_keys, "HTTP plugins.");
static const struct key_spec plugins_keys[] = {
    LATER("instances", KEY_TABLES, .section = &instances_section, .doc = "The plugins."),
};
const struct section schema_plugins = SECTION("plugins", plugins_keys, "HTTP plugins.");

static const char *const direction_words[] = {"request", "response", "both", NULL};
static const char *const restoration_words[] = {"never", "trusted_downstream", "caller_authorized", NULL};
static const char *const pii_streaming_words[] = {"reject", "passthrough", NULL};
static const struct key_spec pii_keys[] = {
    LATER("enabled", KEY_BOOL, .preset = "false", .doc = "Switches the sanitizer on."),
    LATER("url", KEY_STRING, .doc = "http or https URL."),
    LATER("restore_url", KEY_STRING, .doc = "http or https URL; needed unless nothing is restored."),
    LATER("direction", KEY_ENUM, .preset = "\"request\"", .words = direction_words, .doc = "Which bodies."),
    LATER("restoration", KEY_ENUM, .preset = "\"never\"", .words = restoration_words,
          .doc = "Who gets originals back."),
    LATER("streaming", KEY_ENUM, .preset = "\"reject\"", .words = pii_streaming_words,
          .doc = "What streams get."),
    LATER("timeout_ms", KEY_UINT, .preset = "5000", .min = 1, .unit = "milliseconds", .doc = "For one call."),
    LATER("max_retries", KEY_UINT, .preset = "0", .max = 100, .doc = "Further attempts."),
    LATER("failure_mode", KEY_ENUM, .preset = "\"fail_open\"", .words = failure_words,
          .doc = "What a failed call means."),
    LATER("max_body_bytes", KEY_UINT, .preset = "262144", .min = 1, .unit = "bytes",
          .doc = "Body sent at most."),
    LATER("entities", KEY_STRINGS, .preset = "[]", .doc = "Entities to find."),
    LATER("auth", KEY_FREE, .doc = "`{ bearer = { token_env } }` or `{ shared_secret = { secret_env } }`."),
};
const struct section schema_pii =
    SECTION("pii_sanitizer", pii_keys, "External service that hides personal data.");
