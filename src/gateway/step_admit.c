/* SPDX-License-Identifier: Apache-2.0
 *
 * admit: what can be said from the head alone. Paths that the gateway answers itself leave here
 * (endpoints.c).
 */
#include "base/clock.h"
#include "base/fmt.h"
#include "gateway/endpoints.h"
#include "gateway/request.h"

enum { REQUEST_ID_MAX = 128 };

static bool is_visible_ascii(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < 0x21 || s.p[i] > 0x7e)
            return false;
    return s.n > 0 && s.n <= REQUEST_ID_MAX;
}

void request_make_id(struct worker *w, char ret[REQUEST_ID_CHARS])
{
    uint64_t bits[2] = {rng_u64(&w->loop.rng), rng_u64(&w->loop.rng)};
    uint8_t *b = (uint8_t *)bits;
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    char hex[32];
    fmt_hex_bytes(hex, b, 16);
    static const uint8_t dash_before[] = {8, 12, 16, 20};
    size_t at = 0, d = 0;
    for (size_t i = 0; i < 32; i++) {
        if (d < sizeof dash_before && i == dash_before[d]) {
            ret[at++] = '-';
            d++;
        }
        ret[at++] = hex[i];
    }
}

/* The client's id when it is usable (R33), else a new one. */
static void take_request_id(struct request *r, const struct http_head *h)
{
    struct span given = r->plan->id_header.n ? http_field_find(h, r->plan->id_header)
                                             : http_field_get(h, HTTP_F_X_REQUEST_ID);
    if (is_visible_ascii(given)) {
        r->id = given;
        return;
    }
    char *id = arena_alloc(r->arena, REQUEST_ID_CHARS);
    request_make_id(r->worker, id);
    r->id = span_of(id, REQUEST_ID_CHARS);
}

/* Authorization: Bearer (any case) first, else x-api-key (R34). */
static struct span credential(const struct http_head *h)
{
    struct span a = http_field_get(h, HTTP_F_AUTHORIZATION);
    if (a.n > 7 && span_eq_nocase(span_of(a.p, 7), SPAN("bearer ")))
        return span_trim(span_of(a.p + 7, a.n - 7));
    return span_trim(http_field_get(h, HTTP_F_X_API_KEY));
}

static bool authenticate(struct request *r, const struct http_head *h)
{
    if (r->plan->open)
        return true;
    const struct plan_key *k = plan_find_key(r->plan, credential(h));
    if (k && plan_key_is_valid(k, (int64_t)r->wall_ms)) {
        r->key = k;
        return true;
    }
    metric_add(metric_plain(M_AUTH_FAILURES), 1);
    return false;
}

static enum step refuse_method(struct request *r, const char *allow)
{
    r->allow = allow;
    return request_refuse(r, 405, "method_not_allowed", NULL, "This path answers %s only.", allow);
}

enum step step_admit(struct request *r)
{
    const struct http_head *h = r->head;
    take_request_id(r, h);
    /* HEAD is GET without the body (reply_write_whole). */
    bool is_get = span_eq(h->method, SPAN("GET")) || span_eq(h->method, SPAN("HEAD")),
         is_post = span_eq(h->method, SPAN("POST"));
    enum endpoint e = endpoint_by_path(r->plan, h->path);
    r->dialect = e == ENDPOINT_NONE ? dialect_by_path(h->path, &r->dialect_id) : NULL;
    if (e != ENDPOINT_NONE && e != ENDPOINT_MODELS)
        return is_get ? endpoint_answer(r, e) : refuse_method(r, "GET, HEAD");
    metric_add(metric_plain(M_REQUESTS), 1);
    r->counted = true;
    atomic_fetch_add_explicit(&r->worker->in_flight, 1, memory_order_relaxed);
    if (e == ENDPOINT_NONE && !r->dialect && span_starts(h->path, SPAN("/v1/messages/")))
        r->dialect = dialect_get(DIALECT_MESSAGES); /* Anthropic's paths that are not served get its errors */
    if (e == ENDPOINT_NONE && (!r->dialect || !span_eq(h->path, span_str(r->dialect->path))))
        return request_refuse(r, 404, "not_found", NULL, "There is nothing at this path.");
    if (e == ENDPOINT_MODELS ? !is_get : !is_post)
        return refuse_method(r, e == ENDPOINT_MODELS ? "GET, HEAD" : "POST");
    if (r->worker->draining)
        return request_refuse(r, 503, "draining", NULL, "The gateway is shutting down.");
    if (!authenticate(r, h))
        return request_refuse(r, 401, "invalid_api_key", NULL, "The API key is missing or not valid.");
    if (e == ENDPOINT_MODELS)
        return endpoint_answer(r, e);
    struct span coding = http_field_get(h, HTTP_F_CONTENT_ENCODING);
    if (coding.n && !span_eq_nocase(coding, SPAN("identity")))
        return request_refuse(r, 415, "unsupported_content_encoding", NULL,
                              "Send the body without a content coding.");
    r->waiting_for = STEP_parse;
    conn_want_body(r->conn, r->plan->settings->server.max_body_bytes);
    return STEP_PARKED;
}
