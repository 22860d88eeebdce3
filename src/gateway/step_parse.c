/* SPDX-License-Identifier: Apache-2.0
 *
 * parse: the body is read once into an index of slices; everything later works on that index.
 */
#include "gateway/request.h"

/* Bodies from here on have their index in an arena of their own, which goes when the reply has begun. */
enum { LARGE_BODY = 8192 };

/* No model is called so; the name goes into rows and fields of the reply, which it must not blow up. */
enum { MODEL_BYTES_MAX = 32768, MODEL_BYTES_SHOWN = 200 };

static enum step refuse_long_model(struct request *r)
{
    size_t n = MODEL_BYTES_SHOWN;
    while (n > 0 && ((unsigned char)r->model.p[n] & 0xc0) == 0x80)
        n--; /* not in the middle of a character */
    r->model.n = n;
    return request_refuse(r, 404, "model_not_found", "model", "The model \"%.*s...\" does not exist.",
                          SPAN_FMT(r->model));
}

enum step step_parse(struct request *r)
{
    struct span body = conn_body(r->conn);
    /* A body that is no UTF-8 goes up as it is; nothing is cached for it, and a policy refuses it (R52). */
    static const struct json_limits limits = {.any_bytes = true};
    struct json_fault fault;
    if (body.n >= LARGE_BODY)
        r->body_arena = &r->large;
    if (!json_parse(r->body_arena, body, &limits, &r->doc, &fault))
        return request_refuse(r, 400, "invalid_json", NULL, "The body is not valid JSON: %s at byte %zu.",
                              fault.what, fault.at);
    if (!json_is(&r->doc, 0, JSON_OBJECT))
        return request_refuse(r, 400, "invalid_json", NULL, "The body must be a JSON object.");
    uint32_t model = json_get(&r->doc, 0, "model");
    if (model == JSON_NODE_NONE)
        return request_refuse(r, 400, "missing_required_parameter", "model", "The body has no \"model\".");
    r->model_node = model;
    if ((r->doc.odd & JSON_ODD_DUPLICATE) && json_count_name(&r->doc, 0, "model") > 1)
        return request_refuse(r, 400, "invalid_json", "model", "The body has \"model\" more than once.");
    if (!json_is(&r->doc, model, JSON_STRING))
        return request_refuse(r, 400, "invalid_type", "model", "\"model\" must be a string.");
    r->model = json_string(&r->doc, model, r->arena);
    if (UNLIKELY(r->doc.odd & JSON_ODD_INVALID_UTF8) && !json_is_utf8(r->model))
        return request_refuse(r, 400, "invalid_json", "model", "\"model\" is not valid UTF-8.");
    if (r->model.n > MODEL_BYTES_MAX)
        return refuse_long_model(r);
    r->stream = r->dialect->has_stream && json_is(&r->doc, json_get(&r->doc, 0, "stream"), JSON_TRUE);
    return STEP_route;
}
