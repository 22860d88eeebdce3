/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <stdio.h>

#include "base/fmt.h"

static void head_begin(struct sim *s, struct conn *c, int status, int type)
{
    static const char *const types[] = {"application/json", "text/plain; version=0.0.4; charset=utf-8",
                                        "text/event-stream; charset=utf-8"};
    struct buf *h = &s->head;
    buf_clear(h);
    BUF_LIT(h, "HTTP/1.1 ");
    buf_add_u64(h, (uint64_t)status);
    buf_add_char(h, ' ');
    buf_add_str(h, http_status_text(status));
    BUF_LIT(h, "\r\nContent-Type: ");
    buf_add_str(h, types[type]);
    BUF_LIT(h, "\r\nx-sim-name: ");
    buf_add_str(h, s->o.name);
    const struct http_head *in = conn_head(c);
    struct span id = in ? http_field_get(in, HTTP_F_X_REQUEST_ID) : SPAN_NONE;
    if (id.n && id.n <= 256) {
        BUF_LIT(h, "\r\nx-request-id: ");
        buf_add_span(h, id);
    }
    BUF_LIT(h, "\r\n");
    if (conn_will_close(c))
        BUF_LIT(h, "Connection: close\r\n");
}

static void head_length(struct buf *h, size_t n)
{
    BUF_LIT(h, "Content-Length: ");
    buf_add_u64(h, n);
    BUF_LIT(h, "\r\n");
}

void send_whole(struct sim *s, struct conn *c, int status, int type, struct span body, const char *extra)
{
    head_begin(s, c, status, type);
    head_length(&s->head, body.n);
    if (extra)
        buf_add_str(&s->head, extra);
    BUF_LIT(&s->head, "\r\n");
    struct iovec v[] = {{s->head.p, s->head.n}, {(void *)(uintptr_t)body.p, body.n}};
    conn_writev(c, v, body.n ? 2 : 1);
    conn_set_user(c, NULL);
    conn_finish(c, true);
}

void send_half(struct sim *s, struct conn *c, struct span body)
{
    head_begin(s, c, 200, SIM_JSON);
    head_length(&s->head, body.n);
    BUF_LIT(&s->head, "\r\n");
    struct iovec v[] = {{s->head.p, s->head.n}, {(void *)(uintptr_t)body.p, body.n / 2}};
    conn_writev(c, v, 2);
}

void send_part(struct sim *s, struct conn *c, struct span part, bool first, bool last)
{
    const struct http_head *in = conn_head(c);
    bool chunked = in->minor == 1;
    struct iovec v[4];
    unsigned n = 0;
    if (first) {
        head_begin(s, c, 200, SIM_EVENTS);
        BUF_LIT(&s->head, "Cache-Control: no-cache\r\n");
        if (chunked)
            BUF_LIT(&s->head, "Transfer-Encoding: chunked\r\n");
        BUF_LIT(&s->head, "\r\n");
        v[n++] = (struct iovec){s->head.p, s->head.n};
    }
    char size[FMT_HEX_MAX + 2];
    if (part.n) {
        if (chunked) {
            size_t k = fmt_hex(size, part.n);
            size[k++] = '\r';
            size[k++] = '\n';
            v[n++] = (struct iovec){size, k};
        }
        v[n++] = (struct iovec){(void *)(uintptr_t)part.p, part.n};
    }
    static const char ends[] = "\r\n0\r\n\r\n";
    size_t from = part.n ? 0 : 2, to = last ? sizeof ends - 1 : 2;
    if (chunked && to > from)
        v[n++] = (struct iovec){(void *)(uintptr_t)(ends + from), to - from};
    if (n)
        conn_writev(c, v, n);
}

static const char *error_type(bool anthropic, int status)
{
    switch (status) {
    case 401:
        return anthropic ? "authentication_error" : "invalid_request_error";
    case 403:
        return "permission_error";
    case 404:
        return anthropic ? "not_found_error" : "invalid_request_error";
    case 413:
        return anthropic ? "request_too_large" : "invalid_request_error";
    case 429:
        return anthropic ? "rate_limit_error" : "rate_limit_exceeded";
    case 529:
        return "overloaded_error";
    default:
        if (status < 500)
            return "invalid_request_error";
        return anthropic ? status == 503 ? "overloaded_error" : "api_error" : "server_error";
    }
}

void send_error_object(struct buf *b, bool anthropic, int status, const char *code, const char *text)
{
    struct json_out o;
    json_out_init(&o, b);
    json_out_object(&o);
    if (anthropic)
        json_out_member_str(&o, "type", "error");
    json_out_name(&o, "error");
    json_out_object(&o);
    json_out_member_str(&o, "message", text);
    json_out_member_str(&o, "type", error_type(anthropic, status));
    if (!anthropic) {
        json_out_member_str(&o, "param", NULL);
        json_out_member_str(&o, "code", code);
    }
    json_out_object_end(&o);
    json_out_object_end(&o);
}

void send_error(struct sim *s, struct conn *c, bool anthropic, int status, const char *code, const char *text)
{
    buf_clear(&s->out);
    send_error_object(&s->out, anthropic, status, code, text);
    char extra[48] = "";
    if ((status == 429 || status == 503) && s->o.retry_after)
        snprintf(extra, sizeof extra, "Retry-After: %llu\r\n", (unsigned long long)s->o.retry_after);
    send_whole(s, c, status, SIM_JSON, buf_view(&s->out), extra);
}
