/* SPDX-License-Identifier: Apache-2.0
 * Keys of the process itself: listeners, rows, what clients see.
 */
#include "config/schema.h"
#include "gateway/settings.h"

enum { YEAR_SECS = 31536000 };

static const struct key_spec server_keys[] = {
    KEY("host", KEY_STRING, struct server_settings, host, .preset = "\"0.0.0.0\"", .flags = KEYF_RESTART,
        .doc = "Address to listen on. `--host` and `ROLTER_HOST` win over it."),
    KEY("port", KEY_UINT, struct server_settings, port, .preset = "4000", .max = 65535, .flags = KEYF_RESTART,
        .doc = "Port to listen on; 0 takes a free one. `--port` and `ROLTER_PORT` win over it."),
    KEY("unix", KEY_STRING, struct server_settings, unix_path, .flags = KEYF_RESTART,
        .doc = "Path of a Unix socket to listen on as well."),
    KEY("workers", KEY_UINT, struct server_settings, workers, .preset = "0", .max = 1024,
        .flags = KEYF_RESTART, .doc = "Threads that serve requests; 0 is one for each core."),
    KEY("metrics_path", KEY_STRING, struct server_settings, metrics_path, .preset = "\"/metrics\"",
        .doc = "Path of the Prometheus metrics; not one of the gateway's own paths."),
    KEY("key_pepper", KEY_STRING, struct server_settings, key_pepper, .flags = KEYF_SECRET,
        .doc = "Mixed into the digests of virtual keys. `ROLTER_KEY_PEPPER` wins over it."),
    KEY("max_body_bytes", KEY_UINT, struct server_settings, max_body_bytes, .preset = "33554432", .min = 1,
        .max = 4294967295.0, .unit = "bytes", .doc = "Largest request body; larger ones get 413."),
    KEY("max_head_bytes", KEY_UINT, struct server_settings, max_head_bytes, .preset = "262144", .min = 1024,
        .max = 16777216, .unit = "bytes", .doc = "Largest request head; larger ones get 431."),
    KEY("require_auth", KEY_TRISTATE, struct server_settings, require_auth,
        .doc = "Without any virtual key: true refuses every request, false or absent serves everybody."),
    KEY("tls_cert", KEY_STRING, struct server_settings, tls_cert,
        .doc = "PEM file with the listener's certificate chain; together with `tls_key`."),
    KEY("tls_key", KEY_STRING, struct server_settings, tls_key,
        .doc = "PEM file with the listener's private key."),
    KEY("drain_secs", KEY_UINT, struct server_settings, drain_secs, .preset = "30", .max = YEAR_SECS,
        .unit = "seconds", .doc = "How long a stopping process lets requests in flight finish."),
};
const struct section schema_server = SECTION("server", server_keys, "The listener for clients.");

static const struct key_spec tls_keys[] = {
    KEY("ca_bundles", KEY_STRINGS, struct settings, ca_bundles, .preset = "[]", .flags = KEYF_NO_ZERO_WORDS,
        .doc = "PEM files with certificate authorities that upstreams may use beside the system's."),
};
const struct section schema_tls = SECTION("tls", tls_keys, "Trust in upstream servers.");

static const struct key_spec admin_keys[] = {
    KEY("host", KEY_STRING, struct admin_settings, host, .preset = "\"127.0.0.1\"", .flags = KEYF_RESTART,
        .doc = "Address of the admin listener."),
    KEY("port", KEY_UINT, struct admin_settings, port, .preset = "4001", .max = 65535, .flags = KEYF_RESTART,
        .doc = "Port of the admin listener; 0 takes a free one."),
    KEY("token_env", KEY_STRING, struct admin_settings, token_env, .flags = KEYF_RESTART,
        .doc = "Environment variable with the bearer token; without one only loopback is answered."),
};
const struct section schema_admin =
    SECTION_AS("admin", admin_keys, "The admin listener; it exists when this table does.", 0,
               offsetof(struct admin_settings, present), NO_FIELD);

static const struct key_spec logging_keys[] = {
    KEY("file", KEY_STRING, struct logging_settings, file,
        .doc = "File for one JSON line a request; `-` is stdout. Absent: no such lines."),
    KEY("clickhouse_url", KEY_STRING, struct logging_settings, clickhouse_url,
        .doc = "ClickHouse over HTTP for the same rows. `CLICKHOUSE_URL` is used when the key is absent."),
    KEY("batch_max", KEY_UINT, struct logging_settings, batch_max, .preset = "1000", .min = 1, .max = 1000000,
        .unit = "rows", .doc = "Rows in one write at most."),
    KEY("flush_ms", KEY_UINT, struct logging_settings, flush_ms, .preset = "1000", .min = 1, .max = 3600000,
        .unit = "milliseconds", .doc = "A row waits this long at most before it is written."),
    KEY("queue_capacity", KEY_UINT, struct logging_settings, queue_capacity, .preset = "10000", .min = 1,
        .max = 10000000, .unit = "rows",
        .doc = "Rows that may wait to be written; more are dropped and counted."),
    KEY("sample_rate", KEY_FLOAT, struct logging_settings, sample_rate, .preset = "1.0", .max = 1,
        .doc = "Share of requests that get a row, chosen by the hash of the request id."),
    ORIGINAL("payload_capture", "Bodies are not captured."),
    ORIGINAL("ui_events", "There is no control plane that would read them."),
};
const struct section schema_logging = SECTION("logging", logging_keys, "One row for each request.");

static const struct key_spec client_keys[] = {
    KEY("forwarded_headers", KEY_STRINGS, struct client_settings, forwarded_headers, .preset = "[]",
        .flags = KEYF_NO_ZERO_WORDS, .doc = "Further request headers that go on to upstreams."),
    KEY("injected_headers", KEY_FREE, struct client_settings, injected_headers, .items = FREE_STRINGS,
        .preset = "{}", .flags = KEYF_SECRET, .doc = "Headers that are added to every upstream request."),
    KEY("request_id_header", KEY_STRING, struct client_settings, request_id_header,
        .preset = "\"x-request-id\"", .doc = "Header that carries the request id in both directions."),
    ORIGINAL("public_base_url", "No URL is made from it here."),
};
const struct section schema_client = SECTION("client", client_keys, "Headers towards clients and upstreams.");

static const struct key_spec compatibility_keys[] = {
    KEY("anthropic_version", KEY_STRING, struct compatibility_settings, anthropic_version,
        .preset = "\"2023-06-01\"", .doc = "`anthropic-version` for requests that bring none."),
    ORIGINAL("default_max_tokens", "Dialects are not translated into one another."),
};
const struct section schema_compatibility = SECTION("compatibility", compatibility_keys, "Dialect details.");
