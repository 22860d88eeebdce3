/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/service.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum { ANSWER_ROOM = 65536, TRACE_ID_MAX = 128 };

struct service_call {
    const struct service *s;
    struct pool *pool;
    struct call *call;
    struct buf request;
    char *headers;
    unsigned attempts;
    service_fn *done;
    void *arg;
};

static void add_secret(struct buf *b, const char *name, const char *env)
{
    const char *value = env ? getenv(env) : NULL;
    if (!value || !*value)
        return;
    for (const char *c = value; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return; /* would break the head; the call fails at the other side */
    buf_printf(b, "%s%s\r\n", name, value);
}

void service_init(struct service *s, const char *url, const struct service_auth_settings *auth,
                  const struct strings *ca_bundles, const struct net_egress *egress)
{
    const char *why;
    CHECK_MSG(origin_parse(span_str(url), &s->origin, &why), "the configuration reader checked this");
    s->origin.ca_bundles = ca_bundles->item;
    s->origin.n_ca_bundles = ca_bundles->n;
    s->origin.verify = true;
    s->origin.egress = egress;
    origin_seal(&s->origin);
    s->path = span_str(s->origin.base_path);
    struct buf b;
    buf_init(&b, 65536);
    BUF_LIT(&b, "content-type: application/json\r\naccept: application/json\r\n");
    add_secret(&b, "authorization: Bearer ", auth->token_env);
    add_secret(&b, "x-rolter-guardrail-secret: ", auth->secret_env);
    s->headers = mem_spandup(buf_view(&b));
    buf_fini(&b);
}

void service_fini(struct service *s)
{
    origin_fini(&s->origin);
    if (s->headers)
        explicit_bzero(s->headers, strlen(s->headers));
    MEM_FREE(s->headers);
}

static void free_call(struct service_call *c)
{
    if (c->request.p)
        explicit_bzero(c->request.p, c->request.cap);
    buf_fini(&c->request);
    free(c->headers);
    free(c);
}

static void start(struct service_call *c);

static void tell(struct service_call *c, struct span body, const char *why)
{
    c->call = NULL;
    if (why && c->attempts <= c->s->max_retries) {
        start(c);
        return;
    }
    c->done(c->arg, body, why);
    free_call(c);
}

static void on_reply(struct call *call, void *arg, const struct call_reply *r)
{
    char text[32];
    struct service_call *c = arg;
    if (r->timed_out)
        tell(c, SPAN_NONE, "timeout");
    else if (r->too_large)
        tell(c, SPAN_NONE, "the answer is too large");
    else if (r->failed)
        tell(c, SPAN_NONE, exchange_fail_name(r->why));
    else if (r->status < 200 || r->status > 299) {
        snprintf(text, sizeof text, "status %d", r->status);
        tell(c, SPAN_NONE, text);
    } else {
        tell(c, r->body, NULL);
    }
}

static void start(struct service_call *c)
{
    c->attempts++;
    c->call = call_start(c->pool,
                         &(struct call_request){
                             .origin = &c->s->origin,
                             .method = "POST",
                             .path = c->s->path,
                             .headers = span_str(c->headers),
                             .body = buf_view(&c->request),
                             .timeout_ms = c->s->timeout_ms,
                             .max_reply_bytes = 4 * c->s->max_body_bytes + ANSWER_ROOM,
                             .secret = true,
                         },
                         on_reply, c);
}

/* Ids come from clients; what may not stand in a head is left out. */
static bool is_plain(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] > 0x7e)
            return false;
    return s.n > 0 && s.n <= TRACE_ID_MAX;
}

struct service_call *service_ask(const struct service *s, struct pool *pool, struct span trace_id,
                                 struct buf *request, service_fn *done, void *arg)
{
    struct service_call *c = MEM_NEW(struct service_call);
    c->s = s;
    c->pool = pool;
    c->request = *request;
    buf_init(request, request->max);
    c->done = done;
    c->arg = arg;
    c->headers = is_plain(trace_id)
                     ? mem_printf("%sx-rolter-trace-id: %.*s\r\n", s->headers, SPAN_FMT(trace_id))
                     : mem_strdup(s->headers);
    start(c);
    return c;
}

void service_cancel(struct service_call *c)
{
    if (c->call)
        call_cancel(c->call);
    free_call(c);
}
