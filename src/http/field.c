/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked about a parsed head: fields by id and name, tokens of lists, what is hop-by-hop.
 */
#include "http/head.h"

#include "http/scan.h"

/* tchar of RFC 9110 5.6.2 */
static const bool token_char[256] = {
    ['0' ... '9'] = true, ['A' ... 'Z'] = true, ['a' ... 'z'] = true, ['!'] = true,  ['#'] = true,
    ['$'] = true,         ['%'] = true,         ['&'] = true,         ['\''] = true, ['*'] = true,
    ['+'] = true,         ['-'] = true,         ['.'] = true,         ['^'] = true,  ['_'] = true,
    ['`'] = true,         ['|'] = true,         ['~'] = true,
};

bool http_is_token(struct span v)
{
    for (size_t i = 0; i < v.n; i++)
        if (!token_char[(unsigned char)v.p[i]])
            return false;
    return v.n > 0;
}

bool http_value_is_safe(struct span v)
{
    return v.n == 0 || scan_control(v.p, v.p + v.n) == v.p + v.n;
}

struct span http_field_get(const struct http_head *h, enum http_field_id id)
{
    int i = h->by_id[id];
    return i < 0 ? SPAN_NONE : h->fields[i].value;
}

struct span http_field_find(const struct http_head *h, struct span name)
{
    for (unsigned i = 0; i < h->n_fields; i++)
        if (span_eq_nocase(h->fields[i].name, name))
            return h->fields[i].value;
    return SPAN_NONE;
}

bool http_field_has_token(const struct http_head *h, enum http_field_id id, struct span token)
{
    int first = h->by_id[id];
    if (first < 0)
        return false;
    for (unsigned i = (unsigned)first; i < h->n_fields; i++) {
        if (h->fields[i].id != id)
            continue;
        struct span rest = h->fields[i].value, part;
        while (span_split(&rest, ',', &part))
            if (span_eq_nocase(span_trim(part), token))
                return true;
    }
    return false;
}

bool http_field_is_hop_by_hop(const struct http_head *h, const struct http_field *f)
{
    switch (f->id) {
    case HTTP_F_CONNECTION:
    case HTTP_F_KEEP_ALIVE:
    case HTTP_F_TE:
    case HTTP_F_TRAILER:
    case HTTP_F_TRANSFER_ENCODING:
    case HTTP_F_UPGRADE:
        return true;
    default:
        break;
    }
    const struct span proxy = SPAN("proxy-");
    if (f->name.n >= proxy.n && span_eq_nocase(span_of(f->name.p, proxy.n), proxy))
        return true;
    return http_field_has_token(h, HTTP_F_CONNECTION, f->name);
}

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } names[] = {
        {100, "Continue"},
        {101, "Switching Protocols"},
        {102, "Processing"},
        {103, "Early Hints"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {203, "Non-Authoritative Information"},
        {204, "No Content"},
        {205, "Reset Content"},
        {206, "Partial Content"},
        {207, "Multi-Status"},
        {208, "Already Reported"},
        {226, "IM Used"},
        {300, "Multiple Choices"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {402, "Payment Required"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {407, "Proxy Authentication Required"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {423, "Locked"},
        {424, "Failed Dependency"},
        {425, "Too Early"},
        {426, "Upgrade Required"},
        {428, "Precondition Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {451, "Unavailable For Legal Reasons"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
        {508, "Loop Detected"},
        {511, "Network Authentication Required"},
        {529, "Overloaded"},
    };
    if (status == 200)
        return "OK";
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i].status == status)
            return names[i].text;
    return "Unknown";
}
