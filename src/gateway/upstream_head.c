/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes up: the request's head after R32, and the body as the client sent it with the members that the
 * route changes replaced in place (G3).
 */
#include "base/fmt.h"
#include "gateway/request.h"
#include "json/write.h"

static bool is_trace_field(struct span name)
{
    return span_eq_nocase(name, SPAN("traceparent")) || span_eq_nocase(name, SPAN("tracestate")) ||
           span_eq_nocase(name, SPAN("b3")) ||
           (name.n > 5 && span_eq_nocase(span_of(name.p, 5), SPAN("x-b3-")));
}

static bool starts_nocase(struct span s, struct span prefix)
{
    return s.n >= prefix.n && span_eq_nocase(span_of(s.p, prefix.n), prefix);
}

static bool is_in(const struct map *names, struct span name)
{
    char lower[64];
    if (names->n == 0 || name.n > sizeof lower)
        return false;
    for (size_t i = 0; i < name.n; i++)
        lower[i] = (char)(name.p[i] >= 'A' && name.p[i] <= 'Z' ? name.p[i] | 0x20 : name.p[i]);
    return map_get(names, span_of(lower, name.n)) != NULL;
}

/* Never up: the client's credentials, cookies, x-rolter-*, hop-by-hop fields, framing. */
bool upstream_field_is_forwarded(const struct request *r, const struct http_field *f)
{
    return is_in(&r->plan->forwarded, f->name);
}

bool upstream_field_goes_up(const struct request *r, const struct http_field *f)
{
    const struct http_head *h = r->head;
    if (is_in(&r->plan->injected_names, f->name))
        return false;
    switch (f->id) {
    case HTTP_F_CONTENT_TYPE:
    case HTTP_F_ACCEPT:
    case HTTP_F_USER_AGENT:
        return true;
    case HTTP_F_AUTHORIZATION:
    case HTTP_F_X_API_KEY:
    case HTTP_F_COOKIE:
    case HTTP_F_HOST:
    case HTTP_F_CONTENT_LENGTH:
    case HTTP_F_TRANSFER_ENCODING:
    case HTTP_F_X_REQUEST_ID:
    case HTTP_F_X_ROLTER_TOKEN_IDS:
    case HTTP_F_EXPECT:
        return false;
    default:
        break;
    }
    if (http_field_is_hop_by_hop(h, f)) /* also those that the client's Connection names */
        return false;
    char c = f->name.p[0];
    if ((c == 'a' || c == 'A') && starts_nocase(f->name, SPAN("anthropic-")))
        return true;
    if ((c == 'o' || c == 'O') && starts_nocase(f->name, SPAN("openai-")))
        return true;
    if (is_trace_field(f->name))
        return true;
    return is_in(&r->plan->forwarded, f->name) && !span_eq_nocase(f->name, r->plan->id_header) &&
           !starts_nocase(f->name, SPAN("x-rolter-"));
}

static void add_path(struct request *r, struct buf *b, const struct http_head *h)
{
    const struct plan_provider *p = r->target->provider;
    struct span path = h->path;
    if (p->strip_v1 && span_starts(path, SPAN("/v1/")))
        path = span_of(path.p + 3, path.n - 3);
    buf_add_span(b, p->base_path);
    buf_add_span(b, path);
    if (h->query.n) {
        buf_add_char(b, '?');
        buf_add_span(b, h->query);
    }
}

static void add_auth(struct request *r, struct buf *b)
{
    const struct plan_provider *p = r->target->provider;
    r->upstream_key = p->n_keys ? provider_key_take(p->state, net_now_ms(&r->worker->loop)) : -1;
    if (p->n_keys == 0)
        return;
    /* A reload may have changed how many keys there are; this request keeps those that it started with. */
    if (r->upstream_key < 0 || r->upstream_key >= (int)p->n_keys)
        r->upstream_key = 0;
    buf_add_str(b, p->auth_lines[r->upstream_key]);
}

struct span upstream_head(struct request *r, size_t body_bytes)
{
    const struct http_head *h = r->head;
    struct buf *b = &r->worker->out;
    buf_clear(b);
    BUF_LIT(b, "POST ");
    add_path(r, b, h);
    buf_add_span(b, r->target->provider->head_middle);
    buf_add_u64(b, body_bytes);
    BUF_LIT(b, "\r\nx-request-id: ");
    buf_add_span(b, r->id);
    BUF_LIT(b, "\r\n");
    request_id_field(r, b);
    const struct map *ours = &r->plan->injected_names;
    bool has_version = is_in(ours, SPAN("anthropic-version")), has_type = is_in(ours, SPAN("content-type"));
    struct field_run run = {0};
    for (unsigned i = 0; i < h->n_fields; i++) {
        const struct http_field *f = &h->fields[i];
        if (!upstream_field_goes_up(r, f))
            continue;
        has_type |= f->id == HTTP_F_CONTENT_TYPE;
        has_version |= span_eq_nocase(f->name, SPAN("anthropic-version"));
        field_run_add(&run, b, f);
    }
    field_run_flush(&run, b);
    if (!has_type)
        BUF_LIT(b, "content-type: application/json\r\n");
    if (r->target->provider->settings->kind == KIND_ANTHROPIC && !has_version)
        buf_printf(b, "anthropic-version: %s\r\n", r->plan->settings->compatibility.anthropic_version);
    add_auth(r, b);
    buf_add_span(b, r->plan->injected);
    BUF_LIT(b, "\r\n");
    return arena_dup(r->arena, buf_view(b));
}

static bool is_given(const struct request *r, struct span name)
{
    for (uint32_t n = json_first(&r->doc, 0); n != JSON_NODE_NONE; n = json_next(&r->doc, 0, n))
        if (json_string_eq(&r->doc, n, name))
            return true;
    return false;
}

/* Route and variant defaults that this body takes. */
static void edit_params(struct request *r, struct json_edits *e, struct json_members params)
{
    for (unsigned i = 0; i < params.n; i++) {
        const struct json_member *m = &params.item[i];
        if (span_eq(m->name, SPAN("model")) || span_eq(m->name, SPAN("_rolter_complexity")))
            continue;
        if (!is_given(r, m->name) || !plan_caller_wins(r->route, m->name))
            json_edits_set(e, m->name, m->value);
    }
}

/* What "model" must say to this target, as JSON text; SPAN_NONE when it says so already. */
static struct span model_text(struct request *r, uint32_t node)
{
    if (r->target->model)
        return span_eq(r->model, r->target->model_span) ? SPAN_NONE : r->target->model_json;
    /* "provider/model": what stands behind the slash. */
    struct buf b;
    buf_init(&b, r->direct_model.n * 6 + 64);
    buf_add_char(&b, '"');
    json_escape(&b, r->direct_model);
    buf_add_char(&b, '"');
    struct span text = arena_dup(r->body_arena, buf_view(&b));
    buf_fini(&b);
    return text;
}

static unsigned vectors(struct iovec *iov, const struct span *parts, unsigned n, size_t *ret_bytes)
{
    unsigned used = 0;
    size_t total = 0;
    for (unsigned i = 0; i < n; i++) {
        if (parts[i].n)
            iov[used++] = (struct iovec){(char *)parts[i].p, parts[i].n};
        total += parts[i].n;
    }
    *ret_bytes = total;
    return used;
}

bool upstream_body(struct request *r, struct iovec *iov, unsigned *ret_n, size_t *ret_bytes)
{
    static _Thread_local struct json_edits e; /* some KiB that nobody needs after this call */
    struct json_members params = r->variant ? r->variant->params : r->route->params;
    struct span text = r->doc.text;
    uint32_t node = r->model_node;
    struct span model = model_text(r, node);
    json_edits_init(&e, &r->doc, r->body_arena);
    if (params.n)
        edit_params(r, &e, params);
    if (e.n == 0 && !e.overflow) {
        /* The usual cases copy nothing: the client's bytes, with another name between them if need be. */
        if (model.n == 0) {
            *ret_n = vectors(iov, &text, 1, ret_bytes);
            return true;
        }
        const struct json_node *m = &r->doc.node[node];
        struct span parts[3] = {span_of(text.p, m->at), model,
                                span_of(text.p + m->at + m->len, text.n - m->at - m->len)};
        *ret_n = vectors(iov, parts, 3, ret_bytes);
        return true;
    }
    if (model.n)
        json_edits_replace(&e, node, model);
    if (!json_edits_apply(&e, &text))
        return false;
    *ret_n = vectors(iov, &text, 1, ret_bytes);
    return true;
}
