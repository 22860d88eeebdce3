/* SPDX-License-Identifier: Apache-2.0
 *
 * A head that came in one piece is read in one pass: one vector scan per line finds its end and the bytes
 * that may not stand in it. A head that came in pieces is read line by line as lines complete, each once;
 * when it is complete or wrong, the one pass runs over it and gives the answer, so that the answer does not
 * depend on the cuts.
 */
#include "http/head.h"

#include "http/scan.h"

static const struct {
    int status;
    const char *text;
} rejects[HTTP_REJECT_COUNT] = {
    [HTTP_OK_SO_FAR] = {200, "The request is well-formed."},
    [HTTP_REJECT_REQUEST_LINE] = {400, "The request line is malformed."},
    [HTTP_REJECT_VERSION] = {505, "Only HTTP/1.0 and HTTP/1.1 are served."},
    [HTTP_REJECT_TARGET] = {400, "The request target is malformed."},
    [HTTP_REJECT_FIELD_NAME] = {400, "A header line has no valid field name."},
    [HTTP_REJECT_FIELD_VALUE] = {400, "The head has a control character in it."},
    [HTTP_REJECT_LINE_END] = {400, "Header lines must end in CR LF."},
    [HTTP_REJECT_FOLD] = {400, "Header lines must not be folded."},
    [HTTP_REJECT_HOST] = {400, "Exactly one valid Host header is needed."},
    [HTTP_REJECT_LENGTH] = {400, "Content-Length must be one decimal number."},
    [HTTP_REJECT_BOTH_LENGTHS] = {400, "Content-Length and Transfer-Encoding exclude each other."},
    [HTTP_REJECT_CODING] = {501, "The only transfer coding that is understood is chunked."},
    [HTTP_REJECT_CODING_LIST] = {400, "Transfer-Encoding must name chunked exactly once."},
    [HTTP_REJECT_TE_10] = {400, "HTTP/1.0 has no Transfer-Encoding."},
    [HTTP_REJECT_TOO_LARGE] = {431, "The request head is too large."},
    [HTTP_REJECT_TOO_MANY] = {431, "The request head has too many fields."},
    [HTTP_REJECT_STATUS_LINE] = {400, "The status line is malformed."},
};

int http_reject_status(enum http_reject r)
{
    CHECK((unsigned)r < HTTP_REJECT_COUNT);
    return rejects[r].status;
}

const char *http_reject_text(enum http_reject r)
{
    CHECK((unsigned)r < HTTP_REJECT_COUNT);
    return rejects[r].text;
}

/* ---- field names
 * ------------------------------------------------------------------------------------------------ */

/* A perfect hash over length, first and middle character; the compiler refuses two names in one slot
 * (override-init), so a new name that collides needs other factors. */
enum { NAME_SLOTS = 64, NAME_MAX = 30 /* makes entries of 32 bytes */ };
#define NAME_SLOT(n, first, middle) (((n)*2 + (first)*7 + (middle)*10) & (NAME_SLOTS - 1))
#define NAME(id, text, first, middle)                                                                        \
    [NAME_SLOT(sizeof(text) - 1, first, middle)] = {text, sizeof(text) - 1, id}

static const struct {
    const char text[NAME_MAX];
    uint8_t n;
    uint8_t id;
} names[NAME_SLOTS] = {
    NAME(HTTP_F_HOST, "host", 'h', 's'),
    NAME(HTTP_F_CONTENT_LENGTH, "content-length", 'c', '-'),
    NAME(HTTP_F_TRANSFER_ENCODING, "transfer-encoding", 't', '-'),
    NAME(HTTP_F_CONNECTION, "connection", 'c', 'c'),
    NAME(HTTP_F_CONTENT_TYPE, "content-type", 'c', 't'),
    NAME(HTTP_F_CONTENT_ENCODING, "content-encoding", 'c', 'e'),
    NAME(HTTP_F_AUTHORIZATION, "authorization", 'a', 'i'),
    NAME(HTTP_F_X_API_KEY, "x-api-key", 'x', 'i'),
    NAME(HTTP_F_EXPECT, "expect", 'e', 'e'),
    NAME(HTTP_F_ACCEPT, "accept", 'a', 'e'),
    NAME(HTTP_F_USER_AGENT, "user-agent", 'u', 'a'),
    NAME(HTTP_F_X_REQUEST_ID, "x-request-id", 'x', 'e'),
    NAME(HTTP_F_X_SESSION_ID, "x-session-id", 'x', 'i'),
    NAME(HTTP_F_X_ROLTER_TOKEN_IDS, "x-rolter-vllm-token-ids", 'x', 'l'),
    NAME(HTTP_F_CACHE_CONTROL, "cache-control", 'c', 'c'),
    NAME(HTTP_F_RETRY_AFTER, "retry-after", 'r', '-'),
    NAME(HTTP_F_SET_COOKIE, "set-cookie", 's', 'o'),
    NAME(HTTP_F_COOKIE, "cookie", 'c', 'k'),
    NAME(HTTP_F_TE, "te", 't', 'e'),
    NAME(HTTP_F_TRAILER, "trailer", 't', 'i'),
    NAME(HTTP_F_UPGRADE, "upgrade", 'u', 'r'),
    NAME(HTTP_F_KEEP_ALIVE, "keep-alive", 'k', 'a'),
    NAME(HTTP_F_PROXY_AUTHENTICATE, "proxy-authenticate", 'p', 'h'),
    NAME(HTTP_F_PROXY_AUTHORIZATION, "proxy-authorization", 'p', 'h'),
    NAME(HTTP_F_PROXY_CONNECTION, "proxy-connection", 'p', 'n'),
    NAME(HTTP_F_SERVER, "server", 's', 'v'),
    NAME(HTTP_F_DATE, "date", 'd', 't'),
    NAME(HTTP_F_ACCEPT_ENCODING, "accept-encoding", 'a', 'e'),
};

static inline uint64_t load_lower8(const char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v | UINT64_C(0x2020202020202020);
}

static inline uint32_t load_lower4(const char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v | UINT32_C(0x20202020);
}

/* <p> has no control characters and <name> only letters and hyphens: then setting bit 5 maps no other
 * character on them, and words can be compared instead of characters. */
static inline bool eq_name(const char *p, const char *name, size_t n)
{
    if (n >= 8) {
        for (size_t i = 0; i + 8 < n; i += 8)
            if (load_lower8(p + i) != load_lower8(name + i))
                return false;
        return load_lower8(p + n - 8) == load_lower8(name + n - 8);
    }
    if (n >= 4)
        return load_lower4(p) == load_lower4(name) && load_lower4(p + n - 4) == load_lower4(name + n - 4);
    for (size_t i = 0; i < n; i++)
        if ((p[i] | 0x20) != name[i])
            return false;
    return true;
}

static inline enum http_field_id name_id(const char *p, size_t n)
{
    unsigned slot = NAME_SLOT((unsigned)n, (unsigned)p[0] | 0x20u, (unsigned)p[n / 2] | 0x20u);
    return names[slot].n == n && eq_name(p, names[slot].text, n) ? names[slot].id : HTTP_F_OTHER;
}

/* ---- lines
 * ------------------------------------------------------------------------------------------------------ */

/* Finds the CR of the CR LF that ends the line from <p>. Unless HTTP_DONE, *ret_end is where to look again.
 */
static inline enum http_result line_end(const char *p, const char *end, const char **ret_end,
                                        enum http_reject *ret_why)
{
    const char *e = scan_control(p, end);
    *ret_end = e;
    if (e == end || (*e == '\r' && e + 1 == end))
        return HTTP_MORE;
    if (LIKELY(*e == '\r' && e[1] == '\n'))
        return HTTP_DONE;
    *ret_why = *e == '\r' || *e == '\n' ? HTTP_REJECT_LINE_END : HTTP_REJECT_FIELD_VALUE;
    return HTTP_BAD;
}

/* Behind the name that starts at <p>, or <p> when there is none. */
static inline const char *name_end(const char *p, const char *e, const char *end)
{
    const char *at = scan_plain_name(p, end);
    while (UNLIKELY(at < e && *at != ':')) {
        if (!http_is_token(span_of(at, 1)))
            return p;
        at++;
    }
    return at < e ? at : p;
}

/* The line [p, e); its bytes are not looked at behind <e>, but the vector loads may reach up to <end>. */
static inline enum http_reject parse_field(struct http_field *f, const char *p, const char *e,
                                           const char *end)
{
    const char *colon = name_end(p, e, end);
    if (UNLIKELY(colon == p))
        return *p == ' ' || *p == '\t' ? HTTP_REJECT_FOLD : HTTP_REJECT_FIELD_NAME;
    f->name = span_of(p, (size_t)(colon - p));
    f->id = (uint8_t)name_id(p, f->name.n);
    const char *v = colon + 1;
    while (v < e && (*v == ' ' || *v == '\t'))
        v++;
    while (e > v && (e[-1] == ' ' || e[-1] == '\t'))
        e--;
    f->value = span_of(v, (size_t)(e - v));
    return HTTP_OK_SO_FAR;
}

/* "HTTP/1.1": 8 bytes. Other digits are another version, anything else is <otherwise>. */
static enum http_reject parse_version(struct http_head *h, struct span v, enum http_reject otherwise)
{
    bool shape = v.n == 8 && memcmp(v.p, "HTTP/", 5) == 0 && v.p[5] >= '0' && v.p[5] <= '9' &&
                 v.p[6] == '.' && v.p[7] >= '0' && v.p[7] <= '9';
    if (!shape)
        return otherwise;
    if (v.p[5] != '1' || v.p[7] > '1')
        return HTTP_REJECT_VERSION;
    h->minor = v.p[7] - '0';
    return HTTP_OK_SO_FAR;
}

/* host [":" port]: names, IPv4, bracketed IPv6. Narrower than RFC 3986 allows (no sub-delims, no user). */
static bool is_host(struct span v)
{
    size_t i = 0, port_from = v.n;
    if (v.n > 0 && v.p[0] == '[') {
        const char *close = memchr(v.p, ']', v.n);
        if (!close || close == v.p + 1)
            return false;
        for (i = 1; v.p + i < close; i++)
            if (!strchr("0123456789abcdefABCDEF:.", v.p[i]))
                return false;
        port_from = ++i;
    } else {
        for (; i < v.n && v.p[i] != ':'; i++) {
            char c = v.p[i];
            bool letter = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
            if (!letter && c != '-' && c != '.' && c != '_' && c != '~' && c != '%')
                return false;
        }
        port_from = i;
    }
    if (i == 0 || port_from == v.n)
        return i > 0;
    if (v.p[port_from] != ':' || v.n - port_from - 1 > 5)
        return false;
    for (i = port_from + 1; i < v.n; i++)
        if (v.p[i] < '0' || v.p[i] > '9')
            return false;
    return true;
}

/* Cuts "http://host" off an absolute target; the host is kept in <ret_authority> until Host is known. */
static bool parse_target(struct http_head *h, struct span t, struct span *ret_authority)
{
    *ret_authority = SPAN_NONE;
    for (size_t i = 0; i < t.n; i++) /* visible ASCII, no fragment */
        if ((unsigned char)t.p[i] <= ' ' || (unsigned char)t.p[i] >= 0x7f || t.p[i] == '#')
            return false;
    if (t.p[0] != '/' && !(t.n == 1 && t.p[0] == '*')) {
        size_t scheme = t.n > 7 && span_eq_nocase(span_of(t.p, 7), SPAN("http://"))    ? 7
                        : t.n > 8 && span_eq_nocase(span_of(t.p, 8), SPAN("https://")) ? 8
                                                                                       : 0;
        if (scheme == 0)
            return false;
        size_t host = 0;
        while (scheme + host < t.n && t.p[scheme + host] != '/' && t.p[scheme + host] != '?')
            host++;
        *ret_authority = span_of(t.p + scheme, host);
        if (!is_host(*ret_authority))
            return false;
        if (scheme + host == t.n) /* no path: the second slash before the host is as good as any */
            t = span_of(t.p + scheme - 1, 1);
        else if (t.p[scheme + host] == '/')
            t = span_of(t.p + scheme + host, t.n - scheme - host);
        else
            return false;
    }
    const char *mark = memchr(t.p, '?', t.n);
    h->target = t;
    h->path = span_of(t.p, mark ? (size_t)(mark - t.p) : t.n);
    h->query = mark ? span_of(mark + 1, (size_t)(t.p + t.n - mark - 1)) : SPAN_NONE;
    return true;
}

static enum http_reject parse_request_line(struct http_head *h, const char *p, const char *e,
                                           struct span *ret_authority)
{
    const char *sp = memchr(p, ' ', (size_t)(e - p));
    if (!sp)
        return HTTP_REJECT_REQUEST_LINE;
    h->method = span_of(p, (size_t)(sp - p));
    if (!http_is_token(h->method))
        return HTTP_REJECT_REQUEST_LINE;
    const char *target = sp + 1;
    sp = memchr(target, ' ', (size_t)(e - target));
    if (!sp || sp == target)
        return HTTP_REJECT_REQUEST_LINE;
    enum http_reject why = parse_version(h, span_of(sp + 1, (size_t)(e - sp - 1)), HTTP_REJECT_REQUEST_LINE);
    if (why != HTTP_OK_SO_FAR)
        return why;
    if (!parse_target(h, span_of(target, (size_t)(sp - target)), ret_authority))
        return HTTP_REJECT_TARGET;
    bool asterisk = h->target.p[0] == '*';
    return asterisk && !span_eq(h->method, SPAN("OPTIONS")) ? HTTP_REJECT_TARGET : HTTP_OK_SO_FAR;
}

/* "HTTP/1.1 200 OK"; servers exist that leave out the space before an empty reason. */
static enum http_reject parse_status_line(struct http_head *h, const char *p, const char *e)
{
    size_t n = (size_t)(e - p);
    if (n < 12)
        return HTTP_REJECT_STATUS_LINE;
    enum http_reject why = parse_version(h, span_of(p, 8), HTTP_REJECT_STATUS_LINE);
    if (why != HTTP_OK_SO_FAR)
        return why;
    uint64_t status;
    if (p[8] != ' ' || !span_to_u64(span_of(p + 9, 3), &status) || status < 100 || status > 599 ||
        (n > 12 && p[12] != ' '))
        return HTTP_REJECT_STATUS_LINE;
    h->status = (int)status;
    h->reason = n > 13 ? span_of(p + 13, n - 13) : SPAN_NONE;
    return HTTP_OK_SO_FAR;
}

/* ---- what the fields say together
 * ------------------------------------------------------------------------------- */

struct parse {
    bool reply, head_request;
    uint32_t twice;        /* bit <id>: the field came more than once */
    bool too_many;         /* fields that were not kept */
    struct span authority; /* of an absolute target */
};
static_assert(HTTP_F_COUNT <= 32, "struct parse has a bit for each");

static enum http_reject check_host(const struct http_head *h, const struct parse *ps)
{
    struct span host = http_field_get(h, HTTP_F_HOST);
    if (!host.p)
        return h->minor == 0 ? HTTP_OK_SO_FAR : HTTP_REJECT_HOST;
    if (ps->twice & 1u << HTTP_F_HOST || !is_host(host))
        return HTTP_REJECT_HOST;
    /* Two names for one server: whoever comes behind us might take the other one. */
    return ps->authority.p && !span_eq_nocase(ps->authority, host) ? HTTP_REJECT_HOST : HTTP_OK_SO_FAR;
}

/* "chunked", once. Other codings are 501; chunked twice or an empty list is nonsense. */
static enum http_reject check_codings(const struct http_head *h, const struct parse *ps)
{
    bool twice = ps->twice & 1u << HTTP_F_TRANSFER_ENCODING;
    if (LIKELY(!twice && span_eq_nocase(http_field_get(h, HTTP_F_TRANSFER_ENCODING), SPAN("chunked"))))
        return HTTP_OK_SO_FAR;
    for (unsigned i = 0; i < h->n_fields; i++) {
        struct span rest = h->fields[i].value, part;
        while (h->fields[i].id == HTTP_F_TRANSFER_ENCODING && span_split(&rest, ',', &part)) {
            part = span_trim(part);
            if (part.n > 0 && !span_eq_nocase(part, SPAN("chunked")))
                return HTTP_REJECT_CODING;
        }
    }
    return HTTP_REJECT_CODING_LIST;
}

static enum http_reject check_body(struct http_head *h, const struct parse *ps)
{
    struct span length = http_field_get(h, HTTP_F_CONTENT_LENGTH);
    bool chunked = h->by_id[HTTP_F_TRANSFER_ENCODING] >= 0;
    h->content_length = 0;
    h->body = ps->reply ? HTTP_BODY_CLOSE : HTTP_BODY_NONE;
    if (length.p) {
        if (chunked)
            return HTTP_REJECT_BOTH_LENGTHS;
        uint64_t v;
        /* Half of the range, so that sums of lengths and positions cannot overflow. */
        if (ps->twice & 1u << HTTP_F_CONTENT_LENGTH || !span_to_u64(length, &v) || v > INT64_MAX)
            return HTTP_REJECT_LENGTH;
        h->content_length = v;
        h->body = v > 0 ? HTTP_BODY_LENGTH : HTTP_BODY_NONE;
    }
    if (chunked) {
        if (h->minor == 0)
            return HTTP_REJECT_TE_10;
        enum http_reject why = check_codings(h, ps);
        if (why != HTTP_OK_SO_FAR)
            return why;
        h->body = HTTP_BODY_CHUNKED;
    }
    if (ps->reply && (ps->head_request || h->status < 200 || h->status == 204 || h->status == 304))
        h->body = HTTP_BODY_NONE;
    return HTTP_OK_SO_FAR;
}

static enum http_reject check_fields(struct http_head *h, const struct parse *ps)
{
    if (ps->too_many)
        return HTTP_REJECT_TOO_MANY;
    enum http_reject why = ps->reply ? HTTP_OK_SO_FAR : check_host(h, ps);
    if (why == HTTP_OK_SO_FAR)
        why = check_body(h, ps);
    if (why != HTTP_OK_SO_FAR)
        return why;
    bool has = h->by_id[HTTP_F_CONNECTION] >= 0;
    if (has && http_field_has_token(h, HTTP_F_CONNECTION, SPAN("close")))
        h->keep_alive = false;
    else
        h->keep_alive =
            h->minor == 1 || (has && http_field_has_token(h, HTTP_F_CONNECTION, SPAN("keep-alive")));
    h->keep_alive = h->keep_alive && h->body != HTTP_BODY_CLOSE;
    h->expect_continue =
        !ps->reply && h->minor == 1 && span_eq_nocase(http_field_get(h, HTTP_F_EXPECT), SPAN("100-continue"));
    return HTTP_OK_SO_FAR;
}

/* ---- the head
 * --------------------------------------------------------------------------------------------------- */

static enum http_reject parse_first_line(struct http_head *h, struct parse *ps, const char *p, const char *e)
{
    return ps->reply ? parse_status_line(h, p, e) : parse_request_line(h, p, e, &ps->authority);
}

/* The one pass. HTTP_MORE: *ret_scanned is where to look again. */
static enum http_result parse_all(struct http_head *h, struct parse *ps, const char *p, size_t n,
                                  size_t *ret_scanned, enum http_reject *ret_why)
{
    const char *end = p + n, *line = p, *e;
    h->method = h->target = h->path = h->query = h->reason = SPAN_NONE;
    h->status = 0;
    h->n_fields = 0;
    memset(h->by_id, 0xff, sizeof h->by_id);
    enum http_result r = line_end(line, end, &e, ret_why);
    if (r == HTTP_DONE && (*ret_why = parse_first_line(h, ps, line, e)) != HTTP_OK_SO_FAR)
        return HTTP_BAD;
    while (r == HTTP_DONE) {
        line = e + 2;
        r = line_end(line, end, &e, ret_why);
        if (r != HTTP_DONE)
            break;
        if (e == line) {
            h->bytes = (size_t)(e + 2 - p);
            *ret_why = check_fields(h, ps);
            return *ret_why == HTTP_OK_SO_FAR ? HTTP_DONE : HTTP_BAD;
        }
        struct http_field spare,
            *f = LIKELY(h->n_fields < HTTP_FIELDS_MAX) ? &h->fields[h->n_fields] : &spare;
        *ret_why = parse_field(f, line, e, end);
        if (UNLIKELY(*ret_why != HTTP_OK_SO_FAR))
            return HTTP_BAD;
        if (UNLIKELY(f ==
                     &spare)) { /* looked at and counted, so that the answer does not depend on the cuts */
            ps->too_many = true;
            continue;
        }
        if (h->by_id[f->id] < 0)
            h->by_id[f->id] = (int16_t)h->n_fields;
        else
            ps->twice |= 1u << f->id;
        h->n_fields++;
    }
    *ret_scanned = (size_t)(e - p);
    return r;
}

/* Looks at what came since *scanned. False: nothing is complete or wrong yet. O(new bytes), but once per line
 * for the line as a whole. */
static bool has_verdict(struct http_head *h, struct parse *ps, const char *p, size_t n, size_t *scanned)
{
    const char *end = p + n, *from = p + *scanned, *e;
    enum http_reject why;
    for (;;) {
        enum http_result r = line_end(from, end, &e, &why);
        *scanned = (size_t)(e - p);
        if (r != HTTP_DONE)
            return r == HTTP_BAD;
        const char *before = memrchr(p, '\n', (size_t)(e - p));
        const char *line = before ? before + 1 : p;
        struct http_field f;
        if (e == line)
            return true;
        why = before ? parse_field(&f, line, e, end) : parse_first_line(h, ps, line, e);
        if (why != HTTP_OK_SO_FAR)
            return true;
        from = e + 2;
    }
}

static enum http_result parse_head(struct http_head *h, const struct parse *as, const char *p, size_t n,
                                   size_t *scanned, size_t max_bytes, enum http_reject *ret_why)
{
    size_t look = n < max_bytes ? n : max_bytes;
    size_t seen = *scanned;
    enum http_reject why = HTTP_OK_SO_FAR;
    struct parse ps = *as;
    if (seen > 0 && look < max_bytes && !has_verdict(h, &ps, p, look, &seen)) {
        *scanned = seen;
        return HTTP_MORE;
    }
    ps = *as;
    enum http_result r = parse_all(h, &ps, p, look, &seen, &why);
    if (r == HTTP_MORE && look < max_bytes) {
        *scanned = seen;
    } else if (r != HTTP_DONE) {
        *ret_why = r == HTTP_MORE ? HTTP_REJECT_TOO_LARGE : why;
        r = HTTP_BAD;
    }
    return r;
}

enum http_result http_parse_request(struct http_head *h, const char *p, size_t n, size_t *scanned,
                                    size_t max_bytes, enum http_reject *ret_why)
{
    if (n == 0)
        return HTTP_MORE;
    /* No method starts so: empty lines, TLS on a plain port. Those who send it may never send a line end. */
    if (!http_is_token(span_of(p, 1))) {
        *ret_why = HTTP_REJECT_REQUEST_LINE;
        return HTTP_BAD;
    }
    return parse_head(h, &(struct parse){.reply = false}, p, n, scanned, max_bytes, ret_why);
}

enum http_result http_parse_reply(struct http_head *h, const char *p, size_t n, size_t *scanned,
                                  size_t max_bytes, bool head_request, enum http_reject *ret_why)
{
    if (n == 0)
        return HTTP_MORE;
    if (memcmp(p, "HTTP/", n < 5 ? n : 5) != 0) {
        *ret_why = HTTP_REJECT_STATUS_LINE;
        return HTTP_BAD;
    }
    return parse_head(h, &(struct parse){.reply = true, .head_request = head_request}, p, n, scanned,
                      max_bytes, ret_why);
}
