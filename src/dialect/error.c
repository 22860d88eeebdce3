/* SPDX-License-Identifier: Apache-2.0
 *
 * Error bodies that the vendors' own clients understand: OpenAI's {"error": {"message", "type", "param",
 * "code"}} and Anthropic's {"type": "error", "error": {"type", "message"}, "request_id"}.
 */
#include "dialect/dialect.h"

#include "base/check.h"
#include "json/write.h"

static const char *openai_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 402:
        return "insufficient_quota";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 502:
    case 503:
    case 504:
        return "overloaded_error";
    default:
        return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

static const char *anthropic_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 402:
        return "billing_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
    case 529:
        return "overloaded_error";
    case 504:
        return "timeout_error";
    default:
        return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

const char *dialect_error_type(const struct dialect *dialect, int status)
{
    return dialect && dialect->anthropic_errors ? anthropic_type(status) : openai_type(status);
}

void dialect_error(struct buf *b, const struct dialect *dialect, int status, const char *code,
                   const char *param, struct span message, struct span request_id)
{
    struct json_out o;
    bool anthropic = dialect && dialect->anthropic_errors;
    json_out_init(&o, b);
    json_out_object(&o);
    if (anthropic)
        json_out_member_str(&o, "type", "error");
    json_out_name(&o, "error");
    json_out_object(&o);
    if (anthropic)
        json_out_member_str(&o, "type", dialect_error_type(dialect, status));
    json_out_member_span(&o, "message", message);
    if (!anthropic) {
        json_out_member_str(&o, "type", dialect_error_type(dialect, status));
        json_out_member_str(&o, "param", param);
        json_out_member_str(&o, "code", code);
    }
    json_out_object_end(&o);
    if (anthropic && request_id.n)
        json_out_member_span(&o, "request_id", request_id);
    json_out_object_end(&o);
}
