/* SPDX-License-Identifier: Apache-2.0
 * Keys of what may go in and out: guardrails, webhook, plugins, PII sanitizer.
 */
#include "config/schema.h"
#include "gateway/settings.h"

enum { MINUTE_MS = 60000, MAX_BODY = 1 << 30 };

static const char *const budget_words[] = {"block", "pass", NULL};
static const char *const streaming_words[] = {"reject", "passthrough", "apply", NULL};
static const char *const stage_words[] = {"pre_call", "post_call", NULL};
static const char *const action_words[] = {"annotate", "block", "redact", NULL};

static const struct key_spec rules_keys[] = {
    KEY("name", KEY_STRING, struct rule_settings, name, .flags = KEYF_REQUIRED, .doc = "Unique name."),
    KEY("builtin", KEY_STRING, struct rule_settings, builtin,
        .doc = "What to find: `email`, `phone`, `api_token` or `payment_card`; this or `pattern`."),
    KEY("pattern", KEY_STRING, struct rule_settings, pattern,
        .doc = "Regular expression (RE2's syntax) to find; it must not match the empty text."),
    KEY("stage", KEY_ENUM, struct rule_settings, stage, .flags = KEYF_REQUIRED, .words = stage_words,
        .doc = "Requests (`pre_call`) or replies (`post_call`)."),
    KEY("action", KEY_ENUM, struct rule_settings, action, .flags = KEYF_REQUIRED, .words = action_words,
        .doc = "A match is noted in the row, refuses the text, or is replaced."),
    KEY("replacement", KEY_STRING, struct rule_settings, replacement,
        .doc = "Text in place of a match, at most 64 bytes; absent: `[REDACTED]`, with the entity of a "
               "built-in."),
    KEY("include_system", KEY_BOOL, struct rule_settings, include_system, .preset = "false",
        .doc = "Looks into system and developer texts as well."),
};
static const struct section rules_section = SECTION_LINES(
    "guardrails.rules", rules_keys,
    "Patterns and their actions, in the order in which they are applied to each text.", struct rule_settings);

static const struct key_spec guardrails_keys[] = {
    KEY("enabled", KEY_BOOL, struct guardrail_settings, enabled, .preset = "false",
        .doc = "Switches the rules on."),
    KEY("max_scan_bytes", KEY_UINT, struct guardrail_settings, max_scan_bytes, .preset = "262144", .min = 1,
        .max = MAX_BODY, .unit = "bytes", .doc = "Text of a request, or of a reply, that is looked at."),
    KEY("streaming_post_call", KEY_ENUM, struct guardrail_settings, streaming_post_call,
        .preset = "\"reject\"", .words = streaming_words,
        .doc = "With rules on replies a stream is refused, let through unseen, or looked at while it flows."),
    KEY("on_budget", KEY_ENUM, struct guardrail_settings, on_budget, .preset = "\"block\"",
        .words = budget_words,
        .doc =
            "More text than `max_scan_bytes`: after its beginning was looked at, it is refused or passes."),
    KEY_ITEMS("rules", struct guardrail_settings, rules, n_rules, &rules_section, .doc = "The rules."),
};
const struct section schema_guardrails =
    SECTION("guardrails", guardrails_keys, "Patterns in requests and replies.");

static const struct key_spec route_rules_keys[] = {
    KEY("disable", KEY_STRINGS, struct route_rule_settings, disable, .preset = "[]",
        .doc = "Names of rules that this route does without."),
    KEY("enable", KEY_STRINGS, struct route_rule_settings, enable, .preset = "[]",
        .doc = "Names of rules that apply even if `disable` names them."),
};
static const struct section route_rules_section =
    SECTION("routes.advanced.guardrails", route_rules_keys, "Rules of `[guardrails]` for this route.");

static const struct key_spec advanced_keys[] = {
    KEY_SUB("guardrails", struct route_settings, rules, &route_rules_section, .doc = "Rules of this route."),
    ORIGINAL("model_type", "Nothing depends on it."),
    ORIGINAL("capabilities", "Nothing depends on them."),
    ORIGINAL("description", "There is no catalogue."),
    ORIGINAL("base_url", "Use `providers.api_base`."),
    ORIGINAL("pricing", "Use `[[model_prices]]`."),
    ORIGINAL("limits", "Use `[[rate_limits]]` and `[queue]`."),
    ORIGINAL("insecure_tls", "Use `providers.insecure_tls`."),
    ORIGINAL("additional_fields", "Use `routes.params`."),
    ORIGINAL("headers", "Use `client.injected_headers`."),
    ORIGINAL("locked_headers", "Use `client.injected_headers`."),
    ORIGINAL("visibility", "Use `virtual_keys.models`."),
};
const struct section schema_route_advanced =
    SECTION("routes.advanced", advanced_keys, "Where the original gateway has a route's rules.");

static const struct key_spec bearer_keys[] = {
    KEY("token_env", KEY_STRING, struct service_auth_settings, token_env, .flags = KEYF_REQUIRED,
        .doc = "Environment variable with the bearer token."),
};
static const struct key_spec secret_keys[] = {
    KEY("secret_env", KEY_STRING, struct service_auth_settings, secret_env, .flags = KEYF_REQUIRED,
        .doc = "Environment variable with the secret, sent as `X-Rolter-Guardrail-Secret`."),
};
/* The two tables are fields of one struct. */
#define AUTH(who, path_)                                                                                     \
    static const struct section who##_bearer =                                                               \
        SECTION_AS(path_ ".auth.bearer", bearer_keys, "Sent as `Authorization: Bearer`.", 0,                 \
                   offsetof(struct service_auth_settings, has_bearer), NO_FIELD);                            \
    static const struct section who##_secret =                                                               \
        SECTION_AS(path_ ".auth.shared_secret", secret_keys, "Sent in a field of its own.", 0,               \
                   offsetof(struct service_auth_settings, has_secret), NO_FIELD);                            \
    static const struct key_spec who##_auth_keys[] = {                                                       \
        {.name = "bearer", .type = KEY_TABLE, .section = &who##_bearer, .doc = "A bearer token."},           \
        {.name = "shared_secret", .type = KEY_TABLE, .section = &who##_secret, .doc = "A shared secret."},   \
    };                                                                                                       \
    static const struct section who##_auth =                                                                 \
        SECTION(path_ ".auth", who##_auth_keys, "How the gateway shows who it is; one of the two.")

static const char *const failure_words[] = {"fail_open", "fail_closed", NULL};

AUTH(webhook, "guardrail_webhook");
static const struct key_spec webhook_keys[] = {
    KEY("enabled", KEY_BOOL, struct webhook_settings, enabled, .preset = "false",
        .doc = "Switches the webhook on."),
    KEY("url", KEY_STRING, struct webhook_settings, url, .doc = "http or https URL; needed when enabled."),
    KEY("stage", KEY_ENUM, struct webhook_settings, stage, .preset = "\"pre_call\"", .words = stage_words,
        .doc = "Requests (`pre_call`) or replies (`post_call`)."),
    KEY("timeout_ms", KEY_UINT, struct webhook_settings, timeout_ms, .preset = "2000", .min = 1,
        .max = MINUTE_MS, .unit = "milliseconds", .doc = "For one call."),
    KEY("max_retries", KEY_UINT, struct webhook_settings, max_retries, .preset = "0", .max = 10,
        .doc = "Further calls after a failed one."),
    KEY("failure_mode", KEY_ENUM, struct webhook_settings, failure_mode, .preset = "\"fail_open\"",
        .words = failure_words,
        .doc = "No answer, or one that cannot be understood: goes on without, or refuses."),
    KEY("max_body_bytes", KEY_UINT, struct webhook_settings, max_body_bytes, .preset = "65536", .min = 1,
        .max = MAX_BODY, .unit = "bytes", .doc = "Largest body that is sent; a larger one is a failure."),
    KEY_SUB("auth", struct webhook_settings, auth, &webhook_auth, .doc = "How the gateway shows who it is."),
};
const struct section schema_webhook = SECTION("guardrail_webhook", webhook_keys, "External judge of bodies.");

static const char *const plugin_stage_words[] = {"pre_route", "pre_upstream", "post_response", NULL};

AUTH(plugin, "plugins.instances");
static const struct key_spec instances_keys[] = {
    KEY("slug", KEY_STRING, struct plugin_settings, slug, .flags = KEYF_REQUIRED, .doc = "Name."),
    KEY("org_id", KEY_STRING, struct plugin_settings, org_id,
        .doc = "Organisation. No key has one here: a plugin with it is never called."),
    KEY("project_id", KEY_STRING, struct plugin_settings, project_id,
        .doc = "Project. No key has one here: a plugin with it is never called."),
    KEY("stage", KEY_ENUM, struct plugin_settings, stage, .flags = KEYF_REQUIRED, .words = plugin_stage_words,
        .doc = "Before the guardrails, before the upstream call, or on replies."),
    KEY("position", KEY_INT, struct plugin_settings, position, .preset = "0",
        .doc = "Order within a stage, lower ones first."),
    KEY("failure_mode", KEY_ENUM, struct plugin_settings, failure_mode, .preset = "\"fail_open\"",
        .words = failure_words,
        .doc = "No answer, or one that cannot be understood: goes on without, or refuses."),
    KEY("endpoint", KEY_STRING, struct plugin_settings, endpoint, .flags = KEYF_REQUIRED,
        .doc = "http or https URL."),
    KEY("timeout_ms", KEY_UINT, struct plugin_settings, timeout_ms, .preset = "2000", .min = 1,
        .max = MINUTE_MS, .unit = "milliseconds", .doc = "For one call."),
    KEY("max_body_bytes", KEY_UINT, struct plugin_settings, max_body_bytes, .preset = "65536", .min = 1,
        .max = MAX_BODY, .unit = "bytes", .doc = "Largest body that is sent; a larger one is a failure."),
    KEY_SUB("auth", struct plugin_settings, auth, &plugin_auth, .doc = "How the gateway shows who it is."),
};
static const struct section instances_section =
    SECTION_LINES("plugins.instances", instances_keys, "HTTP services that see, change or refuse bodies.",
                  struct plugin_settings);
static const struct key_spec plugins_keys[] = {
    KEY_ITEMS("instances", struct plugins_settings, instances, n_instances, &instances_section,
              .doc = "The plugins."),
};
const struct section schema_plugins = SECTION("plugins", plugins_keys, "HTTP plugins.");

static const char *const direction_words[] = {"request", "response", "both", NULL};
static const char *const restoration_words[] = {"never", "trusted_downstream", "caller_authorized", NULL};
static const char *const pii_streaming_words[] = {"reject", "passthrough", NULL};

AUTH(pii, "pii_sanitizer");
static const struct key_spec pii_keys[] = {
    KEY("enabled", KEY_BOOL, struct pii_settings, enabled, .preset = "false",
        .doc = "Switches the sanitizer on."),
    KEY("url", KEY_STRING, struct pii_settings, url, .doc = "http or https URL; needed when enabled."),
    KEY("restore_url", KEY_STRING, struct pii_settings, restore_url,
        .doc = "http or https URL; needed unless nothing is restored."),
    KEY("direction", KEY_ENUM, struct pii_settings, direction, .preset = "\"request\"",
        .words = direction_words, .doc = "Which bodies are sanitized."),
    KEY("restoration", KEY_ENUM, struct pii_settings, restoration, .preset = "\"never\"",
        .words = restoration_words,
        .doc = "Who gets originals back in replies: nobody, everybody, or callers that send "
               "`x-rolter-pii-restore: 1`."),
    KEY("streaming", KEY_ENUM, struct pii_settings, streaming, .preset = "\"reject\"",
        .words = pii_streaming_words,
        .doc = "A stream whose reply would have to be sanitized or restored is refused, or passes as it is."),
    KEY("timeout_ms", KEY_UINT, struct pii_settings, timeout_ms, .preset = "5000", .min = 1, .max = MINUTE_MS,
        .unit = "milliseconds", .doc = "For one call."),
    KEY("max_retries", KEY_UINT, struct pii_settings, max_retries, .preset = "0", .max = 10,
        .doc = "Further calls after a failed one."),
    KEY("failure_mode", KEY_ENUM, struct pii_settings, failure_mode, .preset = "\"fail_open\"",
        .words = failure_words, .doc = "A failed call passes the body as it is, or refuses with 502."),
    KEY("max_body_bytes", KEY_UINT, struct pii_settings, max_body_bytes, .preset = "262144", .min = 1,
        .max = MAX_BODY, .unit = "bytes", .doc = "Largest body that is sent; a larger one is a failure."),
    KEY("entities", KEY_STRINGS, struct pii_settings, entities, .preset = "[]", .flags = KEYF_NO_ZERO_WORDS,
        .doc = "Entities to find; empty leaves it to the service."),
    KEY_SUB("auth", struct pii_settings, auth, &pii_auth, .doc = "How the gateway shows who it is."),
};
const struct section schema_pii =
    SECTION("pii_sanitizer", pii_keys, "External service that hides personal data.");
