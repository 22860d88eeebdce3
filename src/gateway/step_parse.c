/* SPDX-License-Identifier: Apache-2.0
 *
 * parse: the body is read once into an index of slices; everything later works on that index.
 */
#include "gateway/request.h"

/* Bodies from here on have their index in an arena of their own, which goes when the reply has begun. */
enum { LARGE_BODY = 8192 };

enum step step_parse(struct request *r)
{
    struct span body = conn_body(r->conn);
    struct json_fault fault;
    if (body.n >= LARGE_BODY)
        r->body_arena = &r->large;
    if (!json_parse(r->body_arena, body, NULL, &r->doc, &fault))
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
    r->stream = r->dialect->has_stream && json_is(&r->doc, json_get(&r->doc, 0, "stream"), JSON_TRUE);
    return STEP_route;
}
