/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of the reply to the client: our own fields (reference 2.5) and the upstream's end-to-end ones
 * (R32).
 */
#include "base/fmt.h"
#include "gateway/cached.h"

void request_id_field(const struct request *r, struct buf *b)
{
    if (LIKELY(r->plan->id_header.n == 0))
        return;
    buf_add_span(b, r->plan->id_header);
    BUF_LIT(b, ": ");
    buf_add_span(b, r->id);
    BUF_LIT(b, "\r\n");
}

static bool is_id_field(const struct request *r, const struct http_field *f)
{
    return r->plan->id_header.n && span_eq_nocase(f->name, r->plan->id_header);
}

void reply_head_begin(struct request *r, struct buf *b, int status)
{
    if (status == 200) {
        BUF_LIT(b, "HTTP/1.1 200 OK\r\nx-request-id: ");
    } else {
        BUF_LIT(b, "HTTP/1.1 ");
        buf_add_u64(b, (uint64_t)status);
        BUF_LIT(b, " ");
        buf_add_str(b, http_status_text(status));
        BUF_LIT(b, "\r\nx-request-id: ");
    }
    buf_add_span(b, r->id);
    BUF_LIT(b, "\r\n");
    request_id_field(r, b);
}

static void field(struct buf *b, const char *name, struct span value)
{
    if (value.n == 0 || !http_value_is_safe(value))
        return;
    buf_add_str(b, name);
    buf_add_span(b, value);
    BUF_LIT(b, "\r\n");
}

/* Who asks and may know gets told why this target (x-rolter-explain: 1). */
static bool may_explain(const struct request *r)
{
    if (r->key ? !r->key->explain : !r->plan->open || !r->conn || !conn_is_loopback(r->conn))
        return false;
    return span_eq(http_field_find(r->head, SPAN("x-rolter-explain")), SPAN("1"));
}

static void explain(const struct request *r, struct buf *b)
{
    const struct balancer *from = r->picked_from->balancer;
    struct buf text;
    buf_init(&text, 4096);
    buf_printf(&text, "strategy=%s reason=%s ", strategy_name(balancer_strategy(from)),
               pick_reason_name(pick_word(&r->pick)));
    balance_explain(from, &r->pick, &text);
    field(b, "x-rolter-pick: ", span_trim(buf_view(&text)));
    buf_fini(&text);
}

void reply_head_target(struct request *r, struct buf *b, const struct plan_target *t,
                       const struct plan_variant *v)
{
    buf_add_span(b, t->reply_fields);
    if (!t->model)
        field(b, "x-rolter-target: ", r->direct_model);
    field(b, "x-rolter-model: ", r->model);
    if (v)
        field(b, "x-rolter-variant: ", span_str(v->name));
    if (UNLIKELY(r->cached != NULL))
        cached_fields(r, b);
    if (may_explain(r))
        explain(r, b);
}

static bool goes_down(const struct http_head *h, const struct http_field *f)
{
    switch (f->id) {
    case HTTP_F_CONTENT_LENGTH:
    case HTTP_F_TRANSFER_ENCODING:
    case HTTP_F_SET_COOKIE:
    case HTTP_F_CONNECTION:
        return false;
    default:
        return !http_field_is_hop_by_hop(h, f);
    }
}

/* A line in its usual form is taken as it stands; any other is written anew. */
void field_run_add(struct field_run *run, struct buf *b, const struct http_field *f)
{
    const char *from = f->name.p, *value = from + f->name.n + 2, *end = f->value.p + f->value.n;
    if (LIKELY(f->value.p == value && value[-1] == ' ' && end[0] == '\r')) {
        if (run->to != from) {
            field_run_flush(run, b);
            run->from = from;
        }
        run->to = end + 2;
        return;
    }
    field_run_flush(run, b);
    buf_add_span(b, f->name);
    BUF_LIT(b, ": ");
    buf_add_span(b, f->value);
    BUF_LIT(b, "\r\n");
}

void reply_head_fields(struct request *r, struct buf *b, const struct http_head *h)
{
    struct field_run run = {0};
    for (unsigned i = 0; i < h->n_fields; i++) {
        const struct http_field *f = &h->fields[i];
        if (f->id == HTTP_F_X_REQUEST_ID || is_id_field(r, f)) {
            field(b, "x-upstream-request-id: ", f->value);
            continue;
        }
        /* Ours are ours: an upstream that is a gateway of the same kind must not speak for this one. */
        if (goes_down(h, f) && !(f->name.n > 9 && span_eq_nocase(span_of(f->name.p, 9), SPAN("x-rolter-"))))
            field_run_add(&run, b, f);
    }
    field_run_flush(&run, b);
}

void reply_head_end(struct request *r, struct buf *out)
{
    r->reply_keep = r->conn && !r->reply_unframed && !conn_will_close(r->conn);
    if (!r->reply_keep)
        BUF_LIT(out, "connection: close\r\n");
    else if (r->head->minor == 0)
        BUF_LIT(out, "connection: keep-alive\r\n");
    BUF_LIT(out, "\r\n");
}

void reply_head_stream(struct request *r, struct buf *out)
{
    if (r->head->minor == 0) {
        r->reply_unframed = true;
    } else {
        BUF_LIT(out, "transfer-encoding: chunked\r\n");
        r->reply_chunked = true;
    }
    reply_head_end(r, out);
}

void reply_head_sized(struct request *r, struct buf *out, size_t bytes)
{
    BUF_LIT(out, "content-length: ");
    buf_add_u64(out, bytes);
    BUF_LIT(out, "\r\n");
    reply_head_end(r, out);
}

void reply_write_whole(struct request *r, struct buf *out, struct span body)
{
    const struct http_head *h = r->head;
    reply_head_sized(r, out, body.n);
    struct iovec iov[2] = {{out->p, out->n}, {(void *)(uintptr_t)body.p, body.n}};
    bool has_body = body.n && !span_eq(h->method, SPAN("HEAD"));
    request_write(r, iov, has_body ? 2 : 1);
    r->reply_begun = true;
    r->upstream_complete = true;
}
