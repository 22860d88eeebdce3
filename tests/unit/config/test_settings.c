/* SPDX-License-Identifier: Apache-2.0
 * Good configurations: defaults, values, `--show`, what needs a restart.
 */
#include "config_unit.h"

#include <unistd.h>

#include <openssl/pem.h>
#include <openssl/x509.h>

#include "base/clock.h"

static void defaults(void **state)
{
    (void)state;
    struct settings *s = config_good("", 0);
    assert_string_equal(s->server.host, "0.0.0.0");
    assert_int_equal(s->server.port, 4000);
    assert_int_equal(s->server.workers, 0);
    assert_string_equal(s->server.metrics_path, "/metrics");
    assert_null(s->server.key_pepper);
    assert_null(s->server.unix_path);
    assert_int_equal(s->server.max_body_bytes, 33554432);
    assert_int_equal(s->server.max_head_bytes, 262144);
    assert_int_equal(s->server.require_auth, TRI_UNSET);
    assert_int_equal(s->server.drain_secs, 30);
    assert_int_equal(s->ca_bundles.n, 0);
    assert_int_equal(s->timeouts.connect_secs, 10);
    assert_int_equal(s->timeouts.request_secs, 60);
    assert_int_equal(s->timeouts.head_secs, 10);
    assert_int_equal(s->timeouts.body_secs, 30);
    assert_int_equal(s->timeouts.idle_secs, 75);
    assert_int_equal(s->timeouts.stream_idle_secs, 300);
    assert_int_equal(s->retry.max_retries, 2);
    assert_int_equal(s->retry.base_backoff_ms, 100);
    assert_int_equal(s->retry.max_backoff_ms, 2000);
    assert_int_equal(s->cooldown.base_secs, 5);
    assert_int_equal(s->cooldown.max_secs, 300);
    assert_false(s->breaker.enabled);
    assert_int_equal(s->breaker.failure_threshold, 5);
    assert_int_equal(s->breaker.open_secs, 30);
    assert_true(s->queue.enabled);
    assert_int_equal(s->queue.capacity, 256);
    assert_int_equal(s->queue.workers, 256);
    assert_int_equal(s->queue.backpressure, BACKPRESSURE_ERROR);
    assert_int_equal(s->queue.block_timeout_ms, 1000);
    assert_false(s->health.enabled);
    assert_int_equal(s->health.interval_secs, 10);
    assert_int_equal(s->health.timeout_secs, 2);
    assert_string_equal(s->health.path, "/");
    assert_int_equal(s->health.probe_concurrency, 2);
    assert_int_equal(s->health.consecutive_failure_threshold, 3);
    assert_int_equal(s->health.recovery_success_threshold, 2);
    assert_false(s->metrics_scrape.enabled);
    assert_int_equal(s->metrics_scrape.interval_secs, 5);
    assert_int_equal(s->metrics_scrape.timeout_secs, 2);
    assert_string_equal(s->metrics_scrape.path, "/metrics");
    assert_true(s->egress.block_link_local);
    assert_false(s->egress.block_loopback || s->egress.block_private);
    assert_int_equal(s->client.forwarded_headers.n + s->client.injected_headers.n, 0);
    assert_string_equal(s->client.request_id_header, "x-request-id");
    assert_string_equal(s->compatibility.anthropic_version, "2023-06-01");
    assert_null(s->logging.file);
    assert_null(s->logging.clickhouse_url);
    assert_int_equal(s->logging.batch_max, 1000);
    assert_int_equal(s->logging.flush_ms, 1000);
    assert_int_equal(s->logging.queue_capacity, 10000);
    assert_true(s->logging.sample_rate == 1.0);
    assert_false(s->admin.present);
    assert_string_equal(s->admin.host, "127.0.0.1");
    assert_int_equal(s->admin.port, 4001);
    assert_false(s->cache.enabled);
    assert_int_equal(s->cache.default_ttl_secs, 60);
    assert_string_equal(s->cache.name_space, "rolter:cache");
    assert_int_equal(s->cache.max_entry_bytes, 1048576);
    assert_int_equal(s->cache.memory_bytes, 268435456);
    assert_string_equal(s->currency.base, "USD");
    assert_int_equal(s->n_providers + s->n_routes + s->n_virtual_keys + s->n_model_prices, 0);
    settings_free(s);
}

static const char everything[] = //
    "[server]\nhost = \"127.0.0.1\"\nport = 0\nunix = \"/tmp/r.sock\"\nworkers = 3\nmetrics_path = \"/m\"\n"
    "key_pepper = \"p\\\"\\\\\\u007f\"\nmax_body_bytes = 1\nmax_head_bytes = 1024\nrequire_auth = true\n"
    "drain_secs = 0\n"
    "[admin]\nport = 0\n"
    "[timeouts]\nrequest_secs = 0\n"
    "[queue]\nbackpressure = \"drop\"\n"
    "[egress]\nallow_hosts = [\"169.254.1.1\", \"b\"]\n"
    "[client]\nforwarded_headers = [\"x-a\"]\ninjected_headers = { X-Org = \"o\" }\n"
    "[logging]\nfile = \"-\"\nclickhouse_url = \"http://u:p@h:8123/?password=x\"\nsample_rate = 0.125\n"
    "[currency]\nrates = { EUR = 0.9, JPY = 150 }\n"
    "[[model_prices]]\nmodel = \"m\"\ninput_per_mtok = 1\noutput_per_mtok = 2.5\ncurrency = \"EUR\"\n"
    "[[model_prices]]\nmodel = \"n\"\ninput_per_mtok = 1e-7\noutput_per_mtok = 0\ncached_input_per_mtok = 0\n"
    "[[providers.readonly]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"https://a/v1\"\napi_key = \"k\"\n"
    "[[providers.default]]\nname = \"b/c\"\nkind = \"gemini\"\napi_base = \"http://169.254.1.1:1\"\n"
    "cache_tokens = 5000000000\ninsecure_tls = true\napi_keys = [{ env = \"HOME\", weight = 0 }, { env = "
    "\"PATH\" }]\n"
    "[[routes]]\nmodel = \"m\"\nstrategy = \"least_load\"\n"
    "targets = [{ provider = \"a\", model = \"x\", weight = 7 }, { provider = \"b/c\" }]\n"
    "[routes.params]\ntemperature = 0.5\nn = 2\nstop = [\"a\\n\", \"\\u00e9\\u007f\"]\nt = true\n"
    "meta = { \"a:b\" = { c = [] }, when = 2026-12-01T05:00:00Z }\n"
    "[routes.cache]\nper_key = false\nttl_secs = 7\ncoalesce = false\n"
    "[routes.param_policy]\nmode = \"deny\"\nallow = [\"n\"]\n"
    "[routes.advanced.guardrails]\ndisable = [\"one\"]\n"
    "[[routes]]\nmodel = \"v\"\n"
    "[[routes.variants]]\nname = \"one\"\nweight = 9\ntargets = [{ provider = \"a\" }]\nparams = { top_p = "
    "1e-3 }\n"
    "[[routes.variants]]\nname = \"two\"\n[[routes.variants.targets]]\nprovider = \"b/c\"\n"
    "[[virtual_keys]]\nkey = \"s1\"\nname = \"n\"\nmodels = [\"m\"]\nproviders = [\"a\"]\ncache = false\n"
    "expires_at = 2030-01-31T02:00:00.5+02:00\n"
    "[[virtual_keys]]\nkey = \"s2\"\ndisabled = true\nexpires_at = \"2030-01-31T00:00:00Z\"\n"
    "[guardrails]\nenabled = true\nmax_scan_bytes = 9\nstreaming_post_call = \"apply\"\non_budget = "
    "\"pass\"\n"
    "[[guardrails.rules]]\nname = \"one\"\nbuiltin = \"phone\"\nstage = \"post_call\"\naction = \"redact\"\n"
    "[[guardrails.rules]]\nname = \"two\"\npattern = 'a\\d\"'\nstage = \"pre_call\"\naction = \"block\"\n"
    "replacement = \"#\"\ninclude_system = true\n"
    "[guardrail_webhook]\nenabled = true\nurl = \"https://w/x\"\nstage = \"post_call\"\n"
    "auth = { shared_secret = { secret_env = \"HOME\" } }\n"
    "[[plugins.instances]]\nslug = \"p\"\nstage = \"post_response\"\nposition = -3\n"
    "failure_mode = \"fail_closed\"\nendpoint = \"http://p\"\nauth.bearer.token_env = \"PATH\"\n"
    "[pii_sanitizer]\nenabled = true\nurl = \"http://s/a\"\nrestore_url = \"http://s/b\"\n"
    "direction = \"both\"\nrestoration = \"caller_authorized\"\nentities = [\"EMAIL\"]\n";

static void values(void **state)
{
    (void)state;
    struct settings *s = config_good(everything, 1);
    assert_string_equal(s->server.key_pepper, "p\"\\\x7f");
    assert_int_equal(s->server.require_auth, TRI_TRUE);
    assert_true(s->admin.present);
    assert_int_equal(s->queue.backpressure, BACKPRESSURE_DROP);
    assert_int_equal(s->n_providers, 2);
    const struct provider_settings_file *a = &s->providers[0], *b = &s->providers[1];
    assert_true(strcmp(a->name, "a") == 0 && strcmp(a->slug, "a") == 0 && a->kind == KIND_OPENAI &&
                a->line > 0);
    assert_true(strcmp(b->name, "b/c") == 0 && b->kind == KIND_HOSTED && b->insecure_tls);
    assert_true(b->cache_tokens == 5000000000);
    assert_int_equal(b->n_api_keys, 2);
    assert_int_equal(b->api_keys[0].weight, 1);
    assert_string_equal(b->api_keys[1].env, "PATH");
    const struct route_settings *m = &s->routes[0], *v = &s->routes[1];
    assert_int_equal(m->strategy, STRATEGY_LEAST_LOAD);
    assert_int_equal(m->n_targets, 2);
    assert_int_equal(m->targets[0].weight, 7);
    assert_null(m->targets[1].model);
    assert_true(m->cache.present && m->cache.enabled && m->cache.scope == CACHE_SCOPE_ROUTE);
    assert_true(m->cache.ttl_secs == 7 && !m->cache.coalesce && !m->cache.store_truncated);
    assert_true(m->param_policy.deny_mode && m->param_policy.allow.n == 1 && m->param_policy.deny.n == 0);
    static const char *const want[][2] = {{"temperature", "0.5"},
                                          {"n", "2"},
                                          {"stop", "[\"a\\n\",\"\xc3\xa9\x7f\"]"},
                                          {"t", "true"},
                                          {"meta", "{\"a:b\":{\"c\":[]},\"when\":\"2026-12-01T05:00:00Z\"}"}};
    assert_int_equal(m->params.n, 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_true(span_eq(m->params.item[i].name, span_str(want[i][0])));
        assert_string_equal(m->params.item[i].value.p, want[i][1]);
    }
    assert_int_equal(v->n_variants, 2);
    assert_int_equal(v->variants[0].weight, 9);
    assert_string_equal(v->variants[1].targets[0].provider, "b/c");
    assert_true(s->virtual_keys[0].expires_at_ms == 1896048000500);
    assert_true(s->virtual_keys[1].expires_at_ms == 1896048000000);
    assert_int_equal(s->virtual_keys[0].cache, TRI_FALSE);
    assert_true(s->virtual_keys[1].disabled);
    assert_true(s->model_prices[0].cached_input_per_mtok < 0 &&
                s->model_prices[1].cached_input_per_mtok == 0);
    assert_true(s->model_prices[1].input_per_mtok == 1e-7);
    assert_string_equal(s->currency.rates.item[1].value.p, "150");
    assert_string_equal(m->rules.disable.item[0], "one");
    const struct guardrail_settings *g = &s->policy.guardrails;
    assert_true(g->enabled && g->max_scan_bytes == 9 && g->streaming_post_call == STREAM_APPLY &&
                g->on_budget == BUDGET_PASS && g->n_rules == 2);
    assert_true(g->rules[0].stage == RULE_POST_CALL && g->rules[0].action == RULE_REDACT);
    assert_string_equal(g->rules[1].pattern, "a\\d\"");
    const struct webhook_settings *w = &s->policy.webhook;
    assert_true(w->stage == RULE_POST_CALL && w->failure_mode == FAILURE_OPEN && w->timeout_ms == 2000);
    assert_string_equal(w->auth.secret_env, "HOME");
    const struct plugin_settings *p = &s->policy.plugins.instances[0];
    assert_true(p->position == -3 && p->failure_mode == FAILURE_CLOSED && p->stage == PLUGIN_POST_RESPONSE);
    assert_string_equal(p->auth.token_env, "PATH");
    assert_true(s->policy.pii.direction == PII_BOTH && s->policy.pii.restoration == PII_CALLER_AUTHORIZED &&
                s->policy.pii.max_body_bytes == 262144);
    settings_free(s);
}

/* Replaces the first <from> behind <at>. */
static char *replace(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    assert_non_null(at);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    return out;
}

static void show_reads_back(void **state)
{
    (void)state;
    struct settings *s = config_good(everything, 1);
    char *shown = config_shown(s);
    settings_free(s);
    /* Nothing secret: pepper, provider's key, clients' keys, injected header, password in a URL. */
    static const char *const secrets[] = {"\"p\\", "\"k\"", "\"s1\"", "\"s2\"", "\"o\"", "u:p", "password"};
    for (unsigned i = 0; i < ARRAY_LEN(secrets); i++)
        assert_null(strstr(shown, secrets[i]));
    shown = replace(shown, "\"***1\"", "\"p\\\"\\\\\\u007f\"");
    shown = replace(shown, "http://***@h:8123/?***", "http://u:p@h:8123/?password=x");
    shown = replace(shown, "\"***2\"", "\"k\"");
    shown = replace(shown, "\"***3\"", "\"s1\"");
    shown = replace(shown, "\"***4\"", "\"s2\"");
    shown = replace(shown, "\"***\"", "\"o\"");
    struct settings *back = config_good(shown, 1), *first = config_good(everything, 1);
    char *again = config_shown(back), *before = config_shown(first);
    assert_string_equal(again, before);
    /* What show masks, and what only follows from it. */
    assert_string_equal(back->server.key_pepper, first->server.key_pepper);
    assert_string_equal(back->logging.clickhouse_url, first->logging.clickhouse_url);
    assert_string_equal(back->providers[0].api_key, first->providers[0].api_key);
    assert_string_equal(back->client.injected_headers.item[0].value.p,
                        first->client.injected_headers.item[0].value.p);
    for (unsigned i = 0; i < 2; i++) {
        assert_string_equal(back->virtual_keys[i].key, first->virtual_keys[i].key);
        assert_true(back->virtual_keys[i].expires_at_ms == first->virtual_keys[i].expires_at_ms);
        assert_int_equal(back->providers[i].kind, first->providers[i].kind);
        assert_int_equal(back->routes[i].strategy, first->routes[i].strategy);
        for (unsigned j = 0; j < first->routes[i].params.n; j++)
            assert_string_equal(back->routes[i].params.item[j].value.p,
                                first->routes[i].params.item[j].value.p);
    }
    settings_free(back);
    settings_free(first);
    free(again);
    free(before);
    free(shown);
}

static void needs_restart(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after, *want;
    } cases[] = {
        {"", "", ""},
        {"", "[server]\nport = 5\n", "server.port\n"},
        {"[server]\nhost = \"a\"\n", "[server]\nworkers = 2\nunix = \"/x\"\n",
         "server.host\nserver.unix\nserver.workers\n"},
        {"[server]\ndrain_secs = 1\n[retry]\nmax_retries = 9\n", "[logging]\nsample_rate = 0.5\n", ""},
        {"", "[admin]\nport = 7\n", "admin\n"},
        {"[admin]\n", "[admin]\nport = 7\n", "admin.port\n"},
        {"[logging]\nfile = \"-\"\n", "", ""}, /* the writer of rows takes it over */
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        struct settings *a = config_good(cases[i].before, 0), *b = config_good(cases[i].after, 0);
        struct buf out;
        buf_init(&out, 4096);
        unsigned lines = 0;
        for (const char *p = cases[i].want; *p; p++)
            lines += *p == '\n';
        assert_int_equal(config_needs_restart(a, b, &out), lines);
        assert_true(span_eq(buf_view(&out), span_str(cases[i].want)));
        buf_fini(&out);
        settings_free(a);
        settings_free(b);
    }
}

static void overrides(void **state)
{
    (void)state;
    struct config_report r;
    config_report_init(&r);
    const struct config_overrides o = {.host = "::1", .port = 0, .port_given = true};
    setenv("ROLTER_KEY_PEPPER", "env", 1);
    setenv("CLICKHOUSE_URL", "http://env", 1);
    struct settings *s =
        config_parse(SPAN("[server]\nhost = \"h\"\nport = 9\nkey_pepper = \"file\""), "t", &o, &r);
    assert_non_null(s);
    assert_string_equal(s->server.host, "::1");
    assert_int_equal(s->server.port, 0);
    assert_string_equal(s->server.key_pepper, "env");
    assert_string_equal(s->logging.clickhouse_url, "http://env");
    settings_free(s);
    s = config_parse(SPAN("[logging]\nclickhouse_url = \"http://file\""), "t", NULL, &r);
    assert_non_null(s);
    assert_string_equal(s->logging.clickhouse_url, "http://file");
    settings_free(s);
    unsetenv("ROLTER_KEY_PEPPER");
    unsetenv("CLICKHOUSE_URL");
    config_report_fini(&r);
}

static void files(void **state)
{
    (void)state;
    char path[] = "/tmp/rolter-config-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char text[] = "[server]\nport = 77\n";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    struct config_report r;
    config_report_init(&r);
    struct settings *s = config_load(path, false, NULL, &r);
    assert_non_null(s);
    assert_int_equal(s->server.port, 77);
    assert_string_equal(s->path, path);
    settings_free(s);
    unlink(path);
    assert_int_equal(r.errors, 0);
    assert_int_equal(r.warnings, 1);
    assert_true(span_find(buf_view(&r.text), SPAN("there are no [[providers]]")) > 0);
    assert_null(config_load(path, false, NULL, &r));
    assert_int_equal(r.errors, 1);
    s = config_load(path, true, NULL, &r);
    assert_non_null(s);
    assert_null(s->path);
    assert_int_equal(s->server.port, 4000);
    assert_int_equal(r.warnings, 2);
    settings_free(s);
    assert_null(config_load("/tmp", true, NULL, &r));
    assert_int_equal(r.errors, 2);
    config_report_fini(&r);
}

/* Writes a key and a certificate for it as PEM; each path gets its last six characters. */
static void write_pair(char *key_path, char *cert_path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *)"t", -1,
                               -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    FILE *f = fdopen(mkstemp(key_path), "w");
    assert_true(f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL));
    fclose(f);
    f = fdopen(mkstemp(cert_path), "w");
    assert_true(f && PEM_write_X509(f, x));
    fclose(f);
    X509_free(x);
    EVP_PKEY_free(key);
}

static void certificates(void **state)
{
    (void)state;
    char paths[4][32];
    for (unsigned i = 0; i < 4; i++)
        snprintf(paths[i], sizeof paths[i], "/tmp/rolter-pem-XXXXXX");
    write_pair(paths[0], paths[1]);
    write_pair(paths[2], paths[3]);
    const struct {
        const char *key, *cert, *bundle, *fault; /* the fault's beginning, or NULL */
    } cases[] = {
        {paths[0], paths[1], paths[1], NULL},
        {paths[2], paths[3], paths[1], NULL},
        {paths[2], paths[1], paths[1], "t:3:12: error: server.tls_cert: "},
        {paths[0], paths[0], paths[1], "t:3:12: error: server.tls_cert: "},
        {paths[0], paths[1], paths[0], "t:5:15: error: tls.ca_bundles: "},
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "[server]\ntls_key = \"%s\"\ntls_cert = \"%s\"\n[tls]\nca_bundles = [\"%s\"]\n",
                 cases[i].key, cases[i].cert, cases[i].bundle);
        struct config_report r;
        config_report_init(&r);
        struct settings *s = config_parse(span_str(text), "t", NULL, &r);
        assert_int_equal(r.errors, cases[i].fault ? 1 : 0);
        assert_true(span_starts(buf_view(&r.text), span_str(cases[i].fault)));
        assert_true((s == NULL) == (cases[i].fault != NULL));
        settings_free(s);
        config_report_fini(&r);
    }
    for (unsigned i = 0; i < 4; i++)
        unlink(paths[i]);
}

/* 10,000 routes with three targets, 1,000 providers and 10,000 keys: a quadratic check would take minutes. */
static void a_large_file(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 64 << 20);
    for (unsigned i = 0; i < 1000; i++)
        buf_printf(&b, "[[providers]]\nname = \"p%u\"\nkind = \"openai\"\napi_base = \"http://p%u:80\"\n", i,
                   i);
    for (unsigned i = 0; i < 10000; i++)
        buf_printf(&b,
                   "[[routes]]\nmodel = \"m%u\"\ntargets = [{ provider = \"p%u\" }, { provider = \"p%u\" }, "
                   "{ provider = \"p%u\" }]\n[routes.params]\nn = 1\n[[virtual_keys]]\nkey = \"k%u\"\n",
                   i, i % 1000, (i + 1) % 1000, (i + 2) % 1000, i);
    buf_add_char(&b, '\0');
    const uint64_t begin = clock_mono_ms();
    struct settings *s = config_good(b.p, 0);
    assert_true(clock_mono_ms() - begin < 20000);
    assert_int_equal(s->n_routes, 10000);
    assert_int_equal(s->n_providers, 1000);
    assert_int_equal(s->n_virtual_keys, 10000);
    assert_string_equal(s->routes[9999].targets[2].provider, "p1");
    settings_free(s);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),      cmocka_unit_test(values),       cmocka_unit_test(show_reads_back),
        cmocka_unit_test(needs_restart), cmocka_unit_test(overrides),    cmocka_unit_test(files),
        cmocka_unit_test(certificates),  cmocka_unit_test(a_large_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
