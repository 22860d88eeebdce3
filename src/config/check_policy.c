/* SPDX-License-Identifier: Apache-2.0
 * What the table of keys cannot say about guardrails, webhook, plugins and the PII sanitizer.
 */
#include "config/reader.h"
#include "policy/guardrails.h"
#include "policy/patterns.h"

enum { REPLACEMENT_MAX = 64 };

static void check_rule(struct reader *r, const struct rule_settings *rule, bool for_streams)
{
    char why[PATTERN_WHY];
    if (!rule->builtin == !rule->pattern)
        reader_fault(r, reader_table(r, rule), "guardrails.rules: needs \"builtin\" or \"pattern\"%s",
                     rule->builtin ? ", not both" : "");
    if (rule->builtin && !guard_builtin(rule->builtin))
        reader_fault(
            r, reader_field(r, &rule->builtin),
            "guardrails.rules.builtin: \"%.100s\" is not one of \"email\", \"phone\", \"api_token\", "
            "\"payment_card\"",
            rule->builtin);
    if (rule->pattern && !pattern_check(span_str(rule->pattern), for_streams, why))
        reader_fault(r, reader_field(r, &rule->pattern), "guardrails.rules.pattern: %s", why);
    if (rule->replacement && strlen(rule->replacement) > REPLACEMENT_MAX)
        reader_fault(r, reader_field(r, &rule->replacement),
                     "guardrails.rules.replacement: is longer than %d bytes", REPLACEMENT_MAX);
}

static void check_names(struct reader *r, const struct map *rules, const struct strings *names,
                        const char *path)
{
    for (unsigned i = 0; i < names->n; i++)
        if (!map_get(rules, span_str(names->item[i])))
            reader_fault(r, reader_field(r, &names->item[i]), "%s: there is no rule \"%.100s\"", path,
                         names->item[i]);
}

static void check_guardrails(struct reader *r)
{
    const struct guardrail_settings *g = &r->s->policy.guardrails;
    struct map rules;
    map_init(&rules);
    for (unsigned i = 0; i < g->n_rules; i++) {
        const struct rule_settings *rule = &g->rules[i];
        check_unique(r, &rules, &rule->name, rule, "guardrails.rules.name", false);
        check_rule(r, rule, g->streaming_post_call == STREAM_APPLY && rule->stage == RULE_POST_CALL);
    }
    for (unsigned i = 0; i < r->s->n_routes; i++) {
        const struct route_rule_settings *names = &r->s->routes[i].rules;
        check_names(r, &rules, &names->disable, "routes.advanced.guardrails.disable");
        check_names(r, &rules, &names->enable, "routes.advanced.guardrails.enable");
    }
    map_fini(&rules);
}

/* <table>: where to point when the URL is missing. */
static void check_service(struct reader *r, const char *const *url, const char *path, const char *missing,
                          struct toml_place table)
{
    struct net_origin origin;
    if (!*url)
        reader_fault(r, table, "%s", missing);
    else if (check_url(r, url, path, &origin))
        origin_fini(&origin);
}

static void check_auth(struct reader *r, const struct service_auth_settings *a, const char *path)
{
    if (a->token_env && a->secret_env)
        reader_fault(r, reader_field(r, &a->secret_env), "%s: has \"bearer\" and \"shared_secret\"", path);
    check_env(r, &a->token_env, path);
    check_env(r, &a->secret_env, path);
}

static void check_webhook(struct reader *r)
{
    const struct webhook_settings *w = &r->s->policy.webhook;
    if (!w->enabled)
        return;
    check_service(r, &w->url, "guardrail_webhook.url", "guardrail_webhook: the key \"url\" is missing",
                  reader_field(r, &w->enabled));
    check_auth(r, &w->auth, "guardrail_webhook.auth");
}

static void check_plugin(struct reader *r, const struct plugin_settings *p)
{
    struct net_origin origin;
    if (p->endpoint && check_url(r, &p->endpoint, "plugins.instances.endpoint", &origin))
        origin_fini(&origin);
    if (p->org_id || p->project_id)
        reader_warn(r, reader_field(r, p->org_id ? &p->org_id : &p->project_id),
                    "plugins.instances.%s: no key has one here, so this plugin is never called",
                    p->org_id ? "org_id" : "project_id");
    check_auth(r, &p->auth, "plugins.instances.auth");
}

static void check_pii(struct reader *r)
{
    const struct pii_settings *p = &r->s->policy.pii;
    if (!p->enabled)
        return;
    const struct toml_place table = reader_field(r, &p->enabled);
    check_service(r, &p->url, "pii_sanitizer.url", "pii_sanitizer: the key \"url\" is missing", table);
    if (p->restoration != PII_NEVER)
        check_service(r, &p->restore_url, "pii_sanitizer.restore_url",
                      "pii_sanitizer: needs \"restore_url\" unless restoration is \"never\"", table);
    check_auth(r, &p->auth, "pii_sanitizer.auth");
}

void check_policy(struct reader *r)
{
    check_guardrails(r);
    check_webhook(r);
    for (unsigned i = 0; i < r->s->policy.plugins.n_instances; i++)
        check_plugin(r, &r->s->policy.plugins.instances[i]);
    check_pii(r);
}
