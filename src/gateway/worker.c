/* SPDX-License-Identifier: Apache-2.0
 *
 * The listener's callbacks: from connection events to steps of requests.
 */
#include "gateway/worker.h"

#include "gateway/cached.h"

static void on_head(struct conn *c, void *arg)
{
    request_run(request_new(arg, c), STEP_admit);
}

static void on_body(struct conn *c, void *arg)
{
    struct request *r = conn_user(c);
    if (r)
        request_resume(r, STEP_parse);
}

static const char *reject_reason(int status)
{
    switch (status) {
    case 408:
        return "request_timeout";
    case 413:
        return "request_too_large";
    case 431:
        return "head_too_large";
    case 501:
        return "unsupported_coding";
    default:
        return "bad_request";
    }
}

static void on_reject(struct conn *c, void *arg, int status, const char *text)
{
    char label[8];
    snprintf(label, sizeof label, "%d", status);
    metric_add(metric_series(M_HTTP_REJECTS, label, NULL, NULL), 1);
    struct request *r = conn_user(c);
    if (r) {
        request_run(r, request_refuse(r, status, reject_reason(status), NULL, "%s", text));
        return;
    }
    struct worker *w = arg;
    struct buf body, *out = &w->out;
    char id[REQUEST_ID_CHARS];
    request_make_id(w, id);
    buf_init(&body, 4096);
    dialect_error(&body, NULL, status, reject_reason(status), NULL, span_str(text), span_of(id, sizeof id));
    buf_clear(out);
    buf_printf(out,
               "HTTP/1.1 %d %s\r\nx-request-id: %.*s\r\ncontent-type: application/json\r\n"
               "content-length: %zu\r\nconnection: close\r\n\r\n",
               status, http_status_text(status), (int)sizeof id, id, body.n);
    struct iovec iov[2] = {{out->p, out->n}, {body.p, body.n}};
    conn_writev(c, iov, 2);
    buf_fini(&body);
}

static void on_gone(struct conn *c, void *arg)
{
    struct request *r = conn_user(c);
    if (!r)
        return;
    if (r->cached && fill_goes_on(r)) {
        request_detach(r);
        r->client_gone = true;
        return;
    }
    r->client_gone = true;
    request_run(r, STEP_finish);
}

static void on_drain(struct conn *c, void *arg)
{
    struct request *r = conn_user(c);
    if (r)
        relay_drained(r);
}

static void on_half_closed(struct conn *c, void *arg)
{
    struct request *r = conn_user(c);
    if (r)
        relay_probe(r);
}

const struct server_events worker_server_events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_reject = on_reject,
    .on_gone = on_gone,
    .on_drain = on_drain,
    .on_half_closed = on_half_closed,
};
