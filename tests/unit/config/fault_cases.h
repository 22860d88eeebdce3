/* SPDX-License-Identifier: Apache-2.0
 *
 * Faulty configurations and all that is said about each, in order.
 */
#ifndef ROLTER_TESTS_FAULT_CASES_H
#define ROLTER_TESTS_FAULT_CASES_H

/* A provider for the cases that need one. */
#define P "[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"http://h\"\n"

/* A route with a semantic cache up to its keys. */
#define C                                                                                                    \
    P "[cache]\nenabled = true\n[[routes]]\nmodel = \"m\"\ntargets = [{ provider = \"a\" "                   \
      "}]\n[routes.cache]\n"                                                                                 \
      "[routes.cache.semantic]\n"

#define RULE "[[guardrails.rules]]\nname = \"a\"\nstage = \"pre_call\"\naction = \"block\"\n"

/* All that there are, in their order. */
#define STRATEGIES                                                                                           \
    "round_robin, random, weighted, power_of_two, least_load, consistent_hash, cache_aware, "                \
    "pipeline, cheapest, fastest, predicted_latency, precise_cache_aware, "                                  \
    "lmcache_aware, least_prefill"

static const struct fault_case {
    const char *text, *want;
} fault_cases[] = {
    {"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q = 1\n", "t:1:32: error: a dotted key has too many parts\n"},
    {"x = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n", "t:1:37: error: nested too deeply\n"},
    {"prot = 1\n", "t:1:1: error: prot: unknown key; did you mean \"port\" in [server]?\n"},
    {"[sever]\n", "t:1:2: error: sever: unknown key; did you mean \"server\"?\n"},
    {"[server]\nprot = 1\n", "t:2:1: error: server.prot: unknown key; did you mean \"port\"?\n"},
    {"[server]\nhots = \"a\"\n", "t:2:1: error: server.hots: unknown key; did you mean \"host\"?\n"},
    {"[server]\nqqqqqqqq = 1\n", "t:2:1: error: server.qqqqqqqq: unknown key\n"},
    {"[server]\nmax_retries = 1\n", "t:2:1: error: server.max_retries: unknown key; it belongs in [retry]\n"},
    {"[admin]\nenabled = true\n", "t:2:1: error: admin.enabled: unknown key\n"},
    {"max_body_bytes = 1\n", "t:1:1: error: max_body_bytes: unknown key; it belongs in [server]\n"},
    {"[retry]\nmax_retry = 1\n",
     "t:2:1: error: retry.max_retry: unknown key; did you mean \"max_retries\"?\n"},
    {"[timeouts]\n\"we\\nird\" = 1\n", "t:2:1: error: timeouts.we?ird: unknown key\n"},
    {"[tls]\nca_bundle = []\n", "t:2:1: error: tls.ca_bundle: unknown key; did you mean \"ca_bundles\"?\n"},
    {"[server.tls]\ncert = \"x\"\n",
     "t:1:9: error: server.tls: unknown key; it belongs at the top of the file\n"},
    {P "weigth = 1\n",
     "t:5:1: error: providers.weigth: unknown key; did you mean \"weight\" in [providers.api_keys]?\n"},
    {P "[[routes]]\nmodel = \"m\"\ntargets = [{ provider = \"a\", wieght = 2 }]\n",
     "t:7:30: error: routes.targets.wieght: unknown key; did you mean \"weight\"?\n"},
    {P "[[routes]]\nmodel = \"m\"\ntarget = \"a\"\ntargets = [{ provider = \"a\" }]\n",
     "t:7:1: error: routes.target: unknown key; did you mean \"targets\"?\n"},
    {"[cache]\nttl_secs = 1\n", "t:2:1: error: "
                                "cache.ttl_secs: unknown key; it belongs in [routes.cache]\n"},
    {P "[providers.kv_events]\nendpoint = \"tcp://x:1\"\ntopics = \"x\"\n",
     "t:7:1: error: "
     "providers.kv_events.topics: unknown key; did you mean \"topic\"?\n"},
    {"server = 1\n", "t:1:10: error: server: expected a table, found an integer\n"},
    {"[server]\nport = \"80\"\n", "t:2:8: error: server.port: expected an integer, found a string\n"},
    {"[server]\nport = 80.0\n", "t:2:8: error: server.port: expected an integer, found a float\n"},
    {"[server]\nhost = 1\n", "t:2:8: error: server.host: expected a string, found an integer\n"},
    {"[server]\nhost = true\n", "t:2:8: error: server.host: expected a string, found a boolean\n"},
    {"[server]\nrequire_auth = \"yes\"\n",
     "t:2:16: error: server.require_auth: expected a boolean, found a string\n"},
    {"[health]\nenabled = 1\n", "t:2:11: error: health.enabled: expected a boolean, found an integer\n"},
    {"[egress]\nallow_hosts = \"x\"\n",
     "t:2:15: error: egress.allow_hosts: expected an array, found a string\n"},
    {"[egress]\nallow_hosts = [\"x\", 1]\n",
     "t:2:21: error: egress.allow_hosts: expected strings, found an integer\n"},
    {"[logging]\nsample_rate = \"1\"\n",
     "t:2:15: error: logging.sample_rate: expected a number, found a string\n"},
    {"[queue]\nbackpressure = 1\n",
     "t:2:16: error: queue.backpressure: expected a string, found an integer\n"},
    {"[providers]\nname = \"a\"\n",
     "t:1:1: error: providers: expected an array of tables ([[providers]]), found a table\n"},
    {"providers = 1\n",
     "t:1:13: error: providers: expected an array of tables ([[providers]]), found an integer\n"},
    {"providers = [1]\n", "t:1:14: error: providers: expected tables, found an integer\n"},
    {"routes = { a = 1 }\n",
     "t:1:10: error: routes: expected an array of tables ([[routes]]), found a table\n"},
    {"[client]\ninjected_headers = []\n",
     "t:2:20: error: client.injected_headers: expected a table, found an array\n"},
    {"[client.injected_headers]\nx-a = 1\n",
     "t:2:7: error: client.injected_headers.x-a: expected a string, found an integer\n"},
    {"[currency.rates]\nEUR = \"1\"\n",
     "t:2:7: error: currency.rates.EUR: expected a number, found a string\n"},
    {"[redis]\nurl = 1\n", "t:2:7: error: redis.url: expected a string, found an integer\n"},
    {"[redis]\nurl = \"http://user:secret@h\"\n",
     "t:2:7: error: redis.url: it begins with none of redis://, rediss://, unix://\n"},
    {"[redis]\nurl = \"unix:///r.sock\"\ncluster = true\n",
     "t:2:7: error: redis.url: a cluster has neither Unix sockets nor numbered databases\n"},
    {"[redis]\nurl = \"redis://h\"\nbudget_ms = 0\n",
     "t:3:13: error: redis.budget_ms: 0 is out of range (1 to 60000)\n"},
    {"[cache]\nnamespace = \"a b\"\n",
     "t:2:13: error: cache.namespace: must not contain white space or braces\n"},
    {"[affinity_sync]\nenabled = true\n",
     "t:2:11: error: affinity_sync.enabled: there is no `[redis]` url\n"},
    {"[redis]\ncluster = true\n", "t:2:11: warning: redis.cluster: there is no url\n"},
    {"[[virtual_keys]]\nkey = 1979-05-27\n",
     "t:2:7: error: virtual_keys.key: expected a string, found a date\n"},
    {"[server]\nport = 65536\n", "t:2:8: error: server.port: 65536 is out of range (0 to 65535)\n"},
    {"[server]\nport = -1\n", "t:2:8: error: server.port: -1 is out of range (0 to 65535)\n"},
    {"[server]\nworkers = 99999\n", "t:2:11: error: server.workers: 99999 is out of range (0 to 1024)\n"},
    {"[server]\nmax_body_bytes = 0\n",
     "t:2:18: error: server.max_body_bytes: 0 is out of range (1 to 4294967295)\n"},
    {"[server]\nmax_head_bytes = 10\n",
     "t:2:18: error: server.max_head_bytes: 10 is out of range (1024 to 16777216)\n"},
    {"[logging]\nsample_rate = 1.5\n", "t:2:15: error: logging.sample_rate: 1.5 is out of range (0 to 1)\n"},
    {"[logging]\nsample_rate = -0.1\n",
     "t:2:15: error: logging.sample_rate: -0.1 is out of range (0 to 1)\n"},
    {"[logging]\nsample_rate = nan\n", "t:2:15: error: logging.sample_rate: nan is out of range (0 to 1)\n"},
    {"[queue]\ncapacity = 0\n", "t:2:12: error: queue.capacity: 0 is out of range (1 to 1000000)\n"},
    {"[queue]\nworkers = 0\n", "t:2:11: error: queue.workers: 0 is out of range (1 to 1000000)\n"},
    {"[timeouts]\nidle_secs = 0\n", "t:2:13: error: timeouts.idle_secs: 0 is out of range (1 to 31536000)\n"},
    {"[retry]\nmax_retries = 101\n", "t:2:15: error: retry.max_retries: 101 is out of range (0 to 100)\n"},
    {"[currency.rates]\nEUR = 0\n", "t:2:7: error: currency.rates.EUR: must be above 0\n"},
    {"[cache]\ndefault_ttl_secs = 0\n",
     "t:2:20: "
     "error: cache.default_ttl_secs: 0 is out of range (1 to 315360000)\n"},
    {P "[[routes]]\nmodel = \"m\"\ntargets = [{ provider = \"a\", weight = 0 }]\n",
     "t:7:39: error: routes.targets.weight: 0 is out of range (1 to 1000000)\n"},
    {P "cache_tokens = -5\n",
     "t:5:16: error: providers.cache_tokens: -5 is out of range (0 to 1000000000000)\n"},
    {"[queue]\nbackpressure = \"wait\"\n",
     "t:2:16: error: queue.backpressure: \"wait\" is not one of \"error\", \"block\", \"drop\"\n"},
    {"[server]\nhost = \"\"\n", "t:2:8: error: server.host: must not be empty\n"},
    {"[[virtual_keys]]\nkey = \"\"\n", "t:2:7: error: virtual_keys.key: must not be empty\n"},
    {"[egress]\nallow_hosts = [\"\"]\n", "t:2:16: error: egress.allow_hosts: must not be empty\n"},
    {"[server]\nhost = \"a\\u0000b\"\n", "t:2:8: error: server.host: a NUL character is not allowed\n"},
    {"[[guardrails.rules]]\nname = \"a\"\nstage = \"pre_call\"\naction = \"block\"\n",
     "t:1:1: error: guardrails.rules: needs \"builtin\" or \"pattern\"\n"},
    {RULE "builtin = \"email\"\npattern = \"x\"\n",
     "t:1:1: error: guardrails.rules: needs \"builtin\" or \"pattern\", not both\n"},
    {RULE "builtin = \"iban\"\n",
     "t:5:11: error: guardrails.rules.builtin: \"iban\" is not one of \"email\", \"phone\", "
     "\"api_token\", \"payment_card\"\n"},
    {RULE "pattern = \"a(b\"\n", "t:5:11: error: guardrails.rules.pattern: missing ): a(b\n"},
    {RULE "pattern = 'a*'\n", "t:5:11: error: guardrails.rules.pattern: it matches the empty text, so it "
                              "would match everywhere\n"},
    {RULE "pattern = 'x'\n" RULE "pattern = 'y'\n",
     "t:7:8: error: guardrails.rules.name: \"a\" is already used in line 2\n"},
    {RULE "pattern = 'x'\nreplacement = "
          "\"1234567890123456789012345678901234567890123456789012345678901234+\"\n",
     "t:6:15: error: guardrails.rules.replacement: is longer than 64 bytes\n"},
    {RULE "pattern = 'x'\n" P "[[routes]]\nmodel = \"m\"\ntargets = [{ provider = \"a\" }]\nadvanced = "
          "{ guardrails = { disable = [\"b\"] } }\n",
     "t:13:40: error: routes.advanced.guardrails.disable: there is no rule \"b\"\n"},
    {"[guardrail_webhook]\nenabled = true\n",
     "t:2:11: error: guardrail_webhook: the key \"url\" is missing\n"},
    {"[guardrail_webhook]\nenabled = true\nurl = \"ftp://h\"\n",
     "t:3:7: error: guardrail_webhook.url: the URL does not start with http:// or https://\n"},
    {"[egress]\nblock_private = true\n[pii_sanitizer]\nenabled = true\nurl = \"http://10.0.0.1/x\"\n",
     "t:5:7: error: pii_sanitizer.url: \"10.0.0.1\" is a private address, which [egress] refuses\n"},
    {"[pii_sanitizer]\nenabled = true\nurl = \"http://h\"\nrestoration = \"trusted_downstream\"\n",
     "t:2:11: error: pii_sanitizer: needs \"restore_url\" unless restoration is \"never\"\n"},
    {"[[plugins.instances]]\nslug = \"p\"\nstage = \"pre_route\"\nendpoint = \"http://h\"\nposition = "
     "3000000000\norg_id = \"o\"\n",
     "t:5:12: error: plugins.instances.position: 3000000000 is out of range\nt:6:10: warning: "
     "plugins.instances.org_id: no key has one here, so this plugin is never called\n"},
    {"[[plugins.instances]]\nslug = \"p\"\nstage = \"pre_route\"\nendpoint = \"http://h\"\nauth = { bearer "
     "= { token_env = \"1\" }, shared_secret = { secret_env = \"-\" } }\n",
     "t:5:33: error: plugins.instances.auth: is not the name of an environment variable\nt:5:71: error: "
     "plugins.instances.auth: has \"bearer\" and \"shared_secret\"\nt:5:71: error: plugins.instances.auth: "
     "is "
     "not the name of an environment variable\n"},
    {"[pii_sanitizer.auth.bearer]\n",
     "t:1:1: error: pii_sanitizer.auth.bearer: the key \"token_env\" is missing\n"},
    {"[guardrails]\nstreaming_post_call = \"deny\"\n",
     "t:2:23: error: guardrails.streaming_post_call: \"deny\" is not one of \"reject\", \"passthrough\", "
     "\"apply\"\n"},
    {P "[[routes]]\nmodel = \"m\"\ntargets = [{ provider = \"a\" }]\nparam_policy = { mode = \"no\" }\n",
     "t:8:25: error: routes.param_policy.mode: \"no\" is not one of \"allow\", \"deny\"\n"},
    {"[[providers]]\n",
     "t:1:1: error: providers: the key \"name\" is missing\nt:1:1: error: providers: the key \"kind\" is "
     "missing\nt:1:1: error: providers: the key \"api_base\" is missing\n"},
    {"[[routes]]\n", "t:1:1: error: routes: the key \"model\" is missing\nt:1:1: error: routes: needs "
                     "\"targets\" or \"variants\"\n"},
    {"[[virtual_keys]]\n", "t:1:1: error: virtual_keys: the key \"key\" is missing\n"},
    {"[[model_prices]]\nmodel = \"m\"\n",
     "t:1:1: error: model_prices: the key \"input_per_mtok\" is missing\nt:1:1: error: model_prices: the key "
     "\"output_per_mtok\" is missing\n"},
    {"[[budgets]]\nscope = \"key\"\n",
     "t:1:1: error: budgets: the key \"id\" is missing\nt:1:1: error: budgets: the key \"limit_usd\" is "
     "missing\nt:1:1: warning: budgets: without [[model_prices]] nothing costs anything\n"},
    {P "[providers.lmcache]\n", "t:5:1: error: providers.lmcache: the key \"endpoint\" is missing\n"},
    {P "[providers.lmcache]\nendpoint = \"tcp://x:1\"\n",
     "t:6:12: error: providers.lmcache.endpoint: the URL does not start with http:// or https://\n"},
    {P "[providers.lmcache]\nendpoint = \"http://169.254.169.254/x\"\n",
     "t:6:12: error: providers.lmcache.endpoint: \"169.254.169.254\" is a link-local address, which [egress] "
     "refuses\n"},
    {P "[providers.lmcache]\nendpoint = \"http://x\"\nsignal = \"lmcache_metrics\"\nmetric = \"a b\"\n",
     "t:8:10: error: providers.lmcache.metric: \"a b\" is no metric's name\n"},
    {P "[providers.lmcache]\nendpoint = \"http://x\"\nsignal = \"redis\"\n",
     "t:7:10: error: providers.lmcache.signal: \"redis\" is not one of \"json\", \"lmcache_metrics\"\n"},
    {P "[providers.lmcache]\nendpoint = \"http://x\"\nrefresh_secs = 5\nstale_secs = 4\n",
     "t:8:14: warning: providers.lmcache.stale_secs: shorter than refresh_secs, so answers expire before the "
     "next "
     "one\n"},
    {P "[[routes]]\nmodel = \"m\"\nstrategy = \"fastest\"\ntokenize = \"engine\"\ntargets = [{ provider = "
       "\"a\" "
       "}]\n",
     "t:8:12: warning: routes.tokenize: strategy \"fastest\" does not look at token ids\n"},
    {P "[[routes]]\nmodel = \"m\"\nstrategy = \"precise_cache_aware\"\ntokenize = \"client\"\n"
       "tokenize_timeout_ms = 0\ntargets = [{ provider = \"a\" }]\n",
     "t:7:12: warning: routes.strategy: no provider of this route has [providers.kv_events]; the least load "
     "decides\n"
     "t:8:12: error: routes.tokenize: \"client\" is not one of \"header\", \"engine\"\n"
     "t:9:23: error: routes.tokenize_timeout_ms: 0 is out of range (1 to 60000)\n"},
    {P "[[routes]]\nmodel = \"m\"\nstrategy = \"lmcache_aware\"\ntargets = [{ provider = \"a\" }]\n",
     "t:7:12: warning: routes.strategy: no provider of this route has [providers.lmcache]; the least load "
     "decides\n"},
    {P "[providers.kv_events]\nendpoint = \"http://h:5557\"\nreplay_endpoint = \"tcp://*:5558\"\n",
     "t:6:12: error: providers.kv_events.endpoint: must be tcp://HOST:PORT or ipc://PATH\n"
     "t:7:19: error: providers.kv_events.replay_endpoint: names no host to connect to (an "
     "endpoint to listen on needs bind = true)\n"},
    {P "[providers.kv_events]\nendpoint = \"tcp://*:65530\"\nbind = true\ndp_ranks = 8\non_gap = \"go\"\n",
     "t:6:12: error: providers.kv_events.endpoint: the ports of the further dp_ranks are above 65535\n"
     "t:9:10: error: providers.kv_events.on_gap: \"go\" is not one of \"wait_for_clear\", \"resume\"\n"},
    {P
     "[providers.kv_events]\nendpoint = \"tcp://h:5557\"\nreplay_endpoint = \"tcp://H:5558\"\ndp_ranks = 2\n",
     "t:7:19: error: providers.kv_events.replay_endpoint: its ports and those of endpoint meet (each of "
     "dp_ranks has one of both)\n"},
    {P
     "[providers.kv_events]\nendpoint = \"tcp://h:5557\"\nreplay_endpoint = \"tcp://h:5559\"\ndp_ranks = 2\n",
     ""},
    {P "[providers.kv_events]\nendpoint = \"tcp://h:5557\"\nreplay_endpoint = \"tcp://i:5557\"\n", ""},
    {P "[providers.kv_events]\nendpoint = \"tcp://*:5557\"\nbind = true\ndp_ranks = 2\n"
       "[[providers]]\nname = \"b\"\nkind = \"openai\"\napi_base = \"http://h\"\n"
       "[providers.kv_events]\nendpoint = \"tcp://127.0.0.1:5558\"\nbind = true\n",
     "t:14:12: error: providers.kv_events.endpoint: another provider listens there already, see line 6\n"},
    {"[egress]\nblock_loopback = true\n" P "[providers.kv_events]\nendpoint = \"tcp://127.0.0.1:5557\"\n",
     "t:8:12: error: providers.kv_events.endpoint: \"127.0.0.1\" is a loopback address, which [egress] "
     "refuses\n"},
    {"[server]\nmetrics_path = \"metrics\"\n",
     "t:2:16: error: server.metrics_path: \"metrics\" is not a path that begins with \"/\"\n"},
    {"[server]\nmetrics_path = \"/v1/models\"\n",
     "t:2:16: error: server.metrics_path: \"/v1/models\" is one of the gateway's own paths\n"},
    {"[server]\nmetrics_path = \"/healthz\"\n",
     "t:2:16: error: server.metrics_path: \"/healthz\" is one of the gateway's own paths\n"},
    {"[server]\nmetrics_path = \"/m?x\"\n",
     "t:2:16: error: server.metrics_path: \"/m?x\" is not a path that begins with \"/\"\n"},
    {"[server]\ntls_cert = \"/nonexistent/c\"\n",
     "t:2:12: error: server.tls_cert: needs \"tls_key\" as well\nt:2:12: error: server.tls_cert: cannot read "
     "\"/nonexistent/c\"\n"},
    {"[server]\ntls_key = \"/dev/null\"\n",
     "t:2:11: error: server.tls_key: needs \"tls_cert\" as well\nt:2:11: error: server.tls_key: "
     "\"/dev/null\" is not a file\n"},
    {"[server]\ntls_cert = \"/nonexistent/c\"\ntls_key = \"/nonexistent/k\"\n",
     "t:2:12: error: server.tls_cert: cannot read \"/nonexistent/c\"\nt:3:11: error: server.tls_key: cannot "
     "read \"/nonexistent/k\"\n"},
    {"[tls]\nca_bundles = [\"/nonexistent/c\"]\n",
     "t:2:15: error: tls.ca_bundles: cannot read \"/nonexistent/c\"\n"},
    {"[server]\nunix = "
     "\"/"
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxx\"\n",
     "t:2:8: error: server.unix: the path is longer than 107 bytes\n"},
    {"[queue]\nbackpressure = \"block\"\nblock_timeout_ms = 0\n",
     "t:3:20: error: queue.block_timeout_ms: must be above 0 with backpressure = \"block\"\n"},
    {"[health]\npath = \"x\"\n", "t:2:8: error: health.path: \"x\" is not a path that begins with \"/\"\n"},
    {"[metrics_scrape]\npath = \"/a b\"\n",
     "t:2:8: error: metrics_scrape.path: \"/a b\" is not a path that begins with \"/\"\n"},
    {"[logging]\nclickhouse_url = \"h:8123\"\n",
     "t:2:18: error: logging.clickhouse_url: is not an http or https URL with a host\n"},
    {"[client]\nforwarded_headers = [\"a b\"]\n",
     "t:2:22: error: client.forwarded_headers: \"a b\" is not a header name\n"},
    {"[client]\ninjected_headers = { Content-Length = \"5\" }\n",
     "t:2:39: error: client.injected_headers: \"Content-Length\" is made by the gateway itself\n"},
    {"[client]\ninjected_headers = { x-a = \"a\\r\\nb\" }\n",
     "t:2:28: error: client.injected_headers.x-a: a header has no control characters\n"},
    {"[client]\nrequest_id_header = \"host\"\n",
     "t:2:21: error: client.request_id_header: \"host\" is made by the gateway itself\n"},
    {P P, "t:6:8: error: providers.name: \"a\" is already used in line 2\n"},
    {P "[[providers]]\nname = \"b\"\nkind = \"openai\"\napi_base = \"http://h\"\nslug = \"a\"\n",
     "t:9:8: error: providers.slug: \"a\" is already used in line 1\n"},
    {P "slug = \"x/y\"\n", "t:5:8: error: providers.slug: must not have a \"/\"\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"opnai\"\napi_base = \"http://h\"\n",
     "t:3:8: error: providers.kind: \"opnai\" is not known; the kinds are openai, anthropic, "
     "openai_compatible, ollama, llama_cpp, tei, azure_openai, openrouter, ai21, anyscale, baseten, "
     "cerebras, cloudflare, cohere, databricks, deepinfra, deepseek, fireworks, friendli, gemini, "
     "github_models, groq, huggingface, hyperbolic, jina, lambda, minimax, mistral, moonshot, nebius, "
     "novita, nvidia_nim, ollama_cloud, perplexity, qwen, sambanova, siliconflow, together, upstage, voyage, "
     "xai, zai\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"bedrock\"\napi_base = \"http://h\"\n",
     "t:3:8: error: providers.kind: \"bedrock\" has an API of a shape that is neither OpenAI's nor "
     "Anthropic's\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"gemini_native\"\napi_base = \"http://h\"\n",
     "t:3:8: error: providers.kind: \"gemini_native\" has an API of a shape that is neither OpenAI's nor "
     "Anthropic's\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"h\"\n",
     "t:4:12: error: providers.api_base: the URL does not start with http:// or https://\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"ftp://h\"\n",
     "t:4:12: error: providers.api_base: the URL does not start with http:// or https://\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"http://\"\n",
     "t:4:12: error: providers.api_base: the host is missing\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"http://u:p@h\"\n",
     "t:4:12: error: providers.api_base: user information is not allowed in the URL\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"http://h?x\"\n",
     "t:4:12: error: providers.api_base: a query is not allowed in the URL\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"http://h:99999\"\n",
     "t:4:12: error: providers.api_base: the port is not a number from 1 to 65535\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"http://169.254.169.254/\"\n",
     "t:4:12: error: providers.api_base: \"169.254.169.254\" is a link-local address, which [egress] "
     "refuses\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"http://[fe80::1]\"\n",
     "t:4:12: error: providers.api_base: \"fe80::1\" is a link-local address, which [egress] refuses\n"},
    {"[egress]\nblock_loopback = true\n[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = "
     "\"http://127.0.0.1:1\"\n",
     "t:6:12: error: providers.api_base: \"127.0.0.1\" is a loopback address, which [egress] refuses\n"},
    {"[egress]\nblock_private = true\n[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_base = "
     "\"http://10.0.0.1\"\n",
     "t:6:12: error: providers.api_base: \"10.0.0.1\" is a private address, which [egress] refuses\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"ollama\"\napi_base = \"http://h/v1\"\n",
     "t:4:12: error: providers.api_base: must not end in \"/v1\" with kind \"ollama\"\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"ollama\"\napi_base = \"http://h/v1/\"\n",
     "t:4:12: error: providers.api_base: must not end in \"/v1\" with kind \"ollama\"\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"openrouter\"\napi_base = \"http://h\"\n",
     "t:1:1: error: providers: kind \"openrouter\" needs \"api_key_env\" or \"api_keys\"\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"groq\"\napi_base = \"http://h\"\napi_key_env = \"HOME\"\napi_key "
     "= \"x\"\n",
     "t:6:11: error: providers.api_key: kind \"groq\" takes \"api_key_env\" only\n"},
    {"[[providers]]\nname = \"a\"\nkind = \"groq\"\napi_base = \"http://h\"\napi_keys = [{ key = \"x\" }]\n",
     "t:5:21: error: providers.api_keys.key: kind \"groq\" takes \"env\" only\n"},
    {P "api_keys = [{ weight = 2 }]\n", "t:5:13: error: providers.api_keys: needs \"env\" or \"key\"\n"},
    {P "ca_bundles = [\"/nonexistent/c\"]\n",
     "t:5:15: error: providers.ca_bundles: cannot read \"/nonexistent/c\"\n"},
    {"[[providers]]\nname = \"a\\u0001\"\nkind = \"openai\"\napi_base = \"http://h\"\n",
     "t:2:8: error: providers.name: control characters are not allowed\n"},
    {"[[providers.readonly]]\nname = \"a\"\nkind = \"openai\"\napi_base = "
     "\"http://h\"\n[[providers.default]]\nname = \"b\"\nslug = \"a\"\nkind = \"openai\"\napi_base = "
     "\"http://h\"\n",
     "t:7:8: error: providers.slug: \"a\" is already used in line 1\n"},
    {"[[providers.readonly]]\nname = \"a\"\nkind = \"openai\"\napi_base = \"http://h\"\n[providers.other]\n",
     "t:5:12: error: providers.other: unknown key; the tiers are \"readonly\" and \"default\"\n"},
    {P "[[routes]]\nmodel = \"m\"\n", "t:5:1: error: routes: needs \"targets\" or \"variants\"\n"},
    {P "[[routes]]\nmodel = \"m\"\ntargets = []\n",
     "t:5:1: error: routes: needs \"targets\" or \"variants\"\n"},
    {P "[[routes]]\nmodel = \"m\"\ntargets = [{ provider = \"b\" }]\n",
     "t:7:25: error: routes.targets.provider: there is no provider \"b\"\n"},
    {P "[[routes]]\nmodel = \"m\"\ntargets = [{ model = \"b\" }]\n",
     "t:7:12: error: routes.targets: the key \"provider\" is missing\n"},
    {P "[[routes]]\nmodel = \"m\"\ntargets = [{ provider = \"a\" }]\n[[routes]]\nmodel = \"m\"\ntargets = [{ "
       "provider = \"a\" }]\n",
     "t:9:9: error: routes.model: \"m\" is already used in line 6\n"},
    {P "[[routes]]\nmodel = \"m\"\nstrategy = \"best\"\ntargets = [{ provider = \"a\" }]\n",
     "t:7:12: error: routes.strategy: \"best\" is not known; there are " STRATEGIES "\n"},
    {P "[[routes]]\nmodel = \"m\"\nstrategy = \"lora_aware\"\ntargets = [{ provider = \"a\" }]\n",
     "t:7:12: error: routes.strategy: \"lora_aware\" is not available in this version; there are " STRATEGIES
     "\n"},
    {P "[[routes]]\nmodel = \"m\"\nvariants = [{ name = \"x\", targets = [] }]\n",
     "t:7:37: error: routes.variants.targets: must not be empty\n"},
    {P "[[routes]]\nmodel = \"m\"\nvariants = [{ name = \"x\" }]\n",
     "t:7:13: error: routes.variants: the key \"targets\" is missing\n"},
    {P "[[routes]]\nmodel = \"m\"\nvariants = [{ name = \"x\", targets = [{ provider = \"z\" }] }]\n",
     "t:7:51: error: routes.variants.targets.provider: there is no provider \"z\"\n"},
    {P "[[routes]]\nmodel = \"m\"\nvariants = [{ name = \"x\", targets = [{ provider = \"a\" }] }, { name = "
       "\"x\", weight = 0, targets = [{ provider = \"a\" }] }]\n",
     "t:7:70: error: routes.variants.name: \"x\" is already used in line 7\nt:7:84: error: "
     "routes.variants.weight: 0 is out of range (1 to 1000000)\n"},
    {P "[[routes]]\nmodel = \"m\"\nparams = { a = inf }\ntargets = [{ provider = \"a\" }]\n",
     "t:7:16: error: routes.params: inf and nan have no form in JSON\n"},
    {P "[[routes]]\nmodel = \"m\"\nvariants = [{ name = \"x\", targets = [{ provider = \"a\" }] }]\ntargets "
       "= [{ provider = \"a\" }]\n",
     "t:8:11: warning: routes.targets: not used, because there are variants\n"},
    {"[[virtual_keys]]\nkey = \"s3cret\"\n[[virtual_keys]]\nkey = \"s3cret\"\n",
     "t:4:7: error: virtual_keys.key: is already used in line 2\n"},
    {"[[virtual_keys]]\nkey = \"k\"\nproviders = [\"a\"]\n",
     "t:3:14: error: virtual_keys.providers: there is no provider \"a\"\n"},
    {"[[virtual_keys]]\nkey = \"k\"\nexpires_at = \"soon\"\n",
     "t:3:14: error: virtual_keys.expires_at: \"soon\" is not an instant like 2030-01-31T00:00:00Z\n"},
    {"[[virtual_keys]]\nkey = \"k\"\nexpires_at = 2030-01-31\n",
     "t:3:14: error: virtual_keys.expires_at: needs date, time and offset, as in 2030-01-31T00:00:00Z\n"},
    {"[[virtual_keys]]\nkey = \"k\"\nexpires_at = 2030-01-31T00:00:00\n",
     "t:3:14: error: virtual_keys.expires_at: needs date, time and offset, as in 2030-01-31T00:00:00Z\n"},
    {"[[virtual_keys]]\nkey = \"k\"\nexpires_at = 5\n",
     "t:3:14: error: virtual_keys.expires_at: expected a date-time or a string, found an integer\n"},
    {"[[virtual_keys]]\nkey = \"k\"\nexpires_at = \"2030-02-31T00:00:00Z\"\n",
     "t:3:14: error: virtual_keys.expires_at: \"2030-02-31T00:00:00Z\" is not an instant like "
     "2030-01-31T00:00:00Z\n"},
    {"[[model_prices]]\nmodel = \"m\"\ninput_per_mtok = 1\noutput_per_mtok = 1\ncurrency = \"EUR\"\n",
     "t:5:12: error: model_prices.currency: \"EUR\" has no rate in [currency.rates]\n"},
    {"[currency]\nbase = \"EUR\"\n[[model_prices]]\nmodel = \"m\"\ninput_per_mtok = 1\noutput_per_mtok = 1\n",
     "t:3:1: error: model_prices.currency: \"USD\" has no rate in [currency.rates]\n"},
    {"[[model_prices]]\nmodel = \"m\"\ninput_per_mtok = 1\noutput_per_mtok = -1\n",
     "t:4:19: error: model_prices.output_per_mtok: -1 is out of range (0 or more)\n"},
    {"[[model_prices]]\nmodel = \"m\"\ninput_per_mtok = 1\noutput_per_mtok = 1\n[[model_prices]]\nmodel = "
     "\"m\"\ninput_per_mtok = 1\noutput_per_mtok = 1\n",
     "t:6:9: error: model_prices.model: \"m\" is already used in line 2\n"},
    {"[adaptive_routing]\nenabled = true\nwhatever = 1\n",
     "t:1:2: warning: adaptive_routing: has no effect here. There is no such strategy.\n"},
    {P "api_key_env = \"sk-s3cret\"\n",
     "t:5:15: error: providers.api_key_env: is not the name of an environment variable\n"},
    {P "role_profile = \"openai\"\n",
     "t:5:1: warning: providers.role_profile: has no effect here. Roles are forwarded as they are.\n"},
    {P "api_key_env = \"ROLTER_NOT_SET_ANYWHERE\"\n",
     "t:5:15: warning: providers.api_key_env: the environment variable \"ROLTER_NOT_SET_ANYWHERE\" is not "
     "set\n"},
    {"[health]\nstatus_page_interval_secs = 5\n",
     "t:2:1: warning: health.status_page_interval_secs: has no effect here. Status pages are not read.\n"},
    {"[cache]\nenabled = true\n",
     "t:2:11: warning: cache.enabled: no route and no key asks for the cache ([routes.cache])\n"},
    {C "provider = \"b\"\nmodel = \"e\"\n",
     "t:12:12: error: routes.cache.semantic.provider: there is no provider \"b\"\n"},
    {C "provider = \"a\"\nmodel = \" \"\n", "t:13:9: error: routes.cache.semantic.model: is blank\n"},
    {C "provider = \"a\"\nmodel = \"e\"\nthreshold = 0\n",
     "t:14:13: error: routes.cache.semantic.threshold: must be above 0\n"},
    {P "[[routes]]\nmodel = \"m\"\ntargets = [{ provider = \"a\" }]\n[routes.cache]\nttl_secs = 1\n",
     "t:5:1: warning: routes.cache: nothing is cached while [cache] enabled is false\n"},
    {P "[cache]\nenabled = true\nmax_entry_bytes = 600\nmemory_bytes = 1000\n[[routes]]\nmodel = "
       "\"m\"\ntargets = [{ provider = \"a\" }]\n[routes.cache]\nper_key = false\nscope = \"key\"\n",
     "t:7:19: warning: cache.max_entry_bytes: entries of more than half of memory_bytes are not kept in "
     "memory\nt:13:11: error: routes.cache.per_key: contradicts \"scope\"\n"},
    {"[admin]\ntoken_env = \"ROLTER_NOT_SET_ANYWHERE\"\n",
     "t:2:13: warning: admin.token_env: the environment variable \"ROLTER_NOT_SET_ANYWHERE\" is not set\n"},
};

/* What the TOML library says is its own; only the place counts. */
static const struct fault_case syntax_cases[] = {
    {"[server\n", "t:1:"},
    {"a = \n", "t:1:"},
    {"x = \"unfinished\n", "t:1:"},
    {"[server]\nport = 1\nport = 2\n", "t:3:"},
    {"[server]\nport = 1\n[server]\n", "t:3:"},
    {"port = 08\n", "t:1:"},
};

#endif
