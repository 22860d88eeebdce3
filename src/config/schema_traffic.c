/* SPDX-License-Identifier: Apache-2.0
 * Keys of how upstream calls are made, bounded, repeated and watched.
 */
#include "config/schema.h"
#include "gateway/settings.h"

enum { YEAR_SECS = 31536000, DAY_MS = 86400000 };

static const struct key_spec timeouts_keys[] = {
    KEY("connect_secs", KEY_UINT, struct timeout_settings, connect_secs, .preset = "10", .max = YEAR_SECS,
        .unit = "seconds", .doc = "To connect to an upstream, TLS included; 0 is no limit."),
    KEY("request_secs", KEY_UINT, struct timeout_settings, request_secs, .preset = "60", .max = YEAR_SECS,
        .unit = "seconds", .doc = "From the request to the head of the upstream's reply; 0 is no limit."),
    KEY("head_secs", KEY_UINT, struct timeout_settings, head_secs, .preset = "10", .min = 1, .max = YEAR_SECS,
        .unit = "seconds", .doc = "For a client to send a request's head."),
    KEY("body_secs", KEY_UINT, struct timeout_settings, body_secs, .preset = "30", .min = 1, .max = YEAR_SECS,
        .unit = "seconds", .doc = "Between two reads of a request's body."),
    KEY("idle_secs", KEY_UINT, struct timeout_settings, idle_secs, .preset = "75", .min = 1, .max = YEAR_SECS,
        .unit = "seconds", .doc = "A connection without a request is kept this long."),
    KEY("stream_idle_secs", KEY_UINT, struct timeout_settings, stream_idle_secs, .preset = "300",
        .max = YEAR_SECS, .unit = "seconds",
        .doc = "Between two events of an upstream's stream; 0 is no limit."),
};
const struct section schema_timeouts =
    SECTION("timeouts", timeouts_keys, "Limits in time, one for each phase.");

static const struct key_spec retry_keys[] = {
    KEY("max_retries", KEY_UINT, struct retry_settings, max_retries, .preset = "2", .max = 100,
        .doc = "Further attempts after the first; a target is not asked twice."),
    KEY("base_backoff_ms", KEY_UINT, struct retry_settings, base_backoff_ms, .preset = "100", .max = DAY_MS,
        .unit = "milliseconds",
        .doc = "Bound of the random wait before the same provider is tried again; doubles."),
    KEY("max_backoff_ms", KEY_UINT, struct retry_settings, max_backoff_ms, .preset = "2000", .max = DAY_MS,
        .unit = "milliseconds", .doc = "Bound that the doubling stops at."),
};
const struct section schema_retry = SECTION("retry", retry_keys, "Attempts after a transient failure.");

static const struct key_spec cooldown_keys[] = {
    KEY("base_secs", KEY_UINT, struct cooldown_settings, base_secs, .preset = "5", .max = YEAR_SECS,
        .unit = "seconds",
        .doc = "A target is left alone this long after a transient failure; 0 switches cooldown off."),
    KEY("max_secs", KEY_UINT, struct cooldown_settings, max_secs, .preset = "300", .max = YEAR_SECS,
        .unit = "seconds", .doc = "Bound for the wait that an upstream asks for with Retry-After."),
};
const struct section schema_cooldown = SECTION("cooldown", cooldown_keys, "Rest for a target that failed.");

static const struct key_spec breaker_keys[] = {
    KEY("enabled", KEY_BOOL, struct breaker_settings, enabled, .preset = "false",
        .doc = "Switches the breaker on."),
    KEY("failure_threshold", KEY_UINT, struct breaker_settings, failure_threshold, .preset = "5",
        .max = 1000000, .unit = "failures", .doc = "Failures in a row that open it; 0 is never."),
    KEY("open_secs", KEY_UINT, struct breaker_settings, open_secs, .preset = "30", .max = YEAR_SECS,
        .unit = "seconds", .doc = "How long it stays open before one probe request is let through."),
};
const struct section schema_breaker =
    SECTION("breaker", breaker_keys, "Circuit breaker, one for each provider.");

/* In the order of enum backpressure. */
static const char *const backpressure_words[] = {"error", "block", "drop", NULL};

static const struct key_spec queue_keys[] = {
    KEY("enabled", KEY_BOOL, struct queue_settings, enabled, .preset = "true",
        .doc = "Bounds the calls to a provider at a time."),
    KEY("capacity", KEY_UINT, struct queue_settings, capacity, .preset = "256", .min = 1, .max = 1000000,
        .unit = "requests", .doc = "Requests that may wait for a provider."),
    KEY("workers", KEY_UINT, struct queue_settings, workers, .preset = "256", .min = 1, .max = 1000000,
        .unit = "requests",
        .doc = "Calls to a provider that may wait for the head of their reply at a time."),
    KEY("backpressure", KEY_ENUM, struct queue_settings, backpressure, .preset = "\"error\"",
        .words = backpressure_words,
        .doc = "When the queue is full: `error` answers 429, `block` waits up to `block_timeout_ms`, `drop` "
               "answers 503."),
    KEY("block_timeout_ms", KEY_UINT, struct queue_settings, block_timeout_ms, .preset = "1000",
        .max = DAY_MS, .unit = "milliseconds", .doc = "Longest wait of `block`; above 0 there."),
};
const struct section schema_queue =
    SECTION("queue", queue_keys, "Concurrency and waiting room of each provider.");

static const struct key_spec health_keys[] = {
    KEY("enabled", KEY_BOOL, struct health_settings, enabled, .preset = "false",
        .doc = "Switches active probes on."),
    KEY("interval_secs", KEY_UINT, struct health_settings, interval_secs, .preset = "10", .min = 1,
        .max = YEAR_SECS, .unit = "seconds", .doc = "Between two probes of a provider."),
    KEY("timeout_secs", KEY_UINT, struct health_settings, timeout_secs, .preset = "2", .min = 1,
        .max = YEAR_SECS, .unit = "seconds", .doc = "For one probe."),
    KEY("path", KEY_STRING, struct health_settings, path, .preset = "\"/\"",
        .doc = "Path that is asked; any status below 500 counts as healthy."),
    KEY("probe_concurrency", KEY_UINT, struct health_settings, probe_concurrency, .preset = "2", .min = 1,
        .max = 1024, .unit = "probes", .doc = "Probes at a time."),
    KEY("consecutive_failure_threshold", KEY_UINT, struct health_settings, consecutive_failure_threshold,
        .preset = "3", .min = 1, .max = 1000, .unit = "probes",
        .doc = "Failures in a row that take a provider out."),
    KEY("recovery_success_threshold", KEY_UINT, struct health_settings, recovery_success_threshold,
        .preset = "2", .min = 1, .max = 1000, .unit = "probes",
        .doc = "Successes in a row that bring it back."),
    ORIGINAL("status_page_interval_secs", "Status pages are not read."),
};
const struct section schema_health = SECTION("health", health_keys, "Active health probes.");

static const struct key_spec scrape_keys[] = {
    KEY("enabled", KEY_BOOL, struct scrape_settings, enabled, .preset = "false",
        .doc = "Reads the engines' own metrics for their load."),
    KEY("interval_secs", KEY_UINT, struct scrape_settings, interval_secs, .preset = "5", .min = 1,
        .max = YEAR_SECS, .unit = "seconds", .doc = "Between two readings."),
    KEY("timeout_secs", KEY_UINT, struct scrape_settings, timeout_secs, .preset = "2", .min = 1,
        .max = YEAR_SECS, .unit = "seconds", .doc = "For one reading."),
    KEY("path", KEY_STRING, struct scrape_settings, path, .preset = "\"/metrics\"",
        .doc = "Path that is read."),
};
const struct section schema_metrics_scrape =
    SECTION("metrics_scrape", scrape_keys, "Load from engines' metrics.");

static const struct key_spec egress_keys[] = {
    KEY("block_link_local", KEY_BOOL, struct egress_settings, block_link_local, .preset = "true",
        .doc = "Refuses upstreams with link-local addresses (metadata services of clouds)."),
    KEY("block_loopback", KEY_BOOL, struct egress_settings, block_loopback, .preset = "false",
        .doc = "Refuses upstreams on this machine."),
    KEY("block_private", KEY_BOOL, struct egress_settings, block_private, .preset = "false",
        .doc = "Refuses upstreams in private networks."),
    KEY("allow_hosts", KEY_STRINGS, struct egress_settings, allow_hosts, .preset = "[]",
        .flags = KEYF_NO_ZERO_WORDS,
        .doc = "Names and addresses that are allowed whatever the rules above say."),
};
const struct section schema_egress = SECTION("egress", egress_keys,
                                             "Addresses that upstream calls may reach. Literal addresses are "
                                             "checked at load, names when they are resolved.");
