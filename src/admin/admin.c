/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/admin.h"

#include <stdlib.h>

#include "admin/cache_pages.h"
#include "admin/decisions_page.h"
#include "admin/page_html.h"
#include "admin/status.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/http_reply.h"
#include "net/server.h"

enum { HEAD_MAX = 32768, BODY_MAX = 4 << 20, ANSWER_MAX = 64 << 20, HEAD_MS = 10000, IDLE_MS = 60000 };
#define JSON "application/json"
/* The page's own script and style sheet, questions to this listener, and nothing else. */
#define PAGE_POLICY                                                                                          \
    "default-src 'none'; script-src " page_html_SCRIPT "; style-src " page_html_STYLE                        \
    "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

struct admin {
    struct net_loop *loop;
    struct gateway *gateway;
    struct server *server;
    char *token; /* NULL: loopback only */
    char url[300];
    struct buf out;
    void (*on_drain)(void *arg);
    void *arg;
};

/* What a reply has beside its body. */
struct face {
    int status;
    const char *type, *allow; /* or NULL */
    bool is_page, close;
};

static void reply(struct admin *a, struct conn *c, const struct face *f, struct span body)
{
    bool keep = !f->close && !conn_will_close(c);
    struct buf *b = &a->out;
    buf_clear(b);
    reply_begin(b, f->status, clock_wall_ms());
    reply_field(b, SPAN("content-type"), span_str(f->type));
    reply_field(b, SPAN("cache-control"), SPAN("no-store"));
    reply_field(b, SPAN("x-content-type-options"), SPAN("nosniff"));
    if (f->allow)
        reply_field(b, SPAN("allow"), span_str(f->allow));
    if (f->is_page) {
        reply_field(b, SPAN("content-security-policy"), SPAN(PAGE_POLICY));
        reply_field(b, SPAN("referrer-policy"), SPAN("no-referrer"));
    }
    reply_content_length(b, body.n);
    if (!keep)
        reply_connection_close(b);
    reply_end(b);
    struct iovec iov[2] = {{b->p, b->n}, {(void *)body.p, body.n}};
    const struct http_head *h = conn_head(c);
    conn_writev(c, iov, h && span_eq(h->method, SPAN("HEAD")) ? 1 : 2);
}

/* <allow>: of a 405, else NULL. */
static void refuse(struct admin *a, struct conn *c, int status, const char *text, const char *allow)
{
    struct buf body;
    buf_init(&body, 4096);
    buf_printf(&body, "{\"error\":\"%s\"}\n", text);
    struct face f = {.status = status, .type = JSON, .allow = allow};
    reply(a, c, &f, buf_view(&body));
    buf_fini(&body);
    conn_finish(c, !conn_will_close(c));
}

/* A browser on this machine comes from loopback, too, whatever page sent it here; it names that page. */
static bool is_of_another_page(const struct http_head *h)
{
    struct span origin = http_field_find(h, SPAN("origin")), scheme = SPAN("http://");
    if (origin.n == 0)
        return false;
    return !span_starts(origin, scheme) ||
           !span_eq_nocase(span_of(origin.p + scheme.n, origin.n - scheme.n), http_field_get(h, HTTP_F_HOST));
}

/* A page elsewhere may let its own name point to this machine; the browser then says that name. */
static bool names_this_machine(struct span host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct span name = span_str(names[i]);
        if (host.n >= name.n && span_eq_nocase(span_of(host.p, name.n), name) &&
            (host.n == name.n || host.p[name.n] == ':'))
            return true;
    }
    return false;
}

static bool may(struct admin *a, struct conn *c)
{
    const struct http_head *head = conn_head(c);
    if (!a->token)
        return conn_is_loopback(c) && names_this_machine(http_field_get(head, HTTP_F_HOST)) &&
               !is_of_another_page(head);
    struct span given = http_field_get(head, HTTP_F_AUTHORIZATION);
    if (given.n < 7 || !span_eq_nocase(span_of(given.p, 7), SPAN("bearer ")))
        return false;
    return span_eq_const_time(span_trim(span_of(given.p + 7, given.n - 7)), span_str(a->token));
}

static int write_status(struct admin *a, struct conn *c, struct buf *b)
{
    status_write(a->gateway, net_now_ms(a->loop), b);
    return 200;
}

static int write_metrics(struct admin *a, struct conn *c, struct buf *b)
{
    gateway_refresh_gauges(a->gateway, gateway_plan(a->gateway));
    metrics_render(b);
    return 200;
}

static int write_drain(struct admin *a, struct conn *c, struct buf *b)
{
    a->on_drain(a->arg);
    buf_add_str(b, "{\"draining\":true}\n");
    return 200;
}

static int write_purge(struct admin *a, struct conn *c, struct buf *b)
{
    return cache_page_purge(a->gateway, conn_body(c), b);
}

static int write_cache_stats(struct admin *a, struct conn *c, struct buf *b)
{
    return cache_page_stats(a->gateway, b);
}

static int write_explain(struct admin *a, struct conn *c, struct buf *b)
{
    return cache_page_explain(a->gateway, conn_head(c)->query, b);
}

static int write_preview(struct admin *a, struct conn *c, struct buf *b)
{
    return cache_page_preview(a->gateway, conn_body(c), b);
}

static int write_decisions(struct admin *a, struct conn *c, struct buf *b)
{
    return decisions_page(a->gateway, conn_head(c)->query, b);
}

/* The page is the same for everybody and says nothing; what it shows it asks for, with the token. */
static int write_page(struct admin *a, struct conn *c, struct buf *b)
{
    buf_add(b, page_html, sizeof page_html - 1);
    return 200;
}

struct page {
    const char *method, *path, *type;
    int (*write)(struct admin *a, struct conn *c, struct buf *b);
};
static const struct page pages[] = {
    {"GET", "/", "text/html; charset=utf-8", write_page},
    {"GET", "/status", JSON, write_status},
    {"GET", "/decisions", JSON, write_decisions},
    {"GET", "/metrics", "text/plain; version=0.0.4; charset=utf-8", write_metrics},
    {"POST", "/drain", JSON, write_drain},
    {"POST", "/cache/purge", JSON, write_purge},
    {"GET", "/cache/stats", JSON, write_cache_stats},
    {"GET", "/cache/explain", JSON, write_explain},
    {"POST", "/cache/explain", JSON, write_preview},
};

/* HEAD is asked like GET; its reply goes without the body. */
static bool takes(const struct page *p, struct span method)
{
    return span_eq(method, span_str(p->method)) ||
           (strcmp(p->method, "GET") == 0 && span_eq(method, SPAN("HEAD")));
}

enum { ALLOW_MAX = 32 };

/* NULL when there is none; then <allow> has the methods of the path, or nothing. */
static const struct page *page_of(const struct http_head *h, char allow[ALLOW_MAX])
{
    allow[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
        const struct page *p = &pages[i];
        if (!span_eq(h->path, span_str(p->path)))
            continue;
        if (takes(p, h->method))
            return p;
        size_t n = strlen(allow);
        snprintf(allow + n, ALLOW_MAX - n, "%s%s", n ? ", " : "",
                 strcmp(p->method, "GET") == 0 ? "GET, HEAD" : p->method);
    }
    return NULL;
}

static void on_head(struct conn *c, void *arg)
{
    struct admin *a = arg;
    /* A browser cannot send a token with the address that is typed into it. */
    bool is_open = a->token && span_eq(conn_head(c)->path, SPAN("/"));
    if (is_open || may(a, c))
        conn_want_body(c, BODY_MAX);
    else
        refuse(a, c, a->token ? 401 : 403, a->token ? "the admin token is missing or wrong" : "loopback only",
               NULL);
}

static void on_body(struct conn *c, void *arg)
{
    struct admin *a = arg;
    char allow[ALLOW_MAX];
    const struct page *p = page_of(conn_head(c), allow);
    if (!p) {
        refuse(a, c, *allow ? 405 : 404, *allow ? "wrong method" : "nothing here; try / or /status",
               *allow ? allow : NULL);
        return;
    }
    struct buf body;
    buf_init(&body, ANSWER_MAX);
    struct face f = {.status = p->write(a, c, &body), .type = p->type, .is_page = p->write == write_page};
    reply(a, c, &f, buf_view(&body));
    buf_fini(&body);
    conn_finish(c, !conn_will_close(c));
}

static void on_reject(struct conn *c, void *arg, int status, const char *text)
{
    struct buf body;
    buf_init(&body, 4096);
    buf_printf(&body, "{\"error\":\"%s\"}\n", text);
    struct face f = {.status = status, .type = JSON, .close = true};
    reply(arg, c, &f, buf_view(&body));
    buf_fini(&body);
}

static void on_gone(struct conn *c, void *arg) {}

static void on_drained(struct conn *c, void *arg) {}

static const struct server_events events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_reject = on_reject,
    .on_gone = on_gone,
    .on_drain = on_drained,
};

struct admin *admin_start(struct net_loop *l, struct gateway *g, const struct admin_settings *s,
                          void (*on_drain)(void *arg), void *arg, char *ret_error)
{
    const char *token = s->token_env ? getenv(s->token_env) : NULL;
    if (s->token_env && (!token || !*token)) {
        snprintf(ret_error, 256, "admin.token_env: the variable %s is not set", s->token_env);
        return NULL;
    }
    struct admin *a = MEM_NEW(struct admin);
    a->loop = l;
    a->gateway = g;
    a->on_drain = on_drain;
    a->arg = arg;
    a->token = mem_strdup(token);
    buf_init(&a->out, 65536);
    struct server_options o = {
        .host = s->host,
        .port = (uint16_t)s->port,
        .max_head_bytes = HEAD_MAX,
        .head_ms = HEAD_MS,
        .body_ms = HEAD_MS,
        .idle_ms = IDLE_MS,
    };
    a->server = server_open(l, &o, &events, a, ret_error);
    if (!a->server) {
        admin_stop(a);
        return NULL;
    }
    snprintf(a->url, sizeof a->url, "http://%s:%u", s->host, server_port(a->server));
    return a;
}

const char *admin_url(const struct admin *a)
{
    return a->url;
}

void admin_stop(struct admin *a)
{
    if (!a)
        return;
    if (a->server)
        server_close(a->server);
    if (a->token)
        explicit_bzero(a->token, strlen(a->token));
    free(a->token);
    buf_fini(&a->out);
    free(a);
}
