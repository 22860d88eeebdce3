/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.x message heads: strict, resumable, without allocation. Bytes in, slices out; no socket, no clock.
 * Sources: RFC 9110, RFC 9112. Shapes that let two parsers disagree (request smuggling) are refused: both
 * lengths, doubled lengths, spaces before the colon, folded lines, bare CR or LF, NUL, unknown codings.
 * Slices point into the caller's bytes, which stay where they are while the head is in use.
 * Complexity: O(bytes) in all, however the head is cut. Thread: none of its own.
 */
#ifndef ROLTER_HTTP_HEAD_H
#define ROLTER_HTTP_HEAD_H

#include <assert.h>

#include "base/check.h"
#include "base/span.h"

enum { HTTP_FIELDS_MAX = 100, HTTP_HEAD_BYTES_DEFAULT = 262144 };

/* Fields that the code asks for by name: name in lower case in the table in head.c. */
enum http_field_id {
    HTTP_F_OTHER,
    HTTP_F_HOST,
    HTTP_F_CONTENT_LENGTH,
    HTTP_F_TRANSFER_ENCODING,
    HTTP_F_CONNECTION,
    HTTP_F_CONTENT_TYPE,
    HTTP_F_CONTENT_ENCODING,
    HTTP_F_AUTHORIZATION,
    HTTP_F_X_API_KEY,
    HTTP_F_EXPECT,
    HTTP_F_ACCEPT,
    HTTP_F_USER_AGENT,
    HTTP_F_X_REQUEST_ID,
    HTTP_F_X_SESSION_ID,
    HTTP_F_X_ROLTER_TOKEN_IDS, /* x-rolter-vllm-token-ids */
    HTTP_F_CACHE_CONTROL,
    HTTP_F_RETRY_AFTER,
    HTTP_F_SET_COOKIE,
    HTTP_F_COOKIE,
    HTTP_F_TE,
    HTTP_F_TRAILER,
    HTTP_F_UPGRADE,
    HTTP_F_KEEP_ALIVE,
    HTTP_F_PROXY_AUTHENTICATE,
    HTTP_F_PROXY_AUTHORIZATION,
    HTTP_F_PROXY_CONNECTION,
    HTTP_F_SERVER,
    HTTP_F_DATE,
    HTTP_F_ACCEPT_ENCODING,
    HTTP_F_COUNT
};

struct http_field {
    struct span name;  /* as sent */
    struct span value; /* without surrounding white space */
    uint8_t id;        /* enum http_field_id */
};

/* Why a head was refused. The table in head.c gives each its status and a sentence for the error body. */
enum http_reject {
    HTTP_OK_SO_FAR,
    HTTP_REJECT_REQUEST_LINE,
    HTTP_REJECT_VERSION, /* 505 */
    HTTP_REJECT_TARGET,
    HTTP_REJECT_FIELD_NAME,  /* empty, space before colon, bad character */
    HTTP_REJECT_FIELD_VALUE, /* NUL, bare CR, other control characters */
    HTTP_REJECT_LINE_END,    /* bare LF, bare CR */
    HTTP_REJECT_FOLD,
    HTTP_REJECT_HOST,   /* missing (1.1), doubled, malformed */
    HTTP_REJECT_LENGTH, /* not a number, doubled (even if equal), a list, overflow */
    HTTP_REJECT_BOTH_LENGTHS,
    HTTP_REJECT_CODING,      /* 501: transfer coding other than chunked */
    HTTP_REJECT_CODING_LIST, /* chunked twice, or an empty list */
    HTTP_REJECT_TE_10,       /* transfer-encoding in HTTP/1.0 */
    HTTP_REJECT_TOO_LARGE,   /* 431: bytes */
    HTTP_REJECT_TOO_MANY,    /* 431: fields */
    HTTP_REJECT_STATUS_LINE, /* replies only */
    HTTP_REJECT_COUNT
};
/* HTTP status that answers a refused request head (400, 431, 501, 505). */
int http_reject_status(enum http_reject r);
/* One English sentence for people. */
const char *http_reject_text(enum http_reject r);

enum http_body_kind {
    HTTP_BODY_NONE,   /* no body follows; also when Content-Length is 0 */
    HTTP_BODY_LENGTH, /* content_length bytes, at least 1 */
    HTTP_BODY_CHUNKED,
    HTTP_BODY_CLOSE, /* replies only: until the connection ends */
};

struct http_head {
    /* request */
    struct span method;
    struct span target; /* as sent: origin-form, or "*" */
    struct span path;   /* before '?' */
    struct span query;  /* behind '?', or empty */
    /* reply */
    int status;
    struct span reason;
    /* both */
    int minor; /* HTTP/1.<minor>, 0 or 1 */
    enum http_body_kind body;
    uint64_t content_length; /* as declared, at most INT64_MAX, or 0; of a reply to HEAD too */
    bool keep_alive;         /* what version and Connection say; not with HTTP_BODY_CLOSE */
    bool expect_continue;    /* HTTP/1.1 requests only */
    unsigned n_fields;
    size_t bytes;                /* length of the head with its empty line */
    int16_t by_id[HTTP_F_COUNT]; /* index of the first field with this id, or -1 */
    /* Last, so that a copy may end behind the n_fields that exist: never copy a head by assignment. */
    struct http_field fields[HTTP_FIELDS_MAX];
};

enum http_result { HTTP_DONE, HTTP_MORE, HTTP_BAD };

/* Parses a head that starts at <p>. HTTP_MORE: not complete yet; call again with more bytes from the same
 * start and the same *scanned (starts at 0; remembers how far the end was looked for). HTTP_BAD: *ret_why
 * says why; the answer does not depend on how the bytes came. Only after HTTP_DONE does *h hold anything;
 * until then it may be another one, and the bytes may move, between calls. An absolute-form target is
 * accepted when its host is that of Host, and reduced to its path. Leading empty lines are refused, and so is
 * a first byte that starts no method, without waiting for the line to end. */
enum http_result http_parse_request(struct http_head *h, const char *p, size_t n, size_t *scanned,
                                    size_t max_bytes, enum http_reject *ret_why);
/* <head_request>: the request was HEAD, so no body follows. 1xx, 204 and 304 have none either. */
enum http_result http_parse_reply(struct http_head *h, const char *p, size_t n, size_t *scanned,
                                  size_t max_bytes, bool head_request, enum http_reject *ret_why);

/* Value of the first field with this id, or SPAN_NONE. O(1). */
struct span http_field_get(const struct http_head *h, enum http_field_id id);
/* By name, any case; O(fields). */
struct span http_field_find(const struct http_head *h, struct span name);
/* Whether the comma-separated list has <token> (any case), over all fields with this id. */
bool http_field_has_token(const struct http_head *h, enum http_field_id id, struct span token);
/* Hop-by-hop: Connection, Keep-Alive, Proxy-*, TE, Trailer, Transfer-Encoding, Upgrade, and what Connection
 * names. */
bool http_field_is_hop_by_hop(const struct http_head *h, const struct http_field *f);
/* "OK", "Not Found"...; "Unknown" for codes without a name. */
const char *http_status_text(int status);
/* Whether <v> may stand in a field value that we write (no CR, LF, NUL, other controls). */
bool http_value_is_safe(struct span v);
/* Whether <v> is a token (RFC 9110 5.6.2), at least one character. */
bool http_is_token(struct span v);

#endif
