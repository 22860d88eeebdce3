/* SPDX-License-Identifier: Apache-2.0
 * What the table of keys cannot say, outside of providers, routes and keys.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "config/reader.h"
#include "net/tls.h"

enum { TLS_ERROR_TEXT = 512 };

struct first_use {
    const char *const *field;
    const void *table;
};

bool check_unique(struct reader *r, struct map *seen, const char *const *field, const void *table,
                  const char *path, bool secret)
{
    if (!*field)
        return false;
    const struct first_use *first = map_get(seen, span_str(*field));
    if (!first) {
        struct first_use *now = ARENA_NEW(&r->scratch, struct first_use);
        *now = (struct first_use){field, table};
        map_put(seen, span_str(*field), now);
        return false;
    }
    const unsigned line = reader_field_or_table(r, first->field, first->table).line;
    const struct toml_place at = reader_field_or_table(r, field, table);
    if (secret)
        reader_fault(r, at, "%s: is already used in line %u", path, line);
    else
        reader_fault(r, at, "%s: \"%.100s\" is already used in line %u", path, *field, line);
    return true;
}

static bool is_env_name(const char *s)
{
    for (const char *p = s; *p; p++) {
        const bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';
        if (!letter && !(*p >= '0' && *p <= '9' && p != s))
            return false;
    }
    return true;
}

void check_env(struct reader *r, const char *const *field, const char *path)
{
    if (!*field)
        return;
    if (!is_env_name(*field)) /* perhaps the secret itself, which is not to be printed */
        reader_fault(r, reader_field(r, field), "%s: is not the name of an environment variable", path);
    else if (!getenv(*field))
        reader_warn(r, reader_field(r, field), "%s: the environment variable \"%.100s\" is not set", path,
                    *field);
}

/* Regular files only: reading a pipe or a terminal would block. */
static bool is_readable(struct reader *r, struct toml_place at, const char *file, const char *path)
{
    struct stat st;
    if (stat(file, &st) != 0 || access(file, R_OK) != 0)
        reader_fault(r, at, "%s: cannot read \"%.200s\"", path, file);
    else if (!S_ISREG(st.st_mode))
        reader_fault(r, at, "%s: \"%.200s\" is not a file", path, file);
    else
        return true;
    return false;
}

void check_bundles(struct reader *r, const struct strings *files, const char *path)
{
    for (unsigned i = 0; i < files->n; i++) {
        char why[TLS_ERROR_TEXT] = "";
        const struct toml_place at = reader_field(r, &files->item[i]);
        if (is_readable(r, at, files->item[i], path) && !tls_bundle_check(files->item[i], why))
            reader_fault(r, at, "%s: %s", path, why);
    }
}

static bool is_token(const char *s)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (const char *p = s; *p; p++) {
        const bool alnum = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');
        if (!alnum && !strchr(marks, *p))
            return false;
    }
    return *s != '\0';
}

static bool is_http_path(const char *s)
{
    for (const char *p = s; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f || *p == '#')
            return false;
    return s[0] == '/';
}

static void check_metrics_path(struct reader *r)
{
    static const char *const own[] = {"/",     "/healthz",        "/readyz", "/openapi.json",
                                      "/docs", "/docs/scalar.js", NULL};
    const struct server_settings *s = &r->s->server;
    const struct toml_place at = reader_field(r, &s->metrics_path);
    if (!is_http_path(s->metrics_path) || strchr(s->metrics_path, '?'))
        reader_fault(r, at, "server.metrics_path: \"%.100s\" is not a path that begins with \"/\"",
                     s->metrics_path);
    bool taken = strncmp(s->metrics_path, "/v1/", 4) == 0 || strcmp(s->metrics_path, "/v1") == 0;
    for (unsigned i = 0; own[i]; i++)
        taken |= strcmp(s->metrics_path, own[i]) == 0;
    if (taken)
        reader_fault(r, at, "server.metrics_path: \"%.100s\" is one of the gateway's own paths",
                     s->metrics_path);
}

static void check_server(struct reader *r)
{
    const struct server_settings *s = &r->s->server;
    check_metrics_path(r);
    if (s->unix_path && strlen(s->unix_path) >= sizeof((struct sockaddr_un){0}).sun_path)
        reader_fault(r, reader_field(r, &s->unix_path), "server.unix: the path is longer than %zu bytes",
                     sizeof((struct sockaddr_un){0}).sun_path - 1);
    if (s->tls_cert && !s->tls_key)
        reader_fault(r, reader_field(r, &s->tls_cert), "server.tls_cert: needs \"tls_key\" as well");
    if (s->tls_key && !s->tls_cert)
        reader_fault(r, reader_field(r, &s->tls_key), "server.tls_key: needs \"tls_cert\" as well");
    const bool cert =
        s->tls_cert && is_readable(r, reader_field(r, &s->tls_cert), s->tls_cert, "server.tls_cert");
    const bool key = s->tls_key && is_readable(r, reader_field(r, &s->tls_key), s->tls_key, "server.tls_key");
    if (cert && key) {
        char why[TLS_ERROR_TEXT] = "";
        struct tls_context *t = tls_server_new(s->tls_cert, s->tls_key, why);
        if (!t)
            reader_fault(r, reader_field(r, &s->tls_cert), "server.tls_cert: %s", why);
        tls_context_unref(t);
    }
    check_bundles(r, &r->s->ca_bundles, "tls.ca_bundles");
    check_env(r, &r->s->admin.token_env, "admin.token_env");
}

/* Fields that frame a message or name its receiver are the gateway's business. */
static bool is_own_header(const char *name)
{
    static const char *const own[] = {"connection", "content-length",    "host",    "keep-alive",
                                      "te",         "transfer-encoding", "trailer", "upgrade"};
    for (unsigned i = 0; i < ARRAY_LEN(own); i++)
        if (span_eq_nocase(span_str(name), span_str(own[i])))
            return true;
    return false;
}

static void check_header(struct reader *r, struct toml_place at, const char *path, const char *name)
{
    if (!is_token(name))
        reader_fault(r, at, "%s: \"%.100s\" is not a header name", path, name);
    else if (is_own_header(name))
        reader_fault(r, at, "%s: \"%.100s\" is made by the gateway itself", path, name);
}

static void check_client(struct reader *r)
{
    const struct client_settings *c = &r->s->client;
    for (unsigned i = 0; i < c->forwarded_headers.n; i++)
        check_header(r, reader_field(r, &c->forwarded_headers.item[i]), "client.forwarded_headers",
                     c->forwarded_headers.item[i]);
    for (unsigned i = 0; i < c->injected_headers.n; i++) {
        const struct json_member *m = &c->injected_headers.item[i];
        check_header(r, reader_field(r, m), "client.injected_headers", m->name.p);
        /* JSON text has no raw control characters; those that it escapes must not get into a head. */
        if (span_find(m->value, SPAN("\\u00")) >= 0 || span_find(m->value, SPAN("\\n")) >= 0 ||
            span_find(m->value, SPAN("\\r")) >= 0 || memchr(m->value.p, 0x7f, m->value.n))
            reader_fault(r, reader_field(r, m),
                         "client.injected_headers.%.100s: a header has no control characters", m->name.p);
    }
    check_header(r, reader_field(r, &c->request_id_header), "client.request_id_header", c->request_id_header);
}

static void check_traffic(struct reader *r)
{
    const struct settings *s = r->s;
    if (s->queue.backpressure == BACKPRESSURE_BLOCK && s->queue.block_timeout_ms == 0)
        reader_fault(r, reader_field(r, &s->queue.block_timeout_ms),
                     "queue.block_timeout_ms: must be above 0 with backpressure = \"block\"");
    if (!is_http_path(s->health.path))
        reader_fault(r, reader_field(r, &s->health.path),
                     "health.path: \"%.100s\" is not a path that begins with \"/\"", s->health.path);
    if (!is_http_path(s->metrics_scrape.path))
        reader_fault(r, reader_field(r, &s->metrics_scrape.path),
                     "metrics_scrape.path: \"%.100s\" is not a path that begins with \"/\"",
                     s->metrics_scrape.path);
    const char *url = s->logging.clickhouse_url;
    const size_t scheme = !url                               ? 0
                          : strncmp(url, "http://", 7) == 0  ? 7
                          : strncmp(url, "https://", 8) == 0 ? 8
                                                             : 0;
    if (url && (scheme == 0 || url[scheme] == '\0' || strchr("/?#:@", url[scheme])))
        reader_fault(r, reader_field(r, &s->logging.clickhouse_url),
                     "logging.clickhouse_url: is not an http or https URL with a host");
}

static void check_prices(struct reader *r)
{
    const struct settings *s = r->s;
    struct map rates, models;
    map_init(&rates);
    map_init(&models);
    map_put(&rates, span_str(s->currency.base), (void *)s);
    for (unsigned i = 0; i < s->currency.rates.n; i++)
        map_put(&rates, s->currency.rates.item[i].name, &s->currency.rates.item[i]);
    for (unsigned i = 0; i < s->n_model_prices; i++) {
        const struct model_price_settings *p = &s->model_prices[i];
        check_unique(r, &models, &p->model, p, "model_prices.model", false);
        if (!map_get(&rates, span_str(p->currency)))
            reader_fault(r, reader_field_or_table(r, &p->currency, p),
                         "model_prices.currency: \"%.100s\" has no rate in [currency.rates]", p->currency);
    }
    map_fini(&rates);
    map_fini(&models);
}

void check_settings(struct reader *r)
{
    check_server(r);
    check_client(r);
    check_traffic(r);
    check_prices(r);
    struct map providers;
    map_init(&providers);
    check_providers(r, &providers);
    check_routes(r, &providers);
    check_policy(r);
    check_virtual_keys(r, &providers);
    check_cache(r);
    check_semantic(r, &providers);
    check_redis(r);
    check_limits(r);
    map_fini(&providers);
}
