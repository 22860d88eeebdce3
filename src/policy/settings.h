/* SPDX-License-Identifier: Apache-2.0
 *
 * What the configuration says about guardrails, webhook, plugins and the PII sanitizer. Filled by config/;
 * strings live as long as the settings that they are part of, an absent optional string is NULL.
 */
#ifndef ROLTER_POLICY_SETTINGS_H
#define ROLTER_POLICY_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strings.h"

enum failure_mode { FAILURE_OPEN, FAILURE_CLOSED };

enum rule_stage { RULE_PRE_CALL, RULE_POST_CALL };
enum rule_action { RULE_ANNOTATE, RULE_BLOCK, RULE_REDACT };
enum budget_mode { BUDGET_BLOCK, BUDGET_PASS };
enum stream_mode { STREAM_REJECT, STREAM_PASSTHROUGH, STREAM_APPLY };

struct rule_settings {
    const char *name;
    const char *builtin, *pattern; /* exactly one */
    enum rule_stage stage;
    enum rule_action action;
    const char *replacement;
    bool include_system;
    unsigned line;
};

struct guardrail_settings {
    bool enabled;
    uint64_t max_scan_bytes;
    enum stream_mode streaming_post_call;
    enum budget_mode on_budget;
    struct rule_settings *rules;
    unsigned n_rules;
};

/* Of a route. A rule that both name is enabled. */
struct route_rule_settings {
    struct strings disable, enable;
};

/* At most one of the two. */
struct service_auth_settings {
    bool has_bearer, has_secret;
    const char *token_env;  /* Authorization: Bearer */
    const char *secret_env; /* X-Rolter-Guardrail-Secret */
};

struct webhook_settings {
    bool enabled;
    const char *url;
    enum rule_stage stage;
    unsigned timeout_ms, max_retries;
    enum failure_mode failure_mode;
    uint64_t max_body_bytes;
    struct service_auth_settings auth;
};

enum plugin_stage { PLUGIN_PRE_ROUTE, PLUGIN_PRE_UPSTREAM, PLUGIN_POST_RESPONSE, PLUGIN_STAGE_COUNT };

struct plugin_settings {
    const char *slug;
    const char *org_id, *project_id; /* no key has either here, so such a plugin is never called */
    enum plugin_stage stage;
    int position;
    enum failure_mode failure_mode;
    const char *endpoint;
    unsigned timeout_ms;
    uint64_t max_body_bytes;
    struct service_auth_settings auth;
    unsigned line;
};

struct plugins_settings {
    struct plugin_settings *instances;
    unsigned n_instances;
};

enum pii_direction { PII_REQUEST, PII_RESPONSE, PII_BOTH };
enum pii_restoration { PII_NEVER, PII_TRUSTED_DOWNSTREAM, PII_CALLER_AUTHORIZED };
enum pii_streaming { PII_STREAM_REJECT, PII_STREAM_PASSTHROUGH };

struct pii_settings {
    bool enabled;
    const char *url, *restore_url;
    enum pii_direction direction;
    enum pii_restoration restoration;
    enum pii_streaming streaming;
    unsigned timeout_ms, max_retries;
    enum failure_mode failure_mode;
    uint64_t max_body_bytes;
    struct strings entities;
    struct service_auth_settings auth;
};

struct policy_settings {
    struct guardrail_settings guardrails;
    struct webhook_settings webhook;
    struct plugins_settings plugins;
    struct pii_settings pii;
};

#endif
