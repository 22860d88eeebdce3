/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/endpoints.h"

#include "gateway/gateway.h"
#include "json/write.h"

enum { ANSWER_MAX = 64 << 20 };

enum endpoint endpoint_by_path(const struct plan *p, struct span path)
{
    if (span_eq(path, SPAN("/v1/models")))
        return ENDPOINT_MODELS;
    if (span_starts(path, SPAN("/v1/")))
        return ENDPOINT_NONE;
    if (span_eq(path, SPAN("/healthz")))
        return ENDPOINT_HEALTHZ;
    if (span_eq(path, SPAN("/readyz")))
        return ENDPOINT_READYZ;
    if (span_eq(path, span_str(p->settings->server.metrics_path)))
        return ENDPOINT_METRICS;
    return ENDPOINT_NONE;
}

static enum step answer(struct request *r, int status, const char *content_type, const struct buf *body)
{
    struct buf *out = &r->worker->out;
    buf_clear(out);
    reply_head_begin(r, out, status);
    buf_printf(out, "content-type: %s\r\n", content_type);
    reply_write_whole(r, out, buf_view(body));
    r->status = status;
    return STEP_finish;
}

static void models_item(struct json_out *o, const char *id)
{
    json_out_object(o);
    json_out_member_str(o, "id", id);
    json_out_member_str(o, "object", "model");
    json_out_member_u64(o, "created", 0);
    json_out_member_str(o, "owned_by", "rolter");
    json_out_object_end(o);
}

static bool route_is_visible(const struct request *r, const struct plan_route *route)
{
    if (!plan_key_allows_model(r->key, span_str(route->model)))
        return false;
    for (unsigned i = 0; i < route->pool.n; i++)
        if (plan_key_allows_provider(r->key, route->pool.targets[i].provider))
            return true;
    for (unsigned v = 0; v < route->n_variants; v++)
        for (unsigned i = 0; i < route->variants[v].pool.n; i++)
            if (plan_key_allows_provider(r->key, route->variants[v].pool.targets[i].provider))
                return true;
    return false;
}

/* What the key may use (R34): routes, and the upstream models of targets as "slug/model". */
static void models(const struct request *r, struct buf *b)
{
    const struct plan *p = r->plan;
    struct json_out o;
    json_out_init(&o, b);
    json_out_object(&o);
    json_out_member_str(&o, "object", "list");
    json_out_name(&o, "data");
    json_out_array(&o);
    for (unsigned i = 0; i < p->n_routes; i++)
        if (route_is_visible(r, &p->routes[i]))
            models_item(&o, p->routes[i].model);
    json_out_array_end(&o);
    json_out_object_end(&o);
}

enum step endpoint_answer(struct request *r, enum endpoint e)
{
    struct buf body;
    buf_init(&body, ANSWER_MAX);
    int status = 200;
    r->no_row = e != ENDPOINT_MODELS;
    const char *type = "text/plain; charset=utf-8";
    switch (e) {
    case ENDPOINT_HEALTHZ:
        buf_add_str(&body, "ok");
        break;
    case ENDPOINT_READYZ:
        status = r->worker->draining ? 503 : 200;
        buf_add_str(&body, r->worker->draining ? "draining" : "ok");
        break;
    case ENDPOINT_METRICS:
        type = "text/plain; version=0.0.4; charset=utf-8";
        gateway_refresh_gauges(r->worker->gateway, r->plan);
        metrics_render(&body);
        break;
    case ENDPOINT_MODELS:
        type = "application/json";
        models(r, &body);
        break;
    case ENDPOINT_NONE:
        UNREACHABLE();
    }
    enum step next = answer(r, status, type, &body);
    buf_fini(&body);
    return next;
}
